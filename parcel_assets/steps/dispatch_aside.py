"""Messages that change nothing: kept in the ledger as evidence, within bounds for each worker.

So one worker can neither stop the others nor fill the ledger: one that floods is given up.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from parcel_assets.core.ledger import Kind
from parcel_assets.core.messages import KIND_CHARACTERS_MAXIMUM, AttemptMessage, evidence_of
from parcel_assets.steps.dispatch_desk import Desk

KEPT_MAXIMUM = 50  # messages of one worker, between two orders
KEPT_IN_ALL_MAXIMUM = 5000  # in one run, whoever sent them
MESSAGES_PER_TURN = 1000  # of one worker: at a sign of life a second, a quarter of an hour
NOT_KEPT = frozenset({"alive", "lost", "stopped"})  # signs of life are not worth keeping

Said = list[tuple[str, dict[str, Any]]]


class Aside:
    """Keeps evidence; `give_up` is told a worker that floods, and why."""

    def __init__(self, desk: Desk, give_up: Callable[[str, str], None]) -> None:
        self._desk = desk
        self._give_up = give_up
        self._kept: Counter[str] = Counter()
        self._in_all = 0

    def renew(self, worker_id: str) -> None:
        """Give a worker its allowance anew: it got an order."""
        del self._kept[worker_id]

    def in_bounds(self, heard: Said) -> Said:
        """Return what may be heard in one turn; a worker that sent more is given up at once."""
        counts = Counter(worker_id for worker_id, _ in heard)
        floods = {one for one, count in counts.items() if count > MESSAGES_PER_TURN}
        for worker_id in floods:
            self._give_up(worker_id, f"it sent {counts[worker_id]} messages at once")
        return [(worker_id, message) for worker_id, message in heard if worker_id not in floods]

    def keep(
        self, worker_id: str, kind: str, said: Mapping[str, Any] | AttemptMessage, reason: str
    ) -> None:
        """Keep a message as evidence; a worker without allowance is given up."""
        if kind in NOT_KEPT:
            return
        if self._kept[worker_id] >= KEPT_MAXIMUM or self._in_all >= KEPT_IN_ALL_MAXIMUM:
            self._give_up(worker_id, "it sent too many messages that mean nothing")
            return
        self._kept[worker_id] += 1
        self._in_all += 1
        entry = {
            "worker_id": worker_id,
            "message": f"{kind[:KIND_CHARACTERS_MAXIMUM]}: {evidence_of(said)}",
            "reason": reason,
        }
        self._desk.record((Kind.MESSAGE_SET_ASIDE, entry))
