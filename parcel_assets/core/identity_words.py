"""What a difference between two identities likely means, in words that a person acts upon.

Decides what is shown of a worker's own texts: bounded, printable, digests cut short. Which fields
differ is `core.identity`'s to say.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from parcel_assets.core.codec import short

ITEMS_SHOWN = 3
SHOWN_CHARACTERS = 120
NOTHING = "nothing"

Items = Mapping[str, str]  # of one field: item -> text
Differing = dict[str, tuple[str, str]]  # item -> (expected, found)


@dataclass(frozen=True, slots=True)
class PhotosHeld:
    """How many of a worker's photos the pinned archive lacks, and how many are of the holdout."""

    strangers: int
    sealed: int


def differing_items(wanted: Items, seen: Items) -> Differing:
    """Return the items of a field that are not equal, as (expected, found)."""
    names = [*wanted, *(name for name in seen if name not in wanted)]
    return {
        name: (wanted.get(name, NOTHING), seen.get(name, NOTHING))
        for name in names
        if wanted.get(name) != seen.get(name)
    }


def shown(items: Differing, side: int) -> str:
    """Return one side of what differs, digests cut short, and how much more there is."""
    parts = [
        f"{printable(name)} {_brief(pair[side])}".strip()
        for name, pair in list(items.items())[:ITEMS_SHOWN]
    ]
    return ", ".join(parts) + _and_more(len(items))


def _and_more(count: int) -> str:
    return f" and {count - ITEMS_SHOWN} more" if count > ITEMS_SHOWN else ""


def _brief(text: str) -> str:
    is_digest = len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)
    return short(text) if is_digest else printable(text)


def printable(text: str) -> str:
    """Return a worker's text fit for a terminal and a page: bounded, without control characters."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}…"


def cause_of(field: str, items: Differing) -> str:
    """Return what a difference in a field likely means."""
    says = _SAYINGS.get(field)
    words = says(items) if says is not None else f"it says {field!r}, which is no field of ours"
    return f"this worker {words}"


def _rules(items: Differing) -> str:
    expected, found = items.get("", (NOTHING, NOTHING))
    expected = "1" if expected == NOTHING else expected
    return (
        f"measures itself by rules {_brief(found)} and this search was opened under rules "
        f"{expected}: the package was changed in between; finish with the version that opened it, "
        "or plan a new search revision"
    )


def _archive(items: Differing) -> str:
    expected, found = items.get("photos", ("", ""))
    if not (expected.isdecimal() and found.isdecimal()):
        return "reads other photos, though as many: another archive, or other file names"
    more = int(found) - int(expected)
    _, last = items.get("last_photo", ("", ""))
    ending = f"; its last one is {_brief(last)}" if last else ""
    if more > 0:
        return f"reads an archive with {count_of(more, 'newer photo', 'newer photos')}{ending}"
    fewer = count_of(-more, "photo", "photos")
    return f"reads an archive with {fewer} fewer, an older one{ending}"


def strangers_cause(items: Differing, held: PhotosHeld) -> str:
    """Return what it means that a worker holds photos that the pinned archive lacks."""
    _, last = items.get("last_photo", ("", ""))
    ending = f"; the last photo there is {_brief(last)}" if last else ""
    photos = count_of(held.strangers, "newer photo", "newer photos")
    return f"this worker reads an archive with {photos}, unknown to the pinned one{ending}"


def count_of(number: int, one: str, several: str) -> str:
    """Return a number with its noun."""
    return f"{number} {one if number == 1 else several}"


def _split(items: Differing) -> str:
    _, torn = items.get("torn_shipments", ("", ""))
    _, named = items.get("torn_first", ("", "not named"))
    if torn.isdecimal():
        return (
            f"has {torn} shipments in both parts: it split the photos by itself, at random, and "
            f"not by shipment; among them {printable(named)}"
        )
    if "grouping" in items:
        return (
            "has a split of its own: other photos, or the same in other shipments, though every "
            "shipment lies in one part"
        )
    return "deals the same shipments to other parts: a split of its own, made with another key"


def _pixels(items: Differing) -> str:
    if "shape" in items or "type" in items:
        return "holds photos of another size or number: other decoding, or a torn file"
    return (
        "holds the same photos with other pixels: a changed or damaged file, or another decoder; "
        "copy the pinned arrays there again"
    )


def _rows(items: Differing) -> str:
    if "damaged_photos" in items:
        return "holds other labels: an edited or newer label table"
    return "holds rows in another order, or with other labels or attributes"


def _planned(items: Differing) -> str:
    pairs = [
        f"{printable(name)} = {_brief(found)} where {_brief(expected)} is frozen"
        for name, (expected, found) in list(items.items())[:ITEMS_SHOWN]
    ]
    return f"was given another copy of the plan: {'; '.join(pairs)}{_and_more(len(items))}"


def _preprocessing(items: Differing) -> str:
    if "images" in items:
        return (
            "makes other images of the same photos than the plan's normalisation gives: it runs "
            "preprocessing of its own"
        )
    return _planned(items)


def _code(items: Differing) -> str:
    names = ", ".join(printable(name) for name in list(items)[:ITEMS_SHOWN])
    kind = "network" if all(name.startswith("network/") for name in items) else "this package"
    return (
        f"runs another version of {'your' if kind == 'network' else ''} {kind}: it differs in "
        f"{names}{_and_more(len(items))}"
    ).replace("  ", " ")


def _packages(items: Differing) -> str:
    pairs = [
        f"{printable(name)} {_brief(found)} instead of {_brief(expected)}"
        for name, (expected, found) in list(items.items())[:ITEMS_SHOWN]
    ]
    return f"has {', '.join(pairs)}{_and_more(len(items))}; install the locked versions there"


def _hardware(items: Differing) -> str:
    if "threads" in items:
        expected, found = items["threads"]
        return f"computes with {_brief(found)} threads instead of {_brief(expected)}"
    return "computes on another hardware class, whose results differ in the last bits"


def _image(_items: Differing) -> str:
    return "runs in another container image; start it from the image that the plan names"


def _challenge(_items: Differing) -> str:
    return "does not hold the photos that it says it loaded"


_SAYINGS: dict[str, Callable[[Differing], str]] = {
    "rules": _rules,
    "archive": _archive,
    "split": _split,
    "train_pixels": _pixels,
    "validation_pixels": _pixels,
    "train_rows": _rows,
    "validation_rows": _rows,
    "preprocessing": _preprocessing,
    "metric": _planned,
    "space": _planned,
    "training": _planned,
    "plan": _planned,
    "code": _code,
    "packages": _packages,
    "image": _image,
    "hardware": _hardware,
    "challenge": _challenge,
    "identity": lambda _items: "said something that is no identity",
}
