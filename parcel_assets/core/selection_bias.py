"""Decides how much the best of many trials flatters itself: grouped bootstrap bias correction."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
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

CELLS_MAXIMUM = 8_000_000  # drawn counts held at once


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
    behind: int = 0,
) -> SelectionCorrectedCost:
    """Return the winner's cost corrected for having been chosen, with its 5-95 % range.

    Bootstrap bias correction (Tsamardinos, Greasidou and Borboudakis, Machine Learning 2018) with
    whole shipments: each draw resamples shipments, chooses trial and threshold on those drawn and
    is scored on those left out. `scores` has a row for each eligible trial in the order of the
    plan's tie-break; `behind` trials are passed over before one is chosen, where a person replaced
    the best. A draw without damage on either side is not used; it cannot undo the optimism of
    pruning.
    """
    labels = flags(damaged, "damaged")
    require_damage(labels, "damaged")
    codes = codes_of(shipments, len(labels))
    matrix = scores_of(scores, (-1, len(labels)))
    _require_trials(len(matrix), behind)
    photos = _Photos(matrix, labels, codes, costs, grid_points)
    drawn = _usable_draws(photos, seed, draws)
    outside = np.concatenate([_outside(photos, weights, behind) for weights in drawn])
    low, high = np.quantile(outside, [0.05, 0.95])
    everything = np.ones((photos.shipments, 1))
    return SelectionCorrectedCost(
        apparent_cost_per_1000=PER
        * float(_choices(photos, everything, behind)[2][0])
        / len(labels),
        cost_per_1000=float(outside.mean()),
        range_low=float(low),
        range_high=float(high),
        draws=draws,
        draws_used=len(outside),
        trials=len(matrix),
        shipments=photos.shipments,
    )


@dataclass(frozen=True, slots=True)
class _Photos:
    """Every eligible trial's scores of the same photos, and what errors on them cost."""

    scores: Floats  # (trials, photos)
    damaged: Booleans
    shipment: Codes
    costs: Costs
    grid_points: int

    @property
    def shipments(self) -> int:
        return int(self.shipment.max()) + 1

    def costs_of(self, trial: int, weights: Floats) -> Floats:
        """Return one trial's costs (thresholds, draws) on shipments weighted by draw."""
        by_threshold = _photos_by_threshold(
            self.scores[trial], self.damaged, self.shipment, self.grid_points
        )
        return _costs_at_thresholds(*by_threshold, weights, self.costs)


def _choices(photos: _Photos, weights: Floats, behind: int) -> tuple[Codes, Codes, Floats]:
    """Return the trial, the place of its threshold and its cost that each draw chooses inside."""
    points = np.empty((len(photos.scores), weights.shape[1]), dtype=np.intp)
    inside = np.empty(points.shape)
    for trial in range(len(photos.scores)):
        at_thresholds = photos.costs_of(trial, weights)
        points[trial] = at_thresholds.argmin(axis=0)  # the lowest threshold among equals
        inside[trial] = at_thresholds.min(axis=0)
    # a stable sort keeps the plan's order among equals
    trials = np.argsort(inside, axis=0, kind="stable")[behind]
    of_draws = np.arange(weights.shape[1])
    return trials, points[trials, of_draws], inside[trials, of_draws]


def _outside(photos: _Photos, weights: Floats, behind: int) -> Floats:
    """Return the cost per 1,000 of each draw's choice on the shipments that the draw left out."""
    trials, points, _ = _choices(photos, weights, behind)
    left_out = (weights == 0).astype(np.float64)
    totals = np.empty(weights.shape[1])
    for trial in np.unique(trials):
        mine = np.flatnonzero(trials == trial)
        elsewhere = photos.costs_of(int(trial), left_out[:, mine])
        totals[mine] = elsewhere[points[mine], np.arange(len(mine))]
    result: Floats = PER * totals / (np.bincount(photos.shipment) @ left_out)
    return result


def _require_trials(trials: int, behind: int) -> None:
    if not 0 <= behind < trials:
        raise refusal(
            f"{trials} trials with {behind} passed over",
            "a trial that is left to choose",
            "behind",
            "Pass over fewer trials than there are.",
        )


def _usable_draws(photos: _Photos, seed: int, draws: int) -> Iterator[Floats]:
    """Yield how often each draw (column) takes each shipment, in portions that memory holds.

    Damage lies on both sides of every draw.
    """
    count, generator = photos.shipments, np.random.default_rng(seed)
    damaged = np.bincount(photos.shipment[photos.damaged], minlength=count)
    used = 0
    step = max(1, CELLS_MAXIMUM // count)
    for start in range(0, draws, step):
        weights = generator.multinomial(count, np.full(count, 1 / count), min(step, draws - start))
        usable = (weights @ damaged > 0) & ((weights == 0) @ damaged > 0)
        if usable.any():
            used += 1
            yield np.ascontiguousarray(weights[usable].T, dtype=np.float64)
    if not used:
        raise refusal(
            f"{count} shipments, {int((damaged > 0).sum())} of them with damage",
            "draws that leave damage on both sides",
            "shipments",
            "A correction by resampling needs more damaged shipments; report none.",
        )


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
    damaged: csr_array, intact: csr_array, weights: Floats, costs: Costs
) -> Floats:
    """Return costs (thresholds, draws) of shipments weighted by draw (shipments, draws).

    Counts are whole numbers, so that no summation order changes a tie.
    """
    below_damaged = np.cumsum(damaged @ weights, axis=0)
    below_intact = np.cumsum(intact @ weights, axis=0)
    needless = below_intact[-1] - below_intact[:-1]
    result: Floats = costs.missed_damage * below_damaged[:-1] + costs.needless_review * needless
    return result
