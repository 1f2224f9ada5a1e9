"""Plan files on disk: finding one by path or revision, listing them, writing the pin into one.

What a plan may hold is decided by core.plan; this file only knows that a plan is one TOML file
whose stem is its search revision.
"""

import io
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from parcel_assets.core.errors import PlanError, StorageError
from parcel_assets.core.plan import Plan
from parcel_assets.core.plan_reader import check_revision_key, first_difference, read_plan
from parcel_assets.core.space import nearest_hint

# some editors put it before UTF-8 text; it stays where it is
BYTE_ORDER_MARK = "\ufeff"

_SECTION = re.compile(r"\s*\[")
_SNAPSHOT = re.compile(r"\s*\[\s*snapshot\s*\]\s*(#.*)?$")


@dataclass(frozen=True, slots=True)
class PlanFile:
    """One plan as it stands on disk."""

    revision: str
    path: Path
    plan: Plan


def list_plans(folder: Path) -> tuple[Path, ...]:
    """Return the plan files of a folder in order of name, hidden ones left out."""
    return tuple(sorted(one for one in folder.glob("*.toml") if not one.name.startswith(".")))


def find_plan(argument: str, folder: Path) -> PlanFile:
    """Return the plan that a path, or the name of a revision in the folder, stands for.

    Raises PlanError where there is none, where the name is no revision, or where it has faults.
    """
    path = Path(argument).expanduser()
    if path.suffix != ".toml" and not path.is_file():
        path = folder / f"{argument}.toml"
    return read_plan_file(path, known=[one.stem for one in list_plans(folder)])


def read_plan_file(path: Path, *, known: Sequence[str] = ()) -> PlanFile:
    """Return the plan in a file; raises PlanError with every fault."""
    try:
        text = path.read_text(encoding="utf-8").removeprefix(BYTE_ORDER_MARK)
    except FileNotFoundError as error:
        raise PlanError(
            f"no plan file {path.name}",
            expected=f"a plan file{nearest_hint(path.stem, known)}",
            where=str(path.parent),
            remedy="Name a plan by path or revision, or write one: "
            "`parcel-assets plan new ARCHIVE`.",
            faults=[],
        ) from error
    except UnicodeDecodeError as error:
        raise PlanError(
            f"a file that cannot be read ({error})",
            expected="a plan in UTF-8",
            where=str(path),
            remedy="Save the plan as UTF-8 text.",
            faults=[],
        ) from error
    except OSError as error:
        raise PlanError(
            "a folder" if path.is_dir() else f"what cannot be read ({error.strerror})",
            expected="a plan file that may be read",
            where=str(path),
            remedy="Name a plan file; one in a folder of plans lies there as REVISION.toml.",
            faults=[],
        ) from error
    return PlanFile(check_revision_key(path.stem), path, read_plan(text, where=str(path)))


def write_pin(path: Path, digest: str) -> None:
    """Write a snapshot digest into the plan file, touching no other line; atomic.

    Raises PlanError where the file has no `[snapshot]` section of its own.
    """
    text = path.read_bytes().decode("utf-8")
    write_text(path, _changed(text, {"digest": digest}, path))


def write_copy(source: Path, target: Path, fields: Mapping[str, str]) -> None:
    """Write a plan's text under another name, with other texts in its snapshot section.

    Raises PlanError where the file has no `[snapshot]` section of its own.
    """
    text = source.read_bytes().decode("utf-8")
    write_text(target, _changed(text, fields, source))


def write_text(path: Path, text: str) -> None:
    """Write a text file in one rename; raises StorageError where the folder does not take it."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as stream:
            stream.write(text.encode("utf-8"))
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):  # on a disk that refuses, that would hide the first refusal
            partial.unlink(missing_ok=True)
        raise StorageError(
            f"a file that cannot be written ({error.strerror})",
            expected="a folder that may be written",
            where=str(path),
            remedy="Make room or choose another folder.",
        ) from error


def _changed(text: str, fields: Mapping[str, str], path: Path) -> str:
    """Return the text with other values in its snapshot section; nothing else may differ."""
    mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
    text = text.removeprefix(mark)
    lines = list(io.StringIO(text, newline=""))  # what TOML calls lines, no others
    start = next((n for n, line in enumerate(lines) if _SNAPSHOT.match(line.rstrip())), None)
    if start is not None:
        for name, value in fields.items():
            _set_line(lines, start, name, value)
    changed = "".join(lines)
    wanted = tomllib.loads(text)
    wanted.setdefault("snapshot", {}).update(fields)
    if start is None or first_difference(wanted, tomllib.loads(changed)) is not None:
        name, value = next(iter(fields.items()))
        raise PlanError(
            f"no line that can take the {name}",
            expected=f'a section [snapshot] with {name} = "…" on one line',
            where=str(path),
            remedy=f'Write it yourself, below [snapshot]: {name} = "{value}"',
            faults=[],
        )
    return mark + changed


def _set_line(lines: list[str], start: int, name: str, value: str) -> None:
    key = re.compile(rf"(?P<before>\s*{name}\s*=\s*)(\"[^\"]*\"|'[^']*')(?P<after>.*)$")
    ending = "\r\n" if lines[start].endswith("\r\n") else "\n"
    for number in range(start + 1, len(lines)):
        if _SECTION.match(lines[number]):
            break
        match = key.match(lines[number].rstrip("\r\n"))
        if match:
            lines[number] = f'{match["before"]}"{value}"{match["after"]}{ending}'
            return
    lines[start] = lines[start].rstrip("\r\n") + ending
    lines.insert(start + 1, f'{name} = "{value}"{ending}')
