"""Decides, slice by slice, whether the candidate is shown to be no worse than the reference.

Three outcomes, and only PASS is a pass: too little evidence is INSUFFICIENT, never silence. Which
photos belong to a slice, and what lifts a hold, belong to others.
"""

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from parcel_assets.core.errors import EvidenceError, PlanError
from parcel_assets.core.statistics import (
    CONFIDENCE,
    Booleans,
    Codes,
    Costs,
    PairedComparison,
    compare_paired_costs,
    compare_paired_miss_rates,
    estimate_cost,
    flags,
    ratio_and_error,
    shipment_codes,
    student_quantile,
)

NOT_ENOUGH = "Not enough evidence to say it is no worse"
MISS_RATE_UNIT = "percentage points"
COST_UNIT = "cost per 1,000 photos"


class Outcome(StrEnum):
    """What the evidence of one slice shows."""

    PASS = "pass"  # noqa: S105 - an outcome, not a password
    FAIL = "fail"
    INSUFFICIENT = "insufficient"


@dataclass(frozen=True)
class SliceRule:
    """What one slice must show; the fields are those of the plan's slice, plus its name.

    Points are percentage points of the miss rate. A cost slice fails at the share of its margin
    that `fail_miss_points` is of `margin_miss_points`. A protected slice holds the candidate unless
    it passes; a monitored one is reported.
    """

    name: str
    dimension: str
    value: str | None = None
    role: Literal["protected", "monitored"] = "monitored"
    margin_miss_points: float = 10.0
    fail_miss_points: float = 5.0
    margin_cost_fraction: float = 0.10
    minimum_shipments: int = 30
    minimum_damaged_photos: int = 60
    minimum_effective_photos: float = 30.0
    absolute_miss_rate_limit: float | None = None

    def __post_init__(self) -> None:
        if self.role not in ("protected", "monitored"):
            raise self._fault("role", repr(self.role), "`protected` or `monitored`")
        if not 0 < self.fail_miss_points <= self.margin_miss_points < math.inf:
            raise self._fault(
                "fail_miss_points",
                f"{self.fail_miss_points} with a margin of {self.margin_miss_points}",
                "a positive number of points, at most the margin",
            )
        if not 0 < self.margin_cost_fraction < math.inf:
            raise self._fault(
                "margin_cost_fraction", repr(self.margin_cost_fraction), "a positive fraction"
            )
        limit = self.absolute_miss_rate_limit
        if limit is not None and not 0 < limit <= 1:
            raise self._fault("absolute_miss_rate_limit", repr(limit), "a rate in (0, 1]")

    def _fault(self, field: str, found: str, expected: str) -> PlanError:
        return PlanError(
            found,
            expected=expected,
            where=f"slices.{self.name}.{field}",
            remedy="Correct the slice in a new plan.",
        )


@dataclass(frozen=True)
class EffectiveSize:
    """A rate over photos and how many independent photos it is worth."""

    rate: float
    hits: int
    photos: int
    shipments: int
    design_effect: float
    effective_photos: float


@dataclass(frozen=True)
class SliceResult:
    """One slice judged, with every number behind the outcome and the sentence a page prints.

    `candidate`, `reference`, `difference`, `standard_error`, `lower`, `upper`, `margin` and
    `fail_above` are in `unit` (the error is the guarded one); `miss_rate` and its bound are
    fractions of the candidate. None says that a number does not exist. `shipments` and `photos` are
    those the comparison rests on: the damaged photos in a miss-rate slice, all in a cost slice.
    """

    name: str
    dimension: str
    value: str | None
    role: str
    measure: Literal["miss_rate", "cost"]
    unit: str
    outcome: Outcome
    shipments: int
    photos: int
    damaged_photos: int
    effective_photos: float | None = None
    design_effect: float | None = None
    miss_rate: float | None = None
    miss_rate_upper_bound: float | None = None
    candidate: float | None = None
    reference: float | None = None
    difference: float | None = None
    standard_error: float | None = None
    lower: float | None = None
    upper: float | None = None
    margin: float | None = None
    fail_above: float | None = None
    reasons: tuple[str, ...] = ()
    sentence: str = ""

    @property
    def passed(self) -> bool:
        """Whether the slice passed; INSUFFICIENT did not."""
        return self.outcome is Outcome.PASS

    def as_document(self) -> dict[str, Any]:
        """Return the result as a JSON value."""
        return {**asdict(self), "outcome": self.outcome.value, "reasons": list(self.reasons)}


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


