"""An archive that is a folder of photos with a label table.

Decides where a photo's file is, decodes each once in a bounded pool of threads (the decoder lets
go of the interpreter), and compares the photos with each other: identical content under opposite
labels is refused, under two shipments it is noted. Files that the table does not list are no part
of the archive. Rules for rows are in `source_rows`, for pixels in `image_pillow`.
"""

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from parcel_assets.adapters.image_bytes import ImageRefusedError
from parcel_assets.adapters.image_pillow import (
    DECODE_VERSION,
    decode_image,
    decoding,
    shrink,
    too_large_file,
)
from parcel_assets.adapters.source_rows import LabelRows, LabelTable, TableRow
from parcel_assets.adapters.source_table import bad_row
from parcel_assets.core.errors import ArchiveError
from parcel_assets.core.plan import SnapshotPlan
from parcel_assets.core.ports import ArchiveContent, ListedPhoto, Pixels
from parcel_assets.core.snapshot import BadRow, Label, Photo

THREADS_MAXIMUM = 8
PROGRESS_EVERY_PHOTOS = 200
NAMED_TWINS = 3  # how many other photos one message names

Progress = Callable[[int, int], None]
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class _Decoded:
    """One row's photo and small pixels, or why there is none."""

    row: TableRow
    photo: Photo | None
    pixels: Pixels | None
    refusal: ImageRefusedError | None = None


class FolderSource:
    """A folder archive under a plan's snapshot section, shrunk to `side_pixels`.

    Raises PlanError where the section contradicts itself.
    """

    decode_version = DECODE_VERSION

    def __init__(self, section: SnapshotPlan, folder: Path, side_pixels: int) -> None:
        self._rules = section.images
        self._folder = folder
        self._root = folder.resolve()
        self._side_pixels = side_pixels
        self._table = LabelTable(section, folder)

    def read(self, progress: Progress | None = None) -> ArchiveContent:
        """Read, fully decode and normalise every photo once; bad rows are listed, not raised.

        Raises ArchiveError where the table cannot be read, SettingError where the decoder is unfit.
        """
        table = self._read_table()
        bad = list(table.bad_rows)
        photos: list[Photo] = []
        rows: list[TableRow] = []
        pixels = np.empty((len(table.rows), self._side_pixels, self._side_pixels, 3), np.uint8)
        with decoding(self._rules):
            for number, decoded in enumerate(self._map(self._decode, table.rows), start=1):
                if decoded.photo is None or decoded.pixels is None:
                    bad.append(_refused_row(decoded))
                else:
                    pixels[len(photos)] = decoded.pixels
                    photos.append(decoded.photo)
                    rows.append(decoded.row)
                if progress and (number % PROGRESS_EVERY_PHOTOS == 0 or number == len(table.rows)):
                    progress(number, len(table.rows))
        contradictions, twins = _compare(photos, rows)
        bad += contradictions.values()
        kept = [number for number in range(len(photos)) if number not in contradictions]
        return ArchiveContent(
            photos=tuple(_noted(photos[number], twins.get(number)) for number in kept),
            labels=tuple(rows[number].label for number in kept),
            pixels=pixels[: len(photos)] if len(kept) == len(photos) else pixels[kept],
            bad_rows=tuple(sorted(bad, key=lambda row: (row.row, row.file, row.column))),
        )

    def listing(self) -> tuple[ListedPhoto, ...]:
        """Return rows that are good without decoding, sorted by photo id: a cheap second look.

        A file that cannot be read has an empty digest. Raises ArchiveError as `read`.
        """
        return tuple(self._map(self._listed, self._read_table().rows))

    def read_labels(self) -> tuple[Label, ...]:
        """Return the good rows' labels without opening a photo; raises ArchiveError as `read`."""
        return tuple(row.label for row in self._read_table().rows)

    def _read_table(self) -> LabelRows:
        if not self._folder.is_dir():
            raise ArchiveError(
                "no such folder",
                expected="a folder with photos and a label table",
                where=str(self._folder),
                remedy="Check snapshot.location in the plan, and the data folder setting.",
                rows=[],
            )
        return self._table.read()

    def _map(self, work: Callable[[TableRow], Found], rows: Sequence[TableRow]) -> Iterator[Found]:
        """Yield the work's result for each row, in row order, from a bounded pool."""
        pool = ThreadPoolExecutor(min(THREADS_MAXIMUM, os.cpu_count() or 1))
        try:
            yield from pool.map(work, rows)
        finally:  # a caller that stops early waits for photos in hand, not for the whole archive
            pool.shutdown(cancel_futures=True)

    def _decode(self, row: TableRow) -> _Decoded:
        try:
            data = self._read_file(row.photo_id)
            decoded = decode_image(data, self._rules, name=row.photo_id)
        except ImageRefusedError as refusal:
            return _Decoded(row, None, None, refusal)
        photo = Photo(
            photo_id=row.photo_id,
            shipment_id=row.shipment_id,
            file_digest=hashlib.sha256(data).hexdigest(),
            pixel_digest=decoded.pixel_digest,
            width_pixels=decoded.image.width,
            height_pixels=decoded.image.height,
            attributes=dict(row.attributes),
            notes=decoded.notes,
        )
        return _Decoded(row, photo, shrink(decoded.image, self._side_pixels))

    def _listed(self, row: TableRow) -> ListedPhoto:
        try:
            digest = hashlib.sha256(self._read_file(row.photo_id)).hexdigest()
        except ImageRefusedError:
            digest = ""
        return ListedPhoto(row.photo_id, row.shipment_id, row.attributes, digest)

    def _read_file(self, photo_id: str) -> bytes:
        """Return a listed file's bytes; raises ImageRefusedError where there is no file to read."""
        path = self._folder / photo_id
        try:
            if not path.resolve().is_relative_to(self._root):
                raise ImageRefusedError(
                    "a link that leaves the archive folder",
                    expected="a file inside the archive",
                    remedy="Copy the photo into the archive folder.",
                )
            if not path.is_file():
                raise ImageRefusedError(
                    "a folder" if path.is_dir() else "no such file",
                    expected="the photo that the table names",
                    remedy="Copy the photo into the archive, or take its row out of the table.",
                )
            size_bytes = path.stat().st_size
            if size_bytes > self._rules.maximum_file_bytes:
                raise too_large_file(size_bytes, self._rules)
            return path.read_bytes()
        except OSError as error:
            raise ImageRefusedError(
                f"an unreadable file ({error.strerror})",
                expected="a readable file",
                remedy="Check the file's rights and the disk.",
            ) from error


