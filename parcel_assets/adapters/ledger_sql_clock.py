"""The ledger's clock: one for all processes that write, and it never runs backwards.

On PostgreSQL it is the server's, whatever the hosts say. On SQLite it is the host's clock since its
start, plus an offset that is kept in the database: all processes of one boot share it, so that a
step of the host's wall clock, before or while they run, is felt by none. The offset follows the
wall clock forwards, and only while nobody holds a lease.
"""

import time
from typing import Any

import sqlalchemy as sa

from parcel_assets.adapters.ledger_sql_owner import boot_name, boot_seconds
from parcel_assets.adapters.ledger_sql_schema import events, host_clock, leases

_NEWEST = sa.select(sa.func.max(events.c.at_seconds))
_SERVER = sa.extract("epoch", sa.func.clock_timestamp())


class LedgerClock:
    """Seconds since the epoch, as this process and the database agree on them."""

    def __init__(self, connection: sa.Connection) -> None:
        self.of_server = connection.dialect.name == "postgresql"
        self._boot = boot_name()
        self._offset = self._newest_offset(connection)
        if not self.of_server:
            self._offset = self._kept(connection) or self._offset

    def now(self) -> float:
        """Return the clock without asking the database."""
        return self._offset + boot_seconds()

    def now_in(self, connection: sa.Connection) -> float:
        """Return the clock by which leases run: the server's where there is one."""
        if self.of_server:
            return float(connection.execute(sa.select(_SERVER)).scalar_one())
        return self.now()

    def expiry(self, lease_seconds: float) -> sa.ColumnElement[Any]:
        """Return, as SQL, when a lease prolonged now ends; SQLite needs `now` as a parameter."""
        now = _SERVER if self.of_server else sa.bindparam("now", type_=sa.Double)
        return now + sa.literal(lease_seconds, sa.Double)

    def set(self, connection: sa.Connection) -> None:
        """Take the clock that all writers share; inside a transaction that may write."""
        newest = max(self._newest_offset(connection), self._offset)
        if self.of_server:
            self._offset = newest
            return
        kept = self._kept(connection)
        held = leases.c.held & (leases.c.expires_at > boot_seconds() + (kept or newest))
        writers = connection.execute(sa.select(sa.func.count()).where(held)).scalar_one()
        if kept is None:
            connection.execute(sa.delete(host_clock))
            connection.execute(sa.insert(host_clock), self._row(newest))
            kept = newest
        elif newest > kept and not writers:
            connection.execute(sa.update(host_clock).values(offset_seconds=newest))
            kept = newest
        self._offset = max(kept, self._offset)

    def _row(self, offset: float) -> dict[str, object]:
        return {"boot": self._boot, "offset_seconds": offset}

    def _newest_offset(self, connection: sa.Connection) -> float:
        """Return the offset at which the clock is neither behind the wall nor behind an event."""
        newest = float(connection.execute(_NEWEST).scalar() or 0.0)
        wall = self.now_in(connection) if self.of_server else time.time()
        return max(wall, newest) - boot_seconds()

    def _kept(self, connection: sa.Connection) -> float | None:
        """Return the offset that this boot's processes share, or None where none is kept."""
        query = sa.select(host_clock.c.offset_seconds).where(host_clock.c.boot == self._boot)
        kept = connection.execute(query).scalar()
        return None if kept is None else float(kept)
