"""Decides what validation scores say: cost, threshold, paired comparison, tie set.

Every standard error and bound is by shipment, because frames of one shipment err together. The
winner's flattery is left to `selection_bias`, reruns to `reruns`, slices to `slices`. Formulas name
their method in their docstring.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from parcel_assets.core.errors import EvidenceError

PER = 1000
CONFIDENCE = 0.95
GRID_POINTS = 200

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
Codes = NDArray[np.intp]


def refusal(found: str, expected: str, where: str, remedy: str) -> EvidenceError:
    """Return the error for arrays that cannot carry a statement."""
    return EvidenceError(found, expected=expected, where=where, remedy=remedy)


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
    review_all_cost_per_1000: float
    review_none_cost_per_1000: float

    def as_document(self) -> dict[str, Any]:
        """Return the numbers as a JSON value."""
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


@dataclass(frozen=True)
class PairedComparison:
    """Candidate minus reference on the same photos; a positive difference is worse.

    `standard_error` is the plain one; `guarded_standard_error` has one discordant pair added each
    way, and the one-sided 95 % bounds `lower` and `upper` use it.
    """

    difference: float
    standard_error: float
    guarded_standard_error: float
    lower: float
    upper: float
    shipments: int
    photos: int

    def as_document(self) -> dict[str, Any]:
        """Return the numbers as a JSON value."""
        return asdict(self)


def shipment_codes(shipments: ArrayLike) -> Codes:
    """Return codes 0…G-1 for shipments named by text or whole numbers."""
    names = np.asarray(shipments)
    if names.dtype.kind == "O" and all(isinstance(name, str) for name in names.flat):
        names = names.astype(str)
    if names.ndim != 1 or names.dtype.kind not in "iuUT":
        raise refusal(
            f"an array of {names.dtype} with {names.ndim} dimensions",
            "one shipment (text or whole number) for each photo",
            "shipments",
            "Pass the shipment column without missing values.",
        )
    _, codes = np.unique(names, return_inverse=True)
    return codes.astype(np.intp, copy=False)


def flags(values: ArrayLike, name: str, photos: int | None = None) -> Booleans:
    """Return one boolean for each photo, refusing any other type or length."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind != "b" or photos not in (None, len(array)):
        raise refusal(
            f"{array.dtype} of shape {array.shape}",
            f"booleans, one for each of {'the' if photos is None else photos} photos",
            name,
            "Pass decisions and labels as booleans in the order of the photos.",
        )
    return array


