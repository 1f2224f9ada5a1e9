"""What the numbers of one slice mean: support first, then harm, then proof that there is none.

Measuring is left to `slices`, the sentences to `slice_words`, several slices to `slice_family`.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, Literal

from parcel_assets.core.slice_plan import SliceRule
from parcel_assets.core.slice_words import (
    NOT_ENOUGH,
    Findings,
    amount_words,
    interval_words,
    sentence_of,
)
from parcel_assets.core.statistics import CONFIDENCE


class Outcome(StrEnum):
    """What the evidence of one slice shows."""

    PASS = "pass"  # noqa: S105 - an outcome, not a password
    FAIL = "fail"
    INSUFFICIENT = "insufficient"


@dataclass(frozen=True)
class SliceResult:
    """One slice judged, with every number behind the outcome and the sentence a page prints.

    `candidate`, `reference`, `difference`, `standard_error`, `lower`, `upper`, `margin` and
    `fail_above` are in `unit` (the error is the guarded one); `miss_rate`, its interval for display
    and its safety bound are fractions of the candidate. `harm_chance` says how often chance alone
    shows a difference like this, `harm_chance_adjusted` the same among the other slices of its
    role; `shrunken_difference` is for charts only. None says that a number does not exist.
    `shipments` and `photos` are those the comparison rests on: the damaged photos in a miss-rate
    slice, all in a cost slice.
    """

    name: str
    dimension: str
    value: str | None
    crossed_with: dict[str, str]
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
    miss_rate_low: float | None = None
    miss_rate_high: float | None = None
    miss_rate_upper_bound: float | None = None
    candidate: float | None = None
    reference: float | None = None
    difference: float | None = None
    standard_error: float | None = None
    lower: float | None = None
    upper: float | None = None
    margin: float | None = None
    fail_above: float | None = None
    harm_chance: float | None = None
    harm_chance_adjusted: float | None = None
    shrunken_difference: float | None = None
    reasons: tuple[str, ...] = ()
    sentence: str = ""

    @property
    def passed(self) -> bool:
        """Whether the slice passed; INSUFFICIENT did not."""
        return self.outcome is Outcome.PASS

    def as_document(self) -> dict[str, Any]:
        """Return the result as a JSON value."""
        return {**asdict(self), "outcome": self.outcome.value, "reasons": list(self.reasons)}


DECIDED = {"outcome", "reasons", "sentence"}
NOTHING_KNOWN = {one.name: None for one in fields(SliceResult) if one.default is None}


def decide(rule: SliceRule, numbers: dict[str, Any]) -> SliceResult:
    """Return the outcome that a slice's numbers have: support first, then harm, then proof of none.

    Harm is claimed where its chance, adjusted for the other slices, is below 5 %; where only the
    slice's own bound shows it, nothing is claimed and nothing passes.
    """
    limit, rate = rule.absolute_miss_rate_limit, numbers["miss_rate"]
    findings = Findings(lacking=lacking_support(rule, numbers))
    if not findings.lacking and numbers["difference"] is not None:
        _compare(numbers, findings)
    if not findings.lacking and limit is not None:
        bound = numbers["miss_rate_upper_bound"]
        if rate > limit:
            findings.harm.append(f"Misses {rate:.1%} of damage, more than the limit of {limit:.1%}")
        if bound > limit:
            findings.unproven.append(
                f"Not enough evidence to say it misses at most {limit:.1%} (up to {bound:.1%})"
            )
    if findings.harm:
        outcome, reasons = Outcome.FAIL, findings.harm
    elif findings.lacking or findings.unproven:
        outcome, reasons = Outcome.INSUFFICIENT, findings.lacking or findings.unproven
    else:
        outcome, reasons = Outcome.PASS, []
    return SliceResult(
        **numbers,
        outcome=outcome,
        reasons=tuple(reasons),
        sentence=sentence_of(numbers, findings),
    )


def _compare(numbers: dict[str, Any], findings: Findings) -> None:
    """Add what the paired comparison shows: harm, the suspicion of it, or no proof against it."""
    measured = f"by {amount_words(numbers, 'difference')} {interval_words(numbers)}"
    if numbers["harm_chance_adjusted"] < 1 - CONFIDENCE:
        findings.harm.append(f"Worse than the reference {measured}")
    elif _exceeds(numbers["difference"], numbers["fail_above"]):
        tolerated = amount_words(numbers, "fail_above")
        findings.harm.append(
            f"Worse than the tolerated {tolerated} {measured}; chance is not ruled out"
        )
    elif numbers["lower"] > 0:
        findings.unproven.append(
            f"{NOT_ENOUGH}: seen worse {measured}; among so many slices chance is not ruled out"
        )
    elif numbers["upper"] > numbers["margin"]:
        findings.unproven.append(f"{NOT_ENOUGH} {interval_words(numbers)}")


def lacking_support(rule: SliceRule, numbers: Mapping[str, Any]) -> list[str]:
    """Return, in words, what a slice lacks of what its rule asks before anything is compared."""
    asked = (
        ("shipments", max(rule.minimum_shipments, 2), "shipment"),
        ("damaged_photos", rule.minimum_damaged_photos, "damaged photo"),
        ("effective_photos", rule.minimum_effective_photos, "effective damaged photo"),
    )
    lacking = [
        f"{numbers[key]:.{int(key == 'effective_photos')}f} {word}{'s' * (numbers[key] != 1)}, "
        f"at least {minimum:g} asked"
        for key, minimum, word in asked
        if numbers[key] < minimum
    ]
    if numbers["reference"] is None and rule.absolute_miss_rate_limit is None:
        lacking.append("no reference, and no absolute limit in the plan")
    return lacking


def _exceeds(value: float, limit: float) -> bool:
    return value > limit and not math.isclose(value, limit, rel_tol=1e-12)
