"""Auditing a revision's ledger against everything that can contradict it.

Reads ledger, store and assignment register; writes nothing and needs no lease.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from parcel_assets.core.anchor import Anchor
from parcel_assets.core.codec import canonical_json, short
from parcel_assets.core.errors import LedgerError, ParcelAssetsError, StorageError
from parcel_assets.core.evidence import SplitBody, TableBody
from parcel_assets.core.holdout import holdout_keys
from parcel_assets.core.ledger import Event, Kind
from parcel_assets.core.ledger_audit import (
    AuditFault,
    LedgerAudit,
    anchor_faults,
    read_chain,
    rule_faults,
    table_faults,
)
from parcel_assets.core.ledger_fold import fold_faults
from parcel_assets.core.plan_reader import plan_from_fields
from parcel_assets.core.ports import Ports
from parcel_assets.core.search import SearchState
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.core.table import table_digest, table_rows
from parcel_assets.steps.admission import read_anchors


def audit_ledger(revision: str, ports: Ports) -> LedgerAudit:
    """Recompute the chain of a revision, fold it, and compare it with all that rests on it."""
    anchors = read_anchors(revision, ports)
    record = ports.ledger.record_of(revision)
    if not record.rows and not anchors:
        raise LedgerError(
            f"no event of search revision {revision!r}",
            expected="a registered plan",
            where="ledger",
            remedy=f"Pick one of: {', '.join(ports.ledger.revisions()) or 'none yet'}.",
        )
    events, broken = read_chain(revision, record.rows)
    faults = [] if broken is None else [broken]
    if broken is None:
        faults += anchor_faults(events, anchors)
    faults += rule_faults(record)
    faults += fold_faults(events)
    folds = not any(fault.place == "fold" for fault in faults)
    documents = _Documents(events, ports)
    faults += documents.faults()
    if broken is None:
        faults += table_faults(record, events, documents.holdout_keys())
        faults += documents.assignment_faults()
    if folds:
        faults += documents.frozen_table_faults()
    return LedgerAudit(revision, len(record.rows), events, tuple(faults), len(anchors))


def audit_lines(lines: Sequence[str | bytes], anchors: Sequence[Anchor] = ()) -> LedgerAudit:
    """Audit an exported chain, one JSON line an event: chain, fold and given anchors."""
    rows = [_row(line, number) for number, line in enumerate(lines, start=1) if line.strip()]
    revision = str(rows[0].get("revision")) if rows else "nothing"
    events, broken = read_chain(revision, rows)
    faults = [] if broken is None else [broken]
    if not rows:
        faults.append(AuditFault("chain", "no line", "at least one event"))
    if broken is None:
        faults += anchor_faults(events, anchors)
    faults += fold_faults(events)
    return LedgerAudit(revision, len(rows), events, tuple(faults), len(anchors))


def _row(line: str | bytes, number: int) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
        canonical_json(row)  # NaN, infinity and half a character are in no chain
    except (ValueError, RecursionError):
        row = None
    return row if isinstance(row, dict) else {"sequence": number, "kind": "unknown"}


class _Documents:
    """The evidence that a chain names, as the store has it."""

    def __init__(self, events: Sequence[Event], ports: Ports) -> None:
        self._events = events
        self._ports = ports
        self._evidence: dict[int, Evidence] = {}  # by the sequence of its record
        self._faults: list[AuditFault] = []
        for event in events:
            if event.kind == Kind.STAGE_RECORDED:
                self._read(event)

    def faults(self) -> list[AuditFault]:
        """Return what is wrong with the documents themselves."""
        return self._faults

    def _add(self, event: Event, place: str, found: str, expected: str) -> None:
        fault = AuditFault(place, found, expected, event.sequence, str(event.kind))
        self._faults.append(fault)

    def _read(self, event: Event) -> None:
        body, named = event.body, short(str(event.body["evidence"]))
        try:
            document = self._ports.store.get_document(str(body["evidence"]))
            evidence = Evidence.model_validate(document)
        except (StorageError, ValidationError) as error:
            told = error.found if isinstance(error, StorageError) else "another kind of document"
            self._add(event, "evidence", told, f"evidence {named} in the store")
            return
        self._evidence[event.sequence] = evidence
        said = (str(evidence.stage), evidence.revision, evidence.inputs)
        if said != (body["stage"], event.revision, dict(body["inputs"])):
            words = f"evidence {named} of {said[0]} of {said[1]}, from its own inputs"
            self._add(event, "evidence", words, f"what {body['stage']} of {event.revision} left")
        head = evidence.head
        if head and (head.sequence, head.digest) != (event.sequence - 1, event.previous):
            words = f"evidence made at event {head.sequence} with digest {short(head.digest)}"
            expected = f"event {event.sequence - 1} with digest {short(event.previous)}"
            self._add(event, "evidence", words, expected)

    def _newest(self, stage: Stage) -> tuple[Event, Evidence] | None:
        for event in reversed(self._events):
            evidence = self._evidence.get(event.sequence)
            if evidence is not None and evidence.stage == stage:
                return event, evidence
        return None

    def _split(self) -> tuple[Event, SplitBody] | None:
        found = self._newest(Stage.SPLIT)
        return found and (found[0], SplitBody.model_validate(found[1].body))

    def _archive(self) -> str:
        plan = plan_from_fields(self._events[0].body["plan"], where="frozen plan")
        return plan.snapshot.archive

    def holdout_keys(self) -> tuple[str, ...] | None:
        """Return the keys of the split's holdout, or None where they cannot be read."""
        split = self._split()
        try:
            rows = split and self._ports.store.get_document(split[1].parts["holdout"].rows)
        except StorageError:
            return None
        return None if rows is None else holdout_keys(self._archive(), rows)

    def assignment_faults(self) -> Iterator[AuditFault]:
        """Yield the first shipment that the register has in another part than the split."""
        split = self._split()
        if split is None:
            return
        event, body = split
        try:
            parts = self._ports.store.get_document(body.assignment_document)["parts"]
        except StorageError as error:
            yield AuditFault("evidence", error.found, "the split's assignment", event.sequence)
            return
        register = self._ports.ledger.assignments(self._archive())
        for part, shipments in sorted(parts.items()):
            for shipment in shipments:
                if register.get(shipment) != part:
                    yield AuditFault(
                        "tables",
                        f"shipment {shipment} in {register.get(shipment, 'no part')} in the "
                        "assignment register",
                        f"{part}, as the split's evidence says",
                        event.sequence,
                        str(event.kind),
                    )
                    return

    def frozen_table_faults(self) -> Iterator[AuditFault]:
        """Yield where the frozen table is not what the chain before it folds to."""
        found = self._newest(Stage.TABLE)
        if found is None:
            return
        event, evidence = found
        plan = plan_from_fields(self._events[0].body["plan"], where="frozen plan")
        state = SearchState(plan)
        for earlier in self._events[: event.sequence - 1]:
            state.apply(earlier)
        try:
            frozen = TableBody.model_validate(evidence.body).table_digest
            folded = table_digest(table_rows(plan, state))
        except (ParcelAssetsError, ValidationError) as error:
            frozen, folded = "", repr(error)
        if frozen != folded:
            yield AuditFault(
                "tables",
                f"the frozen table {short(frozen)}",
                f"{short(folded)}, to which the events before it fold",
                event.sequence,
                str(event.kind),
            )