def finite(values: ArrayLike, name: str) -> Floats:
    """Return finite numbers as double precision, refusing NaN, infinity and an empty array."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu" or array.size == 0 or not np.isfinite(array).all():
        raise refusal(
            f"{array.dtype} of shape {array.shape}, or a value that is not finite",
            "at least one finite number and nothing else",
            name,
            "A trial with such values does not rank; leave it out.",
        )
    return array.astype(np.float64)


def require_damage(damaged: Booleans, where: str) -> None:
    """Refuse labels without a single damaged photo: no miss could show."""
    if not damaged.any():
        raise refusal(
            f"no damaged photo among {len(damaged)} photos",
            "at least one damaged photo",
            where,
            "Nothing can be said about missed damage here; add damaged shipments.",
        )


def review_decisions(scores: ArrayLike, threshold: float) -> Booleans:
    """Return which photos go to review: a score at or above the threshold, in double precision."""
    return finite(scores, "scores") >= threshold


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
    totals = _totals(codes, missed, needless, costs)
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
        review_all_cost_per_1000=PER * costs.needless_review * (photos - positives) / photos,
        review_none_cost_per_1000=PER * costs.missed_damage * positives / photos,
    )


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


def compare_paired_costs(
    candidate_review: ArrayLike,
    reference_review: ArrayLike,
    damaged: ArrayLike,
    shipments: ArrayLike,
    costs: Costs,
) -> PairedComparison:
    """Return the paired difference in cost per 1,000 photos; one pair more is one missed damage."""
    labels = flags(damaged, "damaged")
    require_damage(labels, "damaged")
    codes = codes_of(shipments, len(labels))
    totals = [
        _totals(codes, labels & ~review, review & ~labels, costs)
        for review in (
            flags(candidate_review, "candidate_review", len(labels)),
            flags(reference_review, "reference_review", len(labels)),
        )
    ]
    return _compare(totals[0] - totals[1], np.bincount(codes), costs.missed_damage, PER)


def compare_paired_miss_rates(
    candidate_review: ArrayLike,
    reference_review: ArrayLike,
    damaged: ArrayLike,
    shipments: ArrayLike,
) -> PairedComparison:
    """Return the paired difference in miss rate (a fraction) over the damaged photos alone."""
    labels = flags(damaged, "damaged")
    require_damage(labels, "damaged")
    candidate = flags(candidate_review, "candidate_review", len(labels))[labels]
    reference = flags(reference_review, "reference_review", len(labels))[labels]
    _, codes = np.unique(codes_of(shipments, len(labels))[labels], return_inverse=True)
    differences = np.bincount(codes, weights=reference.astype(float) - candidate.astype(float))
    return _compare(differences.astype(np.float64), np.bincount(codes), 1.0, 1)


def tie_set(
    reviews: Mapping[str, ArrayLike],
    damaged: ArrayLike,
    shipments: ArrayLike,
    costs: Costs,
    winner_id: str,
) -> dict[str, PairedComparison]:
    """Return the trials whose cost is within one paired standard error of the winner's.

    `reviews` holds each eligible trial's decisions. The winner is in the set; nearest come first,
    equals in the order given. Each comparison is trial minus winner.
    """
    if winner_id not in reviews:
        raise refusal(
            f"no decisions of {winner_id!r}",
            "the winner among the trials",
            "reviews",
            "Pass the decisions of every eligible trial, the winner's with them.",
        )
    labels, codes = flags(damaged, "damaged"), shipment_codes(shipments)
    compared = {
        trial_id: compare_paired_costs(review, reviews[winner_id], labels, codes, costs)
        for trial_id, review in reviews.items()
    }
    near = [item for item in compared.items() if item[1].difference <= item[1].standard_error]
    return dict(sorted(near, key=lambda item: (item[1].difference, item[0] != winner_id)))


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


def codes_of(shipments: ArrayLike, photos: int) -> Codes:
    """Return shipment codes (photos,); raises EvidenceError for another length."""
    codes = shipment_codes(shipments)
    if len(codes) != photos:
        raise refusal(
            f"{len(codes)} shipments",
            f"one for each of {photos} photos",
            "shipments",
            "Pass the columns of the same photos in the same order.",
        )
    return codes


def scores_of(scores: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Return finite scores of the given shape; raises EvidenceError otherwise."""
    values = finite(scores, "scores")
    if values.ndim != len(shape) or values.shape[-1] != shape[-1]:
        raise refusal(
            f"scores of shape {values.shape}",
            f"{shape[-1]} photos in {len(shape)} dimension(s)",
            "scores",
            "Pass the columns of the same photos in the same order.",
        )
    return values


def _totals(codes: Codes, missed: Booleans, needless: Booleans, costs: Costs) -> Floats:
    """Return each shipment's cost from whole counts, so that row order cannot change a digit."""
    count = int(codes.max()) + 1
    return costs.missed_damage * np.bincount(
        codes[missed], minlength=count
    ) + costs.needless_review * np.bincount(codes[needless], minlength=count)


def _compare(totals: Floats, sizes: Codes, guard: float, scale: int) -> PairedComparison:
    """Return the paired ratio with one pair of opposite differences `guard` added to the error."""
    difference, error = ratio_and_error(totals, sizes.astype(np.float64))
    if error is None:
        raise refusal(
            "one shipment",
            "at least two shipments",
            "shipments",
            "One shipment shows no spread; no interval can be given.",
        )
    photos = int(sizes.sum())
    guarded = math.hypot(error * photos, math.sqrt(2) * guard) / photos
    reach = student_quantile(CONFIDENCE, len(sizes) - 1) * guarded
    return PairedComparison(
        difference=scale * difference,
        standard_error=scale * error,
        guarded_standard_error=scale * guarded,
        lower=scale * (difference - reach),
        upper=scale * (difference + reach),
        shipments=len(sizes),
        photos=photos,
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


def _average_ranks(values: Floats) -> Floats:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]
