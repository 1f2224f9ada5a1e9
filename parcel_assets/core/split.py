"""The grouped split: which photos belong together, and which part each component falls into.

The unit is the component: shipments that share an image are one (D1). A component's part is a keyed
hash of its first shipment, unless the archive's register knows one of its shipments already: what
was assigned stays (D3). A component that newly joins two parts is quarantined whole. Reading,
storing and sealing are left to `steps.data`; labels are used for counts only.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from parcel_assets.core.codec import digest_value, keyed_digest
from parcel_assets.core.errors import SplitError
from parcel_assets.core.plan import Plan, SplitPlan
from parcel_assets.core.ports import PartData, Pixels
from parcel_assets.core.slice_plan import DAMAGE_DIMENSION, MinimumSupport, crossing_words
from parcel_assets.core.snapshot import Label, Photo

Component = tuple[str, ...]
Part = Literal["train", "validation", "holdout"]
PARTS: tuple[Part, ...] = ("train", "validation", "holdout")
HASH_RANGE = 10_000  # fractions of the parts are exact to one in so many
LABEL_DIMENSION = "label"

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Assignment:
    """A whole split: part -> shipments, the components it was made from, and what stands aside."""

    parts: Mapping[str, tuple[str, ...]]
    components: tuple[Component, ...]  # assigned ones, singles included
    quarantined: tuple[Component, ...]  # each holds shipments that the register has in two parts
    # where the plan holds back tranches (core.tranches): this search's own, and who is in which
    tranche: int | None = None
    tranches: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    free_tranches: tuple[int, ...] = ()  # nobody else has opened or claimed these

    @property
    def reserved(self) -> dict[int, tuple[str, ...]]:
        """The free tranches that are kept for later searches."""
        return {
            number: self.tranches[number] for number in self.free_tranches if number != self.tranche
        }

    @property
    def tranche_of(self) -> dict[str, int]:
        """Shipment -> tranche."""
        return {one: number for number, members in self.tranches.items() for one in members}

    @property
    def part_of(self) -> dict[str, str]:
        """Shipment -> part, quarantined shipments left out."""
        return {one: part for part, shipments in self.parts.items() for one in shipments}

    @property
    def place_of(self) -> dict[str, str]:
        """Shipment -> part; of a holdout in tranches, the own is told from others and from spent.

        A photo of a spent shipment, encoded anew under a new name, would make the look no first.
        """
        places = self.part_of
        if self.tranche is None:
            return places
        others = {None: "spent holdout"} | {
            number: "holdout" if number == self.tranche else f"holdout tranche {number}"
            for number in self.tranches
        }
        dealt = self.tranche_of
        return places | {one: others[dealt.get(one)] for one in self.parts["holdout"]}

    @property
    def linked(self) -> tuple[Component, ...]:
        """The assigned components of more than one shipment."""
        return tuple(one for one in self.components if len(one) > 1)

    @property
    def quarantined_shipments(self) -> tuple[str, ...]:
        """Every shipment that stands aside, sorted."""
        return tuple(sorted(shipment for one in self.quarantined for shipment in one))

    def document(self) -> dict[str, Any]:
        """Return the assignment as JSON fields: ids, never a rule to compute them again."""
        document: dict[str, Any] = {
            "parts": {part: list(shipments) for part, shipments in self.parts.items()},
            "components": [list(one) for one in self.components],
            "quarantined": [list(one) for one in self.quarantined],
        }
        if self.tranche is not None:
            document |= {
                "tranche": self.tranche,
                "tranches": {str(one): list(members) for one, members in self.tranches.items()},
                "reserved": sorted(self.reserved),
            }
        return document


def find_components(photos: Iterable[Photo]) -> tuple[Component, ...]:
    """Return shipments that belong together through a shared image, each component sorted."""
    parent: dict[str, str] = {}

    def root_of(shipment: str) -> str:
        while parent[shipment] != shipment:
            parent[shipment] = parent[parent[shipment]]  # halve the way for the next caller
            shipment = parent[shipment]
        return shipment

    first_with: dict[str, str] = {}
    for photo in photos:
        parent.setdefault(photo.shipment_id, photo.shipment_id)
        other = first_with.setdefault(photo.pixel_digest, photo.shipment_id)
        ends = sorted((root_of(other), root_of(photo.shipment_id)))
        parent[ends[1]] = ends[0]
    members: defaultdict[str, list[str]] = defaultdict(list)
    for shipment in parent:
        members[root_of(shipment)].append(shipment)
    return tuple(sorted(tuple(sorted(one)) for one in members.values()))


def assign_components(
    components: Iterable[Component], split: SplitPlan, register: Mapping[str, str]
) -> Assignment:
    """Return the split of components, given what the archive's register assigned before (D3)."""
    parts: dict[str, list[str]] = {part: [] for part in PARTS}
    assigned, quarantined = [], []
    for component in sorted(components):
        before = sorted({register[one] for one in component if one in register})
        if len(before) > 1:
            quarantined.append(component)
            continue
        part = before[0] if before else hashed_part(component[0], split)
        parts[part].extend(component)
        assigned.append(component)
    return Assignment(
        parts={part: tuple(sorted(shipments)) for part, shipments in parts.items()},
        components=tuple(assigned),
        quarantined=tuple(quarantined),
    )


