"""The search with real worker processes, a real ledger and real signals; only training is small."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from parcel_assets.core.attempts import AttemptRecord
from parcel_assets.core.errors import HoldError, LeaseHeldError, SettingError
from parcel_assets.core.ledger import Kind
from parcel_assets.core.standing import HOLD, standing_of
from parcel_assets.core.trial import AttemptState, TrialState, trial_seed
from parcel_assets.steps.admission import load_chain
from parcel_assets.steps.dispatch import run_tasks
from parcel_assets.steps.dispatch_work import Task
from parcel_assets.steps.selection import rerun_selected
from parcel_assets.steps.table import validate_table
from parcel_assets_tests.search_world import REVISION, World, small_plan
from parcel_assets_tests.steps.desk import FakeValidator

SLOW_STEPS = {"step_seconds": 0.04}


def make_world(folder: Path, **changes: object) -> World:
    world = World(folder)
    world.freeze(small_plan(**changes))
    return world


def seed_of(number: int) -> str:
    return str(trial_seed(small_plan().search.seed, number))


def coordinator(world: World, workers: int = 2, **faults: object) -> "subprocess.Popen[bytes]":
    arguments = [str(world.folder), str(workers), json.dumps(faults or SLOW_STEPS)]
    return subprocess.Popen(
        [sys.executable, "-m", "parcel_assets_tests.search_world", *arguments],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_for(ready: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def worker_processes(world: World) -> list[int]:
    """Return the live processes that serve this world's workers."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                command = (folder / "cmdline").read_bytes()
                zombie = ") Z " in (folder / "stat").read_text()
            except OSError:
                continue
            if b"fake_worker" in command and str(world.folder).encode() in command and not zombie:
                found.append(int(folder.name))
    return found


def checkpoints(world: World) -> int:
    events = world.ledger.events(REVISION)
    return sum(event.kind == Kind.CHECKPOINT_SAVED for event in events)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    world = make_world(tmp_path_factory.mktemp("one"))
    evidence = world.search(workers=1)
    assert evidence.body["ended"] == "budget"
    assert evidence.body["trials_by_state"]["pruned"] > 0
    assert evidence.body["steps_saved_by_pruning"] > 0
    assert evidence.body["ledger_head"] in {e.digest for e in world.ledger.events(REVISION)}
    return world.table_digest()


@pytest.mark.parametrize("workers", [2, 8])
def test_the_table_is_the_same_with_more_workers(
    undisturbed: str, tmp_path: Path, workers: int
) -> None:
    world = make_world(tmp_path)
    world.search(workers=workers)
    assert world.table_digest() == undisturbed


