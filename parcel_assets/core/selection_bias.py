"""Decides how much the best of many trials flatters itself: grouped bootstrap bias correction."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from parcel_assets.core.columns import (
    Booleans,
    Codes,
    Floats,
    codes_of,
    flags,
    refusal,
    require_damage,
    scores_of,
)
from parcel_assets.core.statistics import PER, Costs
from parcel_assets.core.thresholds import GRID_POINTS, threshold_grid


@dataclass(frozen=True)
class SelectionCorrectedCost:
    """What the best of these trials costs on shipments that did not choose it."""

    apparent_cost_per_1000: float
    cost_per_1000: float
    range_low: float
    range_high: float
    draws: int
    draws_used: int
    trials: int
    shipments: int

    def as_document(self) -> dict[str, Any]:
        """Return the numbers as a JSON value."""
        return asdict(self)


def selection_corrected_cost(
    scores: ArrayLike,
    damaged: ArrayLike,
    shipments: ArrayLike,
    costs: Costs,
    *,
    seed: int,
    draws: int = 1000,
    grid_points: int = GRID_POINTS,
) -> SelectionCorrectedCost:
    """Return the winner's cost corrected for having been chosen, with its 5-95 % range.

    Bootstrap bias correction (Tsamardinos, Greasidou and Borboudakis, Machine Learning 2018) with
    whole shipments: each draw resamples shipments, chooses trial and threshold on those drawn and
    is scored on those left out. `scores` has a row for each eligible trial in order of preference.
    A draw without damage on either side is not used; it cannot undo the optimism of pruning.
    """
    labels = flags(damaged, "damaged")
    require_damage(labels, "damaged")
    codes = codes_of(shipments, len(labels))
    matrix = scores_of(scores, (-1, len(labels)))
    sizes = np.bincount(codes)
    positives = np.bincount(codes[labels], minlength=len(sizes))
    weights = _usable_draws(sizes, positives, seed, draws).T
    left_out = (weights == 0).astype(np.float64)
    drawn = np.column_stack((np.ones(len(sizes)), weights))  # all shipments once, then each draw
    best = np.full(drawn.shape[1], np.inf)
    outside = np.zeros(weights.shape[1])
    for row in matrix:
        missed, needless = _photos_by_threshold(row, labels, codes, grid_points)
        inside = _costs_at_thresholds(missed, needless, drawn, costs)
        point = inside.argmin(axis=0)
        value = inside[point, np.arange(len(point))]
        better = np.flatnonzero(value < best)
        best[better] = value[better]
        of_draws = better[better > 0]
        elsewhere = _costs_at_thresholds(missed, needless, left_out[:, of_draws - 1], costs)
        outside[of_draws - 1] = elsewhere[point[of_draws], np.arange(len(of_draws))]
    outside *= PER / (sizes @ left_out)
    low, high = np.quantile(outside, [0.05, 0.95])
    return SelectionCorrectedCost(
        apparent_cost_per_1000=PER * float(best[0]) / len(labels),
        cost_per_1000=float(outside.mean()),
        range_low=float(low),
        range_high=float(high),
        draws=draws,
        draws_used=len(outside),
        trials=len(matrix),
        shipments=len(sizes),
    )


def _usable_draws(
    sizes: NDArray[np.integer], positives: NDArray[np.integer], seed: int, draws: int
) -> NDArray[np.int64]:
    """Return how often each draw (row) takes each shipment, damage on both sides of every draw."""
    count = len(sizes)
    weights: NDArray[np.int64] = np.random.default_rng(seed).multinomial(
        count, np.full(count, 1 / count), draws
    )
    usable = (weights @ positives > 0) & ((weights == 0) @ positives > 0)
    if not usable.any():
        raise refusal(
            f"{count} shipments, {int((positives > 0).sum())} of them with damage",
            "draws that leave damage on both sides",
            "shipments",
            "A correction by resampling needs more damaged shipments; report none.",
        )
    kept: NDArray[np.int64] = weights[usable]
    return kept


def _photos_by_threshold(
    scores: Floats, labels: Booleans, codes: Codes, grid_points: int
) -> tuple[csr_array, csr_array]:
    """Return damaged and intact photos by (thresholds at or below their score, shipment).

    One entry for each photo, so that a draw costs as much as there are photos, not as there are
    shipments times thresholds.
    """
    thresholds, _ = threshold_grid(np.sort(scores), grid_points)
    place = np.searchsorted(thresholds, scores, side="right")
    shape = (len(thresholds) + 1, int(codes.max()) + 1)
    damaged, intact = (
        csr_array((np.ones(int(kind.sum())), (place[kind], codes[kind])), shape=shape)
        for kind in (labels, ~labels)
    )
    return damaged, intact


def _costs_at_thresholds(
    damaged: csr_array, intact: csr_array, weights: NDArray[Any], costs: Costs
) -> Floats:
    """Return costs (thresholds, draws) of shipments weighted by draw (shipments, draws).

    Counts are whole numbers, so that no summation order changes a tie.
    """
    below_damaged = np.cumsum(damaged @ weights, axis=0)
    below_intact = np.cumsum(intact @ weights, axis=0)
    needless = below_intact[-1] - below_intact[:-1]
    result: Floats = costs.missed_damage * below_damaged[:-1] + costs.needless_review * needless
    return result
