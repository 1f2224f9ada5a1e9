"""In-memory stand-ins for ports, for tests that need no database and no process."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from parcel_assets.core.codec import canonical_json, digest_bytes
from parcel_assets.core.errors import (
    HoldoutError,
    LeaseHeldError,
    LedgerError,
    SplitError,
    StaleFenceError,
    StorageError,
)
from parcel_assets.core.ledger import (
    Event,
    Kind,
    Lease,
    chain_event,
    check_may_append,
    last_of,
    once_key,
)
from parcel_assets.core.ledger_audit import LedgerRecord
from parcel_assets.core.packet_rows import event_row


class FakeLedger:
    """A ledger in memory. `owner` names who takes leases; `lives` says which owners live."""

    def __init__(
        self,
        *,
        owner: str = "here",
        lives: Callable[[str], bool] = lambda _owner: True,
        lease_seconds: float = 60.0,
        shared: "FakeLedger | None" = None,
    ) -> None:
        self.owner = owner
        self._lives = lives
        self._lease_seconds = lease_seconds
        self.clock_seconds = 1_000.0
        self._chains: dict[str, list[Event]] = {} if shared is None else shared._chains
        # kinds and once-keys of each chain, so that an append needs not read it again
        self._said: dict[str, tuple[set[Kind], set[str | None]]] = (
            {} if shared is None else shared._said
        )
        self._leases: dict[str, tuple[Lease, float, bool]] = (
            {} if shared is None else shared._leases
        )
        self._assignments: dict[str, dict[str, str]] = {} if shared is None else shared._assignments
        self._tranches: dict[str, dict[str, int]] = {} if shared is None else shared._tranches
        self._opened: dict[str, str] = {} if shared is None else shared._opened
        self._versions: set[tuple[str, str]] = set() if shared is None else shared._versions

    def now(self) -> float:
        return self.clock_seconds

    def revisions(self) -> tuple[str, ...]:
        return tuple(self._chains)

    def events(self, revision: str, after: int = 0) -> tuple[Event, ...]:
        return tuple(self._chains.get(revision, []))[after:]

    def record_of(self, revision: str) -> LedgerRecord:
        chain = self._chains.get(revision, [])
        opened = last_of(chain, Kind.HOLDOUT_OPENED)
        lease = self._leases.get(revision)
        return LedgerRecord(
            rows=tuple(
                event_row(event) | {"once_key": once_key(event.kind, event.body)} for event in chain
            ),
            fence=None if lease is None else lease[0].fence,
            opening=None if opened is None else opened.digest,
            opened_keys=tuple(sorted(k for k, by in self._opened.items() if by == revision)),
        )

    def acquire(self, revision: str, purpose: str) -> Lease:
        fence = 1
        if revision in self._leases:
            lease, expires_at, held = self._leases[revision]
            if held and self._lives(lease.owner) and self.now() < expires_at:
                raise LeaseHeldError(
                    f"{lease.owner} at work", expected="nobody", where=revision, remedy="Wait."
                )
            fence = lease.fence + 1
        lease = Lease(revision, self.owner, fence)
        self._leases[revision] = (lease, self.now() + self._lease_seconds, True)
        return lease

    def bury(self, revision: str) -> None:
        """Let the holder's process be dead, as another process would find it."""
        lease, expires_at, held = self._leases[revision]
        self._leases[revision] = (Lease(revision, "dead", lease.fence), expires_at, held)

    def renew(self, lease: Lease) -> None:
        newest, _, held = self._leases.get(lease.revision, (None, 0.0, False))
        if newest != lease or not held:
            raise StaleFenceError(
                str(lease), expected=str(newest), where=lease.revision, remedy="Stop."
            )
        self._leases[lease.revision] = (lease, self.now() + self._lease_seconds, True)

    def release(self, lease: Lease) -> None:
        if self._leases.get(lease.revision, (None, 0.0, False))[0] == lease:
            self._leases[lease.revision] = (lease, 0.0, False)

    def append(
        self, lease: Lease, entries: Sequence[tuple[Kind, Mapping[str, Any]]]
    ) -> tuple[Event, ...]:
        self.renew(lease)
        chain = self._chains.get(lease.revision, [])
        if lease.revision not in self._said:  # a test may have told a chain of its own
            said = {once_key(event.kind, event.body) for event in chain} - {None}
            self._said[lease.revision] = ({event.kind for event in chain}, said)
        known = self._said[lease.revision]
        kinds, keys = set(known[0]), set[str | None]()
        head = chain[-1] if chain else None
        fresh: list[Event] = []
        for kind, body in entries:
            check_may_append(kinds, kind, lease.revision)
            plain = json.loads(canonical_json(dict(body)))
            key = once_key(kind, plain)
            if key is not None and (key in keys or key in known[1]):
                raise LedgerError(key, expected="said once", where=lease.revision, remedy="Read.")
            head = chain_event(
                head, revision=lease.revision, at_seconds=self.now(), kind=kind, body=plain
            )
            kinds.add(kind)
            keys.add(key)
            fresh.append(head)
        if fresh:
            self._chains.setdefault(lease.revision, []).extend(fresh)
            known[0].update(kinds)
            known[1].update(keys - {None})
        return tuple(fresh)

    def assignments(self, archive: str) -> Mapping[str, str]:
        return dict(self._assignments.get(archive, {}))

    def tranches(self, archive: str) -> Mapping[str, int]:
        return dict(self._tranches.get(archive, {}))

    def assign(
        self,
        lease: Lease,
        archive: str,
        parts: Mapping[str, str],
        dealt: Mapping[str, int] | None = None,
    ) -> None:
        self.renew(lease)
        known = self._assignments.setdefault(archive, {})
        places = self._tranches.setdefault(archive, {})
        moved = sorted(one for one, part in parts.items() if known.get(one, part) != part)
        moved += sorted(s for s, n in (dealt or {}).items() if places.get(s, n) != n)
        if moved:
            raise SplitError(str(moved), expected="no move", where=archive, remedy="None.")
        known.update(parts)
        places.update(dealt or {})

    def open_holdout(self, lease: Lease, body: Mapping[str, Any], keys: Sequence[str]) -> Event:
        self.renew(lease)
        refused = HoldoutError(
            "an opened holdout", expected="an unopened one", where=lease.revision, remedy="No."
        )
        if any(key in self._opened for key in keys):
            raise refused
        try:
            (event,) = self.append(lease, [(Kind.HOLDOUT_OPENED, body)])
        except LedgerError as error:
            raise refused from error
        self._opened.update(dict.fromkeys(keys, lease.revision))
        return event

    def opened_by(self, keys: Sequence[str]) -> Mapping[str, str]:
        return {key: self._opened[key] for key in keys if key in self._opened}

    def note_archive_version(self, archive: str, version: str, facts: Mapping[str, Any]) -> bool:
        canonical_json(dict(facts))
        if (archive, version) in self._versions:
            return False
        self._versions.add((archive, version))
        return True


