"""Write the sample archive: photos in `images/`, the table `labels.csv`, the note `sample.json`.

Decides files, their order and what counts as the same archive. The folder appears under its name
in one rename when everything is in it, so a folder that exists is complete. Which facts the table
holds is left to `sample_facts`, how a photo looks to `sample_camera`.
"""

import csv
import io
import json
import multiprocessing
import os
import shutil
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parcel_assets.adapters.sample_camera import JPEG_QUALITY, draw_photos
from parcel_assets.adapters.sample_facts import Photo, photos_of_shipment
from parcel_assets.adapters.sample_geometry import IMAGE_PIXELS
from parcel_assets.core.codec import canonical_json, digest_bytes, digest_value
from parcel_assets.core.errors import SettingError

GENERATOR_VERSION = "1"
TABLE_FILE = "labels.csv"
NOTE_FILE = "sample.json"
IMAGE_FOLDER = "images"
CHUNK_SHIPMENTS = 20
COLUMNS = (
    "path",
    "shipment_id",
    "frame",
    "camera_class",
    "camera_id",
    "site",
    "carrier",
    "lane",
    "captured_at",
    "label",
    "damage_type",
    "severity",
    "reviewer_id",
)

Progress = Callable[[int, int], None]
Row = dict[str, str]


@dataclass(frozen=True)
class SampleSummary:
    """What an archive holds. Damage is counted as recorded, not as it truly is.

    `shared_photos` are those filed under a second shipment as well, byte for byte.
    """

    shipments: int
    photos: int
    damaged_photos: int
    shared_photos: int
    photos_by_camera: Mapping[str, int]
    photos_by_damage: Mapping[str, int]
    table_digest: str
    photos_digest: str


@dataclass(frozen=True)
class _Chunk:
    """What one worker wrote: the rows of some shipments and the digest of each photo's bytes."""

    first: int
    shipments: int
    rows: list[Row]
    digests: list[str]


def draw_sample_archive(
    folder: Path,
    *,
    seed: int = 82,
    shipments: int = 4000,
    processes: int = 1,
    progress: Progress | None = None,
) -> SampleSummary:
    """Draw the sample archive into a folder, or return at once where it already holds exactly that.

    The bytes are a function of seed and shipments alone. `progress` is told, in this process, how
    many shipments are done and how many there are.
    """
    _check_numbers(shipments, processes)
    folder = Path(os.path.abspath(folder))  # noqa: PTH100  (resolve() would follow a link)
    if _is_occupied(folder):
        return _existing_summary(folder, seed, shipments)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.partial")
    try:
        (partial / IMAGE_FOLDER).mkdir(parents=True)
        chunks = []
        for chunk in _drawn_chunks(partial, seed, shipments, processes):
            chunks.append(chunk)
            if progress is not None:
                progress(sum(done.shipments for done in chunks), shipments)
        summary = _finish(partial, chunks, seed, shipments)
        try:
            partial.rename(folder)
        except OSError:
            if not _is_occupied(folder):
                raise
            return _existing_summary(folder, seed, shipments)  # another draw was quicker
        return summary
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check_numbers(shipments: int, processes: int) -> None:
    for name, value in (("shipments", shipments), ("processes", processes)):
        if value < 1:
            raise SettingError(
                f"{name} = {value}",
                expected="at least 1",
                where="sample archive",
                remedy=f"Give a positive number of {name}.",
            )


def _is_occupied(folder: Path) -> bool:
    return folder.is_symlink() or (
        folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    )


