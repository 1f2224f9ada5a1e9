"""The custodian's private folder: what pin hands to split, and nobody else may read.

    labels/<revision>.json             mark of the labels, and until the split has sealed the salt
    snapshots/<digest>/manifest.json   what was pinned: photos document, digest of the listing, mark
    snapshots/<digest>/pixels-64.npy   decoded small pixels, until the split has sealed
    marks.key                          the custodian's key: the same labels are known again by it

Decides names and atomic writing here; when something is kept or forgotten is up to `steps.data`.
"""

import hashlib
import json
import os
import secrets
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from parcel_assets.core.codec import canonical_json, keyed_digest
from parcel_assets.core.errors import StorageError
from parcel_assets.core.ports import Pixels
from parcel_assets.core.snapshot import Label, label_rows

SALT_BYTES = 32
CHUNK_PHOTOS = 1024

RowNumbers = npt.NDArray[np.int64]


class Custody:
    """The custodian's folder. Raises StorageError where the disk refuses to write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    # ---- salts and marks -------------------------------------------------------------------------

    def make_commitment(self, revision: str, labels: Sequence[Label]) -> str:
        """Return the commitment to all labels under a fresh salt, which stays here."""
        salt = secrets.token_bytes(SALT_BYTES)
        kept = {"salt": salt.hex(), "mark": self.mark_of(labels)}
        self._write(self._labels_path(revision), canonical_json(kept))
        return keyed_digest(salt, label_rows(labels))

    def commitment_of(self, revision: str, labels: Sequence[Label]) -> str | None:
        """Return what labels commit to under the kept salt, or None where the salt is gone."""
        kept = _read_json(self._labels_path(revision))
        if kept is None or "salt" not in kept:
            return None
        return keyed_digest(bytes.fromhex(kept["salt"]), label_rows(labels))

    def knows_other_labels(self, revision: str, labels: Sequence[Label]) -> bool:
        """Say whether a revision committed to other labels, as far as this folder remembers."""
        kept = _read_json(self._labels_path(revision))
        return kept is not None and kept["mark"] != self.mark_of(labels)

    def forget_salt(self, revision: str) -> None:
        """Remove a revision's salt: from now on only the vault can tell a holdout label."""
        kept = _read_json(self._labels_path(revision))
        if kept is not None and "salt" in kept:
            self._write(self._labels_path(revision), canonical_json({"mark": kept["mark"]}))

    def mark_of(self, labels: Sequence[Label]) -> str:
        """Return a mark by which the custodian, and nobody else, knows the same labels again."""
        path = self._folder / "marks.key"
        if not path.exists():
            self._write(path, secrets.token_bytes(SALT_BYTES))
        return keyed_digest(path.read_bytes(), label_rows(labels))

    # ---- what was pinned -------------------------------------------------------------------------

    def manifest(self, digest: str) -> dict[str, Any] | None:
        """Return what is known of a snapshot, or None."""
        return _read_json(self._snapshot_path(digest) / "manifest.json") if digest else None

    def keep_manifest(self, digest: str, manifest: Mapping[str, Any]) -> None:
        """Remember a snapshot; the manifest holds no label."""
        self._write(self._snapshot_path(digest) / "manifest.json", canonical_json(dict(manifest)))

    def keep_pixels(self, digest: str, pixels: Pixels) -> str:
        """Keep a snapshot's small pixels, (photos, side, side, 3); return the file's digest."""
        with self._new_file(self._pixels_path(digest, pixels.shape[1])) as path:
            write_pixels(path, pixels, np.arange(len(pixels)))
            return _file_digest(path)

    def pixels(self, digest: str, side_pixels: int, file_digest: str | None) -> Pixels | None:
        """Return kept pixels as a map of their file; None where they are gone or damaged."""
        path = self._pixels_path(digest, side_pixels)
        if file_digest is None or not path.exists() or _file_digest(path) != file_digest:
            return None
        pixels: Pixels = np.load(path, mmap_mode="r", allow_pickle=False)
        return pixels

    def forget_pixels(self, digest: str, side_pixels: int) -> None:
        """Remove a snapshot's small pixels; they can be decoded again."""
        self._pixels_path(digest, side_pixels).unlink(missing_ok=True)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Give a private folder for the length of a block."""
        folder = self._folder / f"scratch-{uuid.uuid4().hex}"
        try:
            folder.mkdir(mode=0o700, parents=True)
            yield folder
        except OSError as error:
            raise _refused(error, folder) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _labels_path(self, revision: str) -> Path:
        return self._folder / "labels" / f"{revision}.json"

    def _snapshot_path(self, digest: str) -> Path:
        return self._folder / "snapshots" / digest

    def _pixels_path(self, digest: str, side_pixels: int) -> Path:
        return self._snapshot_path(digest) / f"pixels-{side_pixels}.npy"

    def _write(self, path: Path, data: bytes) -> None:
        with self._new_file(path) as partial, partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def _new_file(self, path: Path) -> Iterator[Path]:
        """Give a path to write to; it takes its name when the block ends well, and else goes."""
        partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            yield partial
            partial.chmod(0o600)
            partial.replace(path)
        except OSError as error:
            raise _refused(error, path) from error
        finally:
            partial.unlink(missing_ok=True)


def write_pixels(path: Path, pixels: Pixels, rows: RowNumbers) -> None:
    """Write the chosen rows of a pixel array as .npy, in chunks: it need not fit in memory."""
    with path.open("xb") as file:
        shape = (len(rows), *pixels.shape[1:])
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, len(rows), CHUNK_PHOTOS):
            file.write(pixels[rows[start : start + CHUNK_PHOTOS]].tobytes())


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return found


def _refused(error: OSError, path: Path) -> StorageError:
    return StorageError(
        f"a refusal to write ({error.strerror or error})",
        expected="room and the right to write",
        where=str(error.filename or path),
        remedy="Free some space or mend the rights of the custodian's folder, and run again.",
        errno=error.errno,
    )
