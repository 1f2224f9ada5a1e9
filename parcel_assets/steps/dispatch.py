"""Trainings after the search: reruns and the reference, under the same rules as trials.

Each is reserved, charged and recorded like a trial's attempt, resumes nothing (H3) and is compared
with nothing. Which trainings there are is decided by the selection.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from parcel_assets.core.attempts import AttemptRecord
from parcel_assets.core.errors import HoldError, LedgerError, TrainingError
from parcel_assets.core.evidence import SplitBody
from parcel_assets.core.ledger import Lease
from parcel_assets.core.plan import Plan
from parcel_assets.core.ports import Ports
from parcel_assets.core.search_charges import Room, room_for
from parcel_assets.core.trial import TrialState
from parcel_assets.steps.dispatch_desk import Desk
from parcel_assets.steps.dispatch_loop import Dispatcher
from parcel_assets.steps.dispatch_repair import quarantine_clashes
from parcel_assets.steps.dispatch_settle import settle_leftovers
from parcel_assets.steps.dispatch_work import Task


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a training gave: `model` and `scores` are store digests, scores of all validation."""

    subject: str
    attempt: str
    model: str
    scores: str
    cost_per_1000: float
    threshold: float


def run_tasks(
    tasks: Sequence[Task],
    *,
    plan: Plan,
    lease: Lease,
    ports: Ports,
    split: SplitBody,
    workers: int,
) -> dict[str, TaskResult]:
    """Train what the ledger does not already show completed; return every result by subject.

    The first task of each worker runs in a fresh process. Raises TrainingError where a task used up
    its attempts, HoldError where the cap leaves no room.
    """
    desk = Desk(plan, plan.digest, lease, ports, split)
    settle_leftovers(desk, "its coordinator was lost")
    work = _Tasks(desk, tasks)
    if not work.finished() and desk.state.identity is None:
        raise LedgerError(
            "no search in this revision",
            expected="a search first: its workers' identity is what reruns must equal",
            where=f"ledger of {desk.revision}",
            remedy="Materialize trial_batches first.",
        )
    while not work.finished() or quarantine_clashes(desk, work.attempts(), "the rerun's end"):
        count = min(workers, len(work.missing))
        Dispatcher(desk, work, ports.open_engine(), count).run()
    return {task.subject: _result(desk, task) for task in tasks}


class _Tasks:
    """The work of a list of tasks, in their order."""

    def __init__(self, desk: Desk, tasks: Sequence[Task]) -> None:
        self._desk = desk
        self._tasks = tasks
        self._told: tuple[int, int] | None = None

    def _state(self, task: Task) -> TrialState:
        record = self._desk.state.subjects.get(task.subject)
        attempts = self._desk.plan.search.attempts_per_trial
        return TrialState.WAITING if record is None else record.state(attempts)

    def attempts(self) -> list[AttemptRecord]:
        """Return the clean attempts at the tasks."""
        known = [self._desk.state.subjects.get(task.subject) for task in self._tasks]
        return [attempt for one in known if one is not None for attempt in one.clean_attempts]

    @property
    def missing(self) -> list[Task]:
        """The tasks that are not completed."""
        return [task for task in self._tasks if self._state(task) != TrialState.COMPLETED]

    def advance(self) -> None:
        """Raise TrainingError where a task can no longer complete."""
        for task in self.missing:
            if self._state(task) in {TrialState.FAILED, TrialState.QUARANTINED}:
                last = self._desk.state.subjects[task.subject].attempts[-1]
                assert last.ended is not None
                raise TrainingError(
                    f"{task.subject} {self._state(task)}: {last.quarantined or last.ended.reason}",
                    expected="a training that completes within its attempts",
                    where=f"{task.purpose} of {self._desk.revision}",
                    remedy="Look at the worker's log; a training that completed once must again.",
                    subject=task.subject,
                )

    def next_task(self) -> Task | None:
        """Return the first waiting task that the cap has room for."""
        for task in self._tasks:
            if self._state(task) == TrialState.WAITING:
                return self._task(task)
        return None

    def _task(self, task: Task) -> Task | None:
        room = room_for(self._desk.plan, self._desk.state, task.purpose)
        if room == Room.NO:
            raise HoldError(
                f"no accelerator-seconds left for {task.subject}",
                expected=f"{self._desk.plan.search.trial_seconds_maximum:g} under the cap",
                where=f"{task.purpose} of {self._desk.revision}",
                remedy="Lost attempts used the share up; plan a new search revision.",
                hold="hold:budget",
            )
        if room == Room.LATER:
            return None
        return task

    def finished(self) -> bool:
        """Say whether every task is completed."""
        return not self.missing

    def report_progress(self) -> None:
        """Tell how many tasks are done, when that changes."""
        facts = (len(self._tasks) - len(self.missing), len(self._tasks))
        if facts != self._told:
            self._told = facts
            stage = {"stage": "selected_rerun", "done": facts[0], "total": facts[1]}
            self._desk.ports.notify("progress", stage)


def _result(desk: Desk, task: Task) -> TaskResult:
    record = desk.state.subjects[task.subject].finished
    assert record is not None
    assert record.ended is not None
    report = record.reports[desk.plan.training.steps]
    assert record.ended.model is not None
    assert report.cost_per_1000 is not None
    assert report.threshold is not None
    return TaskResult(
        task.subject,
        record.attempt,
        record.ended.model,
        report.scores,
        report.cost_per_1000,
        report.threshold,
    )
