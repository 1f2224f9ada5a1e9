"""The workers of one run: started, admitted or refused, missed, replaced.

A worker gets an order only after its measured identity equals the frozen one in every field and it
has answered a challenge (S4). What it trains is decided by `dispatch`.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parcel_assets.core.errors import IdentityError, NoWorkerError
from parcel_assets.core.identity import Difference, first_difference_of, identity_digest
from parcel_assets.core.ledger import Kind
from parcel_assets.core.ports import Engine, Message
from parcel_assets.steps.dispatch_desk import Desk
from parcel_assets.steps.dispatch_settle import LEASE_SECONDS
from parcel_assets.steps.worker import PARTS, challenge_digest

START_SECONDS = 120.0  # until it is ready: the import of a training library may be slow
CHALLENGE_ROWS = 4  # per part


@dataclass(slots=True)
class WorkerRecord:
    """One worker process; `stage` is starting, challenged, loading, idle, busy or stopping."""

    worker_id: str
    heard_at: float
    stage: str = "starting"
    identity: Mapping[str, str] | None = None
    answer: str = ""


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
        self._draw = draw
        self._setup: Path | None = None
        self._pixels = desk.pixels()
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
            self.workers[worker_id] = WorkerRecord(worker_id, self._desk.now())

    @property
    def idle(self) -> list[WorkerRecord]:
        """The workers that wait for an order, in order of their start."""
        return [one for one in self.workers.values() if one.stage == "idle"]

    def progressed(self) -> None:
        """Note that workers get somewhere: only losses without progress add up."""
        self._lost_in_a_row = 0

    def hear(self, worker_id: str, message: Message) -> None:
        """Take in a message on the way to the first order."""
        worker = self.workers[worker_id]
        kind = message["kind"]
        if kind == "hello" and worker.stage == "starting":
            self._challenge(worker, message)
        elif kind == "answer" and worker.stage == "challenged":
            self._admit(worker, message)
        elif kind == "ready" and worker.stage == "loading":
            worker.stage = "idle"

    def _challenge(self, worker: WorkerRecord, message: Message) -> None:
        measured = message.get("identity")
        found = {str(k): str(v) for k, v in measured.items()} if isinstance(measured, dict) else {}
        expected = self._desk.state.identity
        assert expected is not None, "the identity is frozen before workers start"
        difference = first_difference_of(expected, found)
        if difference is not None:
            self._refuse(worker, difference)
            return
        rows = {
            part: [self._draw(len(self._pixels[part])) for _ in range(CHALLENGE_ROWS)]
            for part in PARTS
        }
        worker.stage, worker.identity = "challenged", found
        worker.answer = challenge_digest(self._pixels, rows)
        self._engine.send(worker.worker_id, {"kind": "challenge", "rows": rows})

    def _admit(self, worker: WorkerRecord, message: Message) -> None:
        answer = str(message.get("digest"))
        if answer != worker.answer:
            cause = "it does not hold the photos that it says it loaded"
            self._refuse(worker, Difference("challenge", answer[:8], worker.answer[:8], cause))
            return
        worker.stage = "loading"
        assert worker.identity is not None
        entry = {"worker_id": worker.worker_id, "identity": identity_digest(worker.identity)}
        self._desk.record((Kind.WORKER_ADMITTED, entry))

    def _refuse(self, worker: WorkerRecord, difference: Difference) -> None:
        """Turn a worker away; raises IdentityError once nobody is left."""
        self._engine.stop(worker.worker_id)
        del self.workers[worker.worker_id]
        self._size -= 1
        self._refused = difference
        entry = {
            "worker_id": worker.worker_id,
            "field": difference.field,
            "found": difference.found,
            "expected": difference.expected,
            "cause": difference.cause,
        }
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

    def silent(self) -> list[WorkerRecord]:
        """Return the workers that gave no sign of life for longer than their lease."""
        now, working = self._desk.now(), {"idle", "busy", "stopping"}
        return [
            one
            for one in self.workers.values()
            if now - one.heard_at > (LEASE_SECONDS if one.stage in working else START_SECONDS)
        ]
