"""In-memory stand-ins for ports, for tests that need no database and no process."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parcel_assets.core.codec import canonical_json
from parcel_assets.core.errors import (
    HoldoutError,
    LeaseHeldError,
    LedgerError,
    SplitError,
    StaleFenceError,
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
        self._leases: dict[str, tuple[Lease, float, bool]] = (
            {} if shared is None else shared._leases
        )
        self._assignments: dict[str, dict[str, str]] = {} if shared is None else shared._assignments
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
        kinds = {event.kind for event in chain}
        keys = {once_key(event.kind, event.body) for event in chain} - {None}
        head = chain[-1] if chain else None
        fresh: list[Event] = []
        for kind, body in entries:
            check_may_append(kinds, kind, lease.revision)
            plain = json.loads(canonical_json(dict(body)))
            key = once_key(kind, plain)
            if key is not None and key in keys:
                raise LedgerError(key, expected="said once", where=lease.revision, remedy="Read.")
            head = chain_event(
                head, revision=lease.revision, at_seconds=self.now(), kind=kind, body=plain
            )
            kinds.add(kind)
            keys.add(key)
            fresh.append(head)
        if fresh:
            self._chains.setdefault(lease.revision, []).extend(fresh)
        return tuple(fresh)

    def assignments(self, archive: str) -> Mapping[str, str]:
        return dict(self._assignments.get(archive, {}))

    def assign(self, lease: Lease, archive: str, parts: Mapping[str, str]) -> None:
        self.renew(lease)
        known = self._assignments.setdefault(archive, {})
        moved = sorted(one for one, part in parts.items() if known.get(one, part) != part)
        if moved:
            raise SplitError(str(moved), expected="no move", where=archive, remedy="None.")
        known.update(parts)

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
