"""Packets told once for a whole test run, and ways to spoil a copy of one."""

import atexit
import functools
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parcel_assets.adapters.signer_ecdsa import EcdsaSigner
from parcel_assets.core.codec import canonical_json
from parcel_assets.core.ledger import Event, Kind, chain_event
from parcel_assets.core.packet import LEDGER_FILE, SIGNATURE_FILE, SUMS_FILE
from parcel_assets.core.packet_files import digest_list, ledger_lines
from parcel_assets.core.packet_rows import event_of_row
from parcel_assets.steps.release import build_packet
from parcel_assets_tests.release_story import REVISION, Story, tell


def aside() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="parcel-assets-story-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def published() -> tuple[Story, Path]:
    """Return a released story and its packet's folder; copy the folder before changing it."""
    folder = aside()
    story = tell(folder)
    build_packet(REVISION, story.ports)
    return story, folder / "packets" / REVISION


@functools.cache
def published_with_waiver() -> Path:
    """Return the folder of a packet that a decision let through."""
    folder = aside()
    build_packet(REVISION, tell(folder, corners="lost", decided=True).ports)
    return folder / "packets" / REVISION


def copy_of(packet: Path, target: Path) -> Path:
    """Return a copy of a packet that a test may spoil."""
    return Path(shutil.copytree(packet, target / "copy"))


def sign_again(folder: Path) -> None:
    """Make list and signature right again, with the real key: the worst that an insider can do."""
    story, _ = published()
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    sums = digest_list(files)
    (folder / SUMS_FILE).write_bytes(sums)
    assert isinstance(story.ports.signer, EcdsaSigner)
    (folder / SIGNATURE_FILE).write_bytes(story.ports.signer.sign(sums))


def change_json(path: Path, change: Callable[[Any], None]) -> None:
    """Change one JSON document, in canonical form as evidence is kept."""
    document = json.loads(path.read_bytes())
    change(document)
    path.write_bytes(canonical_json(document))


def read_ledger(folder: Path) -> list[Event]:
    lines = (folder / LEDGER_FILE).read_bytes().splitlines()
    return [event_of_row(json.loads(line)) for line in lines]


def write_chain(folder: Path, said: list[tuple[Kind, dict[str, Any], float]]) -> None:
    """Write a ledger of these events, every digest of the chain made anew."""
    chain: list[Event] = []
    for kind, body, at_seconds in said:
        head = chain[-1] if chain else None
        chain.append(
            chain_event(head, revision=REVISION, at_seconds=at_seconds, kind=kind, body=body)
        )
    (folder / LEDGER_FILE).write_bytes(ledger_lines(chain))


def said_in(folder: Path) -> list[tuple[Kind, dict[str, Any], float]]:
    return [(one.kind, dict(one.body), one.at_seconds) for one in read_ledger(folder)]
