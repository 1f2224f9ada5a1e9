"""What an archive's label table looks like, and how a plan might read it.

A guess is only ever written into a plan that a person reads; nothing here decides what a search
does. Reading the table from disk is left to an adapter.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parcel_assets.core.errors import ArchiveError

PHOTO = ("path", "photo", "file", "filename", "file_name", "image", "image_path", "photo_id")
SHIPMENT = ("shipment_id", "parcel_id", "shipment", "parcel", "package_id", "group", "tracking_id")
LABEL = ("label", "damaged", "is_damaged", "class", "status", "condition", "target")
DAMAGE_TYPE = ("damage_type", "damage", "defect", "defect_type", "kind", "type")
CAMERA = ("camera_class", "camera", "view", "camera_type", "perspective")
DAMAGED = {"damaged", "damage", "defect", "defective", "broken", "bad", "1", "true", "yes", "y"}
INTACT = {"intact", "ok", "good", "undamaged", "normal", "clean", "none", "0", "false", "no", "n"}
FURTHER_VALUES_MAXIMUM = 30  # a column with more values makes no slice that can be read
SPREADSHEET = re.compile(r"\d+([.,]\d+)?[eE]\+?\d+$")


@dataclass(frozen=True, slots=True)
class LabelTable:
    """A label table as text: where it was read, how, its header and its rows."""

    table: str  # file name inside the archive folder
    encoding: str
    delimiter: str
    header: tuple[str, ...]
    rows: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True)
class ArchiveSketch:
    """What a label table looks like and how a plan might read it; every guess may be wrong."""

    table: LabelTable
    photo: str
    shipment: str
    label: str
    damage_type: str | None
    camera_class: str | None
    further: tuple[str, ...]
    damaged: tuple[str, ...]
    intact: tuple[str, ...]
    unknown_labels: tuple[str, ...]
    shipments: int
    shipment_pattern: str | None
    values: Mapping[str, Mapping[str, int]]  # damage_type, camera_class -> value -> rows
    warnings: tuple[str, ...]


def sketch_archive(table: LabelTable) -> ArchiveSketch:
    """Return the sketch of a label table; raises ArchiveError where a column is missing."""
    header, rows = table.header, table.rows
    photo = _required(PHOTO, header, "photo paths", table.table)
    shipment = _required(SHIPMENT, header, "shipment ids", table.table)
    label = _required(LABEL, header, "labels", table.table)
    used = {photo, shipment, label}
    damage_type = _first(DAMAGE_TYPE, header, used)
    camera = _first(CAMERA, header, used | {damage_type or ""})
    used |= {damage_type or "", camera or ""}
    counts = {name: Counter(row[name] for row in rows) for name in header}
    labels = counts[label]
    damaged = tuple(sorted(one for one in labels if one.strip().lower() in DAMAGED))
    intact = tuple(sorted(one for one in labels if one.strip().lower() in INTACT))
    ids = sorted(counts[shipment])
    further = tuple(
        name
        for name in header
        if name not in used and 1 < len(counts[name]) <= FURTHER_VALUES_MAXIMUM
    )
    return ArchiveSketch(
        table=table,
        photo=photo,
        shipment=shipment,
        label=label,
        damage_type=damage_type,
        camera_class=camera,
        further=further,
        damaged=damaged,
        intact=intact,
        unknown_labels=tuple(sorted(set(labels) - set(damaged) - set(intact))),
        shipments=len(ids),
        shipment_pattern=_pattern(ids),
        values={
            name: {value: n for value, n in sorted(counts[column].items()) if value}
            for name, column in (("damage_type", damage_type), ("camera_class", camera))
            if column is not None
        },
        warnings=_warnings(shipment, ids, len(rows)),
    )


def _first(wanted: Sequence[str], header: Sequence[str], used: set[str]) -> str | None:
    by_lower = {name.strip().lower(): name for name in reversed(header)}
    return next((by_lower[w] for w in wanted if w in by_lower and by_lower[w] not in used), None)


def _required(wanted: Sequence[str], header: Sequence[str], what: str, where: str) -> str:
    found = _first(wanted, header, set())
    if found is None:
        raise ArchiveError(
            f"columns {', '.join(header) or 'none'}",
            expected=f"a column with {what}, named one of: {', '.join(wanted)}",
            where=where,
            remedy="Rename the column in a copy of the table, or write the plan by hand.",
            rows=[],
        )
    return found


def _pattern(ids: Sequence[str]) -> str | None:
    """Return a pattern for digit-only ids of one length, which also catches lost leading zeros."""
    lengths = {len(one) for one in ids}
    if ids and len(lengths) == 1 and all(one.isdecimal() for one in ids):
        return f"[0-9]{{{lengths.pop()}}}"
    return None


def _warnings(shipment: str, ids: Sequence[str], rows: int) -> tuple[str, ...]:
    found = []
    rounded = [one for one in ids if SPREADSHEET.match(one)]
    if rounded:
        found.append(
            f"{shipment} holds {rounded[0]!r}: the column went through a spreadsheet and has lost "
            "digits; export the table again with this column as text"
        )
    lengths = Counter(len(one) for one in ids if one.isdecimal())
    if (
        len(lengths) == 2
        and max(lengths) - min(lengths) == 1
        and lengths[max(lengths)] > len(ids) / 2
    ):
        found.append(
            f"{lengths[min(lengths)]} ids in {shipment} are one digit shorter than the rest: "
            "leading zeros may be lost"
        )
    if any(one.strip().lower() in {"", "na", "nan", "null", "none"} for one in ids):
        found.append(f"{shipment} is blank in some rows; those rows will be refused")
    if len(ids) == rows:
        found.append(f"every row has its own {shipment}: frames of one shipment cannot be grouped")
    return tuple(found)
