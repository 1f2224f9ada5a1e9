"""What a search's events add up to: trials, attempts, charges, best so far.

`SearchState` is folded from the ledger and from nothing else, one event at a time. What may happen
next is decided in `search_rules`, which lineages hold in `lineage_clash`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from parcel_assets.core.attempts import AttemptRecord, History, SubjectRecord
from parcel_assets.core.errors import LedgerError
from parcel_assets.core.ledger import Event, Kind
from parcel_assets.core.lineage_clash import faults_of
from parcel_assets.core.plan import Plan
from parcel_assets.core.trial import (
    AttemptEnded,
    AttemptStarted,
    Batch,
    CheckpointSaved,
    Cut,
    MilestoneReported,
    TrialState,
)


class SearchState(History):
    """The fold. Attributes are for reading; `apply` is the only way to change them."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.milestones = plan.training.milestones
        self.sequence = 0  # of the newest event taken in
        self.selected: set[str] = set()  # the trials that were chosen
        self.identity: dict[str, str] | None = None  # the workers' expected identity, frozen
        self.head = ""  # digest of the newest event taken in
        self.chain_digest = ""  # of the chain's first event: names this ledger's own chain
        self.ended: str | None = None
        self.closed: str | None = None  # why a person ended the search for good
        self.paused: str | None = None  # why no worker was left, until one is admitted again
        self.batches: dict[int, Batch] = {}
        self.closed_batches: set[int] = set()
        self.trials: dict[int, SubjectRecord] = {}  # by trial number
        self.charged_seconds_by_purpose: dict[str, float] = {}
        self.waiting: set[int] = set()  # numbers of proposed trials that wait for a worker
        self._open: dict[str, AttemptRecord] = {}
        self._states: dict[int, TrialState] = {}
        self._best: dict[int, float] = {}  # completed trial -> cost

    # ---- the fold -----------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Take in the next event of the chain; events of other stages change nothing."""
        self.head, self.sequence = event.digest, event.sequence
        if not self.revision:
            self.revision = event.revision
            self.shared_lineage = {"revision": event.revision, "plan": self.plan.digest}
        self.chain_digest = self.chain_digest or event.digest
        handler = _HANDLERS.get(event.kind)
        if handler is not None:
            handler(self, event.body, event.at_seconds)

    def _opened(self, body: Mapping[str, Any], _at: float) -> None:
        self.identity = {str(key): str(value) for key, value in body["identity"].items()}

    def _worker_admitted(self, body: Mapping[str, Any], _at: float) -> None:
        self.paused = None
        self.identities[str(body["worker_id"])] = str(body["identity"])

    def _batch_opened(self, body: Mapping[str, Any], _at: float) -> None:
        batch = Batch.model_validate(body)
        self.batches[batch.batch] = batch
        for trial in batch.trials:
            record = SubjectRecord(trial.trial_id, trial, batch.batch)
            self.subjects[trial.trial_id] = self.trials[trial.number] = record
            self._refresh(record)

    def _attempt_started(self, body: Mapping[str, Any], at: float) -> None:
        started = AttemptStarted.model_validate(body)
        record = AttemptRecord(started, at, at)
        self.attempts[started.attempt] = self._open[started.attempt] = record
        self.index_start(record)
        subject = self.subjects.setdefault(started.subject, SubjectRecord(started.subject))
        subject.attempts.append(record)
        self._refresh(subject)

    def _milestone_reported(self, body: Mapping[str, Any], at: float) -> None:
        report = MilestoneReported.model_validate(body)
        record = self._known(report.attempt)
        record.reports[report.step] = report
        record.last_at = at

    def _checkpoint_saved(self, body: Mapping[str, Any], at: float) -> None:
        saved = CheckpointSaved.model_validate(body)
        record = self._known(saved.attempt)
        record.checkpoints.append(saved)
        self.index_content(record, saved.checkpoint, saved.payload)
        record.last_at = at

    def _attempt_ended(self, body: Mapping[str, Any], at: float) -> None:
        ended = AttemptEnded.model_validate(body)
        record = self._known(ended.attempt)
        record.ended, record.last_at = ended, at
        self.index_content(record, ended.model)
        self._open.pop(ended.attempt, None)
        charged = self.charged_seconds_by_purpose
        charged[ended.purpose] = round(charged.get(ended.purpose, 0.0) + ended.charged_seconds, 6)
        self._refresh(self.subjects[record.subject])

    def _attempt_quarantined(self, body: Mapping[str, Any], _at: float) -> None:
        record = self._known(str(body["attempt"]))
        subject = self.subjects[record.subject]
        record.quarantined = str(body["reason"])
        record.found_by, record.quarantine_sequence = str(body.get("found_by", "")), self.sequence
        record.quarantined_late = subject.batch in self.closed_batches
        record.chosen = record.subject in self.selected
        self._refresh(subject)

    def _contamination_replayed(self, body: Mapping[str, Any], _at: float) -> None:
        for name in body["attempts"]:
            record = self._known(str(name))
            record.cleared = not body["changed"]
            record.replayed = "; ".join(body["changed"][:3]) or "no decision changes without it"

    def _batch_closed(self, body: Mapping[str, Any], _at: float) -> None:
        self.closed_batches.add(int(body["batch"]))

    def _search_ended(self, body: Mapping[str, Any], _at: float) -> None:
        self.ended, self.paused = str(body["reason"]), None
        for number in sorted(self.waiting):
            self._refresh(self.trials[number])

    def _selection_frozen(self, body: Mapping[str, Any], _at: float) -> None:
        self.selected.add(str(body["trial"]))

    def _search_closed(self, body: Mapping[str, Any], _at: float) -> None:
        self.closed = str(body["words"])

    def _search_paused(self, body: Mapping[str, Any], _at: float) -> None:
        self.paused = str(body["reason"])

    def _holdout_evaluated(self, body: Mapping[str, Any], _at: float) -> None:
        charged = self.charged_seconds_by_purpose
        charged["final"] = round(charged.get("final", 0.0) + body.get("charged_seconds", 0.0), 6)

    def _known(self, attempt: str) -> AttemptRecord:
        if attempt not in self.attempts:
            raise LedgerError(
                f"an event of the unknown attempt {attempt!r}",
                expected="an attempt that was started before",
                where="fold of the search",
                remedy="The chain was changed from outside. Restore the ledger from a copy.",
            )
        return self.attempts[attempt]

    def _refresh(self, subject: SubjectRecord) -> None:
        """Recompute what depends on one subject."""
        if subject.trial is None:
            return
        number = subject.trial.number
        over = self.ended is not None
        state = subject.state(self.plan.search.attempts_per_trial, search_over=over)
        self._states[number] = state
        (self.waiting.add if state == TrialState.WAITING else self.waiting.discard)(number)
        self._best.pop(number, None)
        cost = self.final_cost(subject) if state == TrialState.COMPLETED else None
        if cost is not None:
            self._best[number] = cost

    # ---- what it adds up to ---------------------------------------------------------------------

    def final_cost(self, subject: SubjectRecord) -> float | None:
        """Return the subject's cost per 1,000 at the last milestone, or None."""
        report = subject.reports.get(self.plan.training.steps)
        return None if report is None else report.cost_per_1000

    def trial_state(self, number: int) -> TrialState:
        """Return where a slot of the budget stands; one not yet proposed is waiting."""
        return self._states.get(number, TrialState.WAITING)

    def cut_table(self, subject: str) -> tuple[Cut, ...]:
        """Return the frozen cut table that judges a trial; empty for reruns and the reference."""
        batch = self.subjects[subject].batch
        return () if batch is None else self.batches[batch].cut_table

    def batch_trials(self, batch: int) -> list[SubjectRecord]:
        """Return the trials of a batch, by number."""
        return [self.trials[one.number] for one in self.batches[batch].trials]

    @property
    def proposed(self) -> int:
        """How many slots have a configuration."""
        return len(self.trials)

    @property
    def started(self) -> int:
        """How many slots were ever dispatched."""
        return sum(bool(record.attempts) for record in self.trials.values())

    @property
    def unstarted(self) -> int:
        """How many slots of the budget were never dispatched."""
        return self.plan.search.budget_trials - self.started

    @property
    def trials_by_state(self) -> dict[str, int]:
        """Slots of the whole budget by state."""
        budget = self.plan.search.budget_trials
        counts = Counter(str(self.trial_state(number)) for number in range(1, budget + 1))
        return dict(sorted(counts.items()))

    @property
    def attempts_by_state(self) -> dict[str, int]:
        """The trials' attempts by state; reruns and the reference are not counted."""
        counts = Counter(str(one.state) for one in self._search_attempts())
        return dict(sorted(counts.items()))

    @property
    def open_attempts(self) -> tuple[AttemptRecord, ...]:
        """The attempts that are not settled, in order of their start."""
        return tuple(self._open.values())

    @property
    def steps_trained(self) -> int:
        """Steps of the trials' attempts, repeated ones counted again."""
        return sum(one.last_step - one.started.resume_step for one in self._search_attempts())

    @property
    def steps_saved_by_pruning(self) -> int:
        """Steps that pruned trials did not train."""
        total = 0
        for number, record in self.trials.items():
            finished = record.finished
            if self._states[number] == TrialState.PRUNED and finished is not None:
                total += self.plan.training.steps - finished.last_step
        return total

    @property
    def best_number(self) -> int | None:
        """The completed trial of lowest cost, ties to the lower number."""
        return min(self._best, key=lambda number: (self._best[number], number), default=None)

    @property
    def best_trial(self) -> str | None:
        """The id of the best trial so far."""
        number = self.best_number
        return None if number is None else self.trials[number].subject

    @property
    def best_cost_per_1000(self) -> float | None:
        """The cost of the best trial so far."""
        number = self.best_number
        return None if number is None else self._best[number]

    @property
    def lineage_faults(self) -> tuple[str, ...]:
        """What the ledger alone shows against the lineages that count."""
        return faults_of(self)

    def _search_attempts(self) -> Iterable[AttemptRecord]:
        return (one for one in self.attempts.values() if one.purpose == "search")


