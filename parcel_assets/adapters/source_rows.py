"""Rows of a label table: each becomes one listed photo, or bad rows that say what is wrong in it.

Decides what a sound row is: a path inside the archive, a shipment id that survived its spreadsheet,
a known label that nothing contradicts. Reading the table is left to `source_table`, opening the
photos to `source_folder`.
"""

import difflib
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from parcel_assets.adapters.source_table import Cells, bad_row, read_cells
from parcel_assets.core.errors import PlanError
from parcel_assets.core.plan import SnapshotPlan
from parcel_assets.core.snapshot import BadRow, Label

NULL_LIKE = frozenset({"", "-", "na", "n/a", "#n/a", "nan", "nil", "none", "null", "nat", "<na>"})
LISTED_ROWS = 20  # how many line numbers one message names

_SPREADSHEET_NUMBER = re.compile(r"\d+([.,]\d+)?[eE]\+?\d+|\d+\.0")
_DRIVE = re.compile(r"[A-Za-z]:")


@dataclass(frozen=True, slots=True)
class TableRow:
    """One sound row, before its photo was looked at."""

    line: int
    photo_id: str
    shipment_id: str
    attributes: Mapping[str, str]
    label: Label


@dataclass(frozen=True, slots=True)
class LabelRows:
    """A table's sound rows, sorted by photo id, and its bad ones in table order."""

    rows: tuple[TableRow, ...]
    bad_rows: tuple[BadRow, ...]


class LabelTable:
    """The label table of one archive folder under a plan's column map and rules.

    Raises PlanError where the map contradicts itself or the shipment pattern is no expression.
    """

    def __init__(self, section: SnapshotPlan, folder: Path) -> None:
        self._section = section
        self._path = folder / section.table
        self._columns = _column_map(section)
        self._pattern = _shipment_pattern(section)

    def read(self) -> LabelRows:
        """Return good and bad rows; raises ArchiveError where the table itself cannot be read."""
        bad: list[BadRow] = []
        good: list[TableRow] = []
        for entry in read_cells(self._section, self._path, self._columns):
            if isinstance(entry, BadRow):
                bad.append(entry)
            elif (row := self._row(*entry, bad)) is not None:
                good.append(row)
        good = self._without_repeats(good, bad)
        good.sort(key=lambda row: row.photo_id)
        return LabelRows(tuple(good), tuple(sorted(bad, key=lambda row: row.row)))

    def _row(self, line: int, cells: Cells, bad: list[BadRow]) -> TableRow | None:
        """Return the row, or None after listing every fault in it."""
        values = {ours: cells[name] for ours, name in self._columns.items()}
        faults = [*self._path_faults(values["photo"]), *self._shipment_faults(values["shipment"])]
        damage_type = _value_or_none(values.get("damage_type", ""))
        damaged = values["label"] in self._section.labels.damaged
        faults += self._label_faults(values["label"], damage_type, damaged=damaged)
        file = values["photo"] or self._section.table
        bad.extend(
            bad_row(file, line, column, found=found, expected=expected, remedy=remedy)
            for column, found, expected, remedy in faults
        )
        if faults:
            return None
        photo_id = str(PurePosixPath(values["photo"]))
        further = {name: cells[name] for name in self._section.columns.further}
        if self._section.columns.camera_class is not None:
            further["camera_class"] = values["camera_class"]
        label = Label(photo_id=photo_id, damaged=damaged, damage_type=damage_type)
        return TableRow(line, photo_id, values["shipment"], further, label)

    def _path_faults(self, path: str) -> list[tuple[str, str, str, str]]:
        leaves = path.startswith("/") or ".." in path.split("/")
        if path.casefold() in NULL_LIKE:
            found = "no path"
        elif leaves or "\\" in path or _DRIVE.match(path) or not path.isprintable():
            found = f"path {path!r}"
        else:
            return []
        remedy = "Name each photo by its path below the archive folder, with / between folders."
        return [("photo", found, "a path that stays inside the archive", remedy)]

    def _shipment_faults(self, shipment: str) -> list[tuple[str, str, str, str]]:
        column = self._section.columns.shipment
        if shipment.casefold() in NULL_LIKE:
            expected = "a shipment id; rows without one would become one big shipment"
            return [(column, repr(shipment), expected, "Fill it in from the source system.")]
        if self._pattern is not None:
            if self._pattern.fullmatch(shipment):
                return []
            expected = f"an id of the form {self._pattern.pattern} (snapshot.shipment_pattern)"
        elif _SPREADSHEET_NUMBER.fullmatch(shipment):
            expected = "an id as text"
        else:
            return []
        rounded = _SPREADSHEET_NUMBER.fullmatch(shipment) is not None
        remedy = (
            "A spreadsheet rounded the id and the digits are lost: export the table again from the "
            "source, with the column as text."
            if rounded
            else "Correct the id; where its zeros are lost, export the column as text."
        )
        return [(column, repr(shipment), expected, remedy)]

    def _label_faults(
        self, text: str, damage_type: str | None, *, damaged: bool
    ) -> list[tuple[str, str, str, str]]:
        labels, columns = self._section.labels, self._section.columns
        known = (*labels.damaged, *labels.intact)
        if text not in known:
            near = difflib.get_close_matches(text.casefold(), known, n=1)
            hint = f" (like {near[0]!r})" if near else ""
            remedy = f"Map this text under snapshot.labels in the plan{hint}, or mend the label."
            return [(columns.label, repr(text), f"one of {', '.join(known)}", remedy)]
        if not damaged and damage_type is not None:
            found = f"label {text!r} with damage type {damage_type!r}"
            expected = "no damage type on an intact parcel"
            remedy = "Ask who labelled it which of the two is right."
            return [(columns.damage_type or columns.label, found, expected, remedy)]
        return []

    def _without_repeats(self, rows: list[TableRow], bad: list[BadRow]) -> list[TableRow]:
        """Return rows whose photo is listed once; of a repeated one no row can be trusted."""
        by_photo: defaultdict[str, list[TableRow]] = defaultdict(list)
        for row in rows:
            by_photo[row.photo_id].append(row)
        for photo_id, same in by_photo.items():
            if len(same) == 1:
                continue
            contradict = len({row.label.damaged for row in same}) > 1
            lines = ", ".join(str(row.line) for row in same[:LISTED_ROWS])
            bad.extend(
                bad_row(
                    photo_id,
                    row.line,
                    "duplicate" if contradict else "photo",
                    found=f"the same path in rows {lines}"
                    + (", with opposite labels" if contradict else ""),
                    expected="one row for each photo",
                    remedy="Keep the row that is right, and take the others out.",
                )
                for row in same
            )
        return [same[0] for same in by_photo.values() if len(same) == 1]


