"""Reading a plan strictly: all faults at once, each with its dotted path and the nearest known key.

What a sound plan is stands in core.plan; finding the file on disk is left to the caller.
"""

import json
import tomllib
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import ValidationError

from parcel_assets.core.errors import PlanChangedError, PlanError
from parcel_assets.core.plan import REVISION_PATTERN, Plan
from parcel_assets.core.space import nearest_hint


def read_plan(text: str, *, where: str = "plan") -> Plan:
    """Return the plan that TOML text holds; raises PlanError with every fault and its path."""
    try:
        fields = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PlanError(
            f"text that is not TOML ({error})",
            expected="a TOML plan",
            where=where,
            remedy="Mend the line named above.",
            faults=[{"path": "", "fault": str(error)}],
        ) from error
    return plan_from_fields(fields, where=where)


def plan_from_fields(fields: Mapping[str, Any], *, where: str = "plan") -> Plan:
    """Return the plan that parsed fields hold; raises PlanError with every fault and its path."""
    try:
        return Plan.model_validate_json(json.dumps(fields, default=str))
    except ValidationError as error:
        faults = [_fault(one) for one in error.errors(include_url=False)]
        listed = "; ".join(f"{one['path'] or 'plan'}: {one['fault']}" for one in faults)
        raise PlanError(
            f"{len(faults)} fault(s): {listed}",
            expected="a plan without faults",
            where=where,
            remedy="Mend each of them and run `parcel-assets plan check PLAN` again.",
            faults=faults,
        ) from error


def _fault(error: Any) -> dict[str, str]:
    """Return one pydantic error as a dotted path and a sentence."""
    parts = [str(part) for part in error["loc"] if part not in {"float", "int", "choice"}]
    path, message = ".".join(parts), str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        message = f"unknown key{nearest_hint(parts[-1], _known_keys(parts[:-1]))}"
    elif error["type"] != "missing" and not isinstance(error["input"], dict | list):
        message = f"{message} (found {error['input']!r})"
    return {"path": path, "fault": message}


def _known_keys(path: list[str]) -> tuple[str, ...]:
    """Return the keys that the plan knows at a dotted path."""
    section: Any = Plan
    for part in path:
        fields = getattr(section, "model_fields", None)
        if fields is None or part not in fields:
            break
        section = _section_of(fields[part].annotation)
    fields = getattr(section, "model_fields", {})
    return tuple(fields)


def _section_of(annotation: Any) -> Any:
    """Return the section inside an optional, tuple or dict annotation, or the annotation."""
    if get_origin(annotation) in {Union, UnionType, tuple, dict, Annotated}:
        inner = [_section_of(one) for one in get_args(annotation)]
        return next((one for one in inner if hasattr(one, "model_fields")), annotation)
    return annotation


def check_revision_key(revision: str) -> str:
    """Return the search revision's key unchanged; raises PlanError where it is not a plain name."""
    if not REVISION_PATTERN.fullmatch(revision):
        raise PlanError(
            repr(revision),
            expected="lower-case letters, digits, dot, dash, underscore; at most 63 characters",
            where="search revision",
            remedy="Rename the plan file: its stem is the search revision.",
            faults=[{"path": "revision", "fault": "not a plain name"}],
        )
    return revision


def require_same_plan(revision: str, frozen: Mapping[str, Any], offered: Plan) -> None:
    """Raise PlanChangedError, naming the first field that differs from the frozen document (S1)."""
    difference = first_difference(frozen, offered.document())
    if difference is not None:
        path, before, after = difference
        raise PlanChangedError(
            f"{path} = {after!r}",
            expected=f"{before!r}, as frozen",
            where=f"plan {revision}",
            remedy="A frozen plan does not change. Save the new plan under a new search revision.",
            field=path,
            faults=[{"path": path, "fault": f"was {before!r} when the plan was frozen"}],
        )


def first_difference(before: Any, after: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """Return dotted path and both values of the first difference of two JSON values, or None."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted(before.keys() | after.keys()):
            inner = first_difference(
                before.get(key), after.get(key), f"{path}.{key}" if path else str(key)
            )
            if inner is not None:
                return inner
        return None
    if before == after and type(before) is type(after):
        return None
    return path, before, after
