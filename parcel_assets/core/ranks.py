"""Orders of photos and of trials: area under the curve, rank correlation."""

import math

import numpy as np
from numpy.typing import ArrayLike

from parcel_assets.core.columns import Floats, finite, flags, refusal, require_damage, scores_of


def area_under_curve(scores: ArrayLike, damaged: ArrayLike) -> float:
    """Return the chance that a damaged photo outscores an intact one (Mann-Whitney, ties half)."""
    labels = flags(damaged, "damaged")
    require_damage(labels, "damaged")
    if labels.all():
        raise refusal(
            f"{len(labels)} photos, all damaged",
            "damaged and intact photos",
            "damaged",
            "No order of the two classes exists here; report no area.",
        )
    ranks = _average_ranks(scores_of(scores, (len(labels),)))
    positives = int(labels.sum())
    above = float(ranks[labels].sum()) - positives * (positives + 1) / 2
    return above / (positives * (len(labels) - positives))


def rank_correlation(first: ArrayLike, second: ArrayLike) -> float | None:
    """Return Spearman's rank correlation (average ranks for ties).

    None where it does not exist: fewer than two pairs, or one side all equal. That is no evidence
    of agreement.
    """
    left = finite(first, "first")
    right = finite(second, "second")
    if left.shape != right.shape or left.ndim != 1:
        raise refusal(
            f"shapes {left.shape} and {right.shape}",
            "two columns of pairs",
            "second",
            "Pass one value of each kind for each trial.",
        )
    a, b = (_average_ranks(side) - (len(side) + 1) / 2 for side in (left, right))
    spread = math.sqrt(float(np.square(a).sum()) * float(np.square(b).sum()))
    return float((a * b).sum()) / spread if spread > 0 else None


def _average_ranks(values: Floats) -> Floats:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]
