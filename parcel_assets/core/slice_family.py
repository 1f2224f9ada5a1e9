"""What several slices say together: claims of harm among many, and shrunken numbers for a chart.

That all protected slices pass is an intersection of tests, each at 5 %, and needs no correction.
That some slice is harmed does: among twelve equal ones, one looks harmed in four searches of ten.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from parcel_assets.core.columns import Floats
from parcel_assets.core.slice_plan import SliceRule
from parcel_assets.core.slice_verdict import DECIDED, SliceResult, decide, lacking_support


def judge_together(
    rules: Sequence[SliceRule], results: Sequence[SliceResult]
) -> tuple[SliceResult, ...]:
    """Return the results with harm claimed only where the slices of one role together allow it.

    A slice whose claim is withdrawn becomes INSUFFICIENT, never PASS. Shrunken differences are
    added for display; no outcome rests on them.
    """
    adjusted: dict[str, float] = {}
    for role in ("protected", "monitored"):
        # a slice without support claims nothing, so it is none of the claims
        tested = {
            one.name: one.harm_chance
            for rule, one in zip(rules, results, strict=True)
            if one.role == role
            and one.harm_chance is not None
            and not lacking_support(rule, vars(one))
        }
        adjusted |= holm(tested)
    shrunken = shrunken_differences(results)
    return tuple(
        replace(
            _again(rule, one, adjusted[one.name]) if one.name in adjusted else one,
            shrunken_difference=shrunken.get(one.name),
        )
        for rule, one in zip(rules, results, strict=True)
    )


def holm(chances: Mapping[str, float]) -> dict[str, float]:
    """Return p-values adjusted for their number (Holm, Scandinavian Journal of Statistics 1979)."""
    adjusted, least = {}, 0.0
    ordered = sorted(chances, key=lambda name: (chances[name], name))
    for place, name in enumerate(ordered):
        least = max(least, min(1.0, (len(ordered) - place) * chances[name]))
        adjusted[name] = least
    return adjusted


def shrunken_differences(results: Sequence[SliceResult]) -> dict[str, float]:
    """Return each slice's difference drawn towards the mean of its dimension, for display only.

    Normal model with the variance between slices by DerSimonian and Laird (Controlled Clinical
    Trials 1986), slices of one dimension and measure together. As a gate it would pass one bad
    slice of twelve in four searches of five.
    """
    families: dict[tuple[str, str], list[SliceResult]] = {}
    for one in results:
        if one.difference is not None and not one.crossed_with:
            family = families.setdefault((one.dimension, one.measure), [])
            # a slice named in the plan may be among the values of its dimension as well
            if all(other.value != one.value for other in family):
                family.append(one)
    shrunken: dict[str, float] = {}
    for family in families.values():
        if len(family) < 3:
            continue  # two slices do not say how slices vary
        values = np.array([one.difference for one in family], dtype=np.float64)
        errors = np.array([one.standard_error for one in family], dtype=np.float64)
        for one, value in zip(family, _shrunk(values, np.square(errors)), strict=True):
            shrunken |= {
                twin.name: float(value)
                for twin in results
                if (twin.dimension, twin.value, twin.measure, twin.crossed_with)
                == (one.dimension, one.value, one.measure, {})
            }
    return shrunken


def _shrunk(values: Floats, variances: Floats) -> Floats:
    weights = 1 / variances
    mean = float(weights @ values / weights.sum())
    excess = float(weights @ np.square(values - mean)) - (len(values) - 1)
    scale = float(weights.sum() - np.square(weights).sum() / weights.sum())
    between = max(0.0, excess / scale) if scale > 0 else 0.0
    total = 1 / (variances + between)
    centre = float(total @ values / total.sum())
    kept = between / (between + variances)
    result: Floats = centre + kept * (values - centre)
    assert math.isfinite(float(result.sum()))
    return result


def _again(rule: SliceRule, result: SliceResult, chance: float) -> SliceResult:
    numbers: dict[str, Any] = {
        one.name: getattr(result, one.name) for one in fields(result) if one.name not in DECIDED
    }
    return decide(rule, numbers | {"harm_chance_adjusted": chance})