class FakeStore:
    """A store in memory; an object becomes a file when somebody asks for its path.

    Prefixes are folders below `folder`, as workers write there. With a `base`, its objects and
    their files are shared, to start many stores from one.
    """

    OWNER_FILE = "owner.json"

    def __init__(self, folder: Path, *, base: "FakeStore | None" = None) -> None:
        self._folder = folder
        self._objects: dict[str, tuple[bytes, str]] = {} if base is None else dict(base._objects)
        self._paths: dict[str, Path] = {} if base is None else dict(base._paths)
        self._shared = base
        self._anchors: dict[str, dict[tuple[int, str], dict[str, Any]]] = {}

    def put(self, data: bytes, suffix: str = "") -> str:
        if not re.fullmatch(r"(\.[a-z0-9]{1,15})*", suffix):
            raise ValueError(f"suffix {suffix!r}: expected like .npy")
        digest = digest_bytes(data)
        if digest not in self._objects:
            self._objects[digest] = (bytes(data), suffix)
        elif digest in self._paths and self._paths[digest].read_bytes() != data:
            self._write(self._paths[digest], data)
        return digest

    def put_many(self, objects: Sequence[tuple[bytes, str]]) -> tuple[str, ...]:
        return tuple(self.put(data, suffix) for data, suffix in objects)

    def put_file(self, source: Path, suffix: str = "") -> str:
        return self.put(source.read_bytes(), suffix)

    def get(self, digest: str) -> bytes:
        self._require(digest)
        path = self._paths.get(digest)
        data = self._objects[digest][0] if path is None else path.read_bytes()
        if path is not None and digest_bytes(data) != digest:
            raise StorageError(
                "other bytes", expected=digest[:8], where=str(path), remedy="Restore it."
            )
        return data

    def path(self, digest: str) -> Path:
        self._require(digest)
        if digest not in self._paths:
            if self._shared is not None and digest in self._shared._objects:
                self._paths[digest] = self._shared.path(digest)
                return self._paths[digest]
            data, suffix = self._objects[digest]
            path = self._folder / "objects" / f"{digest}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write(path, data)
            self._paths[digest] = path
        return self._paths[digest]

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        path.chmod(0o444)

    def _require(self, digest: str) -> None:
        if not re.fullmatch(r"[0-9a-f]{64}", digest) or digest not in self._objects:
            raise StorageError(
                f"no object {digest[:8]!r}", expected="one", where="memory", remedy="Put it first."
            )

    def put_document(self, value: Any) -> str:
        return self.put(canonical_json(value), ".json")

    def get_document(self, digest: str) -> Any:
        try:
            return json.loads(self.get(digest))
        except ValueError as error:
            raise StorageError(
                "no JSON", expected="a document", where=digest[:8], remedy="Look what names it."
            ) from error

    def leave_anchor(self, revision: str, anchor: Mapping[str, Any]) -> None:
        key = (int(anchor["sequence"]), str(anchor["stage"]))
        known = self._anchors.setdefault(self._plain(revision), {})
        if known.setdefault(key, dict(anchor)) != dict(anchor):
            raise StorageError(
                "another anchor", expected=str(known[key]), where=revision, remedy="Restore it."
            )

    def anchors(self, revision: str) -> tuple[Mapping[str, Any], ...]:
        return tuple(one for _, one in sorted(self._anchors.get(self._plain(revision), {}).items()))

    def claim_prefix(self, prefix: str, owner: Mapping[str, Any]) -> Path:
        folder = self.prefix_path(prefix)
        above = [one for one in folder.parents if one.is_relative_to(self._folder / "attempts")]
        taken = [one for one in above if one.is_symlink() or (one / self.OWNER_FILE).exists()]
        if folder.exists() or folder.is_symlink() or taken:
            raise StorageError(
                f"{prefix} taken", expected="a free prefix", where=str(folder), remedy="Another."
            )
        folder.mkdir(parents=True)
        self._write(folder / self.OWNER_FILE, canonical_json(dict(owner)))
        return folder

    def prefix_path(self, prefix: str) -> Path:
        parts = [self._plain(part) for part in prefix.split("/")]
        return (self._folder / "attempts").joinpath(*parts)

    def set_aside(self, prefix: str, note: Mapping[str, Any]) -> Path:
        folder = self.prefix_path(prefix)
        kept = (self._folder / "quarantine").joinpath(*prefix.split("/"))
        kept.parent.mkdir(parents=True, exist_ok=True)
        written = kept.with_name(f"{kept.name}.json")
        if not written.exists():
            self._write(written, canonical_json(dict(note)))
        if (folder.exists() or folder.is_symlink()) and not kept.exists():
            folder.rename(kept)
        return kept

    @staticmethod
    def _plain(name: str) -> str:
        if not re.fullmatch(r"[a-z0-9_][a-z0-9._=-]{0,127}", name):
            raise StorageError(
                repr(name), expected="a plain name", where="memory", remedy="Ask for another."
            )
        return name
