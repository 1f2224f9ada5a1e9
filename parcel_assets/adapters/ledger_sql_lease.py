"""Leases with fences: at most one writer of a revision, a stale one found out at its next append.

A dead owner on this host is taken over at once; one elsewhere, or one that gives no sign of life,
when its lease has run out.
"""

import os
import threading
import uuid
from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from parcel_assets.adapters.ledger_sql_clock import LedgerClock
from parcel_assets.adapters.ledger_sql_open import (
    once,
    patiently,
    refusing_in_words,
    transact,
)
from parcel_assets.adapters.ledger_sql_owner import host_name, process_start, surely_dead
from parcel_assets.adapters.ledger_sql_schema import leases
from parcel_assets.core.errors import LeaseHeldError, StaleFenceError, StorageError
from parcel_assets.core.ledger import Lease

LEASE_SECONDS = 60.0
_OF_LEASE = (
    (leases.c.revision == sa.bindparam("of_revision"))
    & (leases.c.fence == sa.bindparam("of_fence"))
    & (leases.c.owner == sa.bindparam("of_owner"))
)
_GIVE_BACK = sa.update(leases).where(_OF_LEASE).values(held=False)


def _named(lease: Lease) -> dict[str, Any]:
    return {"of_revision": lease.revision, "of_fence": lease.fence, "of_owner": lease.owner}


class Leases:
    """The leases that this process takes in one database.

    While a lease is held, a thread prolongs it, so that a long step between two appends keeps it; a
    process that is stopped or dead prolongs nothing.
    """

    def __init__(self, engine: sa.Engine, clock: LedgerClock, lease_seconds: float) -> None:
        self._engine = engine
        self._clock = clock
        self._lease_seconds = lease_seconds
        # built once: it runs in every append
        self._prolong = (
            sa.update(leases)
            .where(_OF_LEASE, leases.c.held == sa.true())
            .values(expires_at=clock.expiry(lease_seconds))
        )
        self._host = host_name()
        self._started = process_start(os.getpid()) or ""
        self._held: set[Lease] = set()
        self._guard = threading.Lock()
        self._keeper: threading.Thread | None = None
        self._done = threading.Event()

    def acquire(self, revision: str, purpose: str) -> Lease:
        """Return the revision's lease with a new fence; raises LeaseHeldError while one lives."""
        owner = f"{self._host}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
        try:
            lease = self._take(revision, purpose, owner)
        except IntegrityError:  # another process made the row between our look and our insert
            lease = self._take(revision, purpose, owner)
        with self._guard:
            self._held.add(lease)
            if self._keeper is None or self._done.is_set():
                self._done = threading.Event()
                self._keeper = threading.Thread(
                    target=self._keep, args=(self._done,), name="ledger-lease", daemon=True
                )
                self._keeper.start()
        return lease

    def _look(self, connection: sa.Connection, revision: str) -> None:
        row = connection.execute(sa.select(leases).where(leases.c.revision == revision)).first()
        if row is not None:
            self._require_free(row, self._clock.now_in(connection))

    def _take(self, revision: str, purpose: str, owner: str) -> Lease:
        def attempt() -> Lease:
            # a look first, each time: of many that want it, those who came too late are told so,
            # and neither queue as writers nor make the holder wait for the lease's row
            once(self._engine, lambda one: self._look(one, revision), reads_only=True)
            return once(self._engine, lambda one: self._take_in(one, revision, purpose, owner))

        with refusing_in_words(self._engine):
            return patiently(attempt)

    def _take_in(self, connection: sa.Connection, revision: str, purpose: str, owner: str) -> Lease:
        query = sa.select(leases).where(leases.c.revision == revision).with_for_update()
        row = connection.execute(query).first()
        self._clock.set(connection)
        now = self._clock.now_in(connection)
        facts: dict[str, Any] = {
            "owner": owner,
            "fence": 1 if row is None else int(row.fence) + 1,
            "host": self._host,
            "process_id": os.getpid(),
            "process_started": self._started,
            "purpose": purpose,
            "acquired_at": now,
            "expires_at": now + self._lease_seconds,
            "held": True,
        }
        if row is None:
            connection.execute(sa.insert(leases).values(revision=revision, **facts))
        else:
            self._require_free(row, now)
            connection.execute(
                sa.update(leases).where(leases.c.revision == revision).values(**facts)
            )
        return Lease(revision, owner, int(facts["fence"]))

    def _require_free(self, row: Any, now: float) -> None:
        dead = surely_dead(str(row.host), int(row.process_id), str(row.process_started))
        if row.held and not dead and now < row.expires_at:
            raise LeaseHeldError(
                f"process {row.process_id} on {row.host} at work on {row.purpose}",
                expected="no other live writer of this revision",
                where=f"lease of {row.revision}",
                remedy=f"Wait for it, or stop it; without a sign of life its lease ends in "
                f"{row.expires_at - now:.0f} s.",
                process_id=int(row.process_id),
                host=str(row.host),
                purpose=str(row.purpose),
            )

    def prove(self, connection: sa.Connection, lease: Lease) -> None:
        """Prolong the lease inside the caller's transaction, which proves that it is the newest."""
        facts = _named(lease)
        if not self._clock.of_server:
            facts["now"] = self._clock.now()
        result = connection.execute(self._prolong, facts)
        if result.rowcount != 1:
            raise StaleFenceError(
                f"fence {lease.fence} of {lease.owner}",
                expected="the newest lease of the revision",
                where=f"ledger of {lease.revision}",
                remedy="Another process took this revision over. This one stops; nothing is lost.",
            )

    def renew(self, lease: Lease) -> None:
        """Prolong the lease; raises StaleFenceError where it was taken over."""
        transact(self._engine, lambda connection: self.prove(connection, lease))

    def release(self, lease: Lease) -> None:
        """Give the lease back; a stale one is ignored.

        Where the database does not take it, the lease runs out or ends with this process: that must
        not hide why its holder stopped.
        """
        self._let_go(lease)
        with suppress(StorageError):
            transact(self._engine, lambda one: one.execute(_GIVE_BACK, _named(lease)))

    def _let_go(self, lease: Lease) -> None:
        with self._guard:
            self._held.discard(lease)
            if not self._held:
                self._done.set()

    def _keep(self, done: threading.Event) -> None:
        """Prolong the held leases until none is left; one that was taken over is let go."""
        while not done.wait(self._lease_seconds / 4):
            with self._guard:
                held = tuple(self._held)
            for lease in held:
                try:
                    self.renew(lease)
                except StaleFenceError:
                    self._let_go(lease)
                except StorageError:
                    continue  # a full, busy or absent database: the writer's next append tells it

    def close(self) -> None:
        """Stop prolonging; held leases run out or are taken over once this process is dead."""
        with self._guard:
            self._held.clear()
            self._done.set()
            keeper = self._keeper
        if keeper is not None:
            keeper.join()
