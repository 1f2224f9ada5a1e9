"""Decides, slice by slice, whether the candidate is shown to be no worse than the reference.

Three outcomes, and only PASS is a pass: too little evidence is INSUFFICIENT, never silence. Which
photos belong to a slice, and what lifts a hold, belong to others; the sentences to `slice_words`,
what several slices say together to `slice_family`.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr

from parcel_assets.core.columns import Booleans, Codes, flags, shipment_codes
from parcel_assets.core.comparison import (
    PairedComparison,
    compare_paired_costs,
    compare_paired_miss_rates,
)
from parcel_assets.core.errors import EvidenceError
from parcel_assets.core.rates import (
    EffectiveSize,
    effective_size,
    upper_rate_bound,
    wilson_interval,
)
from parcel_assets.core.slice_plan import SliceRule
from parcel_assets.core.slice_verdict import NOTHING_KNOWN, Outcome, SliceResult, decide
from parcel_assets.core.slice_words import (
    COST_UNIT,
    MISS_RATE_UNIT,
    NOT_ENOUGH,
    counts_words,
)
from parcel_assets.core.statistics import Costs, counted, estimate_cost


def judge_miss_slice(
    rule: SliceRule,
    candidate_review: ArrayLike,
    reference_review: ArrayLike | None,
    damaged: ArrayLike,
    shipments: ArrayLike,
    *,
    members: ArrayLike,
    allow_no_damage: bool = False,
) -> SliceResult:
    """Return whether the candidate misses no more of this slice's damage than the reference.

    `members` says which photos are in the slice; each model's decisions are at its own threshold.
    FAIL: the paired 95 % bound lies above zero, or the difference above `fail_miss_points`; PASS:
    the upper bound is within the margin. Support comes first. Without a reference (None) only the
    absolute limit can pass or fail it. No damage in the slice is an EvidenceError, or INSUFFICIENT
    in words for a monitored slice with `allow_no_damage`.
    """
    codes = shipment_codes(shipments)
    inside = flags(members, "members", len(codes))
    # the members' damaged photos, before anything else: no other photo can matter
    inside = inside & flags(damaged, "damaged", len(codes))
    candidate, codes = (
        flags(candidate_review, "candidate_review", len(codes))[inside],
        codes[inside],
    )
    numbers = _identity(rule, "miss_rate", codes, len(codes))
    if not len(codes):
        return _without_damage(rule, numbers, allow_no_damage)
    size = effective_size(~candidate, codes)
    numbers |= {
        "candidate": 100 * size.rate,
        "margin": rule.margin_miss_points,
        "fail_above": rule.fail_miss_points,
    }
    if reference_review is not None:
        reference = flags(reference_review, "reference_review", len(inside))[inside]
        numbers["reference"] = 100 * float(np.mean(~reference))
        if size.shipments > 1:
            every = np.ones(len(codes), dtype=np.bool_)
            paired = compare_paired_miss_rates(candidate, reference, every, codes)
            numbers |= _within(_interval(paired, 100), 100)
    return decide(rule, numbers | _absolute(size))


def judge_cost_slice(
    rule: SliceRule,
    candidate_review: ArrayLike,
    reference_review: ArrayLike,
    damaged: ArrayLike,
    shipments: ArrayLike,
    *,
    members: ArrayLike,
    costs: Costs,
    allow_no_damage: bool = False,
) -> SliceResult:
    """Return whether the candidate costs no more on this slice than the reference.

    As `judge_miss_slice`, on the cost per 1,000 of all photos of the slice, with a margin that is a
    fraction of the reference's cost. The effective number is that of the damaged photos.
    """
    candidate, reference, labels, codes = _slice_of(
        candidate_review, reference_review, damaged, shipments, members
    )
    numbers = _identity(rule, "cost", codes, int(labels.sum()))
    if not labels.any():
        return _without_damage(rule, numbers, allow_no_damage)
    reference_cost = estimate_cost(reference, labels, codes, costs).cost_per_1000
    margin = rule.margin_cost_fraction * reference_cost
    numbers |= {
        "candidate": estimate_cost(candidate, labels, codes, costs).cost_per_1000,
        "reference": reference_cost,
        "margin": margin,
        "fail_above": margin * rule.fail_miss_points / rule.margin_miss_points,
    }
    if numbers["shipments"] > 1:
        paired = compare_paired_costs(candidate, reference, labels, codes, costs)
        numbers |= _interval(paired, 1)
    return decide(rule, numbers | _absolute(effective_size(~candidate[labels], codes[labels])))


def _slice_of(
    candidate_review: ArrayLike,
    reference_review: ArrayLike,
    damaged: ArrayLike,
    shipments: ArrayLike,
    members: ArrayLike,
) -> tuple[Booleans, Booleans, Booleans, Codes]:
    """Return both models' decisions, the labels and the shipments of the slice's photos alone."""
    codes = shipment_codes(shipments)
    inside = flags(members, "members", len(codes))
    candidate, reference, labels = (
        flags(values, name, len(codes))[inside]
        for values, name in (
            (candidate_review, "candidate_review"),
            (reference_review, "reference_review"),
            (damaged, "damaged"),
        )
    )
    return candidate, reference, labels, codes[inside]


def _identity(rule: SliceRule, measure: str, codes: Codes, damaged_photos: int) -> dict[str, Any]:
    return NOTHING_KNOWN | {
        "name": rule.name,
        "dimension": rule.dimension,
        "value": rule.value,
        "crossed_with": dict(rule.crossed_with),
        "role": rule.role,
        "measure": measure,
        "unit": MISS_RATE_UNIT if measure == "miss_rate" else COST_UNIT,
        "shipments": int(np.count_nonzero(np.bincount(codes))),
        "photos": len(codes),
        "damaged_photos": damaged_photos,
    }


def _absolute(size: EffectiveSize) -> dict[str, float]:
    """Return the candidate's own miss rate: for display, and bounded for a limit."""
    low, high = wilson_interval(size)
    return {
        "effective_photos": size.effective_photos,
        "design_effect": size.design_effect,
        "miss_rate": size.rate,
        "miss_rate_low": low,
        "miss_rate_high": high,
        "miss_rate_upper_bound": upper_rate_bound(size),
    }


