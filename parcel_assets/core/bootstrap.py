"""The interval that a page shows around a cost: a bootstrap over whole shipments.

For display only. What a target is held against is the guarded bound of `statistics`, which needs no
resampling and stays honest without a single miss.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from parcel_assets.core.columns import Floats, codes_of, flags, require_damage
from parcel_assets.core.statistics import CONFIDENCE, PER, Costs, shipment_costs

DRAWS = 2000
SEED = 20_261_129
CELLS_MAXIMUM = 4_000_000  # drawn counts held at once


def display_interval(
    review: ArrayLike, damaged: ArrayLike, shipments: ArrayLike, costs: Costs
) -> tuple[float, float] | None:
    """Return a two-sided 95 % interval of the cost per 1,000 photos, or None where none exists.

    Bias-corrected and accelerated bootstrap (Efron, JASA 1987), shipments resampled whole, fixed
    seed. None: one shipment, or no error at all, so that every draw says the same.
    """
    labels = flags(damaged, "damaged")
    decisions = flags(review, "review", len(labels))
    require_damage(labels, "damaged")
    codes = codes_of(shipments, len(labels))
    totals = shipment_costs(codes, labels & ~decisions, decisions & ~labels, costs)
    return _accelerated(totals, np.bincount(codes).astype(np.float64))


def _accelerated(totals: Floats, sizes: Floats) -> tuple[float, float] | None:
    if len(totals) < 2:
        return None
    ratio = float(totals.sum() / sizes.sum())
    drawn = _drawn_ratios(totals, sizes)
    below = float(np.mean(drawn < ratio) + np.mean(drawn == ratio) / 2)
    without = (totals.sum() - totals) / (sizes.sum() - sizes)
    deviations = without.mean() - without
    spread = float(np.square(deviations).sum())
    if spread == 0 or not 0 < below < 1:
        return None
    bias = float(ndtri(below))
    acceleration = float((deviations**3).sum()) / (6 * spread**1.5)
    tails = bias + ndtri(np.array([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]))
    levels = ndtr(bias + tails / (1 - acceleration * tails))
    low, high = np.quantile(drawn, levels)
    return PER * float(low), PER * float(high)


def _drawn_ratios(totals: Floats, sizes: Floats) -> Floats:
    generator, count = np.random.default_rng(SEED), len(totals)
    ratios: list[Floats] = []
    step = max(1, min(DRAWS, CELLS_MAXIMUM // count))
    for start in range(0, DRAWS, step):
        weights = generator.multinomial(
            count, np.full(count, 1 / count), min(step, DRAWS - start)
        ).astype(np.float64)
        ratios.append((weights @ totals) / (weights @ sizes))
    return np.concatenate(ratios)
