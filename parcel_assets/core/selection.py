"""The choice on validation: who may be chosen, in which order, and what a decision changes in it.

The ranking is frozen before any slice is looked at (H2). What the chosen trial's numbers are worth
is left to `statistics`, and what its slices stop to the gate table.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from parcel_assets.core.disposition import HOLD_INVALID_WINNER
from parcel_assets.core.errors import AdmissionError, HoldError
from parcel_assets.core.ledger import Event, Kind, last_of
from parcel_assets.core.stage import Record
from parcel_assets.core.trial import TrialRow, TrialState


class Selection(Record):
    """Body of SELECTION_FROZEN."""

    trial: str
    threshold: float
    ranking: tuple[str, ...]  # trial ids, best first
    informed_by: str | None  # digest of the `replace` decision; None for the choice on validation
    table_digest: str

    @property
    def behind(self) -> tuple[str, ...]:
        """The trials that come after this one in the frozen ranking."""
        return self.ranking[self.ranking.index(self.trial) + 1 :]


def rank_trials(rows: Sequence[TrialRow]) -> tuple[TrialRow, ...]:
    """Return the trials that may be chosen (H1), lowest cost first, ties to the lower number."""
    eligible = [
        row
        for row in rows
        if row.state == TrialState.COMPLETED
        and row.lineage_ok
        and row.final_cost_per_1000 is not None
        and row.threshold is not None
        and row.scores is not None
    ]
    return tuple(sorted(eligible, key=lambda row: (row.final_cost_per_1000, row.number)))


def no_winner(failures: Mapping[str, int]) -> str:
    """Return that nobody may be chosen, in words; `failures` are reasons with their counts."""
    words = "no completed trial with intact lineage"
    if failures:
        reason, count = next(iter(failures.items()))
        first_line = reason.strip().partition("\n")[0]
        words += f"; {sum(failures.values())} attempts failed, {count} of them with: {first_line}"
    return words


def choose(
    rows: Sequence[TrialRow],
    table_digest: str,
    revision: str,
    failures: Mapping[str, int] | None = None,
) -> Selection:
    """Return the choice by the rule `lowest_cost`; raises HoldError where nobody may be.

    `failures` are the reasons of failed attempts with their counts, for the words of the refusal.
    """
    ranked = rank_trials(rows)
    if not ranked:
        raise HoldError(
            no_winner(failures or {}),
            expected="at least one",
            where=f"selection of {revision}",
            remedy=f"Look at the trials' states: `parcel-assets status {revision}`. A new plan may "
            "need longer trials or a calmer space.",
            hold=HOLD_INVALID_WINNER,
        )
    threshold = ranked[0].threshold
    assert threshold is not None
    return Selection(
        trial=ranked[0].trial_id,
        threshold=threshold,
        ranking=tuple(row.trial_id for row in ranked),
        informed_by=None,
        table_digest=table_digest,
    )


def choose_next(
    first: Selection, rows: Sequence[TrialRow], decision: Event, revision: str
) -> Selection:
    """Return the next of the frozen ranking; raises HoldError where none is left."""
    by_id = {row.trial_id: row for row in rank_trials(rows)}
    behind = [one for one in first.behind if one in by_id]
    if not behind:
        raise HoldError(
            f"no trial behind {first.trial} in the frozen ranking",
            expected="a next one to replace it",
            where=f"selection of {revision}",
            remedy="Close this search revision and plan a new one.",
            hold="hold:slice-quality",
        )
    row = by_id[behind[0]]
    assert row.threshold is not None
    return first.model_copy(
        update={"trial": row.trial_id, "threshold": row.threshold, "informed_by": decision.digest}
    )


def frozen_selections(events: Sequence[Event]) -> tuple[Selection, ...]:
    """Return the selections on record, first to last: one, or two after a `replace` decision."""
    return tuple(
        Selection.model_validate(dict(event.body))
        for event in events
        if event.kind == Kind.SELECTION_FROZEN
    )


def freeze_event(events: Sequence[Event]) -> Event | None:
    """Return the event of the selection that counts: the newest."""
    return last_of(events, Kind.SELECTION_FROZEN)


def replace_decision(events: Sequence[Event]) -> Event | None:
    """Return the one `replace` decision of a revision, or None."""
    return _decision(events, "replace")


def close_decision(events: Sequence[Event]) -> Event | None:
    """Return the decision that closed the revision, or None."""
    return _decision(events, "close")


def closing_event(events: Sequence[Event]) -> Event | None:
    """Return what ended the revision without a winner: a decision, or a person's close; or None."""
    return close_decision(events) or last_of(events, Kind.SEARCH_CLOSED)


def accept_decision(events: Sequence[Event], slice_evidence: str | None) -> Event | None:
    """Return the newest decision where it accepts exactly this slice report, or None."""
    event = last_of(events, Kind.DECISION_RECORDED)
    if event is None or event.body["slice_evidence"] != slice_evidence:
        return None
    return event if event.body["outcome"] == "accept" else None


def day_of(at_seconds: float) -> date:
    """Return the day, in UTC, of a moment on the ledger's clock."""
    return datetime.fromtimestamp(at_seconds, UTC).date()


def opening_day(events: Sequence[Event], receipts: Sequence[Mapping[str, Any]]) -> date | None:
    """Return the day on which a revision's holdout was opened, or None.

    The receipt is left first; a crash or midnight may lie between it and the opening's event.
    """
    moments = [event.at_seconds for event in events if event.kind == Kind.HOLDOUT_OPENED]
    revisions = {event.revision for event in events}
    moments += [
        float(one["at_seconds"])
        for one in receipts
        if one.get("revision") in revisions and "at_seconds" in one
    ]
    return day_of(min(moments)) if moments else None


def require_open_revision(events: Sequence[Event], stage: str, revision: str) -> None:
    """Raise AdmissionError, in the words of the decision, where a person closed the revision."""
    closed = close_decision(events)
    if closed is None and (ended := last_of(events, Kind.SEARCH_CLOSED)) is not None:
        raise AdmissionError(
            f"the search closed for good by a person: {ended.body['words']}",
            expected="a search that is still open",
            where=f"{stage} of {revision}",
            remedy="A closed search stays closed. Plan a new search revision.",
            gate="budget_exact",
            gate_stage="trial_batches",
            hold="closed",
        )
    if closed is not None:
        raise AdmissionError(
            f"the search closed without a winner by {closed.body['name']} "
            f"({closed.body['role']}): {closed.body['reason']}",
            expected="a search that is still open",
            where=f"{stage} of {revision}",
            remedy="A closed search stays closed. Plan a new search revision.",
            gate="protected_slices",
            gate_stage="slice_report",
            hold="closed",
        )


def _decision(events: Sequence[Event], outcome: str) -> Event | None:
    return next(
        (
            event
            for event in reversed(events)
            if event.kind == Kind.DECISION_RECORDED and event.body["outcome"] == outcome
        ),
        None,
    )
