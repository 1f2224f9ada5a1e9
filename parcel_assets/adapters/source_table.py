"""The label table of an archive as cells of text, with the number of each line.

CSV is read under the plan's encoding and delimiter and Parquet by its schema; nothing is guessed,
and no id ever becomes a number. A table that cannot be read at all raises, with the header that was
found; a torn line is one bad row. What the cells mean is left to `source_rows`.
"""

import csv
import difflib
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from parcel_assets.core.errors import ArchiveError, PlanError
from parcel_assets.core.plan import SnapshotPlan
from parcel_assets.core.snapshot import BadRow

OTHER_DELIMITERS = ",;\t|"
ID_WORDS = frozenset({"photo", "shipment"})

_MARKS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_UTF8_MARK = b"\xef\xbb\xbf"

Cells = Mapping[str, str]
Entry = tuple[int, Cells] | BadRow


def read_cells(section: SnapshotPlan, path: Path, columns: Mapping[str, str]) -> Iterator[Entry]:
    """Yield line number and cells of each row, blanks around them removed; or a torn row.

    `columns` maps our words to the table's names; each must stand in the header once. The header is
    line 1, for Parquet as well. Raises ArchiveError where the table cannot be read.
    """
    reader = _CellReader(section, path, columns)
    return reader.parquet_lines() if path.suffix.lower() == ".parquet" else reader.text_lines()


def bad_row(file: str, line: int, column: str, *, found: str, expected: str, remedy: str) -> BadRow:
    """Return a bad row whose file name any page and log can print."""
    # a control character would be obeyed by the terminal that shows it
    printable = "".join(one if one.isprintable() else repr(one)[1:-1] for one in file)
    return BadRow(
        file=printable, row=line, column=column, found=found, expected=expected, remedy=remedy
    )


class _CellReader:
    def __init__(self, section: SnapshotPlan, path: Path, columns: Mapping[str, str]) -> None:
        self._section = section
        self._path = path
        self._columns = columns
        if not path.is_file():
            raise self._unreadable(
                "no such file",
                "the label table (snapshot.table)",
                "Check snapshot.location and snapshot.table in the plan.",
            )

    def text_lines(self) -> Iterator[Entry]:
        reader = csv.reader(
            io.StringIO(self._text(), newline=""), delimiter=self._section.delimiter, strict=True
        )
        header: list[str] | None = None
        line = 1
        try:
            for cells in reader:
                first_line, line = line, reader.line_num + 1
                stripped = [cell.strip() for cell in cells]
                if not any(stripped):
                    continue
                if header is None:
                    header = stripped
                    self._check_header(header)
                elif len(stripped) != len(header):
                    yield bad_row(
                        self._section.table,
                        first_line,
                        "row",
                        found=f"{len(stripped)} cells",
                        expected=f"{len(header)} cells, as in the header",
                        remedy="Quote a cell that holds the delimiter, or complete the row.",
                    )
                else:
                    yield first_line, dict(zip(header, stripped, strict=True))
        except csv.Error as error:
            raise self._unreadable(
                f"text that is not CSV ({error})",
                f"cells separated by {self._section.delimiter!r}",
                f"Mend the quotes near line {line}.",
                line,
            ) from error
        if header is None:
            raise self._unreadable("an empty table", "a header line", "Copy the table again.")

    def _text(self) -> str:
        data, encoding = self._path.read_bytes(), self._section.encoding
        mark = next((name for mark, name in _MARKS if data.startswith(mark)), None)
        if mark is not None and not encoding.lower().startswith("utf-16"):
            raise self._unreadable(
                f"text in {mark}",
                f"text in {encoding} (snapshot.encoding)",
                f'Set encoding = "{mark}" in the plan, or save the table as UTF-8.',
            )
        try:
            return data.removeprefix(_UTF8_MARK).decode(encoding)
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise self._unreadable(
                f"byte 0x{data[error.start]:02X}, which is not {encoding}",
                f"text in {encoding} (snapshot.encoding)",
                'Set encoding in the plan (spreadsheets often write "cp1252"), or save as UTF-8.',
                line,
            ) from error
        except LookupError as error:
            raise PlanError(
                f"encoding {encoding!r}",
                expected="an encoding that Python knows, like utf-8 or cp1252",
                where="snapshot.encoding",
                remedy="Mend the plan.",
                faults=[{"path": "snapshot.encoding", "fault": "unknown encoding"}],
            ) from error

    def parquet_lines(self) -> Iterator[Entry]:
        """Yield rows under the line numbers they would have as CSV; only text columns hold ids."""
        import pyarrow  # noqa: PLC0415  (heavy, seldom needed)
        import pyarrow.parquet  # noqa: PLC0415

        try:
            table = pyarrow.parquet.read_table(self._path)
        except (pyarrow.ArrowException, OSError) as error:
            raise self._unreadable(
                f"a file that is not Parquet ({error})", "a Parquet table", "Write it again."
            ) from error
        self._check_header(table.column_names)
        columns = {}
        for ours, name in self._columns.items():
            kind = table.schema.field(name).type
            if pyarrow.types.is_dictionary(kind):
                kind = kind.value_type
            is_text = pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)
            if ours in ID_WORDS and not is_text:
                raise self._unreadable(
                    f"column {name!r} of type {kind}",
                    "text: a number loses the zeros that an id starts with",
                    "Write the column as text from the original source.",
                )
            columns[name] = [
                "" if value is None else str(value).strip() for value in table[name].to_pylist()
            ]
        for number in range(table.num_rows):
            yield number + 2, {name: values[number] for name, values in columns.items()}

    def _check_header(self, header: Sequence[str]) -> None:
        missing = [name for name in self._columns.values() if name not in header]
        repeated = sorted({n for n in self._columns.values() if list(header).count(n) > 1})
        if not missing and not repeated:
            return
        remedy = "Name the table's own columns under snapshot.columns in the plan."
        if len(header) == 1:
            others = [one for one in OTHER_DELIMITERS if one in header[0]]
            if others:
                remedy = f"Set delimiter = {others[0]!r} in the plan."
        elif missing:
            near = difflib.get_close_matches(missing[0], header, n=1)
            remedy += f" Did you mean {near[0]!r}?" if near else ""
        what = f"no column {', '.join(missing)}" if missing else f"{repeated} more than once"
        raise self._unreadable(
            f"{what} in the header {list(header)}", "each mapped column once", remedy
        )

    def _unreadable(self, found: str, expected: str, remedy: str, line: int = 1) -> ArchiveError:
        row = bad_row(
            self._section.table, line, "table", found=found, expected=expected, remedy=remedy
        )
        return ArchiveError(
            found,
            expected=expected,
            where=f"{self._path}, line {line}",
            remedy=remedy,
            rows=[row.document()],
        )
