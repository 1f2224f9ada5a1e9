"""Opening the ledger's database, and what each connection to it must be told.

One transaction is one call of `transact`: what another process only keeps waiting is tried again
for a while, what the database refuses is said in words.
"""

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, IntegrityError

from parcel_assets.adapters.ledger_sql_migrate import (
    bring_up_to_date,
    is_current,
    require_tables,
)
from parcel_assets.core.errors import SettingError, StorageError

PATIENCE_SECONDS = 30.0  # how long a database may be busy with others before we give up
WAIT_SECONDS = 2.0  # of which the database itself waits so long at a time
FIRST_PAUSE_SECONDS = 0.01
# serialization, deadlock, lock not to be had, too many connections, server starting
_PASSING_STATES = {"40001", "40P01", "55P03", "53300", "57P03"}
_PASSING_WORDS = ("too many c", "starting up", "remaining connection slots")  # clients, connections
_POSTGRESQL = (
    f"SET lock_timeout = '{WAIT_SECONDS:.0f}s'",
    # a writer that was stopped inside a transaction must not keep others out for ever
    "SET idle_in_transaction_session_timeout = '60s'",
    "SET synchronous_commit = on",
)

MEMORY = ":memory:"
Result = TypeVar("Result")


def open_database(url: str, *, creates: bool = True) -> sa.Engine:
    """Return an engine on a database whose tables are there and up to date.

    Without `creates` neither file nor tables are made, and a SQLite file that may not be written is
    opened for reading. Raises SettingError where it cannot be opened, holds no ledger, or was
    written by a newer release.
    """
    place = url.partition("?")[0].rpartition("@")[2]  # a password may stand in either
    try:
        engine = _engine(url, creates=creates)
        with _disposed_if_refused(engine):
            if not patiently(lambda: once(engine, is_current, reads_only=True)):
                if not creates:
                    patiently(lambda: once(engine, lambda one: require_tables(one, place)))
                patiently(lambda: once(engine, lambda one: bring_up_to_date(one, place)))
    except (ArgumentError, DatabaseError, OSError, ModuleNotFoundError) as error:
        raise SettingError(
            f"{error.__class__.__name__}: {getattr(error, 'orig', None) or error}",
            expected="a database that can be opened and written",
            where=f"ledger {place}",
            remedy="Check the ledger's URL, its folder and its rights.",
        ) from error
    return engine


@contextmanager
def _disposed_if_refused(engine: sa.Engine) -> Iterator[None]:
    try:
        yield
    except BaseException:
        engine.dispose()
        raise


def _parsed(url: str) -> sa.URL:
    """Return the URL's parts; raises ArgumentError, whose words never repeat a part of it."""
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        raise ArgumentError(
            "no URL like sqlite:///… or postgresql+psycopg://…; a password's @ : / ? % are written "
            "%40 %3A %2F %3F %25"
        ) from None


def file_of(url: str) -> Path | None:
    """Return the file of a SQLite ledger, or None where a URL names none, or another database."""
    parsed = _parsed(url)
    is_file = parsed.get_backend_name() == "sqlite" and parsed.database not in {None, "", MEMORY}
    return Path(str(parsed.database)).expanduser() if is_file else None


