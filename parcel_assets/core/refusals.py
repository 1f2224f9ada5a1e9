"""Who was turned away at the door and why, as the ledger tells, for pages and the command line."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from parcel_assets.core.ledger import Event, Kind


@dataclass(frozen=True, slots=True)
class Refusals:
    """Workers turned away for one and the same reason; `last_at_seconds` is the ledger's clock."""

    field: str
    found: str
    expected: str
    cause: str
    workers: tuple[str, ...]
    last_at_seconds: float

    @property
    def sentence(self) -> str:
        """The refusals in words."""
        who = self.workers[-1]
        if len(self.workers) > 1:
            who = f"{len(self.workers)} workers, the last {who}"
        return f"{who}, refused for {self.field}: {self.cause}"

    def document(self) -> dict[str, object]:
        """Return the refusals as JSON fields."""
        return {
            "field": self.field,
            "found": self.found,
            "expected": self.expected,
            "cause": self.cause,
            "workers": list(self.workers),
            "last_at_seconds": self.last_at_seconds,
            "sentence": self.sentence,
        }


def refusal_sentence(body: Mapping[str, object]) -> str:
    """Return one refusal in words, from the body of WORKER_REFUSED."""
    return (
        f"Worker {body['worker_id']} refused for {body['field']}: found {body['found']}, expected "
        f"{body['expected']}. Likely cause: {body['cause']}. No slot was spent."
    )


def admitted_of(events: Iterable[Event]) -> tuple[str, ...]:
    """Return the ids of all workers that were ever admitted."""
    return tuple(str(e.body["worker_id"]) for e in events if e.kind == Kind.WORKER_ADMITTED)


def refusals_of(events: Iterable[Event]) -> tuple[Refusals, ...]:
    """Return who was turned away at the door and why, equal reasons together, in their order."""
    found: dict[tuple[str, ...], tuple[list[str], float]] = {}
    for event in events:
        if event.kind == Kind.WORKER_REFUSED:
            body = event.body
            reason = tuple(str(body[name]) for name in ("field", "found", "expected", "cause"))
            workers, _ = found.get(reason, ([], 0.0))
            found[reason] = ([*workers, str(body["worker_id"])], event.at_seconds)
    return tuple(
        Refusals(field, seen, wanted, cause, tuple(workers), at)
        for (field, seen, wanted, cause), (workers, at) in found.items()
    )
