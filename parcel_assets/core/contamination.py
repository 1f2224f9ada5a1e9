"""Contamination found after a batch closed: which decisions would be others without it (§7).

Proposals and cut tables stay as they were. The history as it stands now holds the clean reruns'
values in place of the contaminated ones; every later proposal, cut and verdict is made from it once
more and compared with the recorded one.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from parcel_assets.core.attempts import AttemptRecord
from parcel_assets.core.plan import Plan
from parcel_assets.core.ports import Sampler
from parcel_assets.core.search import SearchState
from parcel_assets.core.search_batches import cut_table, propose
from parcel_assets.core.search_rules import judge_by
from parcel_assets.core.stage import Record
from parcel_assets.core.trial import Batch, Cut, MilestoneReported, Verdict


class ContaminationReplayed(Record):
    """Body of CONTAMINATION_REPLAYED: no sentence in `changed` says that no decision changes."""

    attempts: tuple[str, ...]  # quarantined late
    batches: tuple[int, ...]  # that were opened knowing their values
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Decisions:
    """What one batch decides, made from the history as it stands now."""

    plan: Plan
    state: SearchState
    batch: Batch
    cuts: tuple[Cut, ...]

    def changed(self, sampler: Sampler) -> Iterable[str]:
        """Yield a sentence for each decision that is another one."""
        recorded = [dict(one.configuration) for one in self.batch.trials]
        if propose(self.plan, self.state, sampler, self.batch.batch) != recorded:
            yield f"batch {self.batch.batch} would hold other configurations"
        for trial in self.batch.trials:
            for record in self.state.subjects[trial.trial_id].clean_attempts:
                yield from self._other_verdicts(record)

    def _other_verdicts(self, record: AttemptRecord) -> Iterable[str]:
        trial = self.state.subjects[record.subject].trial
        for step, report in sorted(record.reports.items()):
            verdict, reason = judge_by(self.plan, trial, self.cuts, step, report.cost_per_1000)
            if _stops(report) != (verdict == Verdict.STOP):
                yield f"{record.attempt} would {_words(verdict)} at step {step}: {reason}"


def unreplayed(state: SearchState) -> tuple[AttemptRecord, ...]:
    """Return the attempts quarantined late that no replay has looked at."""
    return tuple(
        one for one in state.attempts.values() if one.quarantined_late and not one.replayed
    )


def replay_without(
    plan: Plan, state: SearchState, sampler: Sampler, attempts: Iterable[AttemptRecord]
) -> ContaminationReplayed:
    """Make every decision again that may have known the values of contaminated attempts."""
    names, first = [], len(state.batches) + 1
    for record in attempts:
        names.append(record.attempt)
        first = min(first, state.subjects[record.subject].batch or first)
    first += plan.search.lookahead_batches
    batches = [number for number in sorted(state.batches) if number >= first]
    changed: list[str] = []
    for number in batches:
        cuts = cut_table(plan, state, number)
        decisions = _Decisions(plan, state, state.batches[number], cuts)
        changed += decisions.changed(sampler)
    return ContaminationReplayed(
        attempts=tuple(names), batches=tuple(batches), changed=tuple(changed)
    )


def _stops(report: MilestoneReported) -> bool:
    return report.verdict == Verdict.STOP


def _words(verdict: Verdict) -> str:
    return "stop" if verdict == Verdict.STOP else "go on"
