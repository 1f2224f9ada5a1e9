"""Looks at an archive folder from outside: whether it is complete, and which version it is.

Complete means that the label table is there and every file it names is there. Whether a version is
new is the ledger's business; decoding photos and judging rows is the source adapter's.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

from parcel_assets.core.codec import digest_bytes, digest_value


@dataclass(frozen=True, slots=True)
class TableRules:
    """How an archive's label table is read: file name, photo column, encoding, delimiter."""

    table: str = "labels.csv"
    photo_column: str = "path"
    encoding: str = "utf-8"
    delimiter: str = ","


@dataclass(frozen=True, slots=True)
class ArchiveLook:
    """What one look found. `mark` changes whenever a file's size or time does; it is no digest."""

    complete: bool
    sentence: str
    mark: str
    files: tuple[str, ...] = ()


def look_at_archive(folder: Path, rules: TableRules) -> ArchiveLook:
    """Return whether an archive is complete now, in words, with the mark of what was seen."""
    table = folder / rules.table
    try:
        named = _named_files(table, rules)
    except FileNotFoundError:
        return ArchiveLook(False, f"{folder.name}: no {rules.table} yet", "")
    except (OSError, UnicodeDecodeError, KeyError, csv.Error) as error:
        return ArchiveLook(False, f"{folder.name}: {rules.table} cannot be read ({error})", "")
    marks, missing = [_mark(table)], 0
    for name in named:
        try:
            marks.append(_mark(folder / name))
        except OSError:
            missing += 1
    if missing or not named:
        sentence = f"{folder.name}: {missing} of {len(named)} files not there yet"
        return ArchiveLook(False, sentence, digest_value(marks))
    return ArchiveLook(True, f"{folder.name}: {len(named)} files", digest_value(marks), named)


def archive_version(folder: Path, rules: TableRules, look: ArchiveLook) -> str:
    """Return the digest of a complete archive's bytes: its table and every file it names."""
    files = [[name, _file_digest(folder / name)] for name in look.files]
    return digest_value({"table": _file_digest(folder / rules.table), "files": files})


def _named_files(table: Path, rules: TableRules) -> tuple[str, ...]:
    if table.suffix == ".parquet":
        import pyarrow.parquet  # noqa: PLC0415  (heavy, and only for Parquet tables)

        column = pyarrow.parquet.read_table(table, columns=[rules.photo_column]).column(0)
        return tuple(sorted({str(one) for one in column.to_pylist() if one}))
    with table.open(encoding=_encoding(rules.encoding), newline="") as stream:
        rows = csv.DictReader(stream, delimiter=rules.delimiter)
        names = {row[rules.photo_column] for row in rows}
    return tuple(sorted(name for name in names if name))


def _encoding(name: str) -> str:
    return "utf-8-sig" if name.lower().replace("_", "-") in {"utf-8", "utf8"} else name


def _mark(path: Path) -> list[str | int]:
    status = path.stat()
    return [path.name, status.st_size, status.st_mtime_ns]


def _file_digest(path: Path) -> str:
    return digest_bytes(path.read_bytes())
