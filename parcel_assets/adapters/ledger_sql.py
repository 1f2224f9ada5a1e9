"""Event chains, leases and registers in one SQL database: SQLite by default, PostgreSQL by URL.

This file decides how events are stored and who may write; what may follow what is decided by
`core.ledger`. Every append is one durable transaction that first proves its lease is still the
newest. What must never happen twice is refused by the schema too, whoever writes.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from parcel_assets.adapters.ledger_sql_clock import LedgerClock
from parcel_assets.adapters.ledger_sql_lease import LEASE_SECONDS, Leases
from parcel_assets.adapters.ledger_sql_open import open_database, transact
from parcel_assets.adapters.ledger_sql_record import read_record
from parcel_assets.adapters.ledger_sql_registers import PARTS, TRANCHES
from parcel_assets.adapters.ledger_sql_schema import (
    archive_versions,
    events,
    holdout_keys,
    holdout_openings,
)
from parcel_assets.core.codec import canonical_json
from parcel_assets.core.errors import (
    HoldoutError,
    LedgerError,
    StaleFenceError,
)
from parcel_assets.core.ledger import (
    Event,
    Kind,
    Lease,
    chain_event,
    check_may_append,
    once_key,
)
from parcel_assets.core.ledger_audit import LedgerRecord

KEYS_PER_QUERY = 500
_INSERT_EVENT = sa.insert(events)  # built once: it runs in every append

Result = TypeVar("Result")


class SqlLedger:
    """A ledger at a SQLAlchemy URL, such as `sqlite:////srv/parcels/ledger.db`.

    Raises SettingError where the database cannot be opened or has another schema version. While a
    lease is held, a thread prolongs it, so that a long step between two appends keeps it; a process
    that is stopped or dead prolongs nothing.
    """

    def __init__(
        self, url: str, *, lease_seconds: float = LEASE_SECONDS, creates: bool = True
    ) -> None:
        self._engine = open_database(url, creates=creates)
        self._heads: dict[Lease, tuple[Event | None, set[Kind]]] = {}
        self._guard = threading.RLock()
        self._clock = self._read(LedgerClock)
        self._leases = Leases(self._engine, self._clock, lease_seconds)

    # ---- transactions ---------------------------------------------------------------------------

    def _read(self, work: Callable[[sa.Connection], Result]) -> Result:
        return transact(self._engine, work, reads_only=True)

    def _write(self, lease: Lease, work: Callable[[sa.Connection], Result]) -> Result:
        """Do the work in one transaction that proves the lease; forget heads where it fails."""

        def proven(connection: sa.Connection) -> Result:
            self._leases.prove(connection, lease)
            return work(connection)

        with self._guard, self._undone(lease):
            return transact(self._engine, proven)

    @contextmanager
    def _undone(self, lease: Lease) -> Iterator[None]:
        """Forget what is cached of a chain when its transaction fails, whatever the failure was."""
        try:
            yield
        except BaseException:
            self._heads.pop(lease, None)
            raise

    def close(self) -> None:
        """Stop prolonging leases and close every connection."""
        self._leases.close()
        self._engine.dispose()

    # ---- chains ---------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the ledger's clock in seconds since the epoch; no wall-clock step is felt."""
        return self._clock.now()

    def revisions(self) -> tuple[str, ...]:
        """Return all revisions that have a chain, in order of their first event."""
        query = sa.select(events.c.revision).where(events.c.sequence == 1)
        ordered = query.order_by(events.c.at_seconds, events.c.revision)
        return tuple(str(one) for one in self._read(lambda c: c.execute(ordered).scalars().all()))

    def events(self, revision: str, after: int = 0) -> tuple[Event, ...]:
        """Return the chain's events with a sequence above `after`."""
        query = (
            sa.select(events)
            .where(events.c.revision == revision, events.c.sequence > after)
            .order_by(events.c.sequence)
        )
        return tuple(_event(row) for row in self._read(lambda c: c.execute(query).all()))

    def record_of(self, revision: str) -> LedgerRecord:
        """Return all that is held of a revision, as it is and at one moment, for an audit."""
        return transact(
            self._engine,
            lambda one: read_record(one, revision),
            reads_only=True,
            at_one_moment=True,
        )

    def append(
        self, lease: Lease, entries: Sequence[tuple[Kind, Mapping[str, Any]]]
    ) -> tuple[Event, ...]:
        """Append events in one durable transaction and prolong the lease.

        Raises StaleFenceError for a stale lease, LedgerError where the chain's rules refuse a kind.
        """
        return self._write(lease, lambda connection: self._chain(connection, lease, entries))

    def _chain(
        self, connection: sa.Connection, lease: Lease, entries: Sequence[tuple[Kind, Any]]
    ) -> tuple[Event, ...]:
        head, kinds = self._head(connection, lease)
        kinds, fresh, now = set(kinds), [], self.now()
        for kind, body in entries:
            check_may_append(kinds, kind, lease.revision)
            plain = json.loads(canonical_json(dict(body)))
            head = chain_event(head, revision=lease.revision, at_seconds=now, kind=kind, body=plain)
            kinds.add(kind)
            fresh.append(head)
        if fresh:
            try:
                connection.execute(_INSERT_EVENT, [_row(event) for event in fresh])
            except IntegrityError as error:
                raise LedgerError(
                    "an event whose place or unique key is taken",
                    expected="every attempt, prefix and batch at most once",
                    where=f"ledger of {lease.revision}",
                    remedy=f"Read the chain: `parcel-assets ledger show {lease.revision}`.",
                ) from error
        self._heads[lease] = (head, kinds)
        return tuple(fresh)

    def _head(self, connection: sa.Connection, lease: Lease) -> tuple[Event | None, set[Kind]]:
        """Return newest event and kinds; with the lease proven, the cache cannot be old."""
        if lease not in self._heads:
            chain = events.c.revision == lease.revision
            newest = sa.select(events).where(chain).order_by(events.c.sequence.desc()).limit(1)
            row = connection.execute(newest).first()
            kinds = connection.execute(sa.select(events.c.kind).where(chain).distinct())
            self._heads[lease] = (
                _event(row) if row is not None else None,
                {Kind(kind) for (kind,) in kinds},
            )
        return self._heads[lease]

    # ---- leases ---------------------------------------------------------------------------------

    def acquire(self, revision: str, purpose: str) -> Lease:
        """Return the revision's lease with a new fence; raises LeaseHeldError (see the port)."""
        return self._leases.acquire(revision, purpose)

    def renew(self, lease: Lease) -> None:
        """Prolong the lease; raises StaleFenceError where it was taken over."""
        self._leases.renew(lease)

    def release(self, lease: Lease) -> None:
        """Give the lease back; a stale one is ignored."""
        with self._guard:
            self._heads.pop(lease, None)
        self._leases.release(lease)

    # ---- registers ------------------------------------------------------------------------------

    def assignments(self, archive: str) -> Mapping[str, str]:
        """Return shipment id -> part of all shipments ever assigned in the archive."""
        return self._read(lambda connection: PARTS.read(connection, archive))

    def tranches(self, archive: str) -> Mapping[str, int]:
        """Return shipment id -> tranche of all holdout shipments that were ever dealt to one."""
        return self._read(lambda connection: TRANCHES.read(connection, archive))

    def assign(
        self,
        lease: Lease,
        archive: str,
        parts: Mapping[str, str],
        dealt: Mapping[str, int] | None = None,
    ) -> None:
        """Add shipments to the register, and holdout shipments to their tranches, in one step.

        Raises SplitError, changing nothing, if one is there under another part or tranche.
        """

        def enter(connection: sa.Connection) -> None:
            PARTS.add(connection, lease.revision, archive, parts)
            TRANCHES.add(connection, lease.revision, archive, dealt or {})

        try:
            self._write(lease, enter)
        except IntegrityError:  # another revision assigned the same between our look and insert
            self._write(lease, enter)

    def open_holdout(self, lease: Lease, body: Mapping[str, Any], keys: Sequence[str]) -> Event:
        """Append HOLDOUT_OPENED, its revision and all keys under unique keys, or change nothing."""
        try:
            return self._write(lease, lambda one: self._open(one, lease, body, keys))
        except (IntegrityError, LedgerError) as error:
            if isinstance(error, StaleFenceError):
                raise
            raise self._opened_before(lease.revision, keys) from error

    def _open(
        self, connection: sa.Connection, lease: Lease, body: Mapping[str, Any], keys: Sequence[str]
    ) -> Event:
        (event,) = self._chain(connection, lease, [(Kind.HOLDOUT_OPENED, body)])
        opening = {"revision": lease.revision, "event_digest": event.digest}
        connection.execute(sa.insert(holdout_openings), [opening])
        rows = [{"key": key, "revision": lease.revision} for key in sorted(set(keys))]
        if rows:
            connection.execute(sa.insert(holdout_keys), rows)
        return event

    def _opened_before(self, revision: str, keys: Sequence[str]) -> HoldoutError:
        earlier = self.opened_by(keys)
        return HoldoutError(
            f"a holdout of which {len(earlier)} of {len(set(keys))} keys were opened before"
            + (f", by {', '.join(sorted(set(earlier.values())))}" if earlier else ""),
            expected="an unopened holdout and a revision that has opened none",
            where=f"ledger of {revision}",
            remedy="A second look cannot be had. Read the first result, or plan a new search "
            "revision with new shipments.",
            opened_by=dict(sorted(earlier.items())[:20]),
        )

    def opened_by(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Return key -> revision for those of the keys that were opened before."""
        unique = sorted(set(keys))
        parts = [unique[at : at + KEYS_PER_QUERY] for at in range(0, len(unique), KEYS_PER_QUERY)]

        def look(connection: sa.Connection) -> dict[str, str]:
            queries = (sa.select(holdout_keys).where(holdout_keys.c.key.in_(p)) for p in parts)
            rows = (row for query in queries for row in connection.execute(query))
            return {str(row.key): str(row.revision) for row in rows}

        return self._read(look)

    def note_archive_version(self, archive: str, version: str, facts: Mapping[str, Any]) -> bool:
        """Register an archive version once; return whether it was new."""
        row = {
            "archive": archive,
            "version": version,
            "facts": canonical_json(dict(facts)).decode(),
            "noted_at": self.now(),
        }
        try:
            transact(self._engine, lambda one: one.execute(sa.insert(archive_versions), [row]))
        except IntegrityError:
            return False
        return True


def _row(event: Event) -> dict[str, Any]:
    return {
        "revision": event.revision,
        "sequence": event.sequence,
        "at_seconds": event.at_seconds,
        "kind": str(event.kind),
        "body": canonical_json(event.body).decode(),
        "previous": event.previous,
        "digest": event.digest,
        "once_key": once_key(event.kind, event.body),
    }


def _event(row: Any) -> Event:
    """Return a row as an event; raises LedgerError where somebody wrote what is none."""
    try:
        return Event(
            str(row.revision),
            int(row.sequence),
            float(row.at_seconds),
            Kind(row.kind),
            json.loads(row.body),
            str(row.previous),
            str(row.digest),
        )
    except (TypeError, ValueError) as error:
        raise LedgerError(
            f"event {row.sequence} that does not read ({error})",
            expected="an event as it was appended",
            where=f"ledger of {row.revision}",
            remedy="The chain was changed from outside. Restore the ledger from a copy.",
            sequence=int(row.sequence),
        ) from error
