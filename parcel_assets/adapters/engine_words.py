"""What engines accept: which lines of a worker are messages, and which worker ids there are."""

import json
from typing import Any, NoReturn

from parcel_assets.core.errors import SettingError


def message_of(line: bytes) -> dict[str, Any] | None:
    """Return a line as a message; None where it is none, or speaks as only the engine may."""
    try:
        message = json.loads(line, parse_constant=_refuse_constant)
        if b"\\ud" in line.lower():
            json.dumps(message, ensure_ascii=False).encode()  # half a character fits in no ledger
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        return None
    return None if message["kind"] == "lost" else message


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def require_new(worker_id: str, known: set[str], *, closed: bool) -> None:
    """Raise SettingError where an id was used before, or the engine is closed."""
    if closed or worker_id in known:
        raise SettingError(
            "an engine that was closed" if closed else f"a second worker named {worker_id!r}",
            expected="an open engine and a new id for every worker",
            where="the engine",
            remedy="This is a fault of the program that starts workers: ids are never used twice.",
        )


def require_known(worker_id: str, known: set[str]) -> None:
    """Raise SettingError where no worker of this name was ever started."""
    if worker_id not in known:
        raise SettingError(
            f"no worker named {worker_id!r}",
            expected="the id of a worker that was started here",
            where="the engine",
            remedy="This is a fault of the program that speaks with workers.",
        )
