"""Publish the release packet and register the model: write aside, verify, rename, record.

What goes into a packet is gathered in `packing`; how a folder is verified is left to a port. A
packet appears whole and verified, or not at all.
"""

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from parcel_assets.core.chain import Chain
from parcel_assets.core.codec import short
from parcel_assets.core.errors import PacketError, RegistryError, StorageError
from parcel_assets.core.evidence import PacketBody, RegistryBody
from parcel_assets.core.ledger import Kind
from parcel_assets.core.packet import (
    CLOSED,
    DECISION_FILE,
    SIGNATURE_FILE,
    USABLE,
    VERDICT_FILE,
    pretty_json,
)
from parcel_assets.core.ports import Ports
from parcel_assets.core.selection import closing_event, require_open_revision
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.steps.admission import StageSession, open_stage, require_sound_decisions
from parcel_assets.steps.packing import (
    Contents,
    closed_contents,
    current_stages,
    packet_contents,
)

CURRENT_FILE = "CURRENT"


@dataclass(frozen=True, slots=True)
class _Standing:
    """A packet folder as found: its digest, its faults, and its verdict (None: unreadable)."""

    digest: str | None
    faults: list[str]
    verdict: Mapping[str, Any] | None


# ---- the packet ---------------------------------------------------------------------------------


def build_packet(revision: str, ports: Ports) -> Evidence:
    """Publish the packet of a revision below `ports.packets`, and record its digest.

    Of a search that a person closed it is the record: no model, and nothing is asked for that the
    search did not reach. A standing packet of the same evidence is kept; one of older evidence is
    moved aside under another name. Raises PacketError, changing nothing, where the standing one is
    damaged or the fresh one does not verify.
    """
    closing = closing_event(ports.ledger.events(revision))
    further = {} if closing is None else {"closing": closing.digest}
    with open_stage(
        Stage.PACKET, revision, ports, further_inputs=further, ended=lambda _: closing is not None
    ) as session:
        folder, existing = ports.packets / revision, session.existing
        if closing is not None:
            require_sound_decisions(Stage.PACKET, session.chain)
        standing = _look_at(folder, ports)
        if standing is not None:
            _require_sound(standing, folder)
            if existing is not None and existing.body["packet_digest"] == standing.digest:
                return existing
        # a crash between rename and record leaves a packet of this very evidence: it is taken
        if standing is None or not _tells(standing, session.chain):
            contents = packet_contents if closing is None else closed_contents
            standing = _publish(folder, contents(session), standing, ports)
        return _record(session, folder, standing)


def _record(session: StageSession, folder: Path, standing: _Standing) -> Evidence:
    assert standing.verdict is not None
    assert standing.digest is not None
    verdict = standing.verdict
    body = PacketBody(
        packet_digest=standing.digest,
        folder=folder.name,
        files=sum(path.is_file() for path in folder.rglob("*")),
        verdict=str(verdict["verdict"]),
        signed_by=str(verdict["signed_by"]),
    )
    evidence = session.record(body)
    published = {"packet_digest": body.packet_digest, "verdict": body.verdict}
    session.ports.ledger.append(session.lease, [(Kind.PACKET_PUBLISHED, published)])
    if body.verdict in USABLE:
        _point_to(session, body)
    return evidence


def _look_at(folder: Path, ports: Ports) -> _Standing | None:
    """Return what stands under a packet's name, or None."""
    if not os.path.lexists(folder):
        return None
    found = ports.verify_packet(folder, None, ports.signer.public_key())
    faults = [*found["faults"]]
    if not found["signature_ok"]:
        faults.append(f"{SIGNATURE_FILE}: {found['signature_sentence']}")
    verdict = None if faults else json.loads((folder / VERDICT_FILE).read_bytes())
    return _Standing(found["packet_digest"], faults, verdict)


def _tells(standing: _Standing, chain: Chain) -> bool:
    """Say whether a standing packet is sound and of the chain's present evidence."""
    if standing.verdict is None:
        return False
    if closing_event(chain.events) is None:
        stages = tuple(Stage.PACKET.earlier)
    elif standing.verdict["verdict"] == CLOSED:
        stages = current_stages(chain)
    else:
        return False
    told: Mapping[str, str] = standing.verdict["evidence"]
    return told == {str(one): chain.digests[one] for one in stages}


def _require_sound(standing: _Standing, folder: Path) -> None:
    faults = standing.faults
    if faults:
        raise PacketError(
            faults[0],
            expected="a packet that verifies",
            where=f"packet {folder.name}",
            remedy="Keep the folder under another name for whoever looks into it, then materialize "
            "release_packet again.",
            file=faults[0].partition(":")[0],
            faults=faults[:20],
        )


