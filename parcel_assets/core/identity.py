"""A worker's identity: its fields, how two are compared, what a difference likely means.

An identity is a flat mapping of items, `field.item` -> text. Fields are compared item by item, so
that a refusal can say which package, which source file or how many photos differ. What is measured
is `core.identity_data`'s and the host's; refusing a worker is left to the steps (S4).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from parcel_assets.core.codec import digest_value, short
from parcel_assets.core.ledger import Event, Kind

RULES = "2"  # which rules measured an identity; identities by other rules are never compared
# compared in this order, so that the first field named is nearest to the cause
FIELDS = (
    "rules",
    "archive",
    "split",
    "train_pixels",
    "validation_pixels",
    "train_rows",
    "validation_rows",
    "preprocessing",
    "metric",
    "space",
    "training",
    "plan",
    "code",
    "packages",
    "image",
    "hardware",
)
# what a search may not change while it is under way, on whatever host it goes on
DATA_FIELDS = FIELDS[: FIELDS.index("preprocessing")]
ITEMS_MAXIMUM = 5000
TEXT_CHARACTERS_MAXIMUM = 4000
ITEMS_SHOWN = 3
SHOWN_CHARACTERS = 120
NOTHING = "nothing"

Items = Mapping[str, str]  # of one field: item -> text


@dataclass(frozen=True, slots=True)
class PhotosHeld:
    """How many of a worker's photos the pinned archive lacks, and how many are of the holdout."""

    strangers: int
    sealed: int


@dataclass(frozen=True, slots=True)
class Difference:
    """The first field in which a worker is not what the plan says, and the names of the others."""

    field: str
    found: str
    expected: str
    cause: str
    others: tuple[str, ...] = ()

    def document(self, worker_id: str) -> dict[str, object]:
        """Return the body of WORKER_REFUSED."""
        return {
            "worker_id": worker_id,
            "field": self.field,
            "found": self.found,
            "expected": self.expected,
            "cause": self.cause,
            "others": list(self.others),
        }


def read_identity(said: object) -> dict[str, str] | None:
    """Return what a worker says of itself as an identity; None where it is none, or too large."""
    if not isinstance(said, dict) or len(said) > ITEMS_MAXIMUM:
        return None
    texts = [text for pair in said.items() for text in pair]
    if not all(isinstance(one, str) and len(one) <= TEXT_CHARACTERS_MAXIMUM for one in texts):
        return None
    return dict(said)


def first_difference_of(
    expected: Mapping[str, str], found: Mapping[str, str], held: PhotosHeld | None = None
) -> Difference | None:
    """Return the first field that differs, absent and unknown items included, or None.

    Where `held` shows that all photos are of the pinned archive, it is the split that differs.
    """
    wanted, seen = _by_field(expected), _by_field(found)
    names = [*FIELDS, *sorted((set(wanted) | set(seen)) - set(FIELDS))]
    differing = [name for name in names if wanted.get(name, {}) != seen.get(name, {})]
    if not differing:
        return None
    if held is not None and held.strangers == 0 and differing[:2] == ["archive", "split"]:
        differing[:2] = ["split", "archive"]
    field, *others = differing
    items = _differing_items(wanted.get(field, {}), seen.get(field, {}))
    cause = _cause(field, items)
    if field == "archive" and held is not None and held.strangers:
        cause = _strangers(items, held)
    if held is not None and held.sealed:
        cause += f"; {_count(held.sealed, 'of its photos is', 'of its photos are')} of the holdout"
    return Difference(
        field,
        _shown(items, 1),
        _shown(items, 0),
        cause,
        tuple(_printable(one) for one in others[: len(FIELDS)]),
    )


def only_fields(identity: Mapping[str, str], fields: Iterable[str]) -> dict[str, str]:
    """Return the items of some fields."""
    wanted = set(fields)
    return {name: text for name, text in identity.items() if field_of(name) in wanted}


def field_of(name: str) -> str:
    """Return the field that an item belongs to."""
    return name.partition(".")[0]


def identity_digest(identity: Mapping[str, str]) -> str:
    """Return the digest of an identity."""
    return digest_value(dict(identity))


# ---- words --------------------------------------------------------------------------------------

Differing = dict[str, tuple[str, str]]  # item -> (expected, found)


def _by_field(identity: Mapping[str, str]) -> dict[str, dict[str, str]]:
    fields: dict[str, dict[str, str]] = {}
    for name, text in identity.items():
        field, _, item = name.partition(".")
        fields.setdefault(field, {})[item] = text
    return fields


def _differing_items(wanted: Items, seen: Items) -> Differing:
    names = [*wanted, *(name for name in seen if name not in wanted)]
    return {
        name: (wanted.get(name, NOTHING), seen.get(name, NOTHING))
        for name in names
        if wanted.get(name) != seen.get(name)
    }