def _value_or_none(text: str) -> str | None:
    return None if text.casefold() in NULL_LIKE else text


def _column_map(section: SnapshotPlan) -> dict[str, str]:
    """Return our word -> the table's column, further columns under their own names."""
    columns = section.columns
    mapped = {"photo": columns.photo, "shipment": columns.shipment, "label": columns.label}
    if columns.damage_type is not None:
        mapped["damage_type"] = columns.damage_type
    if columns.camera_class is not None:
        mapped["camera_class"] = columns.camera_class
    tells_label = {columns.label, columns.damage_type} & set(columns.further)
    if tells_label:
        raise PlanError(
            f"{', '.join(sorted(map(str, tells_label)))} as a further column",
            expected="columns that do not tell the label",
            where="snapshot.columns.further",
            remedy="Take it out: further columns go with holdout photos, labels must not.",
            faults=[{"path": "snapshot.columns.further", "fault": "holds a label column"}],
        )
    return mapped | {name: name for name in columns.further}


def _shipment_pattern(section: SnapshotPlan) -> re.Pattern[str] | None:
    try:
        return re.compile(section.shipment_pattern) if section.shipment_pattern else None
    except re.error as error:
        raise PlanError(
            f"{section.shipment_pattern!r} ({error})",
            expected="a regular expression",
            where="snapshot.shipment_pattern",
            remedy="Mend the expression, like '\\d{13}'.",
            faults=[{"path": "snapshot.shipment_pattern", "fault": str(error)}],
        ) from error
