"""Anchored heads: where a chain stood when a stage was recorded, kept outside the ledger.

The chain of digests shows what was changed inside it, but not that its newest events were dropped.
So each recorded stage leaves an anchor in the store; a ledger that ends before one, or says
something else there, is refused.
"""

from collections.abc import Iterable, Sequence

from parcel_assets.core.errors import LedgerError
from parcel_assets.core.ledger import Event, Kind
from parcel_assets.core.stage import Record, Stage


class Anchor(Record):
    """One event of a revision that must stay: its place, its digest and the stage it records."""

    revision: str
    sequence: int
    digest: str
    stage: str


def anchors_of(events: Iterable[Event]) -> tuple[Anchor, ...]:
    """Return the anchors that a chain should have left: one for each record of a stage."""
    return tuple(
        Anchor(
            revision=event.revision,
            sequence=event.sequence,
            digest=event.digest,
            stage=str(event.body["stage"]),
        )
        for event in events
        if event.kind == Kind.STAGE_RECORDED
    )


def lost_anchor(events: Sequence[Event], anchors: Iterable[Anchor]) -> Anchor | None:
    """Return the first anchor that the chain does not hold to, or None; events from the first."""
    for anchor in sorted(anchors, key=lambda one: one.sequence):
        held = 1 <= anchor.sequence <= len(events)
        if not held or events[anchor.sequence - 1].digest != anchor.digest:
            return anchor
    return None


def check_anchors(revision: str, events: Sequence[Event], anchors: Sequence[Anchor]) -> None:
    """Raise LedgerError where the chain ends before an anchor or says something else there."""
    lost = lost_anchor(events, anchors)
    if lost is None:
        return
    ends = lost.sequence > len(events)
    judged = any(one.stage == str(Stage.FINAL) for one in anchors)
    raise LedgerError(
        f"a chain that ends at event {len(events)}"
        if ends
        else f"event {lost.sequence} with digest {events[lost.sequence - 1].digest[:8]}",
        expected=f"event {lost.sequence} with digest {lost.digest[:8]}, which recorded "
        f"{lost.stage}: its anchor is in the store",
        where=f"ledger of {revision}",
        remedy=("Its holdout was opened, and stays shut to any other ledger. " if judged else "")
        + "Events were dropped or replaced, or this is another ledger than the store's. "
        "Restore the ledger from a copy, or plan a new search revision.",
        sequence=len(events) + 1 if ends else lost.sequence,
        anchor=lost.document(),
        holdout_opened=judged,
    )
