"""A rate over photos of shipments: how many independent photos it is worth, and its bounds."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtri

from parcel_assets.core.columns import flags, shipment_codes
from parcel_assets.core.statistics import CONFIDENCE, ratio_and_error, student_quantile


@dataclass(frozen=True)
class EffectiveSize:
    """A rate over photos and how many independent photos it is worth."""

    rate: float
    hits: int
    photos: int
    shipments: int
    design_effect: float
    effective_photos: float


def effective_size(hits: ArrayLike, shipments: ArrayLike) -> EffectiveSize:
    """Return the rate of hits with its design effect over shipments.

    Design effect: variance over shipments divided by the variance p(1-p)/n of independent photos;
    the effective number is n over it, never more than n. Where all photos agree no variance is
    seen, and the effective number is Kish's (sum m)^2 / sum m^2 for fully alike frames: the
    cautious end.
    """
    flagged, codes = flags(hits, "hits"), shipment_codes(shipments)
    photos, sizes = len(flagged), np.bincount(codes).astype(np.float64)
    rate, error = ratio_and_error(np.bincount(codes, weights=flagged).astype(np.float64), sizes)
    if error is None:
        design_effect = float(photos)
    elif 0 < rate < 1:
        design_effect = error**2 * photos / (rate * (1 - rate))
    else:
        design_effect = float(np.square(sizes).sum()) / photos
    return EffectiveSize(
        rate=rate,
        hits=int(flagged.sum()),
        photos=photos,
        shipments=len(sizes),
        design_effect=design_effect,
        effective_photos=photos / max(design_effect, 1.0),
    )


def upper_rate_bound(size: EffectiveSize, confidence: float = CONFIDENCE) -> float:
    """Return the one-sided upper bound of a rate (Korn and Graubard, Survey Methodology 1998).

    Clopper and Pearson's exact bound on the effective number, which is first reduced by the ratio
    of Student quantiles with n-1 and G-1 degrees of freedom. One shipment bounds nothing: 1.
    """
    if size.shipments < 2:
        return 1.0
    ratio = student_quantile(confidence, size.photos - 1) / student_quantile(
        confidence, size.shipments - 1
    )
    effective = size.effective_photos * min(ratio, 1.0) ** 2
    hits = size.rate * effective
    if hits >= effective:
        return 1.0
    return float(betaincinv(hits + 1, effective - hits, confidence))


def wilson_interval(size: EffectiveSize, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the two-sided interval of a rate on its effective number (Wilson, JASA 1927).

    For display: near the stated confidence on average, where the safety bound is never below it.
    """
    count, rate = size.effective_photos, size.rate
    quantile = float(ndtri((1 + confidence) / 2))
    share = quantile**2 / count
    middle = (rate + share / 2) / (1 + share)
    reach = quantile * math.sqrt(rate * (1 - rate) / count + share / (4 * count)) / (1 + share)
    return max(0.0, min(rate, middle - reach)), min(1.0, max(rate, middle + reach))