def _publish(
    folder: Path, contents: Contents, standing: _Standing | None, ports: Ports
) -> _Standing:
    """Write a packet aside, verify it as a stranger would, and rename it into place."""
    with _room_beside(folder) as incoming:
        _write(incoming, contents)
        fresh = _look_at(incoming, ports)
        assert fresh is not None
        _require_sound(fresh, folder)
        if standing is not None:
            folder.rename(_free_name(folder, f"superseded-{short(str(standing.digest))}"))
        incoming.rename(folder)
    return fresh


def _write(incoming: Path, contents: Contents) -> None:
    """Write all files; raises StorageError, leaving nothing published, where the disk refuses."""
    try:
        for name, data in contents.items():
            place = incoming / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
    except OSError as error:
        raise StorageError(
            f"{error.strerror or error} while writing {error.filename or 'the packet'}",
            expected=f"room for {sum(map(len, contents.values())) / 2**20:.0f} MiB",
            where=str(incoming.parent.parent),
            remedy="Make room, then materialize release_packet again: nothing was published.",
        ) from error


@contextmanager
def _room_beside(folder: Path) -> Iterator[Path]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    room = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield room / "packet"
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _free_name(folder: Path, ending: str) -> Path:
    names = (f"{folder.name}.{ending}{f'-{number}' if number else ''}" for number in range(1000))
    return next(folder.parent / name for name in names if not (folder.parent / name).exists())


def _point_to(session: StageSession, body: PacketBody) -> None:
    """Say which packet of the archive is the newest released one, in one atomic step."""
    place = session.ports.packets / CURRENT_FILE
    known = json.loads(place.read_bytes()) if place.exists() else {}
    known[session.chain.plan.snapshot.archive] = {
        "revision": session.chain.revision,
        "folder": body.folder,
        "packet_digest": body.packet_digest,
    }
    temporary = place.with_name(f".{CURRENT_FILE}.{uuid.uuid4().hex}")
    temporary.write_bytes(pretty_json(dict(sorted(known.items()))))
    temporary.replace(place)


# ---- the registry -------------------------------------------------------------------------------


def register_model(revision: str, ports: Ports) -> Evidence:
    """Register the packet's model under the archive's name; the same packet gives the same entry.

    A search that a person closed has no model to register. Raises AdmissionError where a data,
    performance or slice gate does not pass (R1), RegistryError where the acceptance that it rests
    on has run out.
    """
    require_open_revision(ports.ledger.events(revision), Stage.REGISTRY, revision)
    with open_stage(Stage.REGISTRY, revision, ports) as session:
        if session.existing is not None:
            return session.existing
        chain = session.chain
        packet = PacketBody.model_validate(chain.evidence[Stage.PACKET].body)
        waiver = _waiver(chain)
        if waiver is not None:
            _require_unexpired(str(waiver["expires_on"]), revision, ports)
        facts = {
            "revision": revision,
            "packet_digest": packet.packet_digest,
            "verdict": packet.verdict,
            "model_digest": chain.rerun.model,
            "threshold": repr(chain.rerun.threshold),
            "signed_by": packet.signed_by,
            "waiver": waiver,
        }
        entry, version = ports.registry.register(
            chain.plan.snapshot.archive, ports.packets / packet.folder, facts
        )
        registered = {"packet_digest": packet.packet_digest, "entry": entry, "version": version}
        evidence = session.record(
            RegistryBody(entry=entry, version=version, packet_digest=packet.packet_digest)
        )
        ports.ledger.append(session.lease, [(Kind.MODEL_REGISTERED, registered)])
        return evidence


def _waiver(chain: Chain) -> dict[str, str] | None:
    """Return the acceptance that a release rests on, or None where no slice was held."""
    decision = chain.decision
    if decision is None or decision.outcome != "accept" or chain.slices.protected_passed:
        return None
    return {
        "scope": decision.scope,
        "expires_on": decision.expires_on,
        "by": f"{decision.name} ({decision.role})",
        "told_in": DECISION_FILE,
    }


def _require_unexpired(expires_on: str, revision: str, ports: Ports) -> None:
    today = datetime.fromtimestamp(ports.ledger.now(), UTC).date()
    if date.fromisoformat(expires_on) < today:
        raise RegistryError(
            f"an acceptance that expired on {expires_on}",
            expected=f"one that still counts on {today.isoformat()}",
            where=f"{Stage.REGISTRY} of {revision}",
            remedy="The model may no longer be used under this waiver. Plan a new search revision.",
        )
