"""Reads the label table of an archive folder as text, for a first look and for watching.

Which columns mean what is guessed by core.sketch; judging rows is the source adapter's business.
"""

import csv
import io
from pathlib import Path

from parcel_assets.core.errors import ArchiveError
from parcel_assets.core.sketch import LabelTable

TABLES = ("labels.csv", "labels.parquet", "manifest.csv", "labels.tsv")


def read_label_table(folder: Path, table: str | None = None) -> LabelTable:
    """Return a folder's label table; raises ArchiveError where there is none that can be read."""
    path = _table_path(folder, table)
    return _parquet(path) if path.suffix == ".parquet" else _delimited(path)


def _table_path(folder: Path, table: str | None) -> Path:
    names = (table,) if table else TABLES
    for name in names:
        if (folder / name).is_file():
            return folder / name
    if not table and folder.is_dir():
        tables = sorted(p for p in folder.iterdir() if p.suffix in {".csv", ".tsv", ".parquet"})
        if len(tables) == 1:
            return tables[0]
    raise ArchiveError(
        f"no label table ({', '.join(names)})" if folder.is_dir() else "no such folder",
        expected="a folder with photos and one label table (CSV or Parquet)",
        where=str(folder),
        remedy="Name it with --table, or write one: a row per photo with path, shipment, label.",
        rows=[],
    )


def _parquet(path: Path) -> LabelTable:
    import pyarrow.parquet  # noqa: PLC0415  (heavy, and only for Parquet tables)

    frame = pyarrow.parquet.read_table(path)
    rows = tuple(
        {k: "" if v is None else str(v) for k, v in one.items()} for one in frame.to_pylist()
    )
    return LabelTable(path.name, "utf-8", ",", tuple(frame.column_names), rows)


def _delimited(path: Path) -> LabelTable:
    data, encoding = path.read_bytes(), "utf-8"
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        encoding, text = "cp1252", data.decode("cp1252", errors="replace")
    first = text.partition("\n")[0]
    delimiter = max((",", ";", "\t"), key=first.count)
    lines = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    header = tuple(lines.fieldnames or ())
    rows = tuple({name: row.get(name) or "" for name in header} for row in lines)
    return LabelTable(path.name, encoding, delimiter, header, rows)
