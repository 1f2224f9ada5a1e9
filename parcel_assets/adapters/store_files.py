"""Store on the local file system: content-addressed objects, and one private folder per attempt.

Decides the layout below its root, and that a file appears whole or not at all: written beside,
flushed to disk, made read-only, then renamed. What the objects mean is left to the steps.

    objects/ab/abcdef…[suffix]   one object, named by the SHA-256 of its bytes
    incoming/                    half-written files; nothing in here has a name yet
    attempts/<prefix>/owner.json the owner marker of a claimed prefix
    quarantine/<prefix>/         a prefix in doubt, moved away whole; <prefix>.json says why
    anchors/<revision>/…         where the revision's ledger stood at each recorded stage
"""

import errno
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from parcel_assets.core.codec import canonical_json, digest_bytes
from parcel_assets.core.errors import StorageError

OWNER_FILE = "owner.json"
CHUNK_BYTES = 1 << 20
READ_ONLY = 0o444
FLUSHES_AT_ONCE = 8

_DIGEST = re.compile(r"[0-9a-f]{64}")
_SUFFIX = re.compile(r"(\.[a-z0-9]{1,15})*")
# in lower case: two prefixes never differ by case alone, which some file systems do not tell apart
_PREFIX_PART = re.compile(r"[a-z0-9_][a-z0-9._=-]{0,127}")
_FULL_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class FileStore:
    """A store below one folder, shared by every process that is given the same root."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._objects = root / "objects"
        self._incoming = root / "incoming"
        self._attempts = root / "attempts"
        self._quarantine = root / "quarantine"

    def put(self, data: bytes, suffix: str = "") -> str:
        """Write bytes once, atomically and read-only; return their digest.

        An object that is there already is verified, and replaced where it is damaged. Raises
        StorageError, leaving nothing half-written, where the disk refuses.
        """
        digest = digest_bytes(data)
        if not self._holds(digest):
            with self._arriving() as (temporary, file):
                file.write(data)
                self._settle(file, temporary, digest, suffix)
        return digest

    def put_many(self, objects: Sequence[tuple[bytes, str]]) -> tuple[str, ...]:
        """Write several objects at once, so that their flushes overlap; raises as `put`."""
        if len(objects) < 2:
            return tuple(self.put(data, suffix) for data, suffix in objects)
        with ThreadPoolExecutor(min(len(objects), FLUSHES_AT_ONCE)) as pool:
            return tuple(pool.map(lambda one: self.put(*one), objects))

    def put_file(self, source: Path, suffix: str = "") -> str:
        """Copy a local file in, reading it once; return its digest; raises as `put`."""
        hasher = hashlib.sha256()
        with source.open("rb") as original, self._arriving() as (temporary, file):
            while chunk := original.read(CHUNK_BYTES):
                hasher.update(chunk)
                file.write(chunk)
            digest = hasher.hexdigest()
            if not self._holds(digest):
                self._settle(file, temporary, digest, suffix)
        return digest

    def get(self, digest: str) -> bytes:
        """Return an object's bytes; raises StorageError where absent or not what its name says."""
        path = self.path(digest)
        data = path.read_bytes()
        found = digest_bytes(data)
        if found != digest:
            raise StorageError(
                f"bytes with digest {found[:8]}",
                expected=f"the object {digest[:8]}",
                where=str(path),
                remedy="The file was damaged or edited. Restore it from a copy of the store.",
                digest=digest,
            )
        return data

    def path(self, digest: str) -> Path:
        """Return the local path of an object (not verified); raises StorageError where absent."""
        path = self._find(digest)
        if path is None:
            raise StorageError(
                f"no object {digest[:8]}",
                expected="an object that was put into this store",
                where=str(self._root),
                remedy="Check the store setting, or restore the object from a copy of the store.",
                digest=digest,
            )
        return path

    def put_document(self, value: Any) -> str:
        """Write a JSON value in canonical form; return its digest."""
        return self.put(canonical_json(value), ".json")

    def get_document(self, digest: str) -> Any:
        """Return a verified JSON value; raises StorageError as `get`, or where it is not JSON."""
        try:
            return json.loads(self.get(digest))
        except ValueError as error:
            raise StorageError(
                f"an object that is not JSON ({error})",
                expected="a JSON document",
                where=f"object {digest[:8]}",
                remedy="Look at which evidence names this digest as a document.",
                digest=digest,
            ) from error

    def leave_anchor(self, revision: str, anchor: Mapping[str, Any]) -> None:
        """Keep where a revision's chain stood, once and read-only; raises as the port says."""
        sequence, stage = int(anchor["sequence"]), str(anchor["stage"])
        target = self._folder_of_anchors(revision) / f"{sequence:06d}-{stage}.json"
        data = canonical_json(dict(anchor))
        if not target.exists():
            with self._arriving() as (temporary, file):
                file.write(data)
                _flush(file)
                temporary.chmod(READ_ONLY)
                target.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileExistsError):
                    target.hardlink_to(temporary)  # unlike a rename it replaces nothing
                    _flush_folder(target.parent)
        if target.read_bytes() != data:
            raise StorageError(
                "another anchor at this event",
                expected=f"event {sequence} with digest {str(anchor['digest'])[:8]}",
                where=str(target),
                remedy="This is another ledger than the store's. Restore the ledger from a copy.",
            )

    def anchors(self, revision: str) -> tuple[Mapping[str, Any], ...]:
        """Return the anchors of a revision; raises StorageError for one that does not read."""
        found = []
        for path in sorted(self._folder_of_anchors(revision).glob("*.json")):
            try:
                found.append(dict(json.loads(path.read_bytes())))
            except (ValueError, TypeError) as error:
                raise StorageError(
                    f"a file that is no anchor ({error})",
                    expected="where a chain stood, as JSON",
                    where=str(path),
                    remedy="It was damaged or edited. Restore it from a copy of the store.",
                ) from error
        return tuple(found)

    def _folder_of_anchors(self, revision: str) -> Path:
        if not _PREFIX_PART.fullmatch(revision):
            raise StorageError(
                repr(revision),
                expected="a search revision",
                where="anchors",
                remedy="Ask for the revision of a frozen plan.",
            )
        return self._root / "anchors" / revision

    def claim_prefix(self, prefix: str, owner: Mapping[str, Any]) -> Path:
        """Make an attempt's folder with its owner marker, atomically (S5).

        Raises StorageError where the prefix, or one that it lies in, is somebody's already.
        """
        folder = self.prefix_path(prefix)
        self._refuse_claimed(prefix, folder)
        prepared = self._incoming / uuid.uuid4().hex
        try:
            prepared.mkdir(parents=True)
            marker = prepared / OWNER_FILE
            with marker.open("xb") as file:
                file.write(canonical_json(dict(owner)))
                _flush(file)
            marker.chmod(READ_ONLY)
            folder.parent.mkdir(parents=True, exist_ok=True)
            # a rename onto a folder that holds a marker fails: of two claimers one wins, and a kill
            # before it leaves no folder without its marker
            prepared.rename(folder)
            _flush_folder(folder.parent)
        except OSError as error:
            if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                raise self._claimed(prefix, folder) from error
            raise self._refused(error) from error
        finally:
            shutil.rmtree(prepared, ignore_errors=True)
        return folder

    def set_aside(self, prefix: str, note: Mapping[str, Any]) -> Path:
        """Move a prefix in doubt out of the attempts, with a note why; return where it is now.

        Asked again, after a kill at any point too, it ends in the same. Raises StorageError.
        """
        folder = self.prefix_path(prefix)
        kept = self._quarantine.joinpath(*prefix.split("/"))
        written = kept.with_name(f"{kept.name}.json")
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            if not written.exists():
                self._write_note(written, note)
            if os.path.lexists(folder) and not os.path.lexists(kept):
                folder.rename(kept)  # a prefix that is a link moves as a link
                _flush_folder(kept.parent)
        except OSError as error:
            raise self._refused(error) from error
        return kept

    def _write_note(self, path: Path, note: Mapping[str, Any]) -> None:
        with self._arriving() as (temporary, file):
            file.write(canonical_json(dict(note)))
            _flush(file)
            temporary.chmod(READ_ONLY)
            temporary.rename(path)

    def prefix_path(self, prefix: str) -> Path:
        """Return a prefix's folder; raises StorageError where it is not a plain relative path."""
        parts = prefix.split("/")
        if not all(_PREFIX_PART.fullmatch(part) for part in parts):
            raise StorageError(
                repr(prefix),
                expected="names of small letters, digits, dot, dash, underscore, joined by /",
                where="attempt prefix",
                remedy="Ask for a prefix made from revision, trial and attempt.",
            )
        return self._attempts.joinpath(*parts)

    def _refuse_claimed(self, prefix: str, folder: Path) -> None:
        if os.path.lexists(folder):  # a link that leads nowhere is taken too
            raise self._claimed(prefix, folder)
        for parent in folder.parents:
            if parent == self._attempts:
                return
            # through a link, one folder would be below two prefixes
            if parent.is_symlink() or (parent / OWNER_FILE).exists():
                raise self._claimed(prefix, parent)

    def _claimed(self, prefix: str, folder: Path) -> StorageError:
        try:
            owner = json.loads((folder / OWNER_FILE).read_bytes())
        except (OSError, ValueError):
            owner = None  # a folder that nobody claimed properly is still not ours
        return StorageError(
            f"prefix {prefix} taken by {owner or 'an unknown owner'}",
            expected="a prefix that no attempt has claimed",
            where=str(folder),
            remedy="Two attempts must never share a prefix; start a new attempt.",
            owner=owner,
        )

    @contextmanager
    def _arriving(self) -> Iterator[tuple[Path, BinaryIO]]:
        """Give a nameless file to fill; whatever goes wrong, nothing of it stays behind."""
        temporary = self._incoming / uuid.uuid4().hex
        try:
            self._incoming.mkdir(parents=True, exist_ok=True)
            with temporary.open("xb") as file:
                yield temporary, file
        except OSError as error:
            raise self._refused(error) from error
        finally:
            temporary.unlink(missing_ok=True)

    def _settle(self, file: BinaryIO, temporary: Path, digest: str, suffix: str) -> None:
        """Give a filled file its name, in one step."""
        if not _SUFFIX.fullmatch(suffix):
            raise ValueError(f"suffix {suffix!r}: expected like .npy")
        target = self._find(digest) or self._objects / digest[:2] / f"{digest}{suffix}"
        _flush(file)
        temporary.chmod(READ_ONLY)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.replace(target)
        _flush_folder(target.parent)

    def _holds(self, digest: str) -> bool:
        """Say whether the object is there with the right bytes."""
        path = self._find(digest)
        if path is None:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == digest

    def _find(self, digest: str) -> Path | None:
        if not _DIGEST.fullmatch(digest):
            raise StorageError(
                repr(digest),
                expected="64 hex characters",
                where=str(self._root),
                remedy="Pass a digest that this store returned.",
            )
        folder = self._objects / digest[:2]
        plain = folder / digest
        if plain.exists():
            return plain
        return min(folder.glob(f"{digest}*"), default=None)

    def _refused(self, error: OSError) -> StorageError:
        full = error.errno in _FULL_DISK
        return StorageError(
            "no space left" if full else f"a refusal to write ({error.strerror or error})",
            expected="room and the right to write",
            where=str(error.filename or self._root),
            remedy="Free some space and run again; nothing half-written was kept."
            if full
            else "Check the folder's rights and run again; nothing half-written was kept.",
            errno=error.errno,
        )


def _flush(file: BinaryIO) -> None:
    """Return when the file's bytes are on the disk."""
    file.flush()
    os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    """Return when the folder's names are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
