"""The sentences that a slice's outcome is told in: counts first, then what is and is not known."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parcel_assets.core.statistics import cost_words, counted

NOT_ENOUGH = "Not enough evidence to say it is no worse"
MISS_RATE_UNIT = "percentage points"
COST_UNIT = "cost per 1,000 photos"

Numbers = Mapping[str, Any]


@dataclass(slots=True)
class Findings:
    """What was found against a slice, each list in words: the first that is not empty decides."""

    harm: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)


def sentence_of(numbers: Numbers, findings: Findings) -> str:
    """Return the sentence of a slice; a protected one says whether it holds."""
    protected = numbers["role"] == "protected"
    if findings.harm:
        words = ". ".join(findings.harm)
    elif findings.lacking:
        seen_worse = numbers["lower"] is not None and numbers["lower"] > 0
        worse = ", and seen worse" if seen_worse else ""
        words = f"{NOT_ENOUGH}{worse} {interval_words(numbers)}: {'; '.join(findings.lacking)}"
    elif findings.unproven:
        words = ". ".join(findings.unproven)
    else:
        margin = amount_words(numbers, "margin")
        words = f"No worse within the margin of {margin} {interval_words(numbers)}"
        if numbers["reference"] is None:
            words = f"Misses at most {numbers['miss_rate_upper_bound']:.1%} of damage"
        return f"{counts_words(numbers)} {words}.{' Passed.' * protected}"
    return f"{counts_words(numbers)} {words}.{' Held.' * protected}"


def counts_words(numbers: Numbers) -> str:
    """Return how many shipments and damaged photos a slice holds."""
    return (
        f"{numbers['name']}: {counted(numbers['shipments'], 'shipment')}, "
        f"{counted(numbers['damaged_photos'], 'damaged photo')}."
    )


def amount_words(numbers: Numbers, key: str) -> str:
    """Return one of a slice's numbers with its unit."""
    return f"{number_words(numbers, key)} {_short_unit(numbers)}"


def number_words(numbers: Numbers, key: str, *, sign: bool = False) -> str:
    """Return one of a slice's numbers; a cost with a decimal only where its misses carry one."""
    if numbers["measure"] == "miss_rate":
        return f"{numbers[key]:{'+' if sign else ''}.1f}"
    return cost_words(numbers[key], missed_in(numbers), sign=sign)


def missed_in(numbers: Numbers) -> int | None:
    """Return how many damaged photos of a slice the candidate misses, None where none is known."""
    if numbers["miss_rate"] is None:
        return None
    return round(float(numbers["miss_rate"]) * int(numbers["damaged_photos"]))


def interval_words(numbers: Numbers) -> str:
    """Return the interval in whole units, rounded outwards so that it never looks narrower."""
    if numbers["reference"] is None:
        return "(there is no reference to compare with)"
    if numbers["lower"] is None:
        return "(one shipment gives no interval)"
    low, high = math.floor(numbers["lower"]), math.ceil(numbers["upper"])
    return f"({low:+d} to {high:+d} {_short_unit(numbers)})"


def _short_unit(numbers: Numbers) -> str:
    return "pp" if numbers["measure"] == "miss_rate" else COST_UNIT
