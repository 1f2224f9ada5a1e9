"""What a coordinator is asked to do: the trials of a search, or the trainings after it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from parcel_assets.core.space import Scalar
from parcel_assets.core.trial import Purpose


@dataclass(frozen=True, slots=True)
class Task:
    """One training to do; `subject` names it in the ledger, once per revision."""

    subject: str
    purpose: Purpose
    configuration: Mapping[str, Scalar]
    seed: int


class Work(Protocol):
    """What there is to do; it records what it decides through the desk."""

    def advance(self) -> None:
        """Do what may be done without a worker: open and close batches, end the search."""
        ...

    def next_task(self) -> Task | None:
        """Return what the next idle worker trains, or None for now."""
        ...

    def finished(self) -> bool:
        """Say whether there is nothing more to do."""
        ...

    def report_progress(self) -> None:
        """Tell whoever listens how far it is; called often."""
        ...
