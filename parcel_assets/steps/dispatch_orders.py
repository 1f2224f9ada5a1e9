"""Orders and answers to workers: none goes out before what it rests on is durable.

The events of one round of messages share one transaction. What nobody waits for, such as a
checkpoint, is appended with the next that somebody does, at the latest after `FLUSH_SECONDS`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from parcel_assets.core.attempts import AttemptRecord
from parcel_assets.core.ledger import Kind
from parcel_assets.core.lineage import owner_of, training_digest
from parcel_assets.core.ports import Engine, Message
from parcel_assets.core.trial import AttemptStarted
from parcel_assets.steps.dispatch_desk import Desk
from parcel_assets.steps.dispatch_reports import resume_of
from parcel_assets.steps.dispatch_work import Task

FLUSH_SECONDS = 0.25


@dataclass(slots=True)
class Flight:
    """An attempt in the air: on which worker, with which secret."""

    record: AttemptRecord
    token: str


@dataclass(frozen=True, slots=True)
class _Launch:
    worker_id: str
    started: AttemptStarted
    order: Mapping[str, Any]


class Orders:
    """What workers are to be told, until it may be told."""

    def __init__(self, desk: Desk, engine: Engine, make_token: Callable[[], str]) -> None:
        self._desk = desk
        self._engine = engine
        self._make_token = make_token
        self._said: list[tuple[str, Message]] = []
        self._launches: list[_Launch] = []
        self._flushed_at = desk.now()

    def tell(self, worker_id: str, message: Message) -> None:
        """Answer a worker, with the next `send`."""
        self._said.append((worker_id, message))

    def launch(self, worker_id: str, task: Task) -> Flight:
        """Reserve a training for a worker; its order goes out with the next `send`."""
        desk, state = self._desk, self._desk.state
        known = state.subjects.get(task.subject)
        resume = resume_of(desk, task.subject) if known else None
        attempt = f"{task.subject}/{1 + (len(known.attempts) if known else 0)}"
        started = AttemptStarted(
            attempt=attempt,
            subject=task.subject,
            purpose=task.purpose,
            worker_id=worker_id,
            fence=desk.lease.fence,
            # the chain's digest keeps a new ledger over an old store from meeting old prefixes
            prefix=f"{desk.revision.lower()}-{state.chain_digest[:8]}/{attempt}",
            reserved_seconds=desk.plan.search.trial_seconds_maximum,
            resume_step=resume["step"] if resume else 0,
            parent_checkpoint=resume["checkpoint"] if resume else None,
            training=training_digest(task.configuration, task.seed),
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
        self._launches.append(_Launch(worker_id, started, order))
        return Flight(state.attempts[attempt], token)

    def send(self, in_flight: Collection[str]) -> None:
        """Make durable what was decided, claim prefixes, then tell workers: a kill loses nothing.

        Orders of workers that are not `in_flight` any more are dropped: their attempts are settled.
        """
        now = self._desk.now()
        waited_for = self._said or self._launches
        if not waited_for and now - self._flushed_at < FLUSH_SECONDS:
            return
        self._desk.flush()
        self._flushed_at = now
        said, self._said = self._said, []
        launches, self._launches = self._launches, []
        for worker_id, message in said:
            self._engine.send(worker_id, message)
        for one in launches:
            if one.worker_id in in_flight:
                owner = owner_of(self._desk.revision, one.started.attempt, one.started.subject)
                folder = self._desk.ports.store.claim_prefix(one.started.prefix, owner)
                self._engine.send(one.worker_id, {**one.order, "prefix": str(folder)})