def _interval(paired: PairedComparison, scale: int) -> dict[str, float]:
    chance = float(stdtr(paired.shipments - 1, -paired.difference / paired.guarded_standard_error))
    return {
        "difference": scale * paired.difference,
        "standard_error": scale * paired.guarded_standard_error,
        "lower": scale * paired.lower,
        "upper": scale * paired.upper,
        "harm_chance": chance,
        "harm_chance_adjusted": chance,
    }


def _within(interval: dict[str, float], limit: float) -> dict[str, float]:
    """Return an interval cut at what two rates can differ by; few shipments reach beyond it."""
    low, high = max(interval["lower"], -limit), min(interval["upper"], limit)
    return interval | {"lower": low, "upper": high}


def _without_damage(rule: SliceRule, numbers: dict[str, Any], allowed: bool) -> SliceResult:
    if not allowed or rule.role == "protected":
        raise EvidenceError(
            f"no damaged photo in {counted(numbers['shipments'], 'shipment')}",
            expected="damaged photos in the slice",
            where=f"slice {rule.name}",
            remedy="Nothing can be said about missed damage here: collect damaged shipments of "
            "this slice, or take it out of the plan.",
            slice=rule.name,
        )
    reason = "no damaged photo, so no miss could show"
    return SliceResult(
        **numbers,
        outcome=Outcome.INSUFFICIENT,
        reasons=(reason,),
        sentence=f"{counts_words(numbers)} {NOT_ENOUGH} ({reason}).",
    )
