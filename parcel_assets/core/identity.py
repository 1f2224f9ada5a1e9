"""A worker's identity: its fields, how two are compared, what a difference likely means.

An identity is a flat mapping of items, `field.item` -> text. Fields are compared item by item, so
that a refusal can say which package, which source file or how many photos differ. What is measured
is `core.identity_data`'s and the host's; refusing a worker is left to the steps (S4).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from parcel_assets.core.codec import digest_value
from parcel_assets.core.identity_words import (
    PhotosHeld,
    cause_of,
    count_of,
    differing_items,
    printable,
    shown,
    strangers_cause,
)

FIRST_RULES = "1"  # what an identity was measured by that does not say
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
    items = differing_items(wanted.get(field, {}), seen.get(field, {}))
    cause = cause_of(field, items)
    if field == "archive" and held is not None and held.strangers:
        cause = strangers_cause(items, held)
    if held is not None and held.sealed:
        cause += (
            f"; {count_of(held.sealed, 'of its photos is', 'of its photos are')} of the holdout"
        )
    return Difference(
        printable(field),
        shown(items, 1),
        shown(items, 0),
        cause,
        tuple(printable(one) for one in others[: len(FIELDS)]),
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


def difference(field: str, *, found: str, expected: str, item: str = "") -> Difference:
    """Return a difference in one item that no whole identity shows."""
    items = {item: (expected, found)}
    return Difference(field, shown(items, 1), shown(items, 0), cause_of(field, items))


def difference_since(error: Mapping[str, object]) -> Difference:
    """Return what an admitted worker says has changed since it was measured."""
    field = error.get("field")
    name = field if isinstance(field, str) and field in DATA_FIELDS else "identity"
    found, expected = str(error.get("found", "")), str(error.get("expected", ""))
    cause = "this worker's photos changed after it was admitted, while it trained"
    return Difference(name, printable(found), printable(expected), cause)


def _by_field(identity: Mapping[str, str]) -> dict[str, dict[str, str]]:
    fields: dict[str, dict[str, str]] = {}
    for name, text in identity.items():
        field, _, item = name.partition(".")
        fields.setdefault(field, {})[item] = text
    return fields
