"""Two models on the same photos: paired difference, its interval, and who ties with the winner."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from parcel_assets.core.columns import (
    Codes,
    Floats,
    codes_of,
    flags,
    refusal,
    require_damage,
    shipment_codes,
)
from parcel_assets.core.statistics import (
    CONFIDENCE,
    PER,
    Costs,
    ratio_and_error,
    shipment_costs,
    student_quantile,
)


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
        shipment_costs(codes, labels & ~review, review & ~labels, costs)
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
    codes = shipment_codes(codes_of(shipments, len(labels))[labels])
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
