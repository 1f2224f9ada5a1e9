"""Making the ledger's tables, and bringing older ones up to date: one transaction, all or nothing.

`MIGRATIONS` holds one function per version that was ever released; each takes the tables to the
next one. Events keep every byte that their digests cover. A process that dies half-way leaves the
older tables as they were, and the next one begins again.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

import parcel_assets.adapters.ledger_sql_rules  # noqa: F401  (its triggers are made with the tables)
from parcel_assets.adapters.ledger_sql_schema import (
    SCHEMA_VERSION,
    archive_versions,
    assignments,
    event_kinds,
    events,
    holdout_keys,
    holdout_openings,
    leases,
    metadata,
    schema_versions,
)
from parcel_assets.core.errors import SettingError
from parcel_assets.core.ledger import Kind, once_key

_LOCK = 0x70617263  # any number that nobody else locks on a PostgreSQL server
_ROWS_AT_ONCE = 1000


def is_current(connection: sa.Connection) -> bool:
    """Say whether the tables are there, of this version, and know this release's events."""
    if _version(connection) != SCHEMA_VERSION:
        return False
    known = connection.execute(sa.select(event_kinds.c.kind)).scalars()
    return set(known) >= {str(kind) for kind in Kind}


def require_tables(connection: sa.Connection, place: str) -> None:
    """Raise SettingError where a database holds no ledger, so that none is made in it."""
    if _version(connection) is None:
        raise SettingError(
            "a database without a ledger",
            expected="a ledger, which registering a plan makes",
            where=f"ledger {place}",
            remedy="Name another ledger, or register a plan. Nothing was created.",
        )


def bring_up_to_date(connection: sa.Connection, place: str) -> None:
    """Make or migrate the tables, inside a transaction that may write.

    Raises SettingError for a newer version, and for old tables whose rows break the new rules.
    """
    if connection.dialect.name == "postgresql":  # two that make the same tables would collide
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    version = _version(connection)
    if version is None:
        metadata.create_all(connection)
        connection.execute(sa.insert(schema_versions), {"version": SCHEMA_VERSION})
        version = SCHEMA_VERSION
    if version > SCHEMA_VERSION or version not in {*MIGRATIONS, SCHEMA_VERSION}:
        raise SettingError(
            f"schema version {version}",
            expected=f"schema version {SCHEMA_VERSION} or older",
            where=f"ledger {place}",
            remedy="Open it with the release that wrote it, or a newer one.",
        )
    while version < SCHEMA_VERSION:
        try:
            MIGRATIONS[version](connection)
        except IntegrityError as error:
            raise SettingError(
                f"a row that breaks a rule of the ledger ({error.orig})",
                expected=f"a sound ledger of schema version {version}",
                where=f"ledger {place}",
                remedy="It was changed from outside, and stays as it is. Restore it from a copy.",
            ) from error
        version += 1
        connection.execute(sa.update(schema_versions).values(version=version))
    known = set(connection.execute(sa.select(event_kinds.c.kind)).scalars())
    fresh = [{"kind": str(kind)} for kind in Kind if str(kind) not in known]
    if fresh:
        connection.execute(sa.insert(event_kinds), fresh)


def _version(connection: sa.Connection) -> int | None:
    """Return the version of the tables, or None where there are none."""
    if not sa.inspect(connection).has_table(schema_versions.name):
        return None
    found = connection.execute(sa.select(sa.func.max(schema_versions.c.version))).scalar()
    return None if found is None else int(found)


def _to_version_2(connection: sa.Connection) -> None:
    """Give every table its rules: SQLite takes them only when a table is made."""
    old = {}
    for index in ("kind_once", "events_by_time"):  # their names are needed again
        connection.exec_driver_sql(f"DROP INDEX IF EXISTS {index}")
    kept = (events, leases, assignments, holdout_openings, holdout_keys, archive_versions)
    for table in kept:
        connection.exec_driver_sql(f"ALTER TABLE {table.name} RENAME TO {table.name}_1")
        columns = [sa.Column(one.name, one.type) for one in table.columns]
        old[table] = sa.Table(f"{table.name}_1", sa.MetaData(), *columns)
    metadata.create_all(connection)
    kinds = sorted(str(kind) for kind in Kind)
    connection.execute(sa.insert(event_kinds), [{"kind": kind} for kind in kinds])
    for table in kept:
        query = sa.select(old[table])
        if table is events:
            query = query.order_by(old[table].c.revision, old[table].c.sequence)
        for rows in _in_parts(connection.execute(query)):
            if table is events:
                for row in rows:
                    row["once_key"] = once_key(Kind(row["kind"]), json.loads(row["body"]))
            connection.execute(sa.insert(table), rows)
        connection.exec_driver_sql(f"DROP TABLE {table.name}_1")


def _in_parts(result: sa.CursorResult[Any]) -> Iterator[list[dict[str, Any]]]:
    for rows in result.partitions(_ROWS_AT_ONCE):
        yield [dict(row._mapping) for row in rows]


def _to_version_3(connection: sa.Connection) -> None:
    """Add the register of tranches; tables that are there stay as they are."""
    metadata.create_all(connection)


MIGRATIONS: dict[int, Callable[[sa.Connection], None]] = {1: _to_version_2, 2: _to_version_3}