def judge_miss_slice(
    rule: SliceRule,
    candidate_review: ArrayLike,
    reference_review: ArrayLike,
    damaged: ArrayLike,
    shipments: ArrayLike,
    *,
    members: ArrayLike,
    allow_no_damage: bool = False,
) -> SliceResult:
    """Return whether the candidate misses no more of this slice's damage than the reference.

    `members` says which photos are in the slice; each model's decisions are at its own threshold.
    FAIL: the paired 95 % bound lies above zero, or the difference above `fail_miss_points`; PASS:
    the upper bound is within the margin. Support comes first. No damage in the slice is an
    EvidenceError, or INSUFFICIENT in words for a monitored slice with `allow_no_damage`.
    """
    candidate, reference, labels, codes = _slice_of(
        candidate_review, reference_review, damaged, shipments, members
    )
    candidate, reference, codes = candidate[labels], reference[labels], codes[labels]
    numbers = _identity(rule, "miss_rate", codes, len(codes))
    if not len(codes):
        return _without_damage(rule, numbers, allow_no_damage)
    size = effective_size(~candidate, codes)
    numbers |= {
        "candidate": 100 * size.rate,
        "reference": 100 * float(np.mean(~reference)),
        "margin": rule.margin_miss_points,
        "fail_above": rule.fail_miss_points,
    }
    if size.shipments > 1:
        every = np.ones(len(codes), dtype=np.bool_)
        paired = compare_paired_miss_rates(candidate, reference, every, codes)
        numbers |= _within(_interval(paired, 100), 100)
    return _judged(rule, numbers, size)


def judge_cost_slice(
    rule: SliceRule,
    candidate_review: ArrayLike,
    reference_review: ArrayLike,
    damaged: ArrayLike,
    shipments: ArrayLike,
    *,
    members: ArrayLike,
    costs: Costs,
    allow_no_damage: bool = False,
) -> SliceResult:
    """Return whether the candidate costs no more on this slice than the reference.

    As `judge_miss_slice`, on the cost per 1,000 of all photos of the slice, with a margin that is a
    fraction of the reference's cost. The effective number is that of the damaged photos.
    """
    candidate, reference, labels, codes = _slice_of(
        candidate_review, reference_review, damaged, shipments, members
    )
    numbers = _identity(rule, "cost", codes, int(labels.sum()))
    if not labels.any():
        return _without_damage(rule, numbers, allow_no_damage)
    reference_cost = estimate_cost(reference, labels, codes, costs).cost_per_1000
    margin = rule.margin_cost_fraction * reference_cost
    numbers |= {
        "candidate": estimate_cost(candidate, labels, codes, costs).cost_per_1000,
        "reference": reference_cost,
        "margin": margin,
        "fail_above": margin * rule.fail_miss_points / rule.margin_miss_points,
    }
    if numbers["shipments"] > 1:
        paired = compare_paired_costs(candidate, reference, labels, codes, costs)
        numbers |= _interval(paired, 1)
    return _judged(rule, numbers, effective_size(~candidate[labels], codes[labels]))


def _slice_of(
    candidate_review: ArrayLike,
    reference_review: ArrayLike,
    damaged: ArrayLike,
    shipments: ArrayLike,
    members: ArrayLike,
) -> tuple[Booleans, Booleans, Booleans, Codes]:
    """Return both models' decisions, the labels and the shipments of the slice's photos alone."""
    codes = shipment_codes(shipments)
    inside = flags(members, "members", len(codes))
    candidate, reference, labels = (
        flags(values, name, len(codes))[inside]
        for values, name in (
            (candidate_review, "candidate_review"),
            (reference_review, "reference_review"),
            (damaged, "damaged"),
        )
    )
    return candidate, reference, labels, codes[inside]


def _identity(rule: SliceRule, measure: str, codes: Codes, damaged_photos: int) -> dict[str, Any]:
    return {
        "name": rule.name,
        "dimension": rule.dimension,
        "value": rule.value,
        "role": rule.role,
        "measure": measure,
        "unit": MISS_RATE_UNIT if measure == "miss_rate" else COST_UNIT,
        "shipments": len(np.unique(codes)),
        "photos": len(codes),
        "damaged_photos": damaged_photos,
    }


def _interval(paired: PairedComparison, scale: int) -> dict[str, float]:
    return {
        "difference": scale * paired.difference,
        "standard_error": scale * paired.guarded_standard_error,
        "lower": scale * paired.lower,
        "upper": scale * paired.upper,
    }


def _within(interval: dict[str, float], limit: float) -> dict[str, float]:
    """Return an interval cut at what two rates can differ by; few shipments reach beyond it."""
    low, high = max(interval["lower"], -limit), min(interval["upper"], limit)
    return interval | {"lower": low, "upper": high}


