"""Decides how much the best of many trials flatters itself: grouped bootstrap bias correction."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parcel_assets.core.columns import (
    Floats,
    codes_of,
    flags,
    refusal,
    require_damage,
    scores_of,
)
from parcel_assets.core.statistics import PER, Costs
from parcel_assets.core.thresholds import GRID_POINTS, errors_by_shipment

# whole numbers below this are exact in single precision
EXACT_SINGLE_PRECISION = 2**24


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
    weights = _usable_draws(sizes, positives, seed, draws)
    left_out = weights == 0
    single = len(sizes) * int(sizes.max()) < EXACT_SINGLE_PRECISION
    precision: type[np.float32] | type[np.float64] = np.float32 if single else np.float64
    drawn: NDArray[np.floating] = weights.astype(precision)
    best = np.full(len(drawn), np.inf)
    outside = np.zeros(len(drawn))
    apparent = math.inf
    for row in matrix:
        missed, needless = errors_by_shipment(row, labels, codes, grid_points, precision)
        apparent = min(apparent, float(_priced(costs, missed.sum(0), needless.sum(0)).min()))
        inside = _priced(costs, drawn @ missed, drawn @ needless)
        point = inside.argmin(axis=1)
        value = inside[np.arange(len(drawn)), point]
        better = np.flatnonzero(value < best)
        best[better] = value[better]
        chosen = point[better]
        errors = _priced(costs, missed[:, chosen], needless[:, chosen])
        outside[better] = np.einsum("dg,gd->d", left_out[better], errors)
    outside *= PER / (left_out @ sizes)
    low, high = np.quantile(outside, [0.05, 0.95])
    return SelectionCorrectedCost(
        apparent_cost_per_1000=PER * apparent / len(labels),
        cost_per_1000=float(outside.mean()),
        range_low=float(low),
        range_high=float(high),
        draws=draws,
        draws_used=len(drawn),
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


def _priced(costs: Costs, missed: NDArray[np.floating], needless: NDArray[np.floating]) -> Floats:
    """Return the price of exact counts, so that no summation order changes a tie."""
    return costs.missed_damage * missed.astype(np.float64) + (
        costs.needless_review * needless.astype(np.float64)
    )