def _shown(items: Differing, side: int) -> str:
    """Return one side of what differs, digests cut short, and how much more there is."""
    parts = [
        f"{_printable(name)} {_brief(pair[side])}".strip()
        for name, pair in list(items.items())[:ITEMS_SHOWN]
    ]
    return ", ".join(parts) + _and_more(len(items))


def _and_more(count: int) -> str:
    return f" and {count - ITEMS_SHOWN} more" if count > ITEMS_SHOWN else ""


def _brief(text: str) -> str:
    is_digest = len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)
    return short(text) if is_digest else _printable(text)


def _printable(text: str) -> str:
    """Return a worker's text fit for a terminal and a page: bounded, without control characters."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}…"


def _cause(field: str, items: Differing) -> str:
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
        return f"reads an archive with {_count(more, 'newer photo', 'newer photos')}{ending}"
    fewer = _count(-more, "photo", "photos")
    return f"reads an archive with {fewer} fewer, an older one{ending}"


def _strangers(items: Differing, held: PhotosHeld) -> str:
    _, last = items.get("last_photo", ("", ""))
    ending = f"; the last photo there is {_brief(last)}" if last else ""
    photos = _count(held.strangers, "newer photo", "newer photos")
    return f"this worker reads an archive with {photos}, unknown to the pinned one{ending}"


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _split(items: Differing) -> str:
    _, torn = items.get("torn_shipments", ("", ""))
    if torn.isdecimal():
        return (
            f"has {torn} shipments in both parts: it split the photos by itself, at random, and "
            "not by shipment"
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
        f"{_printable(name)} = {_brief(found)} where {_brief(expected)} is frozen"
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
    names = ", ".join(_printable(name) for name in list(items)[:ITEMS_SHOWN])
    kind = "network" if all(name.startswith("network/") for name in items) else "this package"
    return (
        f"runs another version of {'your' if kind == 'network' else ''} {kind}: it differs in "
        f"{names}{_and_more(len(items))}"
    ).replace("  ", " ")


def _packages(items: Differing) -> str:
    pairs = [
        f"{_printable(name)} {_brief(found)} instead of {_brief(expected)}"
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


def difference(field: str, *, found: str, expected: str, item: str = "") -> Difference:
    """Return a difference in one item that no whole identity shows."""
    items = {item: (expected, found)}
    return Difference(field, _shown(items, 1), _shown(items, 0), _cause(field, items))


def difference_since(error: Mapping[str, object]) -> Difference:
    """Return what an admitted worker says has changed since it was measured."""
    field = error.get("field")
    name = field if isinstance(field, str) and field in DATA_FIELDS else "identity"
    found, expected = str(error.get("found", "")), str(error.get("expected", ""))
    cause = "this worker's photos changed after it was admitted, while it trained"
    return Difference(name, _printable(found), _printable(expected), cause)


# ---- what the ledger says of the door -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refusals:
    """Workers turned away for one and the same reason; `last_at_seconds` is the ledger's clock."""

    field: str
    found: str
    expected: str
    cause: str
    workers: tuple[str, ...]
    last_at_seconds: float

    @property
    def sentence(self) -> str:
        """The refusals in words."""
        who = self.workers[-1]
        if len(self.workers) > 1:
            who = f"{len(self.workers)} workers, the last {who}"
        return f"{who}, refused for {self.field}: {self.cause}"

    def document(self) -> dict[str, object]:
        """Return the refusals as JSON fields."""
        return {
            "field": self.field,
            "found": self.found,
            "expected": self.expected,
            "cause": self.cause,
            "workers": list(self.workers),
            "last_at_seconds": self.last_at_seconds,
            "sentence": self.sentence,
        }


def refusal_sentence(body: Mapping[str, object]) -> str:
    """Return one refusal in words, from the body of WORKER_REFUSED."""
    return (
        f"Worker {body['worker_id']} refused for {body['field']}: found {body['found']}, expected "
        f"{body['expected']}. Likely cause: {body['cause']}. No slot was spent."
    )


def admitted_of(events: Iterable[Event]) -> tuple[str, ...]:
    """Return the ids of all workers that were ever admitted."""
    return tuple(str(e.body["worker_id"]) for e in events if e.kind == Kind.WORKER_ADMITTED)


def refusals_of(events: Iterable[Event]) -> tuple[Refusals, ...]:
    """Return who was turned away at the door and why, equal reasons together, in their order."""
    found: dict[tuple[str, ...], tuple[list[str], float]] = {}
    for event in events:
        if event.kind == Kind.WORKER_REFUSED:
            body = event.body
            reason = tuple(str(body[name]) for name in ("field", "found", "expected", "cause"))
            workers, _ = found.get(reason, ([], 0.0))
            found[reason] = ([*workers, str(body["worker_id"])], event.at_seconds)
    return tuple(
        Refusals(field, seen, wanted, cause, tuple(workers), at)
        for (field, seen, wanted, cause), (workers, at) in found.items()
    )
