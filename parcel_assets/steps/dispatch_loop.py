"""The coordinator's loop: orders to workers, answers to what they say, the end of every attempt.

Shared by the search and by the trainings after it. It carries out what the rules in `core` decide
and records each fact before it acts on it, so that a kill at any point loses nothing but time. What
is trained next, and when it is over, is asked of a `Work`.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from parcel_assets.core.attempts import AttemptRecord
from parcel_assets.core.errors import CheckpointError, IdentityError, NoWorkerError, ReportError
from parcel_assets.core.ledger import Kind
from parcel_assets.core.lineage import owner_of
from parcel_assets.core.messages import (
    MESSAGES,
    AttemptMessage,
    CheckpointMessage,
    FailedMessage,
    FinishedMessage,
    MilestoneMessage,
)
from parcel_assets.core.ports import Engine, Message
from parcel_assets.core.search_charges import overdue
from parcel_assets.core.search_rules import HOLD_NO_WORKER, check_step
from parcel_assets.core.trial import AttemptStarted, AttemptState, Verdict
from parcel_assets.steps.dispatch_desk import Desk
from parcel_assets.steps.dispatch_pool import Pool, WorkerRecord
from parcel_assets.steps.dispatch_reports import (
    resume_of,
    take_checkpoint,
    take_finish,
    take_milestone,
)
from parcel_assets.steps.dispatch_settle import (
    end_entry,
    expiry_entry,
    quarantine_entries,
    settle_leftovers,
)
from parcel_assets.steps.dispatch_work import Task, Work

POLL_SECONDS = 0.25
LOSSES_PER_SUBJECT = 5
EVIDENCE_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Launch:
    """An order that goes out once its reservation is durable and its prefix claimed."""

    worker_id: str
    started: AttemptStarted
    order: Mapping[str, Any]


@dataclass(slots=True)
class Flight:
    """An attempt in the air: on which worker, with which secret."""

    record: AttemptRecord
    token: str


class Dispatcher:
    """Runs a `Work` on workers to its end, whatever happens to them."""

    def __init__(
        self,
        desk: Desk,
        work: Work,
        engine: Engine,
        workers: int,
        *,
        draw: Callable[[int], int] = secrets.randbelow,
        make_token: Callable[[], str] = secrets.token_hex,
    ) -> None:
        self.desk = desk
        self.work = work
        self.engine = engine
        self.pool = Pool(desk, engine, workers, draw=draw)
        self._make_token = make_token
        self._flights: dict[str, Flight] = {}  # by worker id
        self._said: list[tuple[str, Message]] = []  # what workers are told after the next flush
        self._launches: list[Launch] = []
        self._flushed_at = desk.now()
        self._losses: dict[str, int] = {}  # by subject: in this run, in a row, at no new step

    def run(self) -> None:
        """Work to the end; on any error or interrupt, settle what is open and stop the workers.

        Raises NoWorkerError or IdentityError where no worker is left: the ledger says so too.
        """
        try:
            self._work()
        except (NoWorkerError, IdentityError) as error:
            self._settle_open()
            self.desk.record((Kind.SEARCH_PAUSED, {"reason": str(error)[:EVIDENCE_CHARACTERS]}))
            error.facts.setdefault("hold", HOLD_NO_WORKER)
            raise
        finally:
            try:
                self._settle_open()
            finally:
                self.engine.close()

    def _work(self) -> None:
        self.pool.fill()
        self.work.advance()
        while not self.work.finished():
            self._dispatch()
            self._act()
            for worker_id, message in self.engine.receive(POLL_SECONDS):
                self._hear(worker_id, message)
            self._watch()
            self.pool.fill()
            self.work.advance()
            self.work.report_progress()

    def _act(self) -> None:
        """Make durable what was decided, then act on it: of a round's decisions a kill keeps all.

        What nobody waits for, such as a checkpoint, is appended with the next that somebody does.
        """
        now = self.desk.now()
        if not (self._said or self._launches or now - self._flushed_at >= POLL_SECONDS):
            return
        self.desk.flush()
        self._flushed_at = now
        said, self._said = self._said, []
        launches, self._launches = self._launches, []
        for worker_id, message in said:
            self.engine.send(worker_id, message)
        for one in launches:
            owner = owner_of(self.desk.revision, one.started.attempt, one.started.subject)
            folder = self.desk.ports.store.claim_prefix(one.started.prefix, owner)
            self.engine.send(one.worker_id, {**one.order, "prefix": str(folder)})

    # ---- orders ---------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        for worker in self.pool.idle:
            task = self.work.next_task()
            if task is None:
                return
            self._launch(worker, task)

    def _launch(self, worker: WorkerRecord, task: Task) -> None:
        """Reserve; the order goes out once the reservation is durable and the prefix claimed."""
        desk, state = self.desk, self.desk.state
        known = state.subjects.get(task.subject)
        number = 1 + (len(known.attempts) if known else 0)
        resume = resume_of(desk, task.subject) if known else None
        attempt = f"{task.subject}/{number}"
        started = AttemptStarted(
            attempt=attempt,
            subject=task.subject,
            purpose=task.purpose,
            worker_id=worker.worker_id,
            fence=desk.lease.fence,
            # the chain's digest keeps a new ledger over an old store from meeting old prefixes
            prefix=f"{desk.revision}-{state.chain_digest[:8]}/{attempt}",
            reserved_seconds=desk.plan.search.trial_seconds_maximum,
            resume_step=resume["step"] if resume else 0,
            parent_checkpoint=resume["checkpoint"] if resume else None,
        )
        desk.note((Kind.ATTEMPT_STARTED, started.document()))
        token = self._make_token()
        order = {
            "kind": "order",
            "attempt": attempt,
            "subject": task.subject,
            "token": token,
            "configuration": dict(task.configuration),
            "seed": task.seed,
            "reserved_seconds": started.reserved_seconds,
            "resume": resume,
        }
        worker.stage = "busy"
        worker.heard_at = desk.now()
        self._flights[worker.worker_id] = Flight(state.attempts[attempt], token)
        self._launches.append(Launch(worker.worker_id, started, order))

    # ---- messages -------------------------------------------------------------------------------

    def _hear(self, worker_id: str, message: Message) -> None:
        kind, worker = str(message["kind"]), self.pool.workers.get(worker_id)
        if worker is None:
            self._set_aside(worker_id, kind, message, "its worker was given up before")
            return
        if kind == "lost":
            self._lose(worker, message)
            return
        worker.heard_at = self.desk.now()
        flight = self._flights.get(worker_id)
        if kind not in MESSAGES:
            self.pool.hear(worker_id, message)
        elif flight is not None:
            self._hear_of_attempt(worker, flight, message)
        elif kind in {"stopped", "failed"} and worker.stage == "stopping":
            worker.stage = "idle"  # the attempt was settled with its last report
        else:
            self._set_aside(worker_id, kind, message, "its attempt is settled")

    def _hear_of_attempt(self, worker: WorkerRecord, flight: Flight, message: Message) -> None:
        kind = str(message["kind"])
        try:
            said = MESSAGES[kind].model_validate(dict(message))
        except ValidationError as error:
            self._distrust(worker, flight, f"a message that cannot be read: {error.errors()[0]}")
            return
        if (said.attempt, said.token) != (flight.record.attempt, flight.token):
            reason = "it speaks for an attempt that is not its own"
            self._set_aside(worker.worker_id, kind, message, reason)
            return
        self._obey_rules(worker, flight, said)
        self.pool.progressed()

    def _obey_rules(self, worker: WorkerRecord, flight: Flight, said: AttemptMessage) -> None:
        """Carry out one genuine message; a broken rule ends the attempt."""
        desk, record = self.desk, flight.record
        try:
            check_step(desk.plan, said.step, f"message of {record.attempt}")
            if isinstance(said, MilestoneMessage):
                self._milestone(worker, flight, said)
            elif isinstance(said, CheckpointMessage):
                take_checkpoint(desk, record, said)
            elif isinstance(said, FinishedMessage):
                take_finish(desk, record, said)
                self._free(worker)
            elif isinstance(said, FailedMessage):
                self._failed(worker, flight, said)
            else:
                self._distrust(worker, flight, "it stopped without being told")
        except ReportError as error:
            attempts = error.facts.get("attempts")
            if attempts:
                self.quarantine(dict.fromkeys(attempts, str(error)))
            else:
                self._distrust(worker, flight, str(error))
        except CheckpointError as error:
            self.quarantine(error.facts.get("attempts") or {record.attempt: str(error)})

    def _milestone(self, worker: WorkerRecord, flight: Flight, said: MilestoneMessage) -> None:
        go_on = take_milestone(self.desk, flight.record, said) != Verdict.STOP
        if not go_on:
            del self._flights[worker.worker_id]
            worker.stage = "stopping"
        self._said.append((worker.worker_id, {"kind": "verdict", "go_on": go_on}))

    def _failed(self, worker: WorkerRecord, flight: Flight, said: FailedMessage) -> None:
        """Settle a failure: the trial's own, or one of the machine, which ends this run."""
        record, own = flight.record, said.category == "own"
        reason = str(said.error.get("found", "no reason given"))[:EVIDENCE_CHARACTERS]
        state = AttemptState.FAILED if own else AttemptState.EXPIRED
        self.desk.record(
            end_entry(self.desk, record, state, step=said.step, reason=reason, own_failure=own)
        )
        self._free(worker)
        if not own:
            remedy = str(said.error.get("remedy", "Mend it, then run again."))
            raise NoWorkerError(
                reason,
                expected=str(said.error.get("expected", "a machine that can train")),
                where=str(said.error.get("where", f"worker {worker.worker_id}")),
                remedy=f"{remedy} The search resumes where it stopped.",
            )

    # ---- ends -----------------------------------------------------------------------------------

    def _free(self, worker: WorkerRecord) -> None:
        self._flights.pop(worker.worker_id, None)
        worker.stage = "idle"

    def _lose(self, worker: WorkerRecord, facts: Mapping[str, Any]) -> None:
        """Settle a lost worker's attempt; its trial waits again."""
        flight = self._flights.pop(worker.worker_id, None)
        if flight is not None:
            record, subject = flight.record, flight.record.subject
            reason = f"its worker was lost: {facts.get('reason')}"
            self.desk.record(expiry_entry(self.desk, record, reason, worker.heard_at))
            others = (
                one for one in self.desk.state.subjects[subject].attempts if one is not record
            )
            # further than any attempt before it: one that repeats its last step gets nowhere
            got_on = record.last_step > max((one.last_step for one in others), default=0)
            self._losses[subject] = 1 if got_on else self._losses.get(subject, 0) + 1
            if self._losses[subject] > LOSSES_PER_SUBJECT:
                raise NoWorkerError(
                    f"{subject} losing its worker {self._losses[subject]} times",
                    expected="workers that survive a training",
                    where=str(facts.get("log", worker.worker_id)),
                    remedy="Look at the log (memory?), then run again: the search resumes.",
                )
        self.pool.lose(worker.worker_id, facts)

    def _distrust(self, worker: WorkerRecord, flight: Flight, reason: str) -> None:
        """End the attempt of a worker that breaks the protocol, as the trial's own failure."""
        self.engine.stop(worker.worker_id)
        del self._flights[worker.worker_id]
        self.desk.record(
            end_entry(
                self.desk, flight.record, AttemptState.FAILED, reason=reason, own_failure=True
            )
        )
        self.pool.lose(worker.worker_id, {"reason": reason})

    def quarantine(self, attempts: Mapping[str, str]) -> None:
        """Quarantine all attempts involved; workers that still run one are stopped."""
        self.desk.record(*quarantine_entries(self.desk, attempts))
        for worker_id, flight in tuple(self._flights.items()):
            if flight.record.attempt in attempts:
                self.engine.stop(worker_id)
                del self._flights[worker_id]
                self.pool.lose(worker_id, {"reason": attempts[flight.record.attempt]})

    def _watch(self) -> None:
        """Give up workers that fell silent, and stop attempts that used up their reservation."""
        for worker in self.pool.silent():
            self.engine.stop(worker.worker_id)
            silence = self.desk.now() - worker.heard_at
            self._lose(worker, {"reason": f"no sign of life for {silence:.0f} s"})
        for worker_id, flight in tuple(self._flights.items()):
            record = flight.record
            if overdue(record, self.desk.now()):
                limit = f"it reached the limit of {record.started.reserved_seconds:g} s"
                self._distrust(self.pool.workers[worker_id], flight, limit)

    def _settle_open(self) -> None:
        """Settle what this run leaves open: it is resumed, not failed."""
        heard = {
            flight.record.attempt: self.pool.workers[worker_id].heard_at
            for worker_id, flight in self._flights.items()
        }
        self._flights.clear()
        settle_leftovers(self.desk, "the coordinator stopped", heard)

    def _set_aside(self, worker_id: str, kind: str, said: object, reason: str) -> None:
        """Keep a message that changes nothing as evidence; signs of life are not worth keeping."""
        if kind in {"alive", "lost", "stopped"}:
            return
        entry = {
            "worker_id": worker_id,
            "message": f"{kind}: {said}"[:EVIDENCE_CHARACTERS],
            "reason": reason,
        }
        self.desk.record((Kind.MESSAGE_SET_ASIDE, entry))
