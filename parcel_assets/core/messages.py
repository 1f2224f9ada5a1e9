"""What a worker may say, read strictly and within bounds; what follows is decided elsewhere."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(max_length=300)]

DEPTH_MAXIMUM = 6
VALUES_MAXIMUM = 20_000
KIND_CHARACTERS_MAXIMUM = 40
EVIDENCE_CHARACTERS = 2000
TOKEN_FIELD = "token"  # noqa: S105 - the name of the field, not a token


class AttemptMessage(BaseModel):
    """What every message about an attempt carries; `token` is the attempt's secret."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)

    attempt: Name
    token: Name = Field(repr=False)
    step: int = Field(ge=0, le=10**9)


class MilestoneMessage(AttemptMessage):
    """Scores at a step: their file below the prefix, their digest, and what was scored."""

    photos_seen: int
    subset: Digest
    file: Name
    scores: Digest


class CheckpointMessage(AttemptMessage):
    """A checkpoint was written below the prefix."""

    file: Name
    checkpoint: Digest
    parent: Name | None = None


class FinishedMessage(AttemptMessage):
    """The last step is done and the weights are written below the prefix."""

    file: Name
    model: Digest


class FailedMessage(AttemptMessage):
    """The attempt failed, and whose fault it is.

    `own`: the trial's; `setting`: the machine's; `identity`: its worker is no longer what it was;
    `worker`: its worker's, whom another one replaces.
    """

    category: Literal["own", "setting", "identity", "worker"]
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


def message_fault(message: Mapping[str, Any]) -> str | None:
    """Say in words why a message is none, whatever it is about; None where it is sound."""
    kind = message.get("kind")
    if not isinstance(kind, str) or not 0 < len(kind) <= KIND_CHARACTERS_MAXIMUM:
        return "a message without a kind"
    waiting: list[tuple[int, object]] = [(1, message)]
    seen = 0
    while waiting:
        depth, value = waiting.pop()
        seen += 1
        if depth > DEPTH_MAXIMUM or seen > VALUES_MAXIMUM:
            return f"a message above {VALUES_MAXIMUM} values or nested above {DEPTH_MAXIMUM} deep"
        fault = _fault_of_one(value)
        if fault is not None:
            return fault
        if isinstance(value, Mapping):
            waiting += [(depth + 1, one) for pair in value.items() for one in pair]
        elif isinstance(value, list | tuple):
            waiting += [(depth + 1, one) for one in value]
    return None


def _fault_of_one(value: object) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "a message with a number that is not finite"
    if isinstance(value, str) and not _is_whole(value):
        return "a message with half a character in it"
    if isinstance(value, Mapping) and not all(isinstance(name, str) for name in value):
        return "a message with a name that is no text"
    return None


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # it would fit in no ledger
        return False
    return True


def fault_in_words(error: ValidationError) -> str:
    """Return where and why a message cannot be read, without what it says: that may be secret."""
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(one) for one in first["loc"][:3])
    return f"a message that cannot be read: {place[:80]}: {first['msg'][:200]}"


def evidence_of(said: Mapping[str, Any] | AttemptMessage) -> str:
    """Return a message as text to keep: bounded, printable, without the attempt's secret."""
    fields = said.model_dump(mode="json") if isinstance(said, AttemptMessage) else dict(said)
    fields.pop("kind", None)
    text = repr(_without_secrets(fields, _secrets_in(fields)))
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= EVIDENCE_CHARACTERS else f"{shown[:EVIDENCE_CHARACTERS]}…"


def _secrets_in(fields: Mapping[str, Any]) -> frozenset[str]:
    secret = fields.get(TOKEN_FIELD)
    return frozenset({secret} if isinstance(secret, str) and secret else ())


def _without_secrets(value: Any, secrets: frozenset[str]) -> Any:
    if isinstance(value, Mapping):
        return {
            _without_secrets(name, secrets): "(kept secret)"
            if name == TOKEN_FIELD
            else _without_secrets(one, secrets)
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(one, secrets) for one in value]
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, "(kept secret)")
    return value
