"""The one threshold policy of all trials: least cost on a grid of quantiles, and how sure that is.

A photo goes to review when its score is at or above the threshold.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parcel_assets.core.columns import (
    Booleans,
    Codes,
    Floats,
    codes_of,
    finite,
    flags,
    refusal,
    require_damage,
    scores_of,
)
from parcel_assets.core.statistics import PER, Costs, shipment_costs

GRID_POINTS = 200


@dataclass(frozen=True)
class ThresholdInterval:
    """The thresholds beside the chosen one whose cost is within one paired standard error of it."""

    low: float
    high: float
    highest_cost_per_1000: float

    def as_document(self) -> dict[str, Any]:
        """Return the interval as a JSON value."""
        return asdict(self)


@dataclass(frozen=True)
class CostCurve:
    """Errors and cost at each threshold of the grid, thresholds ascending."""

    thresholds: Floats
    missed: Codes
    needless: Codes
    cost_per_1000: Floats

    def as_document(self) -> dict[str, Any]:
        """Return the curve as a JSON value."""
        return {name: column.tolist() for name, column in vars(self).items()}


def review_decisions(scores: ArrayLike, threshold: float) -> Booleans:
    """Return which photos go to review: a score at or above the threshold, in double precision."""
    return finite(scores, "scores") >= threshold


def cost_curve(
    scores: ArrayLike, damaged: ArrayLike, costs: Costs, grid_points: int = GRID_POINTS
) -> CostCurve:
    """Return errors and cost over a quantile grid of thresholds, from review all to review none.

    A threshold lies halfway between two neighbouring scores, so that a score which moves in its
    last digits changes no decision; the first is the lowest score, the last just above the highest.
    """
    labels = flags(damaged, "damaged")
    require_damage(labels, "damaged")
    values = scores_of(scores, (len(labels),))
    order = np.argsort(values, kind="stable")
    thresholds, kept_back = threshold_grid(values[order], grid_points)
    missed_below = np.concatenate(([0], np.cumsum(labels[order])))
    missed = missed_below[kept_back].astype(np.intp)
    needless = (len(labels) - kept_back) - (int(labels.sum()) - missed)
    total = costs.missed_damage * missed + costs.needless_review * needless
    return CostCurve(thresholds, missed, needless, PER * total / len(labels))


def choose_threshold(
    scores: ArrayLike, damaged: ArrayLike, costs: Costs, grid_points: int = GRID_POINTS
) -> float:
    """Return the threshold of least cost on the grid; among equals the lowest, which reviews more.

    A photo is reviewed when its score is at or above it (`review_decisions`). Its `repr` reads
    back to the same number.
    """
    curve = cost_curve(scores, damaged, costs, grid_points)
    return float(curve.thresholds[int(np.argmin(curve.cost_per_1000))])


def threshold_interval(
    scores: ArrayLike,
    damaged: ArrayLike,
    shipments: ArrayLike,
    costs: Costs,
    *,
    threshold: float,
    grid_points: int = GRID_POINTS,
) -> ThresholdInterval:
    """Return the unbroken run of grid thresholds around the chosen one that cost about as much.

    About as much: the paired difference over shipments is at most one standard error. A wide run
    says that the shipments do not pin the threshold down. One shipment has no error: equals only.
    """
    labels = flags(damaged, "damaged")
    require_damage(labels, "damaged")
    codes = codes_of(shipments, len(labels))
    values = scores_of(scores, (len(labels),))
    thresholds, _ = threshold_grid(np.sort(values), grid_points)
    missed, needless = errors_by_shipment(values, labels, codes, grid_points, np.float64)
    totals = costs.missed_damage * missed + costs.needless_review * needless
    review = values >= threshold
    chosen = shipment_costs(codes, labels & ~review, review & ~labels, costs)
    extra, sizes = totals - chosen[:, None], np.bincount(codes).astype(np.float64)
    ratios = extra.sum(axis=0) / sizes.sum()
    count = len(sizes)
    residuals = np.square(extra - sizes[:, None] * ratios).sum(axis=0)
    errors = np.sqrt(count / max(count - 1, 1) * residuals) / sizes.sum() * (count > 1)
    near = ratios <= errors
    after = int(np.searchsorted(thresholds, threshold, side="right"))
    below, above = near[:after][::-1], near[after:]
    first = after - (len(below) if below.all() else int(np.argmin(below)))
    last = after + (len(above) if above.all() else int(np.argmin(above))) - 1
    run = slice(first, last + 1)
    within = PER * totals.sum(axis=0)[run] / sizes.sum()
    own = PER * float(chosen.sum()) / float(sizes.sum())
    return ThresholdInterval(
        low=min(threshold, float(thresholds[first])) if len(within) else threshold,
        high=max(threshold, float(thresholds[last])) if len(within) else threshold,
        highest_cost_per_1000=max([own, *within.tolist()]),
    )


def threshold_grid(ascending: Floats, grid_points: int) -> tuple[Floats, Codes]:
    """Return ascending thresholds and how many scores lie below each."""
    if grid_points < 2:
        raise refusal(
            f"{grid_points} grid points",
            "at least two",
            "grid_points",
            "The grid runs from review all to review none.",
        )
    photos = len(ascending)
    ranks = np.arange(grid_points - 1) * (photos - 1) // max(grid_points - 2, 1)
    below = np.unique(np.searchsorted(ascending, ascending[ranks], side="left"))
    upper, lower = ascending[below], ascending[np.maximum(below - 1, 0)]
    halfway = 0.5 * lower + 0.5 * upper
    thresholds = np.where((halfway > lower) & (halfway <= upper), halfway, upper)
    return (
        np.append(thresholds, np.nextafter(ascending[-1], np.inf)),
        np.append(below, photos).astype(np.intp),
    )


def errors_by_shipment(
    scores: Floats,
    labels: Booleans,
    codes: Codes,
    grid_points: int,
    precision: type[np.float32] | type[np.float64],
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Return misses and needless reviews of each shipment (row) at each threshold (column)."""
    thresholds, _ = threshold_grid(np.sort(scores), grid_points)
    count, points = int(codes.max()) + 1, len(thresholds)
    cell = codes * (points + 1) + np.searchsorted(thresholds, scores, side="right")
    below = [
        np.bincount(cell[kind], minlength=count * (points + 1))
        .reshape(count, points + 1)
        .cumsum(axis=1)
        for kind in (labels, ~labels)
    ]
    needless = below[1][:, -1:] - below[1][:, :-1]
    return below[0][:, :-1].astype(precision), needless.astype(precision)