def hashed_part(component: str, split: SplitPlan) -> str:
    """Return the part of a component that no register knows, by its first shipment's keyed hash."""
    place = int(keyed_digest(split.key.encode(), component), 16) % HASH_RANGE
    train_end = round(split.train * HASH_RANGE)
    if place < train_end:
        return "train"
    validation_end = train_end + round(split.validation * HASH_RANGE)
    return "validation" if place < validation_end else "holdout"


def split_digest(parts: Mapping[str, Sequence[str]]) -> str:
    """Return the digest of part -> sorted shipment ids."""
    return digest_value({part: sorted(shipments) for part, shipments in parts.items()})


def count_photos(
    rows: Mapping[str, Sequence[tuple[Photo, Label]]], dimensions: Iterable[str]
) -> dict[str, dict[str, dict[str, int]]]:
    """Return part -> dimension -> value -> photos; what of the holdout's labels is declared."""
    return {
        part: {
            dimension: dict(sorted(Counter(_value(*one, dimension) for one in pairs).items()))
            for dimension in (LABEL_DIMENSION, *dimensions)
        }
        for part, pairs in rows.items()
    }


def check_support(
    minimums: Sequence[MinimumSupport], rows: Mapping[str, Sequence[tuple[Photo, Label]]]
) -> tuple[dict[str, Any], ...]:
    """Return, for each minimum of the plan, what it asks and what its part holds."""
    return tuple(_support(minimum, rows[minimum.part]) for minimum in minimums)


def _support(minimum: MinimumSupport, pairs: Sequence[tuple[Photo, Label]]) -> dict[str, Any]:
    if minimum.dimension is not None:
        pairs = [
            one
            for one in pairs
            if (
                (value := _value(*one, minimum.dimension)) == minimum.value
                or (minimum.value is None and value != "")
            )
            and all(_value(*one, name) == asked for name, asked in minimum.crossed_with.items())
        ]
    shipments = len({photo.shipment_id for photo, _ in pairs})
    damaged = sum(label.damaged for _, label in pairs)
    met = shipments >= minimum.shipments and damaged >= minimum.damaged_photos
    named = ""
    if minimum.dimension is not None:
        crossed = crossing_words(minimum.crossed_with)
        named = f" with {minimum.dimension} = {minimum.value or 'any'}{crossed}"
    return {
        "part": minimum.part,
        "dimension": minimum.dimension,
        "value": minimum.value,
        "crossed_with": dict(minimum.crossed_with),
        "shipments_asked": minimum.shipments,
        "shipments_found": shipments,
        "damaged_photos_asked": minimum.damaged_photos,
        "damaged_photos_found": damaged,
        "met": met,
        "sentence": f"{minimum.part}{named} holds {shipments} shipments "
        f"(minimum {minimum.shipments}) and {damaged} damaged photos "
        f"(minimum {minimum.damaged_photos}).",
    }


