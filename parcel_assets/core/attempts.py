"""Attempts and what they were attempts at, as the ledger tells; folding events is `search`'s."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from parcel_assets.core.trial import (
    AttemptEnded,
    AttemptStarted,
    AttemptState,
    CheckpointSaved,
    MilestoneReported,
    ProposedTrial,
    TrialState,
)


@dataclass(slots=True)
class AttemptRecord:
    """One attempt, as far as the ledger tells; `last_at` is the time of its newest event."""

    started: AttemptStarted
    started_at: float
    last_at: float
    reports: dict[int, MilestoneReported] = field(default_factory=dict)
    checkpoints: list[CheckpointSaved] = field(default_factory=list)
    ended: AttemptEnded | None = None
    quarantined: str | None = None  # the reason
    quarantined_late: bool = False  # found after the batch had closed

    @property
    def attempt(self) -> str:
        """The attempt's id."""
        return self.started.attempt

    @property
    def subject(self) -> str:
        """The trial, rerun or reference that was attempted."""
        return self.started.subject

    @property
    def purpose(self) -> str:
        """What the compute is charged to."""
        return self.started.purpose

    @property
    def state(self) -> AttemptState:
        """How the attempt stands; quarantine lies over everything else."""
        if self.quarantined is not None:
            return AttemptState.QUARANTINED
        return AttemptState.RUNNING if self.ended is None else self.ended.state

    @property
    def clean(self) -> bool:
        """Whether nothing speaks against its lineage."""
        return self.quarantined is None

    @property
    def used_up(self) -> bool:
        """Whether it uses up one of its trial's attempts: own failures and quarantines do (S8)."""
        return not self.clean or (self.ended is not None and self.ended.own_failure)

    @property
    def spoke(self) -> bool:
        """Whether its worker ever said anything that the ledger keeps."""
        return bool(self.reports or self.checkpoints)

    @property
    def last_step(self) -> int:
        """The last step that the ledger knows of."""
        known = [self.started.resume_step, *self.reports, *(one.step for one in self.checkpoints)]
        return max(known) if self.ended is None else max(self.ended.step, *known)


@dataclass(slots=True)
class SubjectRecord:
    """A trial, rerun or reference with its attempts, first to last; `trial` only for a trial."""

    subject: str
    trial: ProposedTrial | None = None
    batch: int | None = None
    attempts: list[AttemptRecord] = field(default_factory=list)

    @property
    def clean_attempts(self) -> list[AttemptRecord]:
        """The attempts whose lineage nothing speaks against."""
        return [one for one in self.attempts if one.clean]

    @property
    def finished(self) -> AttemptRecord | None:
        """The clean attempt that completed, or was pruned, or None."""
        ends = {AttemptState.COMPLETED, AttemptState.PRUNED}
        return next((one for one in self.clean_attempts if one.state in ends), None)

    @property
    def reports(self) -> dict[int, MilestoneReported]:
        """Step -> report of the clean attempts; where two reported a step they agree."""
        found: dict[int, MilestoneReported] = {}
        for attempt in self.clean_attempts:
            for step, report in attempt.reports.items():
                found.setdefault(step, report)
        return found

    def state(self, attempts_maximum: int) -> TrialState:
        """Return where the subject stands (design: a trial's state is computed)."""
        finished = self.finished
        if finished is not None:
            return TrialState(str(finished.state))
        if any(one.ended is None for one in self.attempts):
            return TrialState.RUNNING
        if sum(one.used_up for one in self.attempts) >= attempts_maximum:
            last = self.attempts[-1].state
            quarantined = last == AttemptState.QUARANTINED
            return TrialState.QUARANTINED if quarantined else TrialState.FAILED
        return TrialState.WAITING


def failure_reasons(attempts: Iterable[AttemptRecord]) -> dict[str, int]:
    """Return why attempts failed by their own fault, the commonest reason first, with counts."""
    reasons = [one.ended.reason for one in attempts if one.ended and one.ended.own_failure]
    return dict(Counter(reasons).most_common())


class History:
    """Every attempt of a revision by id, and every subject by name, in order of their start."""

    def __init__(self) -> None:
        self.attempts: dict[str, AttemptRecord] = {}
        self.subjects: dict[str, SubjectRecord] = {}
