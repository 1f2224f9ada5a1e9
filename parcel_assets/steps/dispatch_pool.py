"""The workers of one run: started, admitted or refused, missed, replaced.

A worker gets an order only once it has passed the door (S4). What it trains is decided by
`dispatch`.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parcel_assets.core.errors import IdentityError, NoWorkerError
from parcel_assets.core.identity import Difference, identity_digest
from parcel_assets.core.ledger import Kind
from parcel_assets.core.ports import Engine, Message
from parcel_assets.steps.dispatch_desk import Desk
from parcel_assets.steps.dispatch_door import Door, Visit
from parcel_assets.steps.dispatch_settle import LEASE_SECONDS

START_SECONDS = 120.0  # until it is ready: the import of a training library may be slow


@dataclass(slots=True)
class WorkerRecord:
    """One worker process; `stage` is starting, challenged, loading, idle, busy or stopping.

    `due_at` is when a worker that is on its way from one stage to the next must have arrived.
    """

    worker_id: str
    heard_at: float
    due_at: float
    stage: str = "starting"
    visit: Visit | None = None

    @property
    def admitted(self) -> bool:
        """Whether it has passed the door."""
        return self.stage not in {"starting", "challenged", "loading"}


class Pool:
    """Keeps `size` workers alive, within bounds; `draw` picks the rows of challenges."""

    def __init__(
        self,
        desk: Desk,
        engine: Engine,
        size: int,
        *,
        draw: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        self._desk = desk
        self._engine = engine
        self._size = size
        self._door = Door(desk, draw)
        self._setup: Path | None = None
        self._count = 0
        self._lost_in_a_row = 0
        self._refused: Difference | None = None
        self.workers: dict[str, WorkerRecord] = {}

    def fill(self) -> None:
        """Start workers until the pool is full; refused ones are not replaced."""
        if self._setup is None:
            desk = self._desk
            fields = {
                "revision": desk.revision,
                "plan": desk.plan.document(),
                "files": desk.files(),
            }
            self._setup = desk.ports.store.path(desk.ports.store.put_document(fields))
        while len(self.workers) < self._size:
            self._count += 1
            worker_id = f"{self._desk.revision}.{self._desk.lease.fence}.{self._count}"
            self._engine.start(worker_id, self._setup)
            now = self._desk.now()
            self.workers[worker_id] = WorkerRecord(worker_id, now, now + START_SECONDS)

    @property
    def idle(self) -> list[WorkerRecord]:
        """The workers that wait for an order, in order of their start."""
        return [one for one in self.workers.values() if one.stage == "idle"]

    def progressed(self) -> None:
        """Note that workers get somewhere: only losses without progress add up."""
        self._lost_in_a_row = 0

    def hear(self, worker_id: str, message: Message) -> bool:
        """Take in a message on the way to the first order; say whether it was its turn."""
        worker = self.workers[worker_id]
        match message["kind"], worker.stage:
            case "alive", _:
                return True
            case "hello", "starting":
                self._challenge(worker, message)
            case "answer", "challenged":
                self._load(worker, message)
            case "ready", "loading":
                self._admit(worker, message)
            case _:
                return False
        return True

    def _challenge(self, worker: WorkerRecord, message: Message) -> None:
        visit = self._door.examine(message)
        if isinstance(visit, Difference):
            self.refuse(worker, visit)
            return
        worker.stage, worker.visit = "challenged", visit
        self._engine.send(worker.worker_id, visit.challenge)

    def _load(self, worker: WorkerRecord, message: Message) -> None:
        assert worker.visit is not None
        difference = self._door.judge_answer(worker.visit, message)
        if difference is not None:
            self.refuse(worker, difference)
            return
        worker.stage = "loading"

    def _admit(self, worker: WorkerRecord, message: Message) -> None:
        assert worker.visit is not None
        difference = self._door.judge_ready(worker.visit, message)
        if difference is not None:
            self.refuse(worker, difference)
            return
        worker.stage = "idle"
        entry = {
            "worker_id": worker.worker_id,
            "identity": identity_digest(worker.visit.identity),
        }
        self._desk.record((Kind.WORKER_ADMITTED, entry))

    def refuse(self, worker: WorkerRecord, difference: Difference) -> None:
        """Turn a worker away; raises IdentityError once nobody is left."""
        self._engine.stop(worker.worker_id)
        del self.workers[worker.worker_id]
        self._size -= 1
        self._refused = difference
        entry = difference.document(worker.worker_id)
        self._desk.record((Kind.WORKER_REFUSED, entry))
        self._desk.ports.notify("worker_refused", entry)
        if self._size == 0:
            raise IdentityError(
                f"{difference.field} = {difference.found}",
                expected=f"{difference.expected}, as frozen for {self._desk.revision}",
                where=f"worker {worker.worker_id}",
                remedy=f"Likely cause: {difference.cause}. No slot was spent. Start workers that "
                "match, or plan a new search revision.",
                field=difference.field,
            )

    def lose(self, worker_id: str, facts: Mapping[str, Any]) -> None:
        """Forget a lost worker; raises NoWorkerError once too many were lost without progress."""
        del self.workers[worker_id]
        self._lost_in_a_row += 1
        if self._lost_in_a_row > 3 * self._size + 2:
            tail = str(facts.get("tail", ""))[-400:]
            raise NoWorkerError(
                f"{self._lost_in_a_row} workers lost without progress; the last: "
                f"{facts.get('reason')}{': ' + tail if tail else ''}",
                expected="workers that live",
                where=str(facts.get("log", f"worker {worker_id}")),
                remedy="Mend what its log names, then run again: the search resumes.",
            )

    def stop(self, worker: WorkerRecord) -> None:
        """Note that a worker was told to stop its attempt: it owes an answer."""
        worker.stage, worker.due_at = "stopping", self._desk.now() + START_SECONDS

    def given_up(self) -> list[tuple[WorkerRecord, str]]:
        """Return the workers that are lost, and why: silent past their lease, or stuck.

        A sign of life is not enough on the way to an order: whose loading hangs, or whose answer
        was lost, would be waited for without end.
        """
        now = self._desk.now()
        found = []
        for worker in self.workers.values():
            arrived = worker.stage in {"idle", "busy"}
            silence = now - worker.heard_at
            if (arrived or worker.stage == "stopping") and silence > LEASE_SECONDS:
                found.append((worker, f"no sign of life for {silence:.0f} s"))
            elif not arrived and now > worker.due_at:
                found.append((worker, f"still {worker.stage} {now - worker.due_at:.0f} s too late"))
        return found
