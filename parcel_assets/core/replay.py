"""Replays a search's decisions from its events alone: each cut table, each verdict.

Decides whether what was stored is what the plan's rules make of what was known then, bit for bit.
Costs are taken as recorded: they come from stored scores, which a rerun checks.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from parcel_assets.core.ledger import Event, Kind
from parcel_assets.core.plan import Plan
from parcel_assets.core.search import SearchState
from parcel_assets.core.search_batches import cut_from_values, cut_table, next_batch
from parcel_assets.core.search_rules import verdict_of
from parcel_assets.core.trial import Batch, Cut, MilestoneReported


@dataclass(frozen=True, slots=True)
class ReplayedDecision:
    """One verdict on a milestone report as recorded, beside the one that its replay gives."""

    subject: str
    attempt: str
    step: int
    cost: float | None  # per 1,000, as recorded
    cut: float | None  # the value to reach, or None where nothing was cut
    values: tuple[tuple[int, float], ...]  # what the cut was made from: (trial number, cost)
    verdict: str
    replayed_verdict: str
    reason: str
    fault: str  # what does not agree, or empty
    quarantined: str = ""  # why its attempt counts for nothing now, or empty

    @property
    def agrees(self) -> bool:
        """Whether verdict, reason and the cut behind them are what the rules give."""
        return not self.fault


def replay_decisions(plan: Plan, events: Iterable[Event]) -> tuple[ReplayedDecision, ...]:
    """Return every verdict with its replay, in order of the reports.

    A quarantine marks the reports before it, too.
    """
    replay = _Replay(plan, events)
    attempts = replay.state.attempts
    return tuple(
        replace(one, quarantined=attempts[one.attempt].quarantined or "")
        if one.attempt in attempts
        else one
        for one in replay.decisions
    )


class _Replay:
    """Folds events one by one, and asks the rules before each decision is taken in."""

    def __init__(self, plan: Plan, events: Iterable[Event]) -> None:
        self._plan = plan
        self.state = SearchState(plan)
        # (batch, step) -> the cut as stored, and what is wrong with it, or empty
        self._cuts: dict[tuple[int | None, int], tuple[Cut | None, str]] = {}
        self.decisions: list[ReplayedDecision] = []
        for event in events:
            if event.kind == Kind.BATCH_OPENED:
                self._batch(Batch.model_validate(event.body))
            elif event.kind == Kind.MILESTONE_REPORTED:
                self._report(MilestoneReported.model_validate(event.body))
            self.state.apply(event)

    def _batch(self, batch: Batch) -> None:
        early = next_batch(self._plan, self.state) != batch.batch
        fault = f"batch {batch.batch} was opened before it might" if early else ""
        stored = {cut.step: cut for cut in batch.cut_table}
        replayed = {cut.step: cut for cut in cut_table(self._plan, self.state, batch.batch)}
        milestones = self._plan.training.milestones[:-1]
        keeps = dict(zip(milestones, self._plan.pruning.keep_fractions, strict=True))
        for step in sorted(stored | replayed):
            found, expected = stored.get(step), replayed.get(step)
            if found is None or expected is None:
                what = "no cut is stored" if found is None else "a cut is stored off the milestones"
                why = f"{what} at step {step}"
            else:
                why = self._cut_fault(found, expected, keeps[step])
            self._cuts[batch.batch, step] = found, fault or why

    def _cut_fault(self, found: Cut, expected: Cut, keep: float) -> str:
        """Return what is wrong with a stored cut: its own sums first, then where they came from."""
        # a cut was made, so no guard spoke; where none was made, its reason is what the guard said
        guard = None if found.cut_cost is not None else expected.reason
        own = cut_from_values(self._plan, found.step, keep, found.values, guard=guard)
        if found.cut_cost != own.cut_cost:
            return (
                f"the stored cut {found.cut_cost} at step {found.step} is not what its own "
                f"{len(found.values)} values give: {own.cut_cost} ({own.reason})"
            )
        if found.values != expected.values:
            stray = sorted(set(found.values) ^ set(expected.values))
            first = f"trial {stray[0][0]} at {stray[0][1]} differs" if stray else "another order"
            return f"the values at step {found.step} are not those reported by then: {first}"
        if found != expected:
            return (
                f"the stored cut at step {found.step} says {found.cut_cost} ({found.reason}), "
                f"its replay {expected.cut_cost} ({expected.reason})"
            )
        return ""

    def _report(self, report: MilestoneReported) -> None:
        subject = self.state.subjects.get(report.subject)
        stored, verdict, reason = None, "", ""
        if subject is None:
            fault = f"{report.subject} was never started"
        else:
            stored, fault = self._cuts.get((subject.batch, report.step), (None, ""))
            verdict, reason = verdict_of(
                self._plan, self.state, report.subject, report.step, report.cost_per_1000
            )
        if not fault and (str(report.verdict), report.reason) != (verdict, reason):
            fault = f"recorded {report.verdict!s} ({report.reason}), replayed {verdict} ({reason})"
        self.decisions.append(
            ReplayedDecision(
                subject=report.subject,
                attempt=report.attempt,
                step=report.step,
                cost=report.cost_per_1000,
                cut=stored.cut_cost if stored is not None else None,
                values=stored.values if stored is not None else (),
                verdict=str(report.verdict),
                replayed_verdict=str(verdict),
                reason=report.reason,
                fault=fault,
            )
        )
