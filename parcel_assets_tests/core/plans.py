"""A small sound plan as fields, for tests to bend."""

import copy
from typing import Any

from parcel_assets.core.plan import Plan
from parcel_assets.core.plan_reader import plan_from_fields

PLAN_FIELDS: dict[str, Any] = {
    "purpose": "a test",
    "snapshot": {
        "archive": "test-parcels",
        "location": "archives/test",
        "columns": {"damage_type": "damage_type", "camera_class": "camera_class"},
    },
    "split": {"key": "test key"},
    "preprocess": {"image_size_pixels": 32},
    "metric": {"missed_damage": 5.0, "needless_review": 1.0},
    "search": {
        "budget_trials": 82,
        "cap_accelerator_hours": 20.0,
        "trial_seconds_maximum": 60.0,
        "seed": 7,
    },
    "space": {
        "learning_rate": {"kind": "float", "low": 1e-4, "high": 1e-1, "log": True},
        "width": {"kind": "int", "low": 4, "high": 16, "step": 4},
        "rare_oversampling": {"kind": "choice", "values": [1.0, 4.0]},
    },
    "reference": {"configuration": {"learning_rate": 0.002, "width": 8}},
    "slices": {
        "crushed_corner": {
            "dimension": "damage_type",
            "value": "crushed_corner",
            "role": "protected",
        },
        "cameras": {"dimension": "camera_class"},
    },
    "final": {"target_cost_per_1000": 900.0},
}


def fields(**changes: Any) -> dict[str, Any]:
    """Return the fields with dotted changes applied; a value of ... removes the key."""
    result = copy.deepcopy(PLAN_FIELDS)
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = result
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return result


def plan(**changes: Any) -> Plan:
    """Return the small plan with dotted changes (`search__budget_trials=4`) applied."""
    return plan_from_fields(fields(**changes))