def _drawn_chunks(folder: Path, seed: int, shipments: int, processes: int) -> Iterator[_Chunk]:
    """Draw all shipments in chunks and hand them over as they finish, in any order."""
    spans = [
        (first, min(CHUNK_SHIPMENTS, shipments - first))
        for first in range(0, shipments, CHUNK_SHIPMENTS)
    ]
    if processes == 1:
        for first, count in spans:
            yield _draw_chunk(folder, seed, first, count)
        return
    with ProcessPoolExecutor(
        min(processes, len(spans)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_die_with_parent,
    ) as pool:
        waiting = [pool.submit(_draw_chunk, folder, seed, *span) for span in spans]
        try:
            for finished in as_completed(waiting):
                yield finished.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _die_with_parent() -> None:
    """End this worker when its parent is gone: a killed draw leaves no process behind."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _draw_chunk(folder: Path, seed: int, first: int, count: int) -> _Chunk:
    rows: list[Row] = []
    digests: list[str] = []
    for number in range(first, first + count):
        photos = photos_of_shipment(seed, number)
        for photo, data in zip(photos, draw_photos(photos), strict=True):
            (folder / photo.path).write_bytes(data)
            rows.append(_row(photo))
            digests.append(digest_bytes(data))
    return _Chunk(first, count, rows, digests)


def _row(photo: Photo) -> Row:
    facts: dict[str, Any] = {
        **vars(photo),
        "path": photo.path,
        "captured_at": photo.captured_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return {column: str(facts[column]) for column in COLUMNS}


def _finish(folder: Path, chunks: list[_Chunk], seed: int, shipments: int) -> SampleSummary:
    """Write the note and then the table, and return the summary."""
    ordered = sorted(chunks, key=lambda chunk: chunk.first)
    rows = [row for chunk in ordered for row in chunk.rows]
    digests = [digest for chunk in ordered for digest in chunk.digests]
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    table = text.getvalue().encode()
    summary = _summarize(rows, table, digests)
    note = _note(seed, shipments, summary.table_digest, summary.photos_digest)
    (folder / NOTE_FILE).write_bytes(canonical_json(note) + b"\n")
    (folder / TABLE_FILE).write_bytes(table)
    return summary


def _note(seed: int, shipments: int, table_digest: str, photos_digest: str) -> dict[str, Any]:
    return {
        "generator_version": GENERATOR_VERSION,
        "seed": seed,
        "shipments": shipments,
        "image_pixels": IMAGE_PIXELS,
        "jpeg_quality": JPEG_QUALITY,
        "table_digest": table_digest,
        "photos_digest": photos_digest,
    }


def _summarize(rows: list[Row], table: bytes, digests: list[str]) -> SampleSummary:
    pairs = [[row["path"], digest] for row, digest in zip(rows, digests, strict=True)]
    cameras = Counter(row["camera_class"] for row in rows)
    damages = Counter(row["damage_type"] for row in rows if row["damage_type"])
    return SampleSummary(
        shipments=len({row["shipment_id"] for row in rows}),
        photos=len(rows),
        damaged_photos=sum(row["label"] == "damaged" for row in rows),
        shared_photos=len(digests) - len(set(digests)),
        photos_by_camera=dict(sorted(cameras.items())),
        photos_by_damage=dict(sorted(damages.items())),
        table_digest=digest_bytes(table),
        photos_digest=digest_value(pairs),
    )


def _existing_summary(folder: Path, seed: int, shipments: int) -> SampleSummary:
    """Return the summary of a folder that holds exactly this archive; refuse any other folder."""
    try:
        note = json.loads((folder / NOTE_FILE).read_bytes())
        table = (folder / TABLE_FILE).read_bytes()
        rows = list(csv.DictReader(io.StringIO(table.decode())))
        digests = [digest_bytes((folder / row["path"]).read_bytes()) for row in rows]
        summary = _summarize(rows, table, digests)
        strangers = {path.name for path in folder.iterdir()} - {NOTE_FILE, TABLE_FILE, IMAGE_FOLDER}
        extra = len(list((folder / IMAGE_FOLDER).iterdir())) - len(rows)
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise _occupied(folder, f"a folder that is no sample archive ({cause})", seed) from cause
    if strangers or extra:
        raise _occupied(folder, f"files beside the archive ({len(strangers) + extra})", seed)
    wanted = _note(seed, shipments, summary.table_digest, summary.photos_digest)
    if note != wanted:
        fields = [
            name for name in wanted if not isinstance(note, dict) or note.get(name) != wanted[name]
        ]
        raise _occupied(folder, f"a sample archive with other {', '.join(fields)}", seed)
    return summary


def _occupied(folder: Path, found: str, seed: int) -> SettingError:
    return SettingError(
        found,
        expected=f"no folder, an empty one, or the sample archive of seed {seed}",
        where=str(folder),
        remedy="Name another folder, or move this one away.",
    )
