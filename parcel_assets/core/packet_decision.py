"""What a packet's decisions must hold to: who made them, how long they counted, what a close left.

Asked of a packet's own ledger by whoever verifies it; checking a signature is left to the caller.
"""

from collections.abc import Iterator, Sequence
from datetime import date

from parcel_assets.core.approval import SignatureHolds, approval_fault
from parcel_assets.core.codec import digest_bytes
from parcel_assets.core.decision_rules import recorded_fault
from parcel_assets.core.ledger import Event, Kind, last_of
from parcel_assets.core.packet import (
    CLOSING_FILE,
    DECISION_FILE,
    KEY_FILE,
    LEDGER_FILE,
    PLAN_FILE,
    RECEIPTS_FILE,
    REPORT_FILE,
    TRIALS_FILE,
    VERDICT_FILE,
    Fault,
    Files,
    body_of,
    evidence_file,
    read_json,
)
from parcel_assets.core.packet_files import read_events
from parcel_assets.core.plan_reader import plan_from_fields
from parcel_assets.core.selection import accept_decision, closing_event, opening_day
from parcel_assets.core.stage import Stage
from parcel_assets.core.trial import Decision

# what the record of a closed search must hold, and must not: nothing of it may be used
REQUIRED_CLOSED = (
    VERDICT_FILE,
    PLAN_FILE,
    LEDGER_FILE,
    TRIALS_FILE,
    RECEIPTS_FILE,
    CLOSING_FILE,
    REPORT_FILE,
    KEY_FILE,
    "README.md",
)
RELEASING = "model/"


def decision_faults(files: Files, holds: SignatureHolds) -> list[Fault]:
    """Return the decisions that say too little, or that the plan's approvers did not make.

    Asked of a packet that is sound.
    """
    plan = plan_from_fields(read_json(files, PLAN_FILE), where=PLAN_FILE)
    faults, after = [], ""
    for event in read_events(files):
        if event.kind != Kind.DECISION_RECORDED:
            continue
        fault = recorded_fault(event.body)
        if fault is None:
            decision = Decision.model_validate(dict(event.body))
            found = approval_fault(
                plan.approvers, event.revision, plan.digest, decision, holds, after=after
            )
            fault = None if found is None else f"{found[0]}; expected {found[1]}"
        after = event.digest
        if fault is not None:
            faults.append(
                Fault(LEDGER_FILE, f"has a bad decision (event {event.sequence}): {fault}")
            )
    return faults


def closing_faults(files: Files, events: Sequence[Event]) -> Iterator[Fault]:
    """Yield what a closed search must not have: an opening, a receipt, a final result, a model."""
    if closing_event(events) is None:
        yield Fault(LEDGER_FILE, "holds no closing of the search")
    # receipts of other searches over the same shipments are told, and are none of this one's
    revisions = {event.revision for event in events}
    own = [one for one in read_json(files, RECEIPTS_FILE) if one.get("revision") in revisions]
    if last_of(events, Kind.HOLDOUT_OPENED) is not None or own:
        yield Fault(LEDGER_FILE, "opened the holdout; a closed search leaves it shut")
    for path in files:
        if path.startswith(RELEASING) or path == evidence_file(Stage.FINAL):
            yield Fault(path, "has no place in the record of a closed search")


def acceptance_faults(files: Files, events: Sequence[Event]) -> Iterator[Fault]:
    """Yield an acceptance that had run out when the holdout was opened on it."""
    opening = last_of(events, Kind.HOLDOUT_OPENED)
    seen = digest_bytes(files[evidence_file(Stage.SLICES)])
    accepted = accept_decision(events, seen)
    slices = body_of(files, Stage.SLICES)
    if slices["protected_passed"] is True or opening is None:
        return
    if accepted is None:
        yield Fault(LEDGER_FILE, "opens the holdout on a held slice that nobody accepted")
        return
    day = opening_day(events, read_json(files, RECEIPTS_FILE))
    assert day is not None  # there is an opening
    if date.fromisoformat(str(accepted.body["expires_on"])) < day:
        yield Fault(
            DECISION_FILE,
            f"expired on {accepted.body['expires_on']}, before the opening of {day.isoformat()}",
        )