def test_a_second_run_does_nothing_again(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    first = world.search()
    events = len(world.ledger.events(REVISION))
    assert world.search() == first
    assert len(world.ledger.events(REVISION)) == events


def test_a_killed_worker_costs_no_attempt_and_resumes_above_step_zero(
    undisturbed: str, tmp_path: Path
) -> None:
    world = make_world(tmp_path)
    process = coordinator(world)
    wait_for(lambda: checkpoints(world) >= 3)
    for worker in worker_processes(world):
        os.kill(worker, signal.SIGKILL)
    assert process.wait(60) == 0
    state = world.state()
    assert any(one.started.resume_step > 0 for one in state.attempts.values())
    assert state.attempts_by_state["expired"] >= 1
    assert not any(one.used_up for one in state.attempts.values())
    assert world.table_digest() == undisturbed


def test_a_killed_coordinator_leaves_no_worker_and_is_resumed(
    undisturbed: str, tmp_path: Path
) -> None:
    world = make_world(tmp_path)
    killed = []
    for wanted in (2, 7):
        process = coordinator(world)
        killed.append(process)
        wait_for(lambda wanted=wanted: checkpoints(world) >= wanted)  # type: ignore[misc]
        process.kill()  # not collected: a zombie holds no lease
        wait_for(lambda: not worker_processes(world), seconds=10)
    evidence = world.search()
    for process in killed:
        process.wait()
    assert evidence.body["started_trials"] == 12
    assert any(one.started.resume_step > 0 for one in world.state().attempts.values())
    assert world.state().lineage_faults == ()
    assert world.table_digest() == undisturbed


def test_an_interrupt_settles_what_is_open_and_stops_the_workers(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    process = coordinator(world, step_seconds=0.5)  # it must not end before it is told to
    wait_for(lambda: checkpoints(world) >= 1)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) != 0
    assert world.state().open_attempts == ()
    assert worker_processes(world) == []


def test_a_second_coordinator_is_refused(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    process = coordinator(world)
    wait_for(lambda: checkpoints(world) >= 1)
    with pytest.raises(LeaseHeldError):
        world.search()
    assert process.wait(60) == 0


def test_a_trial_whose_scores_are_not_numbers_fails_and_never_ranks(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.search(faults={"nan": {seed_of(1): 10, seed_of(2): 2}})
    state = world.state()
    assert state.trial_state(1) == state.trial_state(2) == TrialState.FAILED
    assert [one.state for one in state.trials[1].attempts] == [AttemptState.FAILED] * 2
    assert state.trials[1].reports[10].cost_per_1000 is None
    assert state.best_number not in {1, 2}


def test_a_trial_that_raises_is_tried_as_often_as_the_plan_says(tmp_path: Path) -> None:
    world = make_world(tmp_path, search__attempts_per_trial=3)
    world.search(faults={"raises": {seed_of(5): 4}})
    trial = world.state().trials[5]
    assert world.state().trial_state(5) == TrialState.FAILED
    assert [one.ended.reason for one in trial.attempts if one.ended] == ["a loss"] * 3
    # after a failure of its own a trial starts afresh
    assert [one.started.resume_step for one in trial.attempts] == [0, 0, 0]


def test_an_error_too_long_for_a_message_still_fails_its_own_trial(tmp_path: Path) -> None:
    world = make_world(tmp_path, search__budget_trials=2)
    world.search(faults={"raves": {seed_of(2): 4}})
    state = world.state()
    assert state.trial_state(2) == TrialState.FAILED
    assert state.attempts_by_state.get("expired", 0) == 0


def test_a_network_that_ends_its_process_in_python_fails_its_own_trial_only(
    undisturbed: str, tmp_path: Path
) -> None:
    world = make_world(tmp_path)
    world.search(workers=1, faults={"exits": {seed_of(5): 4}})
    state = world.state()
    assert state.trial_state(5) == TrialState.FAILED
    assert state.attempts_by_state.get("expired", 0) == 0
    assert world.table_digest() != undisturbed


def test_where_every_trial_fails_the_hold_says_why(tmp_path: Path) -> None:
    world = make_world(tmp_path, search__budget_trials=2)
    world.search(faults={"raises": {seed_of(1): 4, seed_of(2): 4}})
    ports = replace(world.ports(), validator=FakeValidator())
    validate_table(REVISION, ports)
    with pytest.raises(HoldError, match="4 attempts failed, 4 of them with: a loss"):
        rerun_selected(REVISION, ports)
    standing = standing_of(load_chain(REVISION, ports))
    assert (standing.state, standing.hold) == (HOLD, "hold:invalid-winner")
    assert "a loss" in standing.sentence
    assert standing.next_command == f"parcel-assets status {REVISION}"


def test_a_network_that_is_not_there_is_refused_before_the_search_opens(tmp_path: Path) -> None:
    plan = small_plan().model_copy(deep=True)
    training = plan.training.model_copy(update={"network": "nowhere.at_all:Network"})
    world = World(tmp_path)
    world.freeze(plan.model_copy(update={"training": training}))
    with pytest.raises(SettingError, match="no module nowhere"):
        world.search()
    assert Kind.SEARCH_OPENED not in {event.kind for event in world.ledger.events(REVISION)}


def test_a_full_disk_stops_the_search_which_then_resumes(undisturbed: str, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    with pytest.raises(SettingError, match="no space left"):
        world.search(faults={"full_disk": {seed_of(3): 7}})
    assert world.state().open_attempts == ()
    world.search()
    assert world.table_digest() == undisturbed


def test_a_trial_that_kills_its_worker_every_time_ends_the_run_with_its_name(
    tmp_path: Path,
) -> None:
    world = make_world(tmp_path)
    with pytest.raises(SettingError, match=r"parcel-02|without progress"):
        world.search(workers=1, faults={"crashes": {seed_of(2): 3}})
    assert world.state().open_attempts == ()


def test_what_a_library_prints_does_not_reach_the_coordinator(tmp_path: Path) -> None:
    world = make_world(tmp_path, search__budget_trials=3)
    world.search(workers=1, faults={"prints": {seed_of(1): 3}})
    assert world.state().trial_state(1) == TrialState.COMPLETED
    (log,) = (tmp_path / "logs").glob("*.log")
    assert "a library that prints" in log.read_text()


def test_a_trial_that_takes_too_long_is_stopped_and_charged_no_more_than_reserved(
    tmp_path: Path,
) -> None:
    changes = {"search__budget_trials": 1, "search__trial_seconds_maximum": 0.5}
    world = make_world(tmp_path, **changes)
    world.search(workers=1, faults={"step_seconds": 0.2})
    state = world.state()
    assert state.trial_state(1) == TrialState.FAILED
    assert state.charged_seconds_by_purpose == {"search": 1.0}  # two attempts of 0.5


def test_the_cap_ends_the_search_with_slots_left(tmp_path: Path) -> None:
    plan = small_plan(search__trial_seconds_maximum=30.0)
    seconds = plan.after_search_seconds + 30.5
    world = make_world(tmp_path, search__cap_accelerator_hours=seconds / 3600)
    evidence = world.search(workers=2, faults={"step_seconds": 0.03})
    body = evidence.body
    assert body["ended"] == "cap"
    assert 0 < body["started_trials"] < 12
    assert body["started_trials"] + body["unstarted_trials"] == 12
    assert body["charged_seconds_by_purpose"]["search"] <= 30.5


def test_a_foreign_checkpoint_below_a_prefix_quarantines_both_trials(
    undisturbed: str, tmp_path: Path
) -> None:
    world = make_world(tmp_path)
    process = coordinator(world, workers=2, step_seconds=0.1)

    def both() -> list[AttemptRecord]:
        found = list(world.state().attempts.values())[:2]
        return [one for one in found if one.checkpoints]

    wait_for(lambda: len(both()) == 2)
    first, second = both()
    source = world.store.prefix_path(first.started.prefix) / first.checkpoints[0].file
    target = world.store.prefix_path(second.started.prefix)
    (target / "checkpoint-99.safetensors").write_bytes(source.read_bytes())
    assert process.wait(60) == 0
    state = world.state()
    quarantined = {one.attempt for one in state.attempts.values() if not one.clean}
    assert quarantined == {first.attempt, second.attempt}
    assert state.lineage_faults == ()  # found before the batch closed: it reached nothing
    assert world.table_digest() == undisturbed


def test_trainings_after_the_search_are_charged_and_done_once(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    evidence = world.search()
    plan, state = world.plan(), world.state()
    best = state.trials[state.best_number or 0]
    assert best.trial is not None
    tasks = [
        Task(f"rerun/{best.subject}/own", "rerun", best.trial.configuration, best.trial.seed),
        Task("reference", "reference", {"learning_rate": 0.002, "width": 8}, 1),
    ]
    split = load_chain(REVISION, world.ports()).split
    lease = world.ledger.acquire(REVISION, "test")
    ports = world.ports()
    results = run_tasks(tasks, plan=plan, lease=lease, ports=ports, split=split, workers=2)
    own = results[tasks[0].subject]
    assert own.scores == best.reports[10].scores
    assert own.cost_per_1000 == evidence.body["best_cost_per_1000"]
    charged = world.state().charged_seconds_by_purpose
    assert set(charged) == {"search", "rerun", "reference"}
    again = run_tasks(tasks, plan=plan, lease=lease, ports=ports, split=split, workers=2)
    assert again == results
    assert world.state().charged_seconds_by_purpose == charged
