"""The chain of one search revision: plan, events, evidence, and what was measured just now."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from parcel_assets.core.decision_rules import recorded_fault
from parcel_assets.core.disposition import parcel_search_disposition
from parcel_assets.core.evidence import (
    FinalBody,
    RerunBody,
    SearchBody,
    SliceBody,
    SnapshotBody,
    SplitBody,
    TableBody,
)
from parcel_assets.core.ledger import Event, Kind, last_of
from parcel_assets.core.plan import Plan
from parcel_assets.core.search import fold_search
from parcel_assets.core.selection import close_decision, opening_day, replace_decision
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.core.table import table_rows
from parcel_assets.core.trial import Decision

READY = "evaluate:final-holdout"


@dataclass(frozen=True, slots=True)
class Chain:
    """All that a gate may know of a revision; `observed` is what its caller measured just now."""

    revision: str
    plan: Plan
    plan_digest: str
    events: tuple[Event, ...]
    evidence: Mapping[Stage, Evidence]
    digests: Mapping[Stage, str]
    observed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def snapshot(self) -> SnapshotBody:
        """The body of `pinned_snapshot`."""
        return SnapshotBody.model_validate(self.evidence[Stage.SNAPSHOT].body)

    @property
    def split(self) -> SplitBody:
        """The body of `grouped_shipment_split`."""
        return SplitBody.model_validate(self.evidence[Stage.SPLIT].body)

    @property
    def search(self) -> SearchBody:
        """The body of `trial_batches`."""
        return SearchBody.model_validate(self.evidence[Stage.SEARCH].body)

    @property
    def table(self) -> TableBody:
        """The body of `validated_trial_table`."""
        return TableBody.model_validate(self.evidence[Stage.TABLE].body)

    @property
    def rerun(self) -> RerunBody:
        """The body of `selected_rerun`."""
        return RerunBody.model_validate(self.evidence[Stage.RERUN].body)

    @property
    def slices(self) -> SliceBody:
        """The body of `slice_report`."""
        return SliceBody.model_validate(self.evidence[Stage.SLICES].body)

    @property
    def final(self) -> FinalBody:
        """The body of `final_evaluation`."""
        return FinalBody.model_validate(self.evidence[Stage.FINAL].body)

    @property
    def decision(self) -> Decision | None:
        """The newest decision, where it is one and about the slice report on record, or None."""
        event = last_of(self.events, Kind.DECISION_RECORDED)
        if event is None or recorded_fault(event.body) is not None:
            return None
        decision = Decision.model_validate(dict(event.body))
        return decision if decision.slice_evidence == self.digests.get(Stage.SLICES) else None

    @property
    def unsound_decision(self) -> str | None:
        """Why a decision that counts should not, in words, or None.

        Counted are the newest one, a replacement and a closing. Each must say what a decision says;
        where the plan lists approvers, one of them must have made it. What was not checked just now
        is not taken for checked.
        """
        counting = (
            last_of(self.events, Kind.DECISION_RECORDED),
            replace_decision(self.events),
            close_decision(self.events),
        )
        approvals: Mapping[str, str | None] = self.observed.get("approvals", {})
        for event in counting:
            if event is None:
                continue
            unchecked = "its signature was not checked" if self.plan.approvers else None
            fault = recorded_fault(event.body) or approvals.get(event.digest, unchecked)
            if fault is not None:
                outcome = event.body.get("outcome", "no known outcome")
                return f"The decision to {outcome} does not count: {fault}."
        return None

    @property
    def expired_acceptance(self) -> str | None:
        """Why an acceptance of this report counts no more, in words, or None.

        What matters is the day on which the holdout was opened, as its receipt says, which comes
        first; until then the day observed now.
        """
        decision, day = self.decision, self._counting_day
        if decision is None or decision.outcome != "accept":
            return None
        if day is None:
            return "Whether the acceptance still counts is not known: no day was observed."
        if date.fromisoformat(decision.expires_on) >= day:
            return None
        return (
            f"The acceptance by {decision.name} expired on {decision.expires_on}; "
            f"it is {day.isoformat()}."
        )

    @property
    def _counting_day(self) -> date | None:
        began = opening_day(self.events, self.observed.get("receipts", ()))
        today = self.observed.get("today")
        return began or (None if today is None else date.fromisoformat(today))

    @property
    def is_opening(self) -> bool:
        """Whether this revision's one look has begun: its opening or its receipt is there."""
        return last_of(self.events, Kind.HOLDOUT_OPENED) is not None or any(
            one.get("revision") == self.revision for one in self.observed.get("receipts", ())
        )

    @property
    def accepted(self) -> bool:
        """Whether a sound acceptance of this very report counts."""
        decision = self.decision
        return (
            decision is not None
            and decision.outcome == "accept"
            and self.unsound_decision is None
            and self.expired_acceptance is None
        )

    def disposition(self, *, decided: bool = True) -> str:
        """Return the selected trial's disposition, the decision applied if `decided`."""
        waived = decided and self.accepted
        rows = table_rows(self.plan, fold_search(self.plan, self.events))
        selected = self.rerun.selected_trial
        trials: list[dict[str, Any]] = [
            {"trial_id": row.trial_id, "state": str(row.state), "lineage_ok": row.lineage_ok}
            | (
                {"slice_gate_passed": self.slices.protected_passed or waived}
                if row.trial_id == selected
                else {}
            )
            for row in rows
        ]
        return parcel_search_disposition(trials, self.plan.search.budget_trials, selected)
