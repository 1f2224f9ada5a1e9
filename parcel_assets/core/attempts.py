"""Attempts and what they were attempts at, as the ledger tells; folding events is `search`'s."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

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
    found_by: str = ""  # what found it: a report, the close of its batch, …
    quarantine_sequence: int | None = None  # of its event
    replayed: str = ""  # after a late quarantine: what a replay without its values found
    cleared: bool = False  # that replay changed no decision
    chosen: bool = False  # its trial had been selected when it was quarantined

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
    def training(self) -> str:
        """What determines its weights: attempts of one training may well end in equal ones."""
        return self.started.training or self.subject

    @property
    def files(self) -> dict[str, str]:
        """File below the prefix -> digest, as it was reported."""
        found = {one.file: one.scores for one in self.reports.values() if one.file}
        found |= {one.file: one.checkpoint for one in self.checkpoints}
        if self.ended is not None and self.ended.model and self.ended.model_file:
            found[self.ended.model_file] = self.ended.model
        return found

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

    def used_up(self, attempts_maximum: int) -> bool:
        """Say whether own failures and quarantines leave no further attempt."""
        return sum(one.used_up for one in self.attempts) >= attempts_maximum

    def state(self, attempts_maximum: int, *, search_over: bool = False) -> TrialState:
        """Return where the subject stands (design: a trial's state is computed).

        Once the search is over, a trial that a quarantine left without a clean run is quarantined.
        """
        finished = self.finished
        if finished is not None:
            return TrialState(str(finished.state))
        if any(one.ended is None for one in self.attempts):
            return TrialState.RUNNING
        if self.used_up(attempts_maximum):
            last = self.attempts[-1].state
            quarantined = last == AttemptState.QUARANTINED
            return TrialState.QUARANTINED if quarantined else TrialState.FAILED
        if search_over and not all(one.clean for one in self.attempts):
            return TrialState.QUARANTINED
        return TrialState.WAITING


def failure_reasons(attempts: Iterable[AttemptRecord]) -> dict[str, int]:
    """Return why attempts failed by their own fault, the commonest reason first, with counts."""
    reasons = [one.ended.reason for one in attempts if one.ended and one.ended.own_failure]
    return dict(Counter(reasons).most_common())


def not_counted(attempts: Iterable[AttemptRecord]) -> list[dict[str, Any]]:
    """Return the attempts that do not count, as rows: how each ended, at which step and why."""
    counts = {AttemptState.RUNNING, AttemptState.COMPLETED, AttemptState.PRUNED}
    return [
        {
            "attempt": one.started.attempt,
            "state": str(one.state),
            "step": one.last_step,
            "why": one.quarantined or (one.ended.reason if one.ended else ""),
        }
        for one in attempts
        if one.state not in counts
    ]


class History:
    """Every attempt of a revision by id, and every subject by name, in order of their start.

    The indexes let one attempt's lineage be compared with all others without visiting them.
    """

    def __init__(self) -> None:
        self.revision = ""
        self.attempts: dict[str, AttemptRecord] = {}
        self.subjects: dict[str, SubjectRecord] = {}
        self.prefixes: dict[str, list[AttemptRecord]] = {}  # who was given a prefix
        self.writers: dict[str, list[AttemptRecord]] = {}  # who reported a digest of content
        self.children: dict[str, list[AttemptRecord]] = {}  # who resumed a checkpoint
        self.shared_lineage: dict[str, str] = {}  # what every checkpoint of the revision carries
        self.identities: dict[str, str] = {}  # worker id -> digest of its admitted identity
        self.milestones: tuple[int, ...] = ()

    def index_start(self, record: AttemptRecord) -> None:
        """Index an attempt by its prefix and by the checkpoint that it resumes."""
        self.prefixes.setdefault(record.started.prefix, []).append(record)
        if record.started.parent_checkpoint is not None:
            self.children.setdefault(record.started.parent_checkpoint, []).append(record)

    def index_content(self, record: AttemptRecord, *digests: str | None) -> None:
        """Index an attempt by the digests of content that it reported as its own."""
        for digest in digests:
            if digest:
                self.writers.setdefault(digest, []).append(record)
