"""Data folders crafted from one that a real search left: its chain cut, bent and chained anew.

What is bent still verifies as a chain, with evidence in the store under its own digest: what must
notice the change is the gate, in whatever process the asset runs.
"""

import json
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.adapters.store_files import FileStore
from parcel_assets.adapters.vault_age_files import RECEIPT_FILE
from parcel_assets.core.codec import canonical_json
from parcel_assets.core.holdout import holdout_keys
from parcel_assets.core.ledger import Event, Kind, chain_event, once_key
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.wiring import Settings
from parcel_assets_tests.defs.faults import FAULTS, STAGE_OF, Body, Events, Fault

SHARED = ("archives", "plans", "keys")  # only ever added to, like the objects of the store
COPIED = ("custodian", "vault", "packets")
ONE_LOOK = (RECEIPT_FILE, "result.json", "predictions.json", "decryptions.log")


@dataclass(frozen=True)
class Searched:
    """A data folder with a finished search in it, and the search's revision."""

    data: Path
    revision: str

    @property
    def store(self) -> FileStore:
        return FileStore(self.data / "store")

    def events(self) -> tuple[Event, ...]:
        return events_in(self.data, self.revision)

    @property
    def told(self) -> Events:
        return [(event.kind, dict(event.body)) for event in self.events()]


def events_in(data: Path, revision: str) -> tuple[Event, ...]:
    """Return the chain of a revision as its ledger has it."""
    ledger = SqlLedger(Settings.read({}, data=data).ledger_url)
    try:
        return ledger.events(revision)
    finally:
        ledger.close()


def failing_folder(name: str, searched: Searched, folder: Path) -> Path:
    """Return a folder whose chain ends at a gate's stage, with this one gate failing."""
    fault, stage = FAULTS[name], STAGE_OF[name]
    entries = cut_after(searched.told, stage)
    if name == "protected_slices":  # held, as the search left it, and nobody has decided
        entries = [one for one in entries if one[0] != Kind.DECISION_RECORDED]
    if name == "target":
        entries, fault = miss_the_target(entries)
    craft(searched, folder, bend(searched, entries, stage, fault))
    if fault.packet is not None:
        fault.packet(folder / "packets" / searched.revision)
    if name == "holdout_unspent":
        leave_receipt(folder, searched, revision="an-earlier-search")
    if name == "holdout_once":
        leave_receipt(folder, searched, revision=searched.revision)
    return folder


def failing_whole(name: str, searched: Searched, folder: Path) -> Path:
    """Return a folder whose chain is whole up to the packet, but with an earlier gate failing."""
    fault, stage = FAULTS[name], STAGE_OF[name]
    entries = cut_after(searched.told, Stage.PACKET)
    if name == "protected_slices":
        entries = [one for one in entries if one[0] != Kind.DECISION_RECORDED]
    if name == "target":
        entries, fault = miss_the_target(entries)
    return craft(searched, folder, bend(searched, entries, stage, fault))


def miss_the_target(entries: Events) -> tuple[Events, Fault]:
    """Return the entries and the fault of a holdout whose result misses the target."""
    words = {"outcome": "FAIL", "sentence": "Final holdout: the target is missed."}
    told: Events = [
        (kind, said | words if kind == Kind.HOLDOUT_EVALUATED else said) for kind, said in entries
    ]
    return told, Fault("target", body=lambda body, _store: body.update(words))


def cut_after(entries: Events, stage: Stage) -> Events:
    """Return the entries up to the last record of a stage."""
    last = max(
        number
        for number, (kind, said) in enumerate(entries)
        if kind == Kind.STAGE_RECORDED and said["stage"] == str(stage)
    )
    return entries[: last + 1]


def bend(searched: Searched, entries: Events, stage: Stage, fault: Fault) -> Events:
    """Return entries whose stage says something else, later evidence made from it all the same."""
    if fault.events is not None:
        entries = [*fault.events(entries[:-1]), entries[-1]]
    original, new_digests = searched.told, dict[str, str]()
    bent: Events = []
    for kind, said in entries:
        if kind == Kind.DECISION_RECORDED:  # it is about the report as it reads now
            seen = said["slice_evidence"]
            bent.append((kind, said | {"slice_evidence": new_digests.get(seen, seen)}))
            continue
        if kind != Kind.STAGE_RECORDED:
            bent.append((kind, said))
            continue
        inputs = {name: new_digests.get(one, one) for name, one in said["inputs"].items()}
        evidence = Evidence.model_validate(searched.store.get_document(said["evidence"]))
        body: Body = dict(evidence.body)
        if said["stage"] == str(stage) and fault.body is not None:
            fault.body(body, searched.store)
        # after the first change its head is no event of this chain
        head = evidence.head if bent == original[: len(bent)] else None
        told = evidence.model_copy(update={"inputs": inputs, "body": body, "head": head})
        digest = searched.store.put_document(told.document())
        new_digests[said["evidence"]] = digest
        bent.append((kind, said | {"evidence": digest, "inputs": inputs}))
    return bent


