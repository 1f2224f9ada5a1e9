"""A search that a person stops, or moves to another engine: nothing runs on, nothing is lost."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from parcel_assets.core.ledger import Kind
from parcel_assets.core.search import SearchState, fold_search
from parcel_assets.core.stage import Stage
from parcel_assets.core.table import table_digest, table_rows
from parcel_assets.core.trial import AttemptState
from parcel_assets.wiring import Settings, open_ports
from parcel_assets_tests.commands import (
    COMMAND,
    SMALL_SEARCH,
    chain_in,
    command,
    data_with,
    document,
    environment,
)
from parcel_assets_tests.contracts.engine_contract import is_gone
from parcel_assets_tests.defs.webserver import serving

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 300.0
STOP_SECONDS = 10.0
STAGES = [str(one) for one in (*Stage.SEARCH.earlier, Stage.SEARCH)]
TERMINATE = """
mutation ($id: String!) { terminateRun(runId: $id, terminatePolicy: SAFE_TERMINATE) {
  __typename } }"""


@pytest.fixture
def data(small_archive: Path, tmp_path: Path) -> Path:
    return data_with(small_archive, tmp_path / "data")


def state_in(data: Path) -> SearchState:
    chain = chain_in(data)
    return fold_search(chain.plan, chain.events)


def wait_for(ready: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.05)


def in_mid_search(data: Path) -> bool:
    """Say whether trials have ended and one that is open has a checkpoint."""
    ledger = open_ports(Settings.read({}, data=data)).ledger
    if Kind.CHECKPOINT_SAVED not in {one.kind for one in ledger.events(SMALL_SEARCH)}:
        return False
    state = state_in(data)
    begun = [one for one in state.open_attempts if state.attempts[one.attempt].checkpoints]
    return bool(begun) and len(state.attempts) > 4


def processes_over(data: Path) -> list[int]:
    """Return the live processes of workers whose setup lies in the data folder."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if b"parcel_assets.worker" in words and str(data).encode() in words:
            found.append(int(folder.name))
    return [one for one in found if not is_gone(one)]


def is_stopped_and_resumable(data: Path, workers: list[int]) -> None:
    """Nothing runs, nothing is open, no attempt is used up, and the same command goes on."""
    assert workers
    wait_for(lambda: all(is_gone(one) for one in workers), STOP_SECONDS)
    assert processes_over(data) == []
    state = state_in(data)
    assert state.open_attempts == ()
    stopped = [
        one
        for one in state.attempts.values()
        if one.ended is not None and one.ended.state == AttemptState.EXPIRED
    ]
    assert stopped
    assert not any(one.used_up for one in stopped)
    assert any(one.checkpoints for one in stopped)


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_ctrl_c_ends_the_workers_within_seconds_and_settles_what_was_open(
    data: Path, engine: str
) -> None:
    words = [*COMMAND, "--engine", engine, "--workers", "2", "run", SMALL_SEARCH]
    nowhere = subprocess.DEVNULL
    run = subprocess.Popen(
        words, env=environment(data), stdout=nowhere, stderr=nowhere, start_new_session=True
    )
    wait_for(lambda: in_mid_search(data))
    workers = processes_over(data)
    os.killpg(run.pid, signal.SIGINT)  # the terminal tells all in the foreground
    assert run.wait(60) == 130
    is_stopped_and_resumable(data, workers)


def test_terminating_the_run_in_dagster_does_the_same(data: Path) -> None:
    assert not command(data, "plan", "register", SMALL_SEARCH).returncode
    with serving(data / "dagster", data) as server:
        run_id = server.launch(STAGES, SMALL_SEARCH)
        wait_for(lambda: in_mid_search(data))
        workers = processes_over(data)
        answer = server.ask(TERMINATE, id=run_id)["terminateRun"]
        assert answer["__typename"] == "TerminateRunSuccess"
        assert server.wait(run_id, 60).status == "CANCELED"
        is_stopped_and_resumable(data, workers)


def test_a_whole_search_on_ray_has_the_table_of_local_workers(
    small_archive: Path, tmp_path: Path
) -> None:
    digests = {}
    for engine in ("local", "ray"):
        data = data_with(small_archive, tmp_path / engine)
        words = (
            "--engine",
            engine,
            "--workers",
            "2",
            "run",
            SMALL_SEARCH,
            "--until",
            str(Stage.TABLE),
            "--json",
        )
        document(command(data, *words))
        chain = chain_in(data)
        digests[engine] = table_digest(table_rows(chain.plan, state_in(data)))
        assert digests[engine] == chain.table.table_digest
    assert digests["local"] == digests["ray"]
