"""The SQL ledger: the contract, and what only a database and processes can show."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.core.errors import (
    LeaseHeldError,
    LedgerError,
    SettingError,
    StaleFenceError,
    StorageError,
)
from parcel_assets.core.ledger import Kind, verify_chain
from parcel_assets_tests.contracts.ledger_contract import FROZEN, NOTE, LedgerContract

HOLDER = """
import sys, time
from parcel_assets.adapters.ledger_sql import SqlLedger
ledger = SqlLedger(sys.argv[1], lease_seconds=float(sys.argv[2]))
ledger.acquire("spring", "test")
print("held", flush=True)
time.sleep(60)
"""


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'ledger.db'}"


class TestSqlLedger(LedgerContract):
    @pytest.fixture
    def ledger(self, ledger_url: str) -> Iterator[SqlLedger]:
        ledger = SqlLedger(ledger_url)
        yield ledger
        ledger.close()


def holder(folder: Path, lease_seconds: float = 60.0) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, url_of(folder), str(lease_seconds)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def test_a_live_process_keeps_its_lease_and_a_killed_one_loses_it_at_once(tmp_path: Path) -> None:
    process = holder(tmp_path)
    ledger = SqlLedger(url_of(tmp_path))
    with pytest.raises(LeaseHeldError) as refused:
        ledger.acquire("spring", "test")
    assert refused.value.facts["process_id"] == process.pid
    lease = None
    process.kill()  # not collected: even a zombie holds nothing
    deadline = time.monotonic() + 10
    while True:
        try:
            lease = ledger.acquire("spring", "test")
            break
        except LeaseHeldError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert lease is not None
    assert lease.fence == 2
    end(process)
    ledger.close()


def test_a_stopped_process_loses_its_lease_when_it_has_run_out(tmp_path: Path) -> None:
    process = holder(tmp_path, lease_seconds=2.0)  # longer than a busy machine makes a thread wait
    ledger = SqlLedger(url_of(tmp_path))
    try:
        time.sleep(2.2)  # the holder's thread prolongs it
        with pytest.raises(LeaseHeldError):
            ledger.acquire("spring", "test")
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(2.2)
        assert ledger.acquire("spring", "test").fence == 2
    finally:
        end(process)
        ledger.close()


def test_a_taken_over_writer_appends_nothing_more(tmp_path: Path) -> None:
    old, new = SqlLedger(url_of(tmp_path), lease_seconds=0.0), SqlLedger(url_of(tmp_path))
    stale = old.acquire("spring", "test")
    old.append(stale, [FROZEN])
    fresh = new.acquire("spring", "test")
    new.append(fresh, [NOTE])
    with pytest.raises(StaleFenceError):
        old.append(stale, [NOTE])
    verify_chain(new.events("spring"))
    assert len(new.events("spring")) == 2
    old.close()
    new.close()


def test_a_new_holder_continues_the_chain_of_the_old_one(tmp_path: Path) -> None:
    ledger = SqlLedger(url_of(tmp_path))
    for expected in range(1, 4):
        lease = ledger.acquire("spring", "test")
        ledger.append(lease, [FROZEN if expected == 1 else NOTE])
        ledger.release(lease)
    ledger.close()
    again = SqlLedger(url_of(tmp_path))
    assert [event.sequence for event in again.events("spring")] == [1, 2, 3]
    verify_chain(again.events("spring"))
    again.close()


@pytest.mark.parametrize(
    "statement", ["UPDATE events SET body = '{}'", "DELETE FROM events WHERE sequence = 1"]
)
def test_the_database_itself_refuses_to_change_events(tmp_path: Path, statement: str) -> None:
    ledger = SqlLedger(url_of(tmp_path))
    ledger.append(ledger.acquire("spring", "test"), [FROZEN])
    ledger.close()
    connection = sqlite3.connect(tmp_path / "ledger.db")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(statement)
    connection.close()


def test_events_survive_in_wal_mode_with_full_flushes(tmp_path: Path) -> None:
    ledger = SqlLedger(url_of(tmp_path))
    with ledger._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    ledger.close()


def test_a_ledger_of_another_schema_is_refused(tmp_path: Path) -> None:
    SqlLedger(url_of(tmp_path)).close()
    connection = sqlite3.connect(tmp_path / "ledger.db")
    connection.execute("UPDATE schema_versions SET version = 99")
    connection.commit()
    connection.close()
    with pytest.raises(SettingError, match="schema version 99"):
        SqlLedger(url_of(tmp_path))


def test_a_url_that_cannot_be_opened_is_a_setting_error(tmp_path: Path) -> None:
    for url in ("no url", "sqlite:////proc/nowhere/ledger.db"):
        with pytest.raises(SettingError):
            SqlLedger(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://u:SECRET@127.0.0.1:1/x",
        "postgresql+psycopg://u@127.0.0.1:1/x?password=SECRET",
        "postgresql+psycopg://u:SECRET@127.0.0.1:port/x",
        "postgresql+psycopg://u:SEC@RET@127.0.0.1:port/x",
        "postgresql+psycopg://u:SECRET/T@127.0.0.1:1/x",
        "postgresql+psycopg:/u:SECRET@127.0.0.1/x",
        "mysql://u:SECRET@127.0.0.1/x",
        "SECRET@nothing",
    ],
)
def test_a_url_that_leads_nowhere_is_refused_and_its_password_not_repeated(url: str) -> None:
    with pytest.raises(SettingError) as refused:
        SqlLedger(url).revisions()
    told = json.dumps(refused.value.as_fields())
    assert not any(secret in told for secret in ("SECRET", "SEC@", "RET@")), told


def test_a_full_disk_is_told_in_words_and_loses_nothing(tmp_path: Path) -> None:
    ledger = SqlLedger(url_of(tmp_path))
    lease = ledger.acquire("spring", "test")
    ledger.append(lease, [FROZEN])
    with ledger._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageError, match="full"):
        ledger.append(lease, [(Kind.MESSAGE_SET_ASIDE, {"text": "x" * 100_000})])
    with ledger._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
    ledger.append(lease, [NOTE])
    assert len(ledger.events("spring")) == 2
    verify_chain(ledger.events("spring"))
    ledger.close()


def lock_up(ledger: SqlLedger) -> None:
    """Make the database refuse every write from now on."""
    with ledger._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA query_only = ON")


def test_a_lease_that_cannot_be_given_back_does_not_hide_why_its_holder_stopped(
    tmp_path: Path,
) -> None:
    ledger = SqlLedger(url_of(tmp_path))
    lease = ledger.acquire("spring", "test")
    lock_up(ledger)
    ledger.release(lease)
    for refused in (lambda: ledger.renew(lease), lambda: ledger.acquire("autumn", "test")):
        with pytest.raises(StorageError, match="readonly"):
            refused()
    ledger.close()


def test_a_database_that_breaks_while_it_is_read_is_told_in_words(tmp_path: Path) -> None:
    ledger = SqlLedger(url_of(tmp_path))
    ledger.append(ledger.acquire("spring", "test"), [FROZEN])
    ledger.close()
    for path in tmp_path.glob("ledger.db*"):
        path.write_bytes(b"something else" * 4096)
    with pytest.raises(SettingError, match=r"not a database|malformed"):
        SqlLedger(url_of(tmp_path)).events("spring")


@pytest.mark.parametrize("edit", ["kind = 'wish'", "body = '{'", "at_seconds = 'noon'"])
def test_an_event_that_somebody_wrote_by_hand_is_named(tmp_path: Path, edit: str) -> None:
    ledger = SqlLedger(url_of(tmp_path))
    ledger.append(ledger.acquire("spring", "test"), [FROZEN])
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        connection.execute("DROP TRIGGER events_keeps_words")
        connection.execute(f"UPDATE events SET {edit}")
    with pytest.raises(LedgerError, match="event 1 that does not read"):
        ledger.events("spring")
    ledger.close()


def test_a_torn_append_leaves_nothing(tmp_path: Path) -> None:
    ledger = SqlLedger(url_of(tmp_path))
    lease = ledger.acquire("spring", "test")
    ledger.append(lease, [FROZEN])
    with pytest.raises(LedgerError):
        ledger.append(lease, [(Kind.BATCH_OPENED, {"batch": 1}), (Kind.BATCH_OPENED, {"batch": 1})])
    assert len(ledger.events("spring")) == 1
    ledger.append(lease, [(Kind.BATCH_OPENED, {"batch": 1})])
    verify_chain(ledger.events("spring"))
    ledger.close()


def test_a_new_database_file_may_be_written_by_whom_the_umask_lets(tmp_path: Path) -> None:
    before = os.umask(0o007)
    try:
        SqlLedger(f"sqlite:///{tmp_path / 'shared.sqlite'}").close()
    finally:
        os.umask(before)
    assert (tmp_path / "shared.sqlite").stat().st_mode & 0o777 == 0o660