def _without_damage(rule: SliceRule, numbers: dict[str, Any], allowed: bool) -> SliceResult:
    if not allowed or rule.role == "protected":
        raise EvidenceError(
            f"no damaged photo in {numbers['shipments']} shipments",
            expected="damaged photos in the slice",
            where=f"slice {rule.name}",
            remedy="Nothing can be said about missed damage here: collect damaged shipments of "
            "this slice, or take it out of the plan.",
            slice=rule.name,
        )
    reason = "no damaged photo, so no miss could show"
    return SliceResult(
        **numbers,
        outcome=Outcome.INSUFFICIENT,
        reasons=(reason,),
        sentence=f"{_counts(numbers)} {NOT_ENOUGH} ({reason}).",
    )


def _judged(rule: SliceRule, numbers: dict[str, Any], size: EffectiveSize) -> SliceResult:
    """Return the outcome: support first, then harm, then proof of no harm."""
    bound, limit = upper_rate_bound(size), rule.absolute_miss_rate_limit
    numbers |= {
        "effective_photos": size.effective_photos,
        "design_effect": size.design_effect,
        "miss_rate": size.rate,
        "miss_rate_upper_bound": bound,
    }
    lacking = _lacking_support(rule, numbers)
    harm, unproven = [], []
    if not lacking:
        measured = f"by {_amount(numbers, 'difference')} {_range(numbers)}"
        if numbers["lower"] > 0:
            harm.append(f"Worse than the reference {measured}")
        elif _exceeds(numbers["difference"], numbers["fail_above"]):
            tolerated = _amount(numbers, "fail_above")
            harm.append(f"Worse than the tolerated {tolerated} {measured}; chance is not ruled out")
        if limit is not None and size.rate > limit:
            harm.append(f"Misses {size.rate:.1%} of damage, more than the limit of {limit:.1%}")
        if numbers["upper"] > numbers["margin"]:
            unproven.append(f"{NOT_ENOUGH} {_range(numbers)}")
        if limit is not None and bound > limit:
            unproven.append(
                f"Not enough evidence to say it misses at most {limit:.1%} (up to {bound:.1%})"
            )
    held = " Held." if rule.role == "protected" else ""
    if harm:
        outcome, reasons = Outcome.FAIL, harm
        words = f"{'. '.join(harm)}.{held}"
    elif lacking:
        outcome, reasons = Outcome.INSUFFICIENT, lacking
        words = f"{NOT_ENOUGH} {_range(numbers)}.{held}"
    elif unproven:
        outcome, reasons = Outcome.INSUFFICIENT, unproven
        words = f"{'. '.join(unproven)}.{held}"
    else:
        outcome, reasons = Outcome.PASS, []
        words = f"No worse within the margin of {_amount(numbers, 'margin')} {_range(numbers)}."
        words += " Passed." if rule.role == "protected" else ""
    return SliceResult(
        **numbers, outcome=outcome, reasons=tuple(reasons), sentence=f"{_counts(numbers)} {words}"
    )


def _lacking_support(rule: SliceRule, numbers: dict[str, Any]) -> list[str]:
    asked = (
        ("shipments", max(rule.minimum_shipments, 2), "shipments"),
        ("damaged_photos", rule.minimum_damaged_photos, "damaged photos"),
        ("effective_photos", rule.minimum_effective_photos, "effective damaged photos"),
    )
    return [
        f"{numbers[key]:.{int(key == 'effective_photos')}f} {words}, at least {minimum:g} asked"
        for key, minimum, words in asked
        if numbers[key] < minimum
    ]


def _counts(numbers: dict[str, Any]) -> str:
    shipments, damaged = numbers["shipments"], numbers["damaged_photos"]
    return (
        f"{numbers['name']}: {shipments} shipment{'s' * (shipments != 1)}, "
        f"{damaged} damaged photo{'s' * (damaged != 1)}."
    )


def _short_unit(numbers: dict[str, Any]) -> str:
    return "pp" if numbers["measure"] == "miss_rate" else COST_UNIT


def _amount(numbers: dict[str, Any], key: str) -> str:
    return f"{numbers[key]:.1f} {_short_unit(numbers)}"


def _range(numbers: dict[str, Any]) -> str:
    """Return the interval in whole units, rounded outwards so that it never looks narrower."""
    if "lower" not in numbers:
        return "(one shipment gives no interval)"
    low, high = math.floor(numbers["lower"]), math.ceil(numbers["upper"])
    return f"({low:+d} to {high:+d} {_short_unit(numbers)})"


def _exceeds(value: float, limit: float) -> bool:
    return value > limit and not math.isclose(value, limit, rel_tol=1e-12)
