"""Two hundred at one moment: one lease, freeze, prefix or opening, and one winner each."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.core.errors import HoldoutError, LeaseHeldError
from parcel_assets.core.ledger import Kind, Lease, verify_chain
from parcel_assets_tests.contracts.ledger_contract import FROZEN, NOTE
from parcel_assets_tests.postgres import Postgres
from parcel_assets_tests.racing import REVISION, race

CONTENDERS = 200
OPENERS = 16  # case B48: workers that all start on a fresh database

WRITER = """
import sys
from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.core.errors import StaleFenceError
from parcel_assets.core.ledger import Kind
ledger = SqlLedger(sys.argv[1], lease_seconds=1.0)
lease = ledger.acquire("spring", "test")
ledger.append(lease, [(Kind.PLAN_FROZEN, {"plan": {}, "plan_digest": "d" * 64})])
print("writing", flush=True)
try:
    while True:
        ledger.append(lease, [(Kind.MESSAGE_SET_ASIDE, {"by": "old"})])
except StaleFenceError:
    print("stale", flush=True)
for again in range(3):
    try:
        ledger.append(lease, [(Kind.MESSAGE_SET_ASIDE, {"by": "old"})])
    except StaleFenceError:
        print("stale", flush=True)
"""


def run(deed: str, place: str, count: int = CONTENDERS) -> Counter[str]:
    answers = race(deed, place, count, dict(os.environ))
    assert len(answers) == count
    return Counter(answers)


def test_one_of_two_hundred_takes_the_lease(ledger_url: str) -> None:
    SqlLedger(ledger_url).close()
    assert run("lease", ledger_url) == {"won 1": 1, "lost": CONTENDERS - 1}


def test_one_of_two_hundred_freezes_the_plan(ledger_url: str) -> None:
    SqlLedger(ledger_url).close()
    assert run("freeze", ledger_url) == {"won": 1, "lost": CONTENDERS - 1}
    ledger = SqlLedger(ledger_url)
    events = ledger.events(REVISION)
    verify_chain(events)
    assert len(events) == 1
    ledger.close()


def opened_events(ledger: SqlLedger) -> int:
    return sum(
        event.kind == Kind.HOLDOUT_OPENED
        for revision in ledger.revisions()
        for event in ledger.events(revision)
    )


def test_one_of_two_hundred_searches_opens_a_shipment_that_all_share(ledger_url: str) -> None:
    ledger = SqlLedger(ledger_url)
    assert run("open_holdout", ledger_url) == {"won": 1, "lost": CONTENDERS - 1}
    (winner,) = set(ledger.opened_by(["shared"]).values())
    assert opened_events(ledger) == 1
    assert [one.kind for one in ledger.events(winner)][-1] == Kind.HOLDOUT_OPENED
    # whoever lost has opened nothing, not even what was its own
    own = [f"own-{revision.removeprefix('search-')}" for revision in ledger.revisions()]
    assert len(ledger.opened_by(own)) == 1
    ledger.close()


@pytest.mark.slow  # threads do the same at once below
def test_one_of_two_hundred_opens_the_holdout_of_one_search(ledger_url: str) -> None:
    ledger = SqlLedger(ledger_url)
    lease = ledger.acquire(REVISION, "race")
    ledger.append(lease, [FROZEN])
    told = {"RACING_LEASE": json.dumps([lease.owner, lease.fence])}
    answers = race("open_one", ledger_url, CONTENDERS, dict(os.environ) | told)
    assert Counter(answers) == {"won": 1, "lost": CONTENDERS - 1}
    assert opened_events(ledger) == 1
    ledger.close()


def test_one_of_two_hundred_threads_opens_the_holdout(ledger_url: str) -> None:
    ledger = SqlLedger(ledger_url)
    lease = ledger.acquire(REVISION, "race")
    ledger.append(lease, [FROZEN])
    start = threading.Barrier(CONTENDERS)

    def contend(_number: int) -> str:
        start.wait()
        try:
            ledger.open_holdout(lease, {"holdout_digest": "h"}, ["shared"])
        except HoldoutError:
            return "lost"
        return "won"

    with ThreadPoolExecutor(CONTENDERS) as pool:
        answers = Counter(pool.map(contend, range(CONTENDERS)))
    assert answers == {"won": 1, "lost": CONTENDERS - 1}
    assert opened_events(ledger) == 1
    ledger.close()


def test_one_of_two_hundred_claims_the_prefix(tmp_path: Path) -> None:
    assert run("prefix", str(tmp_path)) == {"won": 1, "lost": CONTENDERS - 1}
    assert len(list(tmp_path.rglob("owner.json"))) == 1
    assert not list((tmp_path / "incoming").iterdir())


def test_all_that_open_a_fresh_database_at_once_start(ledger_url: str) -> None:
    assert run("opening", ledger_url, OPENERS) == {"won": OPENERS}


def test_more_processes_than_the_server_takes_wait_their_turn(postgres: Postgres) -> None:
    few = postgres.fresh_url(connections=5)
    assert run("freeze_and_leave", few, 20) == {"won": 1, "lost": 19}


@pytest.fixture
def writer(ledger_url: str) -> Iterator["subprocess.Popen[str]"]:
    """Return a process that holds the lease and appends without a pause."""
    command = [sys.executable, "-c", WRITER, ledger_url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    yield process
    process.kill()
    process.communicate()


def writes_now(ledger: SqlLedger) -> bool:
    """Say whether somebody else is inside a transaction that writes."""
    engine = ledger._engine
    if engine.dialect.name == "sqlite":
        connection = sqlite3.connect(str(engine.url.database), timeout=0, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return True
        finally:
            connection.close()
        return False
    try:
        with engine.connect() as watcher:
            watcher.execute(sa.text("SELECT fence FROM leases FOR UPDATE NOWAIT"))
    except OperationalError:
        return True
    return False


def stop_between_appends(process: "subprocess.Popen[str]", ledger: SqlLedger) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    while writes_now(ledger):
        os.kill(process.pid, signal.SIGCONT)
        os.kill(process.pid, signal.SIGSTOP)


def take_over(ledger: SqlLedger) -> Lease:
    deadline = time.monotonic() + 30
    while True:
        try:
            return ledger.acquire(REVISION, "after")
        except LeaseHeldError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_coordinator_that_lost_its_lease_appends_nothing_more(
    ledger_url: str, writer: "subprocess.Popen[str]"
) -> None:
    assert writer.stdout is not None
    ledger = SqlLedger(ledger_url)
    stop_between_appends(writer, ledger)
    lease = take_over(ledger)
    (first,) = ledger.append(lease, [NOTE])
    os.kill(writer.pid, signal.SIGCONT)
    assert [writer.stdout.readline() for _ in range(4)] == ["stale\n"] * 4
    ledger.append(lease, [NOTE])
    events = ledger.events(REVISION)
    verify_chain(events)
    assert [event.body for event in events[first.sequence :]] == [NOTE[1]]
    assert all(event.body == {"by": "old"} for event in events[1 : first.sequence - 1])
    assert events[0].kind == FROZEN[0]
    ledger.close()
