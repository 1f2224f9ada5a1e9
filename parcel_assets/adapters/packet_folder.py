"""Packets as folders: read without trust, verified, and fetched from anywhere that fsspec reaches.

Decides which bytes are in a folder and whether the signed list covers exactly those; whether the
files then agree with each other is asked of `core.packet_check`. Loads neither Dagster nor torch.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from parcel_assets.adapters.approval_keys import signature_holds
from parcel_assets.adapters.packet_folder_read import (
    FILES_MAXIMUM,
    is_plain_name,
    listed_faults,
    read_folder,
)
from parcel_assets.adapters.timestamp_rfc3161 import read_token, require_roots
from parcel_assets.core.errors import PacketError
from parcel_assets.core.packet import (
    KEY_FILE,
    SIGNATURE_FILE,
    SUMS_FILE,
    UNLISTED,
    USABLE,
    VERDICT_FILE,
    Fault,
    key_fingerprint,
    read_json,
)
from parcel_assets.core.packet_check import check_packet
from parcel_assets.core.packet_decision import decision_faults
from parcel_assets.core.packet_files import read_events
from parcel_assets.core.timestamps import read_timestamps


@dataclass(frozen=True, slots=True)
class FetchedPacket:
    """A verified packet on this machine: its folder, digest, verdict and who signed it."""

    folder: Path
    digest: str
    verdict: dict[str, Any]
    signature_sentence: str


def verify_packet(
    folder: Path | str,
    expected_digest: str | None = None,
    public_key: bytes | None = None,
    timestamp_roots: bytes | None = None,
) -> dict[str, Any]:
    """Return what is wrong with a packet folder; never raises for a bad one.

    `faults` (sentences that begin with the file), `fault_files`, `signature_ok`,
    `signature_sentence`, `timestamp_sentences`, `packet_digest`, `files`, `verdict` (None where
    unreadable). Without `public_key` the packet's own key is used, which shows consistency and not
    origin. With `timestamp_roots` (PEM) split and choice must be timestamped under one of them;
    without, a token's signature is not checked. Raises SettingError for roots that hold none.
    """
    if timestamp_roots is not None:
        require_roots(timestamp_roots, "timestamp roots")
    root = Path(folder)
    files, faults = read_folder(root)
    sums = files.get(SUMS_FILE, b"")
    digest = hashlib.sha256(sums).hexdigest() if SUMS_FILE in files else None
    if expected_digest is not None and digest != expected_digest:
        faults.append(
            Fault(SUMS_FILE, f"is packet {(digest or 'none')[:8]}, expected {expected_digest[:8]}")
        )
    faults += listed_faults(files)
    signature_ok, sentence = _signature(files, public_key)
    stamped: list[str] = []
    if not faults:
        listed = {path: files[path] for path in files if path not in UNLISTED}
        faults += check_packet(listed) or decision_faults(listed, signature_holds)
        if not faults:
            faults, stamped = read_timestamps(
                listed, read_events(listed), read_token, timestamp_roots
            )
    return {
        "faults": [str(fault) for fault in faults],
        "fault_files": [fault.file for fault in faults],
        "signature_ok": signature_ok,
        "signature_sentence": sentence,
        "timestamp_sentences": stamped,
        "packet_digest": digest,
        "files": len(files),
        "verdict": _verdict_word(files),
    }


def require_verified(
    folder: Path, expected_digest: str | None = None, public_key: bytes | None = None
) -> FetchedPacket:
    """Return the verified packet; raises PacketError naming the first bad file."""
    found = verify_packet(folder, expected_digest, public_key)
    faults, files = list(found["faults"]), list(found["fault_files"])
    if not found["signature_ok"]:
        faults.append(f"{SIGNATURE_FILE}: {found['signature_sentence']}")
        files.append(SIGNATURE_FILE)
    if faults:
        raise PacketError(
            f"{faults[0]}{f' (and {len(faults) - 1} more)' if len(faults) > 1 else ''}",
            expected="a packet whose every file is as signed",
            where=f"packet {folder.name}",
            remedy="Do not use it. Fetch it again from where it was published, and ask its "
            "publisher if it still does not verify.",
            file=files[0],
            faults=faults[:20],
        )
    verdict = read_json({VERDICT_FILE: (folder / VERDICT_FILE).read_bytes()}, VERDICT_FILE)
    return FetchedPacket(
        folder, str(found["packet_digest"]), verdict, str(found["signature_sentence"])
    )


def fetch_packet(
    location: str | Path,
    target: str | Path,
    *,
    expected_digest: str | None = None,
    public_key: bytes | None = None,
    usable_only: bool = False,
    storage_options: dict[str, Any] | None = None,
) -> FetchedPacket:
    """Copy a packet from a path or any fsspec URL, verify it, and only then let it appear.

    A target that already holds this packet is verified and kept. Raises PacketError, naming the
    first bad file, where the packet does not verify, where the target holds something else, or,
    with `usable_only`, where its verdict is not a release.
    """
    folder = Path(target).absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _arriving(folder) as incoming:
        _copy(str(location), incoming, storage_options or {})
        packet = require_verified(incoming, expected_digest, public_key)
        if usable_only and packet.verdict["verdict"] not in USABLE:
            raise _refusal(
                f"a packet with the verdict {packet.verdict['verdict']}",
                expected="a released packet",
                where=str(location),
                remedy="This model must not be used. Fetch the packet of a released revision.",
                file=VERDICT_FILE,
            )
        if os.path.lexists(folder):
            kept = require_verified(folder, packet.digest, public_key)
            return FetchedPacket(folder, kept.digest, kept.verdict, kept.signature_sentence)
        incoming.rename(folder)
    return FetchedPacket(folder, packet.digest, packet.verdict, packet.signature_sentence)


# ---- signature ----------------------------------------------------------------------------------


def _signature(files: dict[str, bytes], public_key: bytes | None) -> tuple[bool, str]:
    """Say in words whether the list is signed by the given key, or else by the packet's own."""
    missing = [name for name in (SUMS_FILE, SIGNATURE_FILE, KEY_FILE) if name not in files]
    if missing:
        return False, f"{missing[0]} is absent, so nothing is signed."
    try:
        key = load_pem_public_key(public_key or files[KEY_FILE])
        own = key_fingerprint(files[KEY_FILE])
        asked = key_fingerprint(public_key or files[KEY_FILE])
        if not isinstance(key, ec.EllipticCurvePublicKey):
            return False, "The key is not an ECDSA key."
        key.verify(files[SIGNATURE_FILE], files[SUMS_FILE], ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):
        whose = "the packet's own key" if public_key is None else "the expected release key"
        return False, f"The list of digests is not signed by {whose}."
    if own != asked:
        return False, f"{KEY_FILE} is not the expected release key {asked[:16]}."
    if public_key is None:
        return True, f"Signed by the key in the packet, {own[:16]}; compare its fingerprint."
    return True, f"Signed by the expected release key, {own[:16]}."


