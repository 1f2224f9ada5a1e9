"""Many processes that do one thing at one moment, and what became of each.

`python -m parcel_assets_tests.racing DEED PLACE COUNT` forks its contenders, waits until each of
them is at the start, releases all at once, and prints their answers as JSON. It imports little, so
that two hundred of them fit into a small machine.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.adapters.store_files import FileStore
from parcel_assets.core.errors import (
    HoldoutError,
    LeaseHeldError,
    LedgerError,
    ParcelAssetsError,
    StorageError,
)
from parcel_assets.core.ledger import Kind, Lease

REVISION = "spring"
SIDES = (("ready", 1), ("start", 0), ("over", 0), ("answer", 1))  # a contender's ends of the pipes
Deed = Callable[[], str]


def lease_of(ledger: SqlLedger) -> Deed:
    """Take the one lease, and keep it as long as the others still try."""

    def take() -> str:
        try:
            return f"won {ledger.acquire(REVISION, 'race').fence}"
        except LeaseHeldError:
            return "lost"

    return take


def freeze(ledger: SqlLedger) -> Deed:
    """Freeze a plan under one revision, as its registration does: look, take the lease, say it."""

    def say() -> str:
        body = {"plan": {"by": os.getpid()}, "plan_digest": "d" * 64}
        while not ledger.events(REVISION):
            try:
                lease = ledger.acquire(REVISION, "race")
            except LeaseHeldError:
                time.sleep(random.uniform(0.0, 0.5))
                continue
            try:
                ledger.append(lease, [(Kind.PLAN_FROZEN, body)])
            except LedgerError:
                return "lost"
            finally:
                ledger.release(lease)
            return "won"
        return "lost"

    return say


def freeze_and_leave(place: str) -> Deed:
    """Freeze as above, connected to the database for no longer than that takes."""

    def come_and_go() -> str:
        ledger = SqlLedger(place)
        try:
            return freeze(ledger)()
        finally:
            ledger.close()

    return come_and_go


def prefix(store: FileStore) -> Deed:
    """Claim the one prefix."""

    def claim() -> str:
        try:
            store.claim_prefix("spring/parcel-01/1", {"process": os.getpid()})
        except StorageError:
            return "lost"
        return "won"

    return claim


def opening(place: str) -> Deed:
    """Open a database that has no table yet."""

    def start() -> str:
        SqlLedger(place)
        return "won"

    return start


def open_holdout(ledger: SqlLedger) -> Deed:
    """Open, under a revision of one's own, a holdout that shares one shipment with all others."""
    lease = ledger.acquire(f"search-{os.getpid()}", "race")
    ledger.append(lease, [(Kind.PLAN_FROZEN, {"plan": {}, "plan_digest": "d" * 64})])
    return lambda: _opened(ledger, lease, ["shared", f"own-{os.getpid()}"])


def open_one(ledger: SqlLedger) -> Deed:
    """Open the holdout of one revision under the lease that everybody stole from its holder."""
    lease = Lease(REVISION, *json.loads(os.environ["RACING_LEASE"]))
    return lambda: _opened(ledger, lease, ["shared"])


def _opened(ledger: SqlLedger, lease: Lease, keys: list[str]) -> str:
    try:
        ledger.open_holdout(lease, {"holdout_digest": "h"}, keys)
    except HoldoutError:
        return "lost"
    return "won"


DEEDS: dict[str, Callable[[str], Deed]] = {
    "lease": lambda place: lease_of(SqlLedger(place)),
    "freeze": lambda place: freeze(SqlLedger(place)),
    "freeze_and_leave": freeze_and_leave,
    "open_holdout": lambda place: open_holdout(SqlLedger(place)),
    "open_one": lambda place: open_one(SqlLedger(place)),
    "prefix": lambda place: prefix(FileStore(Path(place))),
    "opening": opening,
}


def race(deed: str, place: str, count: int, environment: dict[str, str]) -> list[str]:
    """Run a race in processes of its own and return every contender's answer."""
    done = subprocess.run(
        [sys.executable, "-m", "parcel_assets_tests.racing", deed, place, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=environment,
    )
    answers: list[str] = json.loads(done.stdout)
    return answers


def _contend(deed: str, place: str, pipes: dict[str, Any]) -> None:
    """Be one contender: get ready, wait for the start, act, answer, and stay until it is over."""
    ready, start, over, answer = (pipes[name][side] for name, side in SIDES)
    try:
        act = DEEDS[deed](place)
        os.write(ready, b".")
        os.read(start, 1)
        said = act()
    except ParcelAssetsError as error:
        os.write(ready, b"!")
        said = f"error {error}"
    os.write(answer, f"{said[:400]}\n".encode())  # short enough to be written at once
    os.read(over, 1)


def _main(deed: str, place: str, count: int) -> None:
    if "://" in place and deed != "opening":
        SqlLedger(place).close()  # what is imported now, two hundred need not import
    pipes: dict[str, Any] = {name: os.pipe() for name in ("ready", "start", "over", "answer")}
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            for name in ("start", "over"):
                os.close(pipes[name][1])  # its end is the signal
            try:
                _contend(deed, place, pipes)
            finally:
                os._exit(0)
        children.append(child)
    waiting = 0
    while waiting < count:
        waiting += len(os.read(pipes["ready"][0], count))
    os.close(pipes["start"][1])
    said = b""
    while said.count(b"\n") < count:
        said += os.read(pipes["answer"][0], 1 << 16)
    os.close(pipes["over"][1])
    for child in children:
        os.waitpid(child, 0)
    print(json.dumps(said.decode().splitlines()))


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
