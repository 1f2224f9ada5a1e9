"""How an attempt ends in the ledger: settled with its charge, lost, or quarantined."""

from collections.abc import Mapping

from parcel_assets.core.attempts import AttemptRecord
from parcel_assets.core.ledger import Kind
from parcel_assets.core.search_charges import lost_charge, settled_charge
from parcel_assets.core.trial import AttemptEnded, AttemptState
from parcel_assets.steps.dispatch_desk import Desk, Entry

LEASE_SECONDS = 20.0  # a worker that is silent for longer is lost


def end_entry(
    desk: Desk,
    record: AttemptRecord,
    state: AttemptState,
    *,
    step: int | None = None,
    reason: str = "",
    own_failure: bool = False,
    charged_seconds: float | None = None,
    model: str | None = None,
    model_file: str = "",
) -> Entry:
    """Return the settlement of an attempt that ends now."""
    charge = settled_charge(record, desk.now()) if charged_seconds is None else charged_seconds
    ended = AttemptEnded(
        attempt=record.attempt,
        subject=record.subject,
        purpose=record.started.purpose,
        state=state,
        step=record.last_step if step is None else step,
        charged_seconds=charge,
        reason=reason,
        own_failure=own_failure,
        model=model,
        model_file=model_file,
    )
    return Kind.ATTEMPT_ENDED, ended.document()


def expiry_entry(desk: Desk, record: AttemptRecord, reason: str, last_message_at: float) -> Entry:
    """Return the settlement of a lost attempt: it does not use up its trial."""
    charge = lost_charge(
        record,
        last_message_at=last_message_at,
        now_seconds=desk.now(),
        lease_seconds=LEASE_SECONDS,
    )
    return end_entry(desk, record, AttemptState.EXPIRED, reason=reason, charged_seconds=charge)


def quarantine_entries(desk: Desk, attempts: Mapping[str, str], found_by: str) -> list[Entry]:
    """Return what quarantines attempts, given as attempt -> reason; open ones are settled too."""
    entries: list[Entry] = []
    for name, reason in attempts.items():
        record = desk.state.attempts[name]
        if not record.clean:
            continue
        if record.ended is None:
            entries.append(end_entry(desk, record, AttemptState.QUARANTINED, reason=reason))
        body = {"attempt": name, "subject": record.subject, "reason": reason, "found_by": found_by}
        entries.append((Kind.ATTEMPT_QUARANTINED, body))
    return entries


def settle_leftovers(desk: Desk, reason: str, heard_at: Mapping[str, float] | None = None) -> None:
    """End every open attempt as lost; `heard_at` is when each worker last gave a sign of life.

    Prefixes that an earlier run quarantined and was killed before it moved are moved now.
    """
    heard = heard_at or {}
    entries = [
        expiry_entry(desk, record, reason, heard.get(record.attempt, record.last_at))
        for record in desk.state.open_attempts
    ]
    desk.record(*entries)  # with all that was noted and that nobody waited for
    desk.set_aside_quarantined()
