"""The coordinator's loop: orders to workers, answers to what they say, the end of every attempt.

Shared by the search and by the trainings after it. It carries out what the rules in `core` decide
and records each fact before it acts on it, so that a kill at any point loses nothing but time. What
is trained next, and when it is over, is asked of a `Work`.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from parcel_assets.core.errors import CheckpointError, IdentityError, NoWorkerError, ReportError
from parcel_assets.core.identity import difference_since
from parcel_assets.core.ledger import Kind
from parcel_assets.core.messages import (
    EVIDENCE_CHARACTERS,
    MESSAGES,
    AttemptMessage,
    CheckpointMessage,
    FailedMessage,
    FinishedMessage,
    MilestoneMessage,
    fault_in_words,
    message_fault,
)
from parcel_assets.core.ports import Engine, Message
from parcel_assets.core.search_charges import overdue
from parcel_assets.core.search_rules import HOLD_NO_WORKER, check_step
from parcel_assets.core.trial import AttemptState, Verdict
from parcel_assets.steps.dispatch_aside import Aside
from parcel_assets.steps.dispatch_desk import Desk
from parcel_assets.steps.dispatch_lineage import with_those_involved
from parcel_assets.steps.dispatch_orders import Flight, Orders
from parcel_assets.steps.dispatch_pool import Pool, WorkerRecord
from parcel_assets.steps.dispatch_reports import (
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
from parcel_assets.steps.dispatch_work import Work

POLL_SECONDS = 0.25
LOSSES_PER_SUBJECT = 5


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
        self._orders = Orders(desk, engine, make_token)
        self._aside = Aside(desk, self._give_up)
        self._flights: dict[str, Flight] = {}  # by worker id
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
            self._orders.send(self._flights)
            for worker_id, message in self._aside.in_bounds(self.engine.receive(POLL_SECONDS)):
                self._hear(worker_id, message)
            self._watch()
            self.pool.fill()
            self.work.advance()
            self.work.report_progress()

    # ---- orders ---------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        for worker in self.pool.idle:
            task = self.work.next_task()
            if task is None:
                return
            worker.stage, worker.heard_at = "busy", self.desk.now()
            self._aside.renew(worker.worker_id)
            self._flights[worker.worker_id] = self._orders.launch(worker.worker_id, task)

    # ---- messages -------------------------------------------------------------------------------

    def _hear(self, worker_id: str, message: Message) -> None:
        kind, worker = str(message.get("kind")), self.pool.workers.get(worker_id)
        if worker is None:
            self._aside.keep(worker_id, kind, message, "its worker was given up before")
            return
        if kind == "lost":
            self._lose(worker, message)
            return
        worker.heard_at = self.desk.now()
        flight = self._flights.get(worker_id)
        fault = message_fault(message)
        if fault is not None:
            self._distrust(worker, flight, fault)
        elif kind not in MESSAGES:
            if not self.pool.hear(worker_id, message):
                self._aside.keep(worker_id, kind, message, f"not its turn: it is {worker.stage}")
        elif flight is not None:
            self._hear_of_attempt(worker, flight, message)
        elif kind in {"stopped", "failed"} and worker.stage == "stopping":
            worker.stage = "idle"  # the attempt was settled with its last report
        else:
            reason = "its attempt is settled" if worker.admitted else "it was not admitted"
            self._aside.keep(worker_id, kind, message, reason)

    def _hear_of_attempt(self, worker: WorkerRecord, flight: Flight, message: Message) -> None:
        kind = str(message["kind"])
        try:
            said = MESSAGES[kind].model_validate(dict(message))
        except ValidationError as error:
            self._distrust(worker, flight, fault_in_words(error))
            return
        genuine = secrets.compare_digest(said.token.encode(), flight.token.encode())
        if said.attempt != flight.record.attempt or not genuine:
            reason = "it speaks for an attempt that is not its own"
            self._aside.keep(worker.worker_id, kind, message, reason)
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
            self.pool.stop(worker)
        self._orders.tell(worker.worker_id, {"kind": "verdict", "go_on": go_on})

    def _failed(self, worker: WorkerRecord, flight: Flight, said: FailedMessage) -> None:
        """Settle a failure: the trial's, the worker's, or the machine's, which ends this run."""
        record, own = flight.record, said.category == "own"
        reason = str(said.error.get("found", "no reason given"))[:EVIDENCE_CHARACTERS]
        if said.category == "worker":
            self._give_up(worker.worker_id, reason)
            return
        state = AttemptState.FAILED if own else AttemptState.EXPIRED
        self.desk.record(
            end_entry(self.desk, record, state, step=said.step, reason=reason, own_failure=own)
        )
        self._free(worker)
        if said.category == "identity":
            self.pool.refuse(worker, difference_since(said.error))
        elif not own:
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

    def _give_up(self, worker_id: str, reason: str) -> None:
        """Stop a worker; its trial waits again."""
        worker = self.pool.workers.get(worker_id)
        if worker is not None:
            self.engine.stop(worker_id)
            self._lose(worker, {"reason": reason})

    def _distrust(self, worker: WorkerRecord, flight: Flight | None, reason: str) -> None:
        """Stop a worker that breaks the protocol; its attempt ends as the trial's own failure."""
        if flight is None:
            self._give_up(worker.worker_id, reason)
            return
        self.engine.stop(worker.worker_id)
        del self._flights[worker.worker_id]
        self.desk.record(
            end_entry(
                self.desk, flight.record, AttemptState.FAILED, reason=reason, own_failure=True
            )
        )
        self.pool.lose(worker.worker_id, {"reason": reason})

    def quarantine(self, attempts: Mapping[str, str], found_by: str = "a report") -> None:
        """Quarantine all attempts involved; workers that still run one are stopped first."""
        attempts = with_those_involved(self.desk.state, self.desk.reader, dict(attempts))
        self.desk.record(*quarantine_entries(self.desk, attempts, found_by))
        for worker_id, flight in tuple(self._flights.items()):
            if flight.record.attempt in attempts:
                self.engine.stop(worker_id)
                del self._flights[worker_id]
                self.pool.lose(worker_id, {"reason": attempts[flight.record.attempt]})
        self.desk.set_aside_quarantined()

    def _watch(self) -> None:
        """Give up workers that are silent or stuck, and stop attempts past their reservation."""
        for worker, reason in self.pool.given_up():
            self._give_up(worker.worker_id, reason)
        for worker_id, flight in tuple(self._flights.items()):
            if overdue(flight.record, self.desk.now()):
                limit = f"it reached the limit of {flight.record.started.reserved_seconds:g} s"
                self._distrust(self.pool.workers[worker_id], flight, limit)

    def _settle_open(self) -> None:
        """Settle what this run leaves open: it is resumed, not failed."""
        heard = {
            flight.record.attempt: self.pool.workers[worker_id].heard_at
            for worker_id, flight in self._flights.items()
        }
        self._flights.clear()
        settle_leftovers(self.desk, "the coordinator stopped", heard)
