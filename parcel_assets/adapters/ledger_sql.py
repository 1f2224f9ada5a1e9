"""Event chains, leases and registers in one SQL database: SQLite by default, PostgreSQL by URL.

This file decides how events are stored and who may write; what may follow what is decided by
`core.ledger`. Every append is one durable transaction that first proves its lease is still the
newest. What must never happen twice is refused by the schema too, whoever writes.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from parcel_assets.adapters.ledger_sql_lease import LEASE_SECONDS, Leases
from parcel_assets.adapters.ledger_sql_open import open_database, refusing_in_words
from parcel_assets.adapters.ledger_sql_schema import (
    archive_versions,
    assignments,
    events,
    holdout_keys,
    holdout_openings,
)
from parcel_assets.core.codec import canonical_json
from parcel_assets.core.errors import (
    HoldoutError,
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
    once_key,
)

KEYS_PER_QUERY = 500
_INSERT_EVENT = sa.insert(events)  # built once: it runs in every append


class SqlLedger:
    """A ledger at a SQLAlchemy URL, such as `sqlite:////srv/parcels/ledger.db`.

    Raises SettingError where the database cannot be opened or has another schema version. While a
    lease is held, a thread prolongs it, so that a long step between two appends keeps it; a process
    that is stopped or dead prolongs nothing.
    """

    def __init__(self, url: str, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._engine = open_database(url)
        self._heads: dict[Lease, tuple[Event | None, set[Kind]]] = {}
        self._guard = threading.RLock()
        with self._read() as connection:
            newest = connection.execute(sa.select(sa.func.max(events.c.at_seconds))).scalar()
        self._clock_base = max(time.time(), float(newest or 0.0))
        self._clock_start = time.monotonic()
        self._leases = Leases(self._engine, self.now, lease_seconds)

    # ---- transactions ---------------------------------------------------------------------------

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        with refusing_in_words(self._engine), self._engine.connect() as connection:
            yield connection.execution_options(reads_only=True)

    @contextmanager
    def _write(self) -> Iterator[sa.Connection]:
        with refusing_in_words(self._engine), self._engine.begin() as connection:
            yield connection

    def close(self) -> None:
        """Stop prolonging leases and close every connection."""
        self._leases.close()
        self._engine.dispose()

    # ---- chains ---------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the ledger's clock in seconds since the epoch; no wall-clock step is felt."""
        return self._clock_base + (time.monotonic() - self._clock_start)

    def revisions(self) -> tuple[str, ...]:
        """Return all revisions that have a chain, in order of their first event."""
        query = sa.select(events.c.revision).where(events.c.sequence == 1)
        with self._read() as connection:
            rows = connection.execute(query.order_by(events.c.at_seconds, events.c.revision))
            return tuple(str(row[0]) for row in rows)

    def events(self, revision: str, after: int = 0) -> tuple[Event, ...]:
        """Return the chain's events with a sequence above `after`."""
        query = (
            sa.select(events)
            .where(events.c.revision == revision, events.c.sequence > after)
            .order_by(events.c.sequence)
        )
        with self._read() as connection:
            return tuple(_event(row) for row in connection.execute(query))

    def append(
        self, lease: Lease, entries: Sequence[tuple[Kind, Mapping[str, Any]]]
    ) -> tuple[Event, ...]:
        """Append events in one durable transaction and prolong the lease.

        Raises StaleFenceError for a stale lease, LedgerError where the chain's rules refuse a kind.
        """
        with self._guard, self._undone(lease), self._write() as connection:
            self._leases.prove(connection, lease)
            return self._chain(connection, lease, entries)

    @contextmanager
    def _undone(self, lease: Lease) -> Iterator[None]:
        """Forget what is cached of a chain when its transaction fails, whatever the failure was."""
        try:
            yield
        except BaseException:
            self._heads.pop(lease, None)
            raise

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
                    remedy="Read the chain: `parcel-assets status`.",
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
        with self._read() as connection:
            return self._assigned(connection, archive)

    def _assigned(self, connection: sa.Connection, archive: str) -> dict[str, str]:
        query = sa.select(assignments.c.shipment_id, assignments.c.part)
        rows = connection.execute(query.where(assignments.c.archive == archive))
        return {str(shipment): str(part) for shipment, part in rows}

    def assign(self, lease: Lease, archive: str, parts: Mapping[str, str]) -> None:
        """Add shipments to the register; raises SplitError if one is there under another part."""
        with self._guard, self._write() as connection:
            self._leases.prove(connection, lease)
            known = self._assigned(connection, archive)
            moved = sorted(s for s, part in parts.items() if known.get(s, part) != part)
            if moved:
                raise SplitError(
                    f"shipment {moved[0]} in part {parts[moved[0]]} ({len(moved)} such)",
                    expected=f"part {known[moved[0]]}, as first assigned",
                    where=f"assignment register of {archive}",
                    remedy="A shipment never moves to another part (D3).",
                    shipments=moved[:20],
                )
            fresh = [
                {"archive": archive, "shipment_id": s, "part": part, "revision": lease.revision}
                for s, part in parts.items()
                if s not in known
            ]
            if fresh:
                connection.execute(sa.insert(assignments), fresh)

    def open_holdout(self, lease: Lease, body: Mapping[str, Any], keys: Sequence[str]) -> Event:
        """Append HOLDOUT_OPENED, its revision and all keys under unique keys, or change nothing."""
        with self._guard, self._undone(lease):
            try:
                with self._write() as connection:
                    self._leases.prove(connection, lease)
                    (event,) = self._chain(connection, lease, [(Kind.HOLDOUT_OPENED, body)])
                    opening = {"revision": lease.revision, "event_digest": event.digest}
                    connection.execute(sa.insert(holdout_openings), [opening])
                    rows = [{"key": key, "revision": lease.revision} for key in sorted(set(keys))]
                    if rows:
                        connection.execute(sa.insert(holdout_keys), rows)
                    return event
            except (IntegrityError, LedgerError) as error:
                if isinstance(error, StaleFenceError):
                    raise
                raise self._opened_before(lease.revision, keys) from error

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
        found: dict[str, str] = {}
        unique = sorted(set(keys))
        with self._read() as connection:
            for start in range(0, len(unique), KEYS_PER_QUERY):
                some = unique[start : start + KEYS_PER_QUERY]
                query = sa.select(holdout_keys).where(holdout_keys.c.key.in_(some))
                found |= {str(row.key): str(row.revision) for row in connection.execute(query)}
        return found

    def note_archive_version(self, archive: str, version: str, facts: Mapping[str, Any]) -> bool:
        """Register an archive version once; return whether it was new."""
        row = {
            "archive": archive,
            "version": version,
            "facts": canonical_json(dict(facts)).decode(),
            "noted_at": self.now(),
        }
        try:
            with self._write() as connection:
                connection.execute(sa.insert(archive_versions), [row])
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
