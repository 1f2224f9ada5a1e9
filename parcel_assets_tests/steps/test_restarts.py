"""Sixteen workers, and everything killed and started again three times: 82 slots, none twice."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.core.ledger import Event, Kind, verify_chain
from parcel_assets.core.plan import Plan
from parcel_assets.core.replay import replay_decisions
from parcel_assets.core.search import SearchState
from parcel_assets.core.trial import AttemptState
from parcel_assets_tests.search_world import REVISION, World, small_plan

pytestmark = pytest.mark.slow

BUDGET, WORKERS, CYCLES = 82, 16, 3
PATIENCE_SECONDS = 240.0


def wait_for(ready: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.05)


def processes_of(folder: Path) -> list[int]:
    """Return every live process whose command line names the folder."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal() or int(process.name) == os.getpid():
            continue
        try:
            named = str(folder).encode() in (process / "cmdline").read_bytes()
            zombie = ") Z " in (process / "stat").read_text()
        except OSError:
            continue  # it ended while we looked
        if named and not zombie:
            found.append(int(process.name))
    return found


def kill_everything(folder: Path) -> None:
    """Kill coordinator, workers and what watches over them, all at once."""
    for process in processes_of(folder):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue  # its own watch was faster


def require_within_cap(plan: Plan, events: Sequence[Event]) -> None:
    """Charged and reserved time stay below the cap after every single event (S3)."""
    state = SearchState(plan)
    for event in events:
        state.apply(event)
        charged = sum(state.charged_seconds_by_purpose.values())
        held = sum(one.started.reserved_seconds for one in state.open_attempts)
        assert charged + held <= plan.search_seconds_maximum
        assert state.started + state.unstarted == plan.search.budget_trials


def test_everything_killed_and_started_again_uses_every_slot_once(
    tmp_path: Path, ledger_url: str
) -> None:
    ledger = SqlLedger(ledger_url)
    world = World(tmp_path, ledger=ledger)
    world.freeze(
        small_plan(
            search__budget_trials=BUDGET,
            search__batch_trials=16,
            search__trial_seconds_maximum=60.0,
            search__cap_accelerator_hours=1.0,
        )
    )
    command = [sys.executable, "-m", "parcel_assets_tests.search_world", str(tmp_path)]
    command += [str(WORKERS), json.dumps({"step_seconds": 0.1}), ledger_url]
    log = (tmp_path / "runs.log").open("wb")

    def run() -> "subprocess.Popen[bytes]":
        return subprocess.Popen(command, stderr=log, stdout=log, start_new_session=True)

    events: list[Event] = []

    def settled() -> int:
        events.extend(ledger.events(REVISION, len(events)))
        ends = {AttemptState.COMPLETED, AttemptState.PRUNED}
        kinds = [one for one in events if one.kind == Kind.ATTEMPT_ENDED]
        return sum(one.body["state"] in ends for one in kinds)

    for cycle in range(1, CYCLES + 1):
        process = run()
        wait_for(lambda cycle=cycle: settled() >= 20 * cycle)  # type: ignore[misc]
        assert process.poll() is None
        kill_everything(tmp_path)
        process.wait()
        wait_for(lambda: not processes_of(tmp_path), seconds=10)
    process = run()
    assert process.wait(PATIENCE_SECONDS) == 0, (tmp_path / "runs.log").read_text()[-2000:]
    settled()
    verify_chain(events)
    state = world.state()
    assert (state.ended, state.started, state.unstarted) == ("budget", BUDGET, 0)
    started = {one.subject for one in state.attempts.values()}
    assert started == {f"parcel-{number:02d}" for number in range(1, BUDGET + 1)}
    completed = [one for one in state.attempts.values() if one.state == AttemptState.COMPLETED]
    assert max(Counter(one.subject for one in completed).values()) == 1
    assert sum(one.state == AttemptState.EXPIRED for one in state.attempts.values()) >= CYCLES
    assert any(one.started.resume_step > 0 for one in state.attempts.values())
    assert not any(one.used_up for one in state.attempts.values())
    require_within_cap(world.plan(), events)
    assert all(one.agrees for one in replay_decisions(world.plan(), events))
    process = run()
    assert process.wait(PATIENCE_SECONDS) == 0
    assert settled() == BUDGET
    log.close()
    ledger.close()