_HANDLERS = {
    Kind.SEARCH_OPENED: SearchState._opened,
    Kind.WORKER_ADMITTED: SearchState._worker_admitted,
    Kind.BATCH_OPENED: SearchState._batch_opened,
    Kind.ATTEMPT_STARTED: SearchState._attempt_started,
    Kind.MILESTONE_REPORTED: SearchState._milestone_reported,
    Kind.CHECKPOINT_SAVED: SearchState._checkpoint_saved,
    Kind.ATTEMPT_ENDED: SearchState._attempt_ended,
    Kind.ATTEMPT_QUARANTINED: SearchState._attempt_quarantined,
    Kind.BATCH_CLOSED: SearchState._batch_closed,
    Kind.CONTAMINATION_REPLAYED: SearchState._contamination_replayed,
    Kind.SEARCH_ENDED: SearchState._search_ended,
    Kind.SEARCH_CLOSED: SearchState._search_closed,
    Kind.SEARCH_PAUSED: SearchState._search_paused,
    Kind.SELECTION_FROZEN: SearchState._selection_frozen,
    Kind.HOLDOUT_EVALUATED: SearchState._holdout_evaluated,
}


def fold_search(plan: Plan, events: Iterable[Event]) -> SearchState:
    """Return the state that a revision's events add up to."""
    state = SearchState(plan)
    for event in events:
        state.apply(event)
    return state
