"""The order of the stages, stated once; graph, ledger, gates and packet derive from it."""

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict


class Stage(StrEnum):
    """A stage's name is also its asset key and the name under which its evidence is recorded."""

    SNAPSHOT = "pinned_snapshot"
    SPLIT = "grouped_shipment_split"
    SEARCH = "trial_batches"
    TABLE = "validated_trial_table"
    RERUN = "selected_rerun"
    SLICES = "slice_report"
    FINAL = "final_evaluation"
    PACKET = "release_packet"
    REGISTRY = "registry_entry"

    @property
    def earlier(self) -> tuple["Stage", ...]:
        """The stages before this one, in order."""
        return tuple(Stage)[: tuple(Stage).index(self)]


class Record(BaseModel):
    """A frozen, strict record that becomes canonical JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def document(self) -> dict[str, Any]:
        """Return the record as JSON fields."""
        return self.model_dump(mode="json")


class LedgerHead(Record):
    """Where a chain stood: its newest event."""

    sequence: int
    digest: str


class Evidence(Record):
    """What a stage leaves behind, named by its digest.

    `inputs` names the evidence digests (by stage, and `decision` where one was used) that the body
    was made from. Equal inputs under an equal plan mean that the stage need not run again. `head`
    is where the ledger stood when the stage was recorded: a ledger that ends before was cut short.
    """

    stage: Stage
    revision: str
    plan_digest: str
    inputs: dict[str, str]
    body: dict[str, Any]
    head: LedgerHead | None = None  # none in what releases before 0.2 left
