"""The real coordinator against simulated workers, storage calls and time: what must always hold."""

from pathlib import Path

import pytest

from parcel_assets.adapters import store_files
from parcel_assets.core.errors import SettingError
from parcel_assets.core.ledger import Kind, verify_chain
from parcel_assets.core.trial import AttemptState
from parcel_assets.steps.search import run_trial_batches
from parcel_assets_tests.fakes import FakeLedger
from parcel_assets_tests.search_world import REVISION, World, small_plan
from parcel_assets_tests.simulated_engine import (
    IDENTITY,
    CoordinatorKilledError,
    Misfortune,
    MortalLedger,
    SimulatedEngine,
    started_once,
)

SEEDS = 30
MORE_SEEDS = 600
RUNS_MAXIMUM = 400


@pytest.fixture(autouse=True)
def _no_flushing(monkeypatch: pytest.MonkeyPatch) -> None:
    # thousands of files that live for a second need not reach the disk
    monkeypatch.setattr(store_files, "_flush", lambda file: file.flush())
    monkeypatch.setattr(store_files, "_flush_folder", lambda _folder: None)


def simulate(folder: Path, seed: int, workers: int, per_call: float) -> tuple[World, int]:
    """Search to the end through killed coordinators; return the world and the number of runs."""
    misfortune = Misfortune(seed, per_call=per_call)
    ledger: FakeLedger = FakeLedger()
    world = World(folder, ledger=ledger)
    # a stall must not be taken for a trial that reached its limit
    limit = {"search__trial_seconds_maximum": 6000.0, "search__cap_accelerator_hours": 400.0}
    world.freeze(small_plan(**limit))
    for run in range(1, RUNS_MAXIMUM):
        mortal = MortalLedger(misfortune, shared=ledger)
        mortal.owner = f"run-{run}"
        world.ledger = mortal
        ports = world.ports(
            workers=workers,
            engine=lambda mortal=mortal: SimulatedEngine(mortal, misfortune),  # type: ignore[misc]
            identity=lambda _plan, _files: dict(IDENTITY),
        )
        try:
            run_trial_batches(REVISION, ports)
        except (CoordinatorKilledError, SettingError):  # killed, or gave up: somebody runs again
            ledger.clock_seconds = mortal.clock_seconds + misfortune.random.choice([0.0, 3600.0])
            ledger.bury(REVISION)
            continue
        finally:
            ledger.clock_seconds = max(ledger.clock_seconds, mortal.clock_seconds)
        world.ledger = ledger
        return world, run
    raise AssertionError("the search never ends")


def check_invariants(world: World) -> None:
    state, plan = world.state(), world.plan()
    events = world.ledger.events(REVISION)
    verify_chain(events)
    assert state.ended == "budget"
    assert state.started == plan.search.budget_trials  # S2
    assert state.started + state.unstarted == plan.search.budget_trials
    assert sum(state.charged_seconds_by_purpose.values()) <= plan.search_seconds_maximum  # S3
    assert started_once(events)  # S5
    assert not state.open_attempts
    assert state.lineage_faults == ()  # S6
    for record in state.trials.values():
        completed = [one for one in record.attempts if one.state == AttemptState.COMPLETED]
        assert len(completed) <= 1
        assert not any(one.used_up for one in record.attempts)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    world, runs = simulate(tmp_path_factory.mktemp("quiet"), 0, 1, 0.0)
    check_invariants(world)
    assert runs == 1
    assert world.state().trials_by_state.get("pruned", 0) > 0, "else pruning is not tried"
    return world.table_digest()


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_the_table_does_not_depend_on_the_number_of_workers(
    undisturbed: str, tmp_path: Path, workers: int
) -> None:
    world, _ = simulate(tmp_path, workers, workers, 0.0)
    check_invariants(world)
    assert world.table_digest() == undisturbed


def try_seed(undisturbed: str, folder: Path, seed: int) -> World:
    world, _ = simulate(folder, seed, 1 + seed % 4, 0.004 + 0.02 * (seed % 3))
    check_invariants(world)
    assert world.table_digest() == undisturbed
    return world


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_misfortune_changes_the_table(undisturbed: str, tmp_path: Path, seed: int) -> None:
    try_seed(undisturbed, tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS, MORE_SEEDS))
def test_many_more_misfortunes(undisturbed: str, tmp_path: Path, seed: int) -> None:
    try_seed(undisturbed, tmp_path, seed)


def test_the_misfortunes_are_real(undisturbed: str, tmp_path: Path) -> None:
    # else the seeds above would prove nothing
    resumed, lost, set_aside, killed = 0, 0, 0, 0
    for seed in range(2, 20, 3):
        world = try_seed(undisturbed, tmp_path / str(seed), seed)
        attempts = world.state().attempts.values()
        resumed += sum(one.started.resume_step > 0 for one in attempts)
        reasons = [one.ended.reason for one in attempts if one.ended is not None]
        lost += sum("worker was lost" in reason for reason in reasons)
        killed += sum("coordinator was lost" in reason for reason in reasons)
        events = world.ledger.events(REVISION)
        set_aside += sum(event.kind == Kind.MESSAGE_SET_ASIDE for event in events)
    assert min(resumed, lost, set_aside, killed) >= 5
