"""Lineages compared with the files below prefixes, and what follows on disk from a quarantine.

Reads what lies below a prefix, all of it, links not followed. Who is involved in a clash is decided
in `core.lineage_clash`; rerunning their trials is the search's.
"""

import json
import os
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parcel_assets.core.attempts import AttemptRecord
from parcel_assets.core.errors import StorageError
from parcel_assets.core.lineage import FoundFile, PrefixContent, read_found_file
from parcel_assets.core.lineage_clash import Clash, chain_clash, prefix_clash
from parcel_assets.core.ports import Store
from parcel_assets.core.search import SearchState
from parcel_assets.steps.worker import OWNER_FILE

SETTLED_SECONDS = 2.0  # a file changed more recently may change again within the clock's grain


@dataclass(frozen=True, slots=True)
class _Print:
    """What the file system changes with any change of a file, and nobody sets at will."""

    place: tuple[int, int]
    size: int
    modified: int
    changed: int  # unlike the time of modification, no program can set it back


class PrefixReader:
    """Reads prefixes; a file is read again unless the file system says that nothing touched it.

    What it remembers dies with it: every process reads every file at least once.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[Path, tuple[_Print, FoundFile]] = {}

    def content(self, record: AttemptRecord) -> PrefixContent:
        """Return what lies below an attempt's prefix now."""
        folder = self._store.prefix_path(record.started.prefix)
        attempts = self._store.prefix_path("x").parent
        if folder.is_symlink():
            link = FoundFile("", link_to=_below(attempts, folder))
            return PrefixContent(_read_marker(folder / OWNER_FILE), {".": link})
        files: dict[str, FoundFile] = {}
        marker = folder / OWNER_FILE
        for path in _paths_below(folder):
            found = None if path == marker and not path.is_symlink() else self._read(path, attempts)
            if found is not None:
                files[path.relative_to(folder).as_posix()] = found
        return PrefixContent(_read_marker(marker), files)

    def file(self, path: Path) -> FoundFile | None:
        """Return what a plain file is, read now; None where there is none."""
        return (
            None if path.is_symlink() or not path.is_file() else read_found_file(path.read_bytes())
        )

    def _read(self, path: Path, attempts: Path) -> FoundFile | None:
        """Return what a file is; None where it vanished: a half-written one got its name."""
        try:
            facts = path.lstat()
            if stat.S_ISLNK(facts.st_mode):
                return FoundFile("", link_to=_below(attempts, path))
            if not stat.S_ISREG(facts.st_mode):
                return FoundFile("", link_to="a device, a pipe or a socket")
            seen = _print_of(facts)
            known = self._known.get(path)
            if known is not None and known[0] == seen:
                return known[1]
            found = read_found_file(path.read_bytes())
        except FileNotFoundError:
            return None
        except PermissionError as error:
            if path.lstat().st_uid != os.geteuid():
                raise _of_another_user(path) from error
            return FoundFile("", link_to="a file that may not be read")
        if seen.changed < (time.time() - SETTLED_SECONDS) * 1e9:
            self._known[path] = (seen, found)
        return found


def _of_another_user(path: Path) -> StorageError:
    """Return the refusal of what only another user can judge: no attempt is in doubt for it."""
    return StorageError(
        "another user's file that this user may not read",
        expected="files that whoever searches and whoever opens can both read",
        where=str(path),
        remedy="Let its owner `chmod -R g+rX` the store and both work with umask 007, or run "
        "this as its owner. Nothing was quarantined.",
    )


def clashes_of(state: SearchState, reader: PrefixReader, records: Iterable[AttemptRecord]) -> Clash:
    """Return attempt -> reason for all that ledger, files and parents of attempts contradict."""
    clashes: Clash = {}
    for record in records:
        if record.clean and record.ended is not None:
            found, content = chain_clash(state, record), reader.content(record)
            if not _cleared_away(state, record, content):
                found |= prefix_clash(state, record, content)
            clashes = found | clashes
    return clashes


def _cleared_away(state: SearchState, record: AttemptRecord, content: PrefixContent) -> bool:
    """Say whether a prefix is gone whole that its batch's close verified: it contradicts nothing.

    Checkpoints of a finished search may be cleared from the disk: no later stage reads them (H3).
    """
    verified = state.subjects[record.subject].batch in state.closed_batches
    return verified and content.owner is None and not content.files


def with_those_involved(state: SearchState, reader: PrefixReader, clash: Clash) -> Clash:
    """Return a clash with all that the files of its attempts involve.

    Whatever put an attempt in doubt first: its prefix is moved away now and never read again.
    """
    found, waiting = dict(clash), list(clash)
    while waiting:
        record = state.attempts[waiting.pop()]
        if record.clean:
            more = prefix_clash(state, record, reader.content(record))
            waiting += [name for name in more if name not in found]
            found = more | found
    return found


def set_aside_quarantined(state: SearchState, store: Store, done: set[str]) -> None:
    """Move the prefixes of quarantined attempts away, each with a note; `done` were before."""
    for record in state.attempts.values():
        if record.clean or record.attempt in done:
            continue
        store.set_aside(record.started.prefix, _note(state, record))
        done.add(record.attempt)


def _note(state: SearchState, record: AttemptRecord) -> dict[str, Any]:
    return {
        "revision": state.revision,
        "attempt": record.attempt,
        "subject": record.subject,
        "worker_id": record.started.worker_id,
        "fence": record.started.fence,
        "prefix": record.started.prefix,
        "reason": record.quarantined,
        "found_by": record.found_by,
        "after_its_batch_closed": record.quarantined_late,
        "ledger_sequence": record.quarantine_sequence,
        "files": dict(sorted(record.files.items())),
    }


def _paths_below(folder: Path) -> Iterable[Path]:
    for parent, folders, files in os.walk(folder, followlinks=False):
        links = [one for one in folders if (Path(parent) / one).is_symlink()]
        yield from (Path(parent) / one for one in sorted([*files, *links]))


def _below(attempts: Path, link: Path) -> str:
    """Return where a link leads: a prefix, or another place in words."""
    target, root = Path(os.path.realpath(link)), Path(os.path.realpath(attempts))
    if target.is_relative_to(root):
        return target.relative_to(root).as_posix()
    return "a link to elsewhere"


def _print_of(facts: os.stat_result) -> _Print:
    place = (facts.st_dev, facts.st_ino)
    return _Print(place, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


def _read_marker(marker: Path) -> dict[str, Any] | None:
    try:
        owner = json.loads(marker.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}
