"""What a worker may say about an attempt, read strictly; what follows is decided elsewhere."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class AttemptMessage(BaseModel):
    """What every message about an attempt carries; `token` is the attempt's secret."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)

    attempt: str
    token: str
    step: int = Field(ge=0)


class MilestoneMessage(AttemptMessage):
    """Scores at a step: their file below the prefix, their digest, and what was scored."""

    photos_seen: int
    subset: Digest
    file: str
    scores: Digest


class CheckpointMessage(AttemptMessage):
    """A checkpoint was written below the prefix."""

    file: str
    checkpoint: Digest
    parent: str | None = None


class FinishedMessage(AttemptMessage):
    """The last step is done and the weights are written below the prefix."""

    file: str
    model: Digest


class FailedMessage(AttemptMessage):
    """The attempt failed: by its own fault, for want of what the operator must mend, or because
    the worker no longer is what it was admitted as.
    """

    category: Literal["own", "setting", "identity"]
    error: dict[str, Any]


class StoppedMessage(AttemptMessage):
    """The attempt stopped as it was told."""


MESSAGES: dict[str, type[AttemptMessage]] = {
    "milestone": MilestoneMessage,
    "checkpoint": CheckpointMessage,
    "finished": FinishedMessage,
    "failed": FailedMessage,
    "stopped": StoppedMessage,
}