def _verdict_word(files: dict[str, bytes]) -> str | None:
    try:
        return str(read_json(files, VERDICT_FILE)["verdict"])
    except (KeyError, RecursionError, TypeError, ValueError):
        return None


# ---- fetching -----------------------------------------------------------------------------------


@contextmanager
def _arriving(folder: Path) -> Iterator[Path]:
    """Give a hidden folder beside the target, and remove what is left of it."""
    room = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield room / "packet"
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _copy(location: str, incoming: Path, options: dict[str, Any]) -> None:
    """Copy a packet's files: those in the folder for a path, all below the URL for a store."""
    scheme = urlsplit(location).scheme
    if len(scheme) < 2:  # no scheme, or a drive letter
        source = Path(location)
        if not source.is_dir():
            raise _absent(location)
        try:
            shutil.copytree(source, incoming, symlinks=True)
        except OSError as error:
            raise _refusal(
                f"a folder that cannot be copied ({error})",
                expected="plain files that may be read, and room for them",
                where=location,
                remedy="Look at the file named above.",
                file=str(error.filename or SUMS_FILE),
            ) from error
        return
    # a packet on this machine needs no fsspec
    import fsspec  # type: ignore[import-untyped]  # noqa: PLC0415  (ships no types)

    try:
        system, root = fsspec.core.url_to_fs(location, **options)
        _download(system.find(root), str(root), system.get_file, incoming)
    except FileNotFoundError as error:
        raise _absent(location) from error
    except ImportError as error:
        raise PacketError(
            f"no support for {scheme}:// ({error})",
            expected="a path, or a URL whose fsspec file system is installed",
            where=location,
            remedy="Install the file system's package, such as s3fs or gcsfs.",
            file=None,
        ) from error


def _download(
    found: list[str], root: str, get_file: Callable[[str, str], None], incoming: Path
) -> None:
    if not found or len(found) > FILES_MAXIMUM:
        raise FileNotFoundError(root)
    for remote in found:
        name = remote.removeprefix(root).lstrip("/")
        if not name or not is_plain_name(name):
            raise _refusal(
                f"a file named {name!r}",
                expected="plain relative names",
                where=root,
                remedy="Do not use it: such a name could leave the packet's folder.",
                file=name,
            )
        place = incoming / name
        place.parent.mkdir(parents=True, exist_ok=True)
        get_file(remote, str(place))


def _absent(location: str) -> PacketError:
    return _refusal(
        "nothing there",
        expected="a packet's folder",
        where=location,
        remedy="Look at the published packets, or at the spelling of the address.",
        file=SUMS_FILE,
    )


def _refusal(
    found: str, *, expected: str, where: str, remedy: str, file: str | None
) -> PacketError:
    return PacketError(found, expected=expected, where=where, remedy=remedy, file=file)