def _refused_row(decoded: _Decoded) -> BadRow:
    row, refusal = decoded.row, decoded.refusal
    assert refusal is not None  # a row without a photo says why
    return bad_row(
        row.photo_id,
        row.line,
        refusal.column,
        found=refusal.found,
        expected=refusal.expected,
        remedy=refusal.remedy,
    )


def _compare(
    photos: Sequence[Photo], rows: Sequence[TableRow]
) -> tuple[dict[int, BadRow], dict[int, str]]:
    """Return, by place, bad rows of contradictory twins and notes on the other twins."""
    same_pixels: defaultdict[str, list[int]] = defaultdict(list)
    for number, photo in enumerate(photos):
        same_pixels[photo.pixel_digest].append(number)
    contradictions: dict[int, BadRow] = {}
    notes: dict[int, str] = {}
    for twins in same_pixels.values():
        opposed = len({rows[one].label.damaged for one in twins}) > 1
        for number in twins if len(twins) > 1 else ():
            others = [photos[one] for one in twins if one != number]
            if opposed:
                contradictions[number] = _contradiction(rows[number], others)
                continue
            elsewhere = {one.shipment_id for one in others} - {photos[number].shipment_id}
            named = ", ".join(sorted(elsewhere)[:NAMED_TWINS])
            notes[number] = f"same photo in {named}" if named else "same photo in its own shipment"
    return contradictions, notes


def _contradiction(row: TableRow, others: Sequence[Photo]) -> BadRow:
    named = ", ".join(one.photo_id for one in others[:NAMED_TWINS])
    return bad_row(
        row.photo_id,
        row.line,
        "duplicate",
        found=f"{'damaged' if row.label.damaged else 'intact'}, while the same photo in {named} "
        "says otherwise",
        expected="one label for one photo",
        remedy="Look at the photo, and give every copy the label that is right.",
    )


def _noted(photo: Photo, note: str | None) -> Photo:
    return photo if note is None else photo.model_copy(update={"notes": (*photo.notes, note)})