def _engine(url: str, *, creates: bool) -> sa.Engine:
    parsed = _parsed(url)
    if parsed.get_backend_name() not in {"sqlite", "postgresql"}:
        raise SettingError(
            f"a {parsed.get_backend_name()} database",
            expected="sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE",
            where="PARCEL_ASSETS_LEDGER_URL",
            remedy="The ledger's triggers are written for these two: name one, or unset it.",
        )
    file = file_of(url)
    if file is not None and file.is_dir():
        raise SettingError(
            "a folder",
            expected="a database file, or nothing yet",
            where=str(file),
            remedy="Move it aside, or name another place: PARCEL_ASSETS_LEDGER_URL.",
        )
    if file is not None and creates:
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            file.touch()  # SQLite itself would let no group write, whatever the umask says
    if parsed.get_backend_name() == "sqlite":
        if file is not None and not creates:
            writable = os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)
            parsed = parsed if writable else _to_read(file)
        engine = sa.create_engine(parsed)
        is_read = parsed.query.get("uri") is not None
        sa.event.listen(engine, "connect", _prepare_reading if is_read else _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine
    # a server may have been restarted since the last transaction: that is nobody's fault
    engine = sa.create_engine(parsed, isolation_level="READ COMMITTED", pool_pre_ping=True)
    sa.event.listen(engine, "connect", _prepare_postgresql)
    return engine


def _to_read(file: Path) -> sa.URL:
    """Return the URL that opens a file which may not be written.

    While somebody writes, log and index lie beside it; a file alone is opened as one that does not
    change, since SQLite could not make them.
    """
    mode = {"mode": "ro"} if Path(f"{file}-wal").exists() else {"immutable": "1"}
    query = {**mode, "uri": "true"}
    return sa.URL.create("sqlite", database=f"file:{quote(str(file.absolute()))}", query=query)


# ---- transactions -------------------------------------------------------------------------------


def transact(
    engine: sa.Engine,
    work: Callable[[sa.Connection], Result],
    *,
    reads_only: bool = False,
    at_one_moment: bool = False,
) -> Result:
    """Do the work in one transaction; a database busy with others is tried again for a while.

    `at_one_moment`: all its queries see the same state, whoever writes meanwhile. Raises
    StorageError where the database refuses to work; IntegrityError is the work's own to understand.
    """
    options: dict[str, Any] = {"reads_only": reads_only}
    if at_one_moment and engine.dialect.name != "sqlite":  # there every transaction is so
        options["isolation_level"] = "REPEATABLE READ"
    with refusing_in_words(engine):
        return patiently(lambda: once(engine, work, **options))


def once(engine: sa.Engine, work: Callable[[sa.Connection], Result], **options: Any) -> Result:
    """Do the work in one transaction, trying nothing again."""
    with engine.connect() as connection:
        connection.execution_options(**options)
        with connection.begin():
            return work(connection)


def patiently(work: Callable[[], Result]) -> Result:
    """Call until it succeeds, fails for good, or patience ends; with pauses that grow and differ.

    Everything tried again was rolled back by the database: no commit is ever in doubt here.
    """
    deadline, pause = time.monotonic() + PATIENCE_SECONDS, FIRST_PAUSE_SECONDS
    while True:
        try:
            return work()
        except DatabaseError as error:
            if not _passes(error) or time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(0.0, pause))
        pause = min(2 * pause, 1.0)


def _passes(error: DatabaseError) -> bool:
    """Say whether the database only was busy with others."""
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        return code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
    state = getattr(cause, "sqlstate", None)
    return state in _PASSING_STATES or (
        state is None and any(words in str(cause) for words in _PASSING_WORDS)
    )


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
            where=f"ledger {_shown(engine.url)}",
            remedy="Free space or mend the database, then run again: nothing half was kept.",
        ) from error


def _shown(url: sa.URL) -> str:
    """Return the URL for people: without password, options, or the form that opens it to read."""
    if url.query.get("uri") is not None:
        url = url.set(database=unquote(str(url.database).removeprefix("file:")))
    return url.set(query={}).render_as_string(hide_password=True)


# ---- connections --------------------------------------------------------------------------------


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    """Take transactions into our own hands; write ahead, flush on every commit, wait when busy."""
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {int(WAIT_SECONDS * 1000)}")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not _writes_ahead(connection, deadline):
        time.sleep(random.uniform(0.0, 0.04))
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _prepare_reading(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {int(WAIT_SECONDS * 1000)}")


def _writes_ahead(connection: sqlite3.Connection, deadline: float) -> bool:
    """Switch to the write-ahead log; that change does not wait for other processes by itself."""
    try:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    except sqlite3.OperationalError as error:
        busy = error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
        if not busy or time.monotonic() > deadline:
            raise
        return False
    return mode in {"wal", "memory"} or time.monotonic() > deadline


def _begin_sqlite(connection: sa.Connection) -> None:
    """Begin at once as a writer, so that two writers queue instead of failing at their commit."""
    reads = connection.get_execution_options().get("reads_only", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _prepare_postgresql(connection: Any, _record: Any) -> None:
    """Say how long to wait, and that a commit means a flush, whatever the server's usual is."""
    for statement in _POSTGRESQL:
        connection.execute(statement)
    connection.commit()
