"""Opening the ledger's database: schema, and what SQLite must be told on each connection."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, IntegrityError

from parcel_assets.adapters.ledger_sql_schema import SCHEMA_VERSION, metadata, schema_versions
from parcel_assets.core.errors import SettingError, StorageError

BUSY_SECONDS = 30.0


def open_database(url: str) -> sa.Engine:
    """Return an engine on a database whose schema is there; raises SettingError."""
    place = url.rpartition("@")[2]  # without a user's password
    try:
        parsed = make_url(url)
        on_file = parsed.get_backend_name() == "sqlite" and parsed.database not in {None, ""}
        if on_file and parsed.database != ":memory:":
            Path(str(parsed.database)).expanduser().parent.mkdir(parents=True, exist_ok=True)
        engine = sa.create_engine(parsed)
        if engine.dialect.name == "sqlite":
            sa.event.listen(engine, "connect", _prepare_sqlite)
            sa.event.listen(engine, "begin", _begin_sqlite)
        with engine.begin() as connection:
            metadata.create_all(connection)
            versions = [row[0] for row in connection.execute(sa.select(schema_versions))]
            if not versions:
                connection.execute(sa.insert(schema_versions), [{"version": SCHEMA_VERSION}])
    except (ArgumentError, DatabaseError, OSError, ModuleNotFoundError) as error:
        raise SettingError(
            f"{error.__class__.__name__}: {getattr(error, 'orig', None) or error}",
            expected="a database that can be opened and written",
            where=f"ledger {place}",
            remedy="Check the ledger's URL, its folder and its rights.",
        ) from error
    if versions not in ([], [SCHEMA_VERSION]):
        raise SettingError(
            f"schema version {versions[0]}",
            expected=f"schema version {SCHEMA_VERSION}",
            where=f"ledger {place}",
            remedy="Open it with the release that wrote it, or migrate a copy.",
        )
    return engine


@contextmanager
def refusing_in_words(engine: sa.Engine) -> Iterator[None]:
    """Turn a database that refuses inside the block into StorageError; taken keys stay as they are.

    A full disk, a file that is no database any more, a lost connection: each is the operator's.
    """
    try:
        yield
    except IntegrityError:
        raise
    except DatabaseError as error:
        raise StorageError(
            f"a database that refuses to work ({error.orig})",
            expected="a sound database, room, and the right to write",
            where=f"ledger {engine.url.render_as_string(hide_password=True)}",
            remedy="Free space or mend the database, then run again: nothing half was kept.",
        ) from error


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    """Take transactions into our own hands; write ahead, flush on every commit, wait when busy."""
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
    deadline = time.monotonic() + BUSY_SECONDS
    while connection.execute("PRAGMA journal_mode").fetchone()[0] not in {"wal", "memory"}:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:  # this change does not wait for other processes by itself
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: sa.Connection) -> None:
    """Begin at once as a writer, so that two writers queue instead of failing at their commit."""
    reads = connection.get_execution_options().get("reads_only", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
