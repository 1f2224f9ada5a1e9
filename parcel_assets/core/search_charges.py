"""Accelerator-seconds: what a dispatch reserves, and what its settlement charges (S3).

A dispatch reserves the trial's maximum first; what is unused returns. Reruns, reference and final
evaluation have a share of the cap of their own, kept before the first trial. All times are the
ledger's clock.
"""

from enum import StrEnum

from parcel_assets.core.attempts import AttemptRecord
from parcel_assets.core.plan import Plan
from parcel_assets.core.search import SearchState


class Room(StrEnum):
    """Whether a dispatch may reserve its maximum."""

    YES = "yes"
    LATER = "later"  # reservations may still return
    NO = "no"


def reserved_seconds(state: SearchState, purpose: str | None = None) -> float:
    """Return what open attempts hold, of one purpose or of all."""
    return sum(
        one.started.reserved_seconds
        for one in state.open_attempts
        if purpose is None or one.purpose == purpose
    )


def room_for(plan: Plan, state: SearchState, purpose: str) -> Room:
    """Return whether one more training of a purpose may be dispatched under the cap."""
    if purpose == "search":
        limit = plan.search_seconds_maximum
        charged = state.charged_seconds_by_purpose.get("search", 0.0)
        held = reserved_seconds(state, "search")
    else:
        limit = plan.cap_seconds - plan.search.trial_seconds_maximum  # the final evaluation's
        charged = sum(state.charged_seconds_by_purpose.values())
        held = reserved_seconds(state)
    if charged + held + plan.search.trial_seconds_maximum <= limit:
        return Room.YES
    return Room.LATER if held > 0 else Room.NO


def settled_charge(record: AttemptRecord, now_seconds: float) -> float:
    """Return the charge of an attempt that ends now: its time, at most its reservation."""
    return _bounded(record, now_seconds - record.started_at)


def final_charge(plan: Plan, seconds: float) -> float:
    """Return the charge of the final evaluation: its time, at most its reservation.

    It is never stopped for being slow: the holdout opens once.
    """
    return round(min(plan.search.trial_seconds_maximum, max(0.0, seconds)), 6)


def lost_charge(
    record: AttemptRecord, *, last_message_at: float, now_seconds: float, lease_seconds: float
) -> float:
    """Return the charge of a lost attempt: up to its last message and one lease, no downtime."""
    return _bounded(record, min(now_seconds, last_message_at + lease_seconds) - record.started_at)


def _bounded(record: AttemptRecord, seconds: float) -> float:
    return round(min(record.started.reserved_seconds, max(0.0, seconds)), 6)


def overdue(record: AttemptRecord, now_seconds: float) -> bool:
    """Say whether an open attempt has used up its reservation and must be stopped."""
    return now_seconds - record.started_at >= record.started.reserved_seconds
