"""A small sound plan for adapter tests."""

from collections.abc import Mapping
from typing import Any

from parcel_assets.core.plan import Plan
from parcel_assets.core.plan_reader import plan_from_fields

DEFAULT_SPACE: dict[str, Any] = {
    "learning_rate": {"kind": "float", "low": 1e-4, "high": 1e-1, "log": True},
    "width": {"kind": "int", "low": 4, "high": 16, "step": 4},
}


def plan_of(
    space: Mapping[str, Any] | None = None, *, budget_trials: int = 82, **search: Any
) -> Plan:
    """Return a plan with the given space and search settings."""
    return plan_from_fields(
        {
            "purpose": "a test",
            "snapshot": {"archive": "a", "location": "a", "columns": {"damage_type": "type"}},
            "split": {"key": "k"},
            "metric": {"missed_damage": 5.0, "needless_review": 1.0},
            "search": {
                "budget_trials": budget_trials,
                "cap_accelerator_hours": 100.0,
                "seed": 7,
            }
            | search,
            "space": dict(space or DEFAULT_SPACE),
            "reference": {"configuration": {"width": 8}},
            "final": {"target_cost_per_1000": 600.0},
        }
    )
