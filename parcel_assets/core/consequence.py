"""What a release would mean, in missed parcels per 1,000, in a quality owner's words.

A parcel is a shipment. It is damaged where one of its photos is, and missed where it is damaged and
none of its photos goes to review. Numbers come from validation; nothing is tested here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parcel_assets.core.ports import Flags


def parcels_missed_per_1000(
    review: Flags, damaged: Flags, shipments: Sequence[str], among: Flags | None = None
) -> float:
    """Return how many of 1,000 parcels leave with damage that no photo of theirs sends to review.

    `among` are photos: then of 1,000 parcels that are damaged in one of these.
    """
    names, place = np.unique(np.asarray(shipments), return_inverse=True)

    def any_photo(flags: Flags) -> Flags:
        return np.bincount(place, weights=flags, minlength=len(names)) > 0

    hurt = any_photo(damaged if among is None else damaged & among)
    missed = hurt & ~any_photo(review)
    counted = len(names) if among is None else int(hurt.sum())
    return 1000 * float(missed.sum()) / counted if counted else 0.0


def parcels_damaged(damaged: Flags, shipments: Sequence[str], among: Flags) -> int:
    """Return how many parcels are damaged in one of these photos: what a rate of them rests on."""
    return len({name for name, hurt in zip(shipments, damaged & among, strict=True) if hurt})


def consequence_words(seen: Mapping[str, Any]) -> str:
    """Return what accepting means, in one text; see `consequences`."""
    return " ".join(consequences(seen).values())


def consequences(seen: Mapping[str, Any]) -> dict[str, str]:
    """Return what accepting means, from the numbers in parcels: of all, and of each held slice."""
    ours, theirs = seen["parcels_missed_per_1000"], seen["reference_parcels_missed_per_1000"]
    words = {
        "all_parcels": (
            f"Of 1,000 parcels {ours:.1f} would leave with damage that nobody looks at "
            f"(with the model in use {theirs:.1f}): {_change(ours, theirs, 1)}."
        )
    }
    for one in seen["slices_in_parcels"]:
        ours, theirs = one["missed_per_1000"], one["reference_missed_per_1000"]
        words[one["name"]] = (
            f"Of 1,000 parcels damaged in {one['name']}, {ours:.0f} would leave so "
            f"(with the model in use {theirs:.0f}): {_change(ours, theirs, 0)}, "
            f"judged by the {one['parcels']} of them on validation."
        )
    return words


def _change(ours: float, theirs: float, digits: int) -> str:
    change = round(ours, digits) - round(theirs, digits)
    if not change:
        return "no change"
    return f"{abs(change):.{digits}f} {'more' if change > 0 else 'fewer'}"
