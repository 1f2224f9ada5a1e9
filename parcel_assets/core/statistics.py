"""Decides what one model's decisions cost, with errors and bounds by shipment.

Frames of one shipment err together, so a shipment is one observation and photos never are.
Thresholds are left to `thresholds`, two models to `comparison`, the winner's flattery to
`selection_bias`, reruns to `reruns`, slices to `slices`. Formulas name their method.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from parcel_assets.core.columns import (
    Booleans,
    Codes,
    Floats,
    codes_of,
    flags,
    refusal,
    require_damage,
)

PER = 1000
CONFIDENCE = 0.95
MISSES_FOR_A_DECIMAL = 10  # fewer carry no decimal of a cost


@dataclass(frozen=True)
class Costs:
    """What one error costs, in the plan's unit."""

    missed_damage: float
    needless_review: float

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (math.isfinite(value) and value > 0):
                raise refusal(
                    repr(value),
                    "a positive finite cost",
                    name,
                    "Set both costs of the metric in the plan.",
                )


@dataclass(frozen=True)
class CostEstimate:
    """The cost of one model's decisions, with both one-sided 95 % bounds and the plain policies.

    `standard_error` is None for a single shipment; its `lower_bound` is then zero.
    """

    cost_per_1000: float
    standard_error: float | None
    upper_bound_guarded: float
    lower_bound: float
    shipments: int
    photos: int
    damaged_photos: int
    missed: int
    needless: int
    miss_rate: float
    review_rate: float
    missed_per_1000: float
    reviewed_per_1000: float
    review_all_cost_per_1000: float
    review_none_cost_per_1000: float

    def as_document(self) -> dict[str, Any]:
        """Return the numbers as a JSON value."""
        return asdict(self)


def trivial_cost_maximum(costs: Costs) -> float:
    """Return the cost per 1,000 that the cheaper trivial policy cannot exceed, whatever the share.

    With a damaged share p reviewing nothing costs p times a miss, reviewing everything 1 - p times
    a review; the lesser of both is largest where they meet.
    """
    miss, review = costs.missed_damage, costs.needless_review
    return PER * miss * review / (miss + review)


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, which has an s unless there is one."""
    return f"{count} {noun}{'s' * (count != 1)}"


def cost_words(cost: float, missed: int | None, *, sign: bool = False) -> str:
    """Return a cost per 1,000 as pages print it: with a decimal only where its misses carry one.

    `missed` is how many misses it was counted from, None where the page does not know.
    """
    digits = int(missed is not None and missed >= MISSES_FOR_A_DECIMAL)
    return f"{cost:{'+' if sign else ''}.{digits}f}"


def student_quantile(confidence: float, degrees_of_freedom: float) -> float:
    """Return the quantile of Student's t distribution."""
    return float(stdtrit(degrees_of_freedom, confidence))


def ratio_and_error(totals: Floats, sizes: Floats) -> tuple[float, float | None]:
    """Return sum of totals over sum of sizes and its standard error over shipments.

    The ratio estimator for clusters (Cochran, Sampling Techniques, 3rd edition, section 6.3, by
    linearisation): sqrt(G/(G-1) * sum (x_i - R m_i)^2) / sum m_i. One shipment has no error: None.
    """
    size = float(sizes.sum())
    ratio = float(totals.sum()) / size
    count = len(totals)
    if count < 2:
        return ratio, None
    residuals = totals - ratio * sizes
    return ratio, math.sqrt(count / (count - 1) * float(np.square(residuals).sum())) / size


def estimate_cost(
    review: ArrayLike, damaged: ArrayLike, shipments: ArrayLike, costs: Costs
) -> CostEstimate:
    """Return the cost per 1,000 photos of these decisions with bounds over shipments.

    The upper bound is guarded: one more shipment with one photo, missed and damaged, is counted
    before the ratio estimator's 95 % bound (Student, G degrees of freedom) is taken, so that a set
    without a single miss does not look certain.
    """
    labels = flags(damaged, "damaged")
    decisions = flags(review, "review", len(labels))
    require_damage(labels, "damaged")
    codes = codes_of(shipments, len(labels))
    missed, needless = labels & ~decisions, decisions & ~labels
    sizes = np.bincount(codes).astype(np.float64)
    totals = shipment_costs(codes, missed, needless, costs)
    ratio, error = ratio_and_error(totals, sizes)
    guarded_ratio, guarded_error = ratio_and_error(
        np.append(totals, costs.missed_damage), np.append(sizes, 1.0)
    )
    assert guarded_error is not None
    count, photos, positives = len(sizes), len(labels), int(labels.sum())
    upper = guarded_ratio + student_quantile(CONFIDENCE, count) * guarded_error
    reach = math.inf if error is None else student_quantile(CONFIDENCE, count - 1) * error
    return CostEstimate(
        cost_per_1000=PER * ratio,
        standard_error=None if error is None else PER * error,
        upper_bound_guarded=PER * upper,
        lower_bound=PER * max(0.0, ratio - reach),
        shipments=count,
        photos=photos,
        damaged_photos=positives,
        missed=int(missed.sum()),
        needless=int(needless.sum()),
        miss_rate=int(missed.sum()) / positives,
        review_rate=int(decisions.sum()) / photos,
        missed_per_1000=PER * int(missed.sum()) / photos,
        reviewed_per_1000=PER * int(decisions.sum()) / photos,
        review_all_cost_per_1000=PER * costs.needless_review * (photos - positives) / photos,
        review_none_cost_per_1000=PER * costs.missed_damage * positives / photos,
    )


def shipment_costs(codes: Codes, missed: Booleans, needless: Booleans, costs: Costs) -> Floats:
    """Return each shipment's cost from whole counts, so that row order cannot change a digit."""
    count = int(codes.max()) + 1
    return costs.missed_damage * np.bincount(
        codes[missed], minlength=count
    ) + costs.needless_review * np.bincount(codes[needless], minlength=count)
