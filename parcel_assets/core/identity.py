"""A worker's identity: its fields, how two are compared, what a difference likely means.

Measuring is left to an adapter; refusing a worker to the steps (S4).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from parcel_assets.core.codec import digest_value, short

# compared in this order, so that the first difference named is nearest to the cause
FIELDS = (
    "plan",
    "snapshot",
    "train_photos",
    "validation_photos",
    "split",
    "train_pixels",
    "validation_pixels",
    "train_rows",
    "validation_rows",
    "preprocessing",
    "metric",
    "space",
    "training",
    "code",
    "packages",
    "hardware",
    "image",
)
_CAUSES = {
    "plan": "it was given another plan, or another copy of it",
    "snapshot": "it works from another pinned snapshot",
    "split": "it assigns shipments to parts in another way",
    "train_pixels": "its training photos differ: a newer archive, or other decoding",
    "validation_pixels": "its validation photos differ: a newer archive, or other decoding",
    "train_rows": "its training rows differ: labels, attributes or their order",
    "validation_rows": "its validation rows differ: labels, attributes or their order",
    "preprocessing": "it sees photos in another size or normalisation",
    "metric": "it would be judged by other costs",
    "space": "it searches another space",
    "training": "it trains by other steps, batches or milestones",
    "code": "it runs another version of this package or of your network",
    "packages": "other versions of torch, numpy or Python are installed there",
    "hardware": "it runs on another hardware class, whose results differ in the last bits",
    "image": "it runs in another container image",
    "challenge": "it does not hold the photos that it says it loaded",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """The first field in which a worker is not what the plan says."""

    field: str
    found: str
    expected: str
    cause: str


def first_difference_of(expected: Mapping[str, str], found: Mapping[str, str]) -> Difference | None:
    """Return the first field that differs, absent and unknown fields included, or None."""
    names = [*FIELDS, *sorted((set(expected) | set(found)) - set(FIELDS))]
    for name in names:
        wanted, seen = expected.get(name, "nothing"), found.get(name, "nothing")
        if wanted != seen:
            return Difference(name, _brief(seen), _brief(wanted), _cause(name, wanted, seen))
    return None


def _brief(text: str) -> str:
    is_digest = len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)
    return short(text) if is_digest else text


def _cause(name: str, wanted: str, seen: str) -> str:
    if name.endswith("_photos") and wanted.isdecimal() and seen.isdecimal():
        difference = int(seen) - int(wanted)
        kind = "newer" if difference > 0 else "other"
        side = "more" if difference > 0 else "fewer"
        return f"this worker reads an archive with {abs(difference)} photos {side}, a {kind} one"
    return "this worker is not the one planned for: " + _CAUSES.get(name, "an unknown field")


def identity_digest(identity: Mapping[str, str]) -> str:
    """Return the digest of an identity."""
    return digest_value(dict(identity))
