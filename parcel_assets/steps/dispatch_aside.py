"""Messages that change nothing: kept in the ledger as evidence, within bounds for each worker.

What follows where a worker has used its allowance up is left to the loop.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from parcel_assets.core.ledger import Kind
from parcel_assets.core.messages import KIND_CHARACTERS_MAXIMUM, AttemptMessage, evidence_of
from parcel_assets.steps.dispatch_desk import Desk

KEPT_MAXIMUM = 50  # messages of one worker, between two orders
KEPT_IN_ALL_MAXIMUM = 5000  # in one run, whoever sent them
MESSAGES_PER_TURN = 1000  # of one worker: at a sign of life a second, a quarter of an hour
NOT_KEPT = frozenset({"alive", "lost", "stopped"})  # signs of life are not worth keeping

Said = list[tuple[str, dict[str, Any]]]


def in_bounds(heard: Said) -> tuple[Said, dict[str, int]]:
    """Return what may be heard in one turn, and how much those who flood have sent.

    So one worker can neither stop the others nor fill the ledger.
    """
    counts: Counter[str] = Counter()
    kept: Said = []
    for worker_id, message in heard:
        counts[worker_id] += 1
        if counts[worker_id] <= MESSAGES_PER_TURN or message.get("kind") == "lost":
            kept.append((worker_id, message))
    return kept, {one: count for one, count in counts.items() if count > MESSAGES_PER_TURN}


class Aside:
    """Keeps evidence; a worker that floods is heard no more."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._kept: Counter[str] = Counter()
        self._in_all = 0

    def renew(self, worker_id: str) -> None:
        """Give a worker its allowance anew: it got an order."""
        del self._kept[worker_id]

    def keep(
        self, worker_id: str, kind: str, said: Mapping[str, Any] | AttemptMessage, reason: str
    ) -> bool:
        """Keep a message; return False once its worker has no allowance left."""
        if kind in NOT_KEPT:
            return True
        if self._kept[worker_id] >= KEPT_MAXIMUM or self._in_all >= KEPT_IN_ALL_MAXIMUM:
            return False
        self._kept[worker_id] += 1
        self._in_all += 1
        entry = {
            "worker_id": worker_id,
            "message": f"{kind[:KIND_CHARACTERS_MAXIMUM]}: {evidence_of(said)}",
            "reason": reason,
        }
        self._desk.record((Kind.MESSAGE_SET_ASIDE, entry))
        return True
