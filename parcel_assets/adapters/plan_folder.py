"""Plan files on disk: finding one by path or revision, listing them, writing the pin into one.

What a plan may hold is decided by core.plan; this file only knows that a plan is one TOML file
whose stem is its search revision.
"""

import os
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from parcel_assets.core.errors import PlanError, StorageError
from parcel_assets.core.plan import Plan
from parcel_assets.core.plan_reader import check_revision_key, first_difference, read_plan
from parcel_assets.core.space import nearest_hint

_SECTION = re.compile(r"\s*\[")
_SNAPSHOT = re.compile(r"\s*\[\s*snapshot\s*\]\s*(#.*)?$")
_DIGEST = re.compile(r"(?P<before>\s*digest\s*=\s*)(\"[^\"]*\"|'[^']*')(?P<after>.*)$")


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
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise PlanError(
            f"no plan file {path.name}",
            expected=f"a plan file{nearest_hint(path.stem, known)}",
            where=str(path.parent),
            remedy="Name a plan by path or revision, or write one: `parcel-assets plan new`.",
            faults=[],
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(
            f"a file that cannot be read ({error})",
            expected="a plan in UTF-8",
            where=str(path),
            remedy="Save the plan as UTF-8 text.",
            faults=[],
        ) from error
    return PlanFile(check_revision_key(path.stem), path, read_plan(text, where=str(path)))


def write_pin(path: Path, digest: str) -> None:
    """Write a snapshot digest into the plan file, touching no other line; atomic.

    Raises PlanError where the file has no `[snapshot]` section of its own.
    """
    text = path.read_bytes().decode("utf-8")
    pinned = _with_pin(text, digest)
    if pinned is None or not _differs_only_in_pin(text, pinned):
        raise PlanError(
            "no line that can take the digest",
            expected='a section [snapshot], its digest as `digest = "…"` on one line',
            where=str(path),
            remedy=f'Write it yourself, below [snapshot]: digest = "{digest}"',
            faults=[],
        )
    write_text(path, pinned)


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
        partial.unlink(missing_ok=True)
        raise StorageError(
            f"a file that cannot be written ({error.strerror})",
            expected="a folder that may be written",
            where=str(path),
            remedy="Make room or choose another folder.",
        ) from error


def _with_pin(text: str, digest: str) -> str | None:
    lines = text.splitlines(keepends=True)
    start = next((n for n, line in enumerate(lines) if _SNAPSHOT.match(line.rstrip())), None)
    if start is None:
        return None
    for number in range(start + 1, len(lines)):
        if _SECTION.match(lines[number]):
            break
        ending = lines[number][len(lines[number].rstrip("\r\n")) :]
        match = _DIGEST.match(lines[number].rstrip("\r\n"))
        if match:
            lines[number] = f'{match["before"]}"{digest}"{match["after"]}{ending}'
            return "".join(lines)
    ending = "\r\n" if lines[start].endswith("\r\n") else "\n"
    lines[start] = lines[start].rstrip("\r\n") + ending
    lines.insert(start + 1, f'digest = "{digest}"{ending}')
    return "".join(lines)


def _differs_only_in_pin(before: str, after: str) -> bool:
    old, new = tomllib.loads(before), tomllib.loads(after)
    old["snapshot"].pop("digest", None)
    new["snapshot"].pop("digest", None)
    return first_difference(old, new) is None