def craft(searched: Searched, folder: Path, entries: Events, *, looked: bool = False) -> Path:
    """Make a data folder that holds these entries; photos, objects and keys are shared.

    `looked`: the vault keeps its receipt and result even where the entries know of no opening.
    """
    folder.mkdir(parents=True)
    for name in SHARED:
        (folder / name).symlink_to(searched.data / name)
    for name in COPIED:
        shutil.copytree(searched.data / name, folder / name)
    (folder / "store").mkdir()
    for name in ("objects", "attempts"):  # without the anchors, which hold a ledger to its word
        (folder / "store" / name).symlink_to(searched.data / "store" / name)
    kinds = {kind for kind, _ in entries}
    if Kind.HOLDOUT_OPENED not in kinds and not looked:
        for path in (folder / "vault").rglob("*"):
            if path.name in ONE_LOOK:
                path.unlink()
    stages = {said["stage"] for kind, said in entries if kind == Kind.STAGE_RECORDED}
    if str(Stage.PACKET) not in stages:
        shutil.rmtree(folder / "packets")
    shutil.copyfile(searched.data / "ledger.sqlite", folder / "ledger.sqlite")
    rewrite_ledger(folder / "ledger.sqlite", chained(entries, searched.events()))
    return folder


def chained(
    entries: Sequence[tuple[Kind, Mapping[str, Any]]], told: Sequence[Event]
) -> list[Event]:
    """Return the entries as events; unchanged first ones keep their time and so their digest."""
    events: list[Event] = []
    for number, (kind, said) in enumerate(entries):
        events.append(
            chain_event(
                events[-1] if events else None,
                revision=told[0].revision,
                at_seconds=told[min(number, len(told) - 1)].at_seconds,
                kind=kind,
                body=said,
            )
        )
    return events


def rewrite_ledger(path: Path, events: Sequence[Event]) -> None:
    """Replace everything that a ledger says, as only somebody with the file itself could."""
    with closing(sqlite3.connect(path)) as database:
        for table in ("events", "holdout_openings", "holdout_keys"):
            database.execute(f"DROP TRIGGER {table}_keeps_rows")
        database.execute("DELETE FROM events")
        if Kind.HOLDOUT_OPENED not in {event.kind for event in events}:
            database.execute("DELETE FROM holdout_openings")
            database.execute("DELETE FROM holdout_keys")
        database.executemany(
            "INSERT INTO events (revision, sequence, at_seconds, kind, body, previous, digest, "
            "once_key) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    event.revision,
                    event.sequence,
                    event.at_seconds,
                    str(event.kind),
                    canonical_json(dict(event.body)).decode(),
                    event.previous,
                    event.digest,
                    once_key(event.kind, event.body),
                )
                for event in events
            ],
        )
        database.commit()


def leave_receipt(folder: Path, searched: Searched, *, revision: str) -> None:
    """Leave one more receipt over this search's holdout, beside other sealed labels."""
    digest = evidence_digest(searched, Stage.SPLIT)
    split = searched.store.get_document(digest)["body"]
    rows = searched.store.get_document(split["parts"]["holdout"]["rows"])
    archive = plan_of(searched)["snapshot"]["archive"]
    receipt = {"revision": revision, "keys": list(holdout_keys(archive, rows))}
    place = folder / "vault" / ("0" * 64)
    place.mkdir()
    (place / RECEIPT_FILE).write_text(json.dumps(receipt))


def evidence_digest(searched: Searched, stage: Stage) -> str:
    """Return the digest of a stage's evidence as recorded last."""
    _, said = cut_after(searched.told, stage)[-1]
    return str(said["evidence"])


def plan_of(searched: Searched) -> Mapping[str, Any]:
    """Return the frozen plan."""
    plan: Mapping[str, Any] = next(
        said["plan"] for kind, said in searched.told if kind == Kind.PLAN_FROZEN
    )
    return plan