def _value(photo: Photo, label: Label, dimension: str) -> str:
    """Return a photo's value in a dimension, as text; empty where it has none."""
    if dimension == LABEL_DIMENSION:
        return "damaged" if label.damaged else "intact"
    if dimension == DAMAGE_DIMENSION:
        return label.damage_type or ""
    return photo.attributes.get(dimension, "")


def duplicates_across_parts(rows: Mapping[Any, Iterable[Photo]]) -> int:
    """Return how many photos have an identical twin in another part; a whole split has none."""
    parts_with: defaultdict[str, set[str]] = defaultdict(set)
    photos = [(part, photo.pixel_digest) for part, one in rows.items() for photo in one]
    for part, digest in photos:
        parts_with[digest].add(part)
    return sum(len(parts_with[digest]) > 1 for _, digest in photos)


def photo_row(photo: Photo, label: Label | None) -> dict[str, Any]:
    """Return a photo's row in its part's index; a holdout row is made without a label."""
    row: dict[str, Any] = {
        "photo_id": photo.photo_id,
        "shipment_id": photo.shipment_id,
        "pixel_digest": photo.pixel_digest,
        "attributes": dict(photo.attributes),
    }
    if label is not None:
        row |= {"damaged": label.damaged, "damage_type": label.damage_type}
    return row


def part_data(rows: Sequence[Row], pixels: Pixels) -> PartData:
    """Return a part as a trainer takes it; pixels are uint8 (rows, side, side, 3) in row order.

    Raises SplitError where rows and pixels do not belong together or a row has no label.
    """
    unlabelled = sum("damaged" not in row for row in rows)
    if len(rows) != len(pixels) or unlabelled:
        raise SplitError(
            f"{len(rows)} rows ({unlabelled} without a label) and {len(pixels)} photos",
            expected="one labelled row for each photo",
            where="part data",
            remedy="Read rows and pixels that one split evidence names; the holdout has no labels.",
        )
    return PartData(
        photo_ids=tuple(row["photo_id"] for row in rows),
        shipments=tuple(row["shipment_id"] for row in rows),
        pixels=pixels,
        damaged=np.array([row["damaged"] for row in rows], dtype=np.bool_),
        attributes=labelled_attributes(rows),
    )


def labelled_attributes(rows: Sequence[Row]) -> dict[str, tuple[str, ...]]:
    """Return dimension -> value of each labelled row, empty where it has none."""
    names = sorted({name for row in rows for name in row["attributes"]})
    attributes = {name: tuple(row["attributes"].get(name, "") for row in rows) for name in names}
    attributes[DAMAGE_DIMENSION] = tuple(row["damage_type"] or "" for row in rows)
    return attributes


def milestone_subset(shipments: Sequence[str], key: str, fraction: float) -> npt.NDArray[np.int64]:
    """Return the rows that milestones before the last score: a share of shipments by keyed hash.

    Whole shipments, at least one; the hash is another than the one that assigns parts, else the
    subset would follow the split.
    """
    distinct = set(shipments)
    ordered = sorted(
        distinct, key=lambda one: (keyed_digest(key.encode(), ["milestone", one]), one)
    )
    chosen = set(ordered[: math.ceil(fraction * len(ordered))])
    return np.flatnonzero([one in chosen for one in shipments]).astype(np.int64)


def milestone_rows(plan: Plan, shipments: Sequence[str]) -> dict[int, npt.NDArray[np.int64]]:
    """Return, by milestone, the validation rows that are scored there: a subset, at the end all."""
    subset = milestone_subset(shipments, plan.split.key, plan.metric.milestone_fraction)
    rows = dict.fromkeys(plan.training.milestones[:-1], subset)
    rows[plan.training.steps] = np.arange(len(shipments), dtype=np.int64)
    return rows


def subset_digests(
    photo_ids: Sequence[str], rows: Mapping[int, npt.NDArray[np.int64]]
) -> dict[int, str]:
    """Return, by milestone, the digest of the photo ids scored there, in order."""
    return {step: digest_value([photo_ids[row] for row in chosen]) for step, chosen in rows.items()}
