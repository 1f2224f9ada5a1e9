"""What dies, sleeps or is killed: B29-B39."""

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.adapters.engine_local import LocalEngine
from parcel_assets.core.codec import digest_bytes
from parcel_assets.core.ledger import Kind, verify_chain
from parcel_assets.core.search import fold_search
from parcel_assets.core.trial import AttemptState, TrialState, trial_seed
from parcel_assets_tests.search_world import World, small_plan
from parcel_assets_tests.simulation.theatre import (
    BETWEEN,
    Actor,
    Case,
    CaseEngine,
    Said,
    Script,
    of_82_steps,
)

SIX: dict[str, Any] = {"search__budget_trials": 6, "search__batch_trials": 2}


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the table digest of six short trials that nothing happened to."""
    case = Case(tmp_path_factory.mktemp("quiet"), **SIX)
    case.search()
    return case.table


# ---- B29, B30: silent for ever, silent for a while -----------------------------------------------


class SilentAt(Script):
    """The first worker of the first trial is heard no more from a step on; nobody says why."""

    turn_seconds = 1.0

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def act(self, engine: CaseEngine, worker: Actor) -> Said:
        if worker.attempt == "parcel-01/1" and worker.step >= self.step:
            return []
        return super().act(engine, worker)


def test_b29_a_machine_that_dies_at_step_20_leaves_no_trial_running(tmp_path: Path) -> None:
    changes = of_82_steps(BETWEEN, search__budget_trials=2, search__trial_seconds_maximum=300.0)
    case = Case(tmp_path, **changes, search__cap_accelerator_hours=10.0)
    assert case.search(SilentAt(20))["ended"] == "budget"
    first, second = case.attempts(1)
    assert first.ended is not None
    assert (first.state, second.state) == (AttemptState.EXPIRED, AttemptState.COMPLETED)
    assert "no sign of life" in first.ended.reason
    assert second.started.resume_step == 13, "it goes on at the last checkpoint"
    assert case.state.open_attempts == ()
    assert case.state.attempts_by_state == {"completed": 2, "expired": 1}
    # charged to its last word and one lease, not to the end of the search
    assert 20 <= first.ended.charged_seconds <= 20 + 1 + 20 + 5


def test_b30_a_worker_paused_past_its_lease_ends_its_trial_late(tmp_path: Path, quiet: str) -> None:
    class Wakes(SilentAt):
        """It sleeps once all is trained and reported, before it says so."""

        def __init__(self) -> None:
            super().__init__(10)
            self.late: Said = []

        def act(self, engine: CaseEngine, worker: Actor) -> Said:
            return Script.act(self, engine, worker) if worker.waits else super().act(engine, worker)

        def beside(self, engine: CaseEngine) -> Said:
            said: Said = []
            for worker in engine.stopped.values():
                while worker.order is not None:  # it trains to the end and says so, all at once
                    said += [(worker.worker_id, one) for one in worker.act()]
            self.late += said
            return said

    changes = SIX | {"search__trial_seconds_maximum": 300.0, "search__cap_accelerator_hours": 10.0}
    case, script = Case(tmp_path, **changes), Wakes()
    assert case.search(script)["ended"] == "budget", "the process survives, the others go on"
    assert "finished" in {message["kind"] for _, message in script.late}
    first, second = case.attempts(1)
    assert (first.state, second.state) == (AttemptState.EXPIRED, AttemptState.COMPLETED)
    assert first.ended is not None
    assert first.ended.model is None
    refused = [one["message"].partition(":")[0] for one in case.set_aside]
    assert "finished" in refused
    assert (
        case.state.trials_by_state.get("completed", 0) + case.state.trials_by_state.get("pruned", 0)
        == 6
    )
    calm = Case(tmp_path / "calm", **changes)
    calm.search()
    assert case.table == calm.table


# ---- real processes: B32, B33, B35 ---------------------------------------------------------------

KILLED, TERMINATED, RAISES = 1, 2, 3
SIGNALS = {f"parcel-0{KILLED}/1": signal.SIGKILL, f"parcel-0{TERMINATED}/1": signal.SIGTERM}


class Executioner(LocalEngine):
    """Ends the process of a trial's first attempt with a signal, at its first checkpoint."""

    def receive(self, timeout_seconds: float) -> list[tuple[str, dict[str, Any]]]:
        heard = super().receive(timeout_seconds)
        for worker_id, message in heard:
            number = SIGNALS.get(str(message.get("attempt")))
            if message["kind"] == "checkpoint" and number is not None:
                os.kill(self._workers[worker_id].process.pid, number)
        return heard


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Return a search of real processes: one killed, one terminated, one trial that raises."""
    folder = tmp_path_factory.mktemp("executed")
    world = World(folder)
    world.freeze(small_plan(search__budget_trials=3))
    faults = {
        "raises": {str(trial_seed(small_plan().search.seed, RAISES)): 5},
        "step_seconds": 0.05,
    }
    command = (sys.executable, "-m", "parcel_assets_tests.fake_worker", json.dumps(faults))
    body = world.search(workers=2, engine=lambda: Executioner(folder / "logs", command)).body
    assert body["ended"] == "budget"
    return world


def test_b32_a_trial_that_raises_at_step_5_is_tried_as_often_as_one_that_dies(
    executed: World,
) -> None:
    state = executed.state()
    attempts = state.trials[RAISES].attempts
    assert len(attempts) == executed.plan().search.attempts_per_trial == 2
    assert [one.state for one in attempts] == [AttemptState.FAILED] * 2
    assert [one.ended.reason for one in attempts if one.ended] == ["a loss"] * 2
    assert state.trial_state(RAISES) == TrialState.FAILED


def test_b33_the_retry_of_a_killed_trial_is_not_the_dead_process_s_to_make(
    executed: World,
) -> None:
    first, second = executed.state().trials[KILLED].attempts
    assert (first.state, second.state) == (AttemptState.EXPIRED, AttemptState.COMPLETED)
    assert (first.attempt, second.attempt) == ("parcel-01/1", "parcel-01/2")
    assert first.started.worker_id != second.started.worker_id
    assert first.ended is not None
    assert "its worker was lost" in first.ended.reason
    assert not first.used_up


def test_b35_a_terminated_trial_is_closed_as_lost_and_not_running_for_ever(
    executed: World,
) -> None:
    state = executed.state()
    first, second = state.trials[TERMINATED].attempts
    assert first.ended is not None
    assert (first.state, second.state) == (AttemptState.EXPIRED, AttemptState.COMPLETED)
    assert "its worker was lost" in first.ended.reason
    assert state.open_attempts == ()
    assert state.trials_by_state == {"completed": 2, "failed": 1}


# ---- B34, B37: what is left to do ----------------------------------------------------------------


def test_b34_of_ten_trials_two_cut_off_and_two_never_started_four_run_again(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, search__budget_trials=10, search__batch_trials=10)

    def at_the_eighth(kind: Kind, body: Mapping[str, Any]) -> bool:
        return kind == Kind.ATTEMPT_STARTED and body["subject"] == "parcel-08"

    case.search_until(at_the_eighth)
    before = {one["subject"]: one["attempt"] for one in case.bodies(Kind.ATTEMPT_STARTED)}
    done = {one["subject"] for one in case.bodies(Kind.ATTEMPT_ENDED)}
    assert (len(before), len(done)) == (8, 6)
    case.search()
    again = [one["subject"] for one in case.bodies(Kind.ATTEMPT_STARTED)][8:]
    assert sorted(again) == sorted(({*before} - done) | {"parcel-09", "parcel-10"})
    assert len(again) == 4
    assert case.state.trials_by_state == {"completed": 10}


def test_b37_of_two_planned_one_is_done_and_one_more_runs(tmp_path: Path) -> None:
    case = Case(tmp_path, search__budget_trials=2)
    case.search_until(lambda kind, _body: kind == Kind.ATTEMPT_ENDED, workers=1)
    before = len(case.events)
    case.search(workers=8)
    again = [
        one.body["subject"] for one in case.events[before:] if one.kind == Kind.ATTEMPT_STARTED
    ]
    assert again == ["parcel-02"]
    assert case.state.trials_by_state == {"completed": 2}


# ---- B38: no more signs of life ------------------------------------------------------------------


def test_b38_a_trial_whose_worker_can_no_longer_show_that_it_lives_stops_at_once(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.freeze(small_plan(search__budget_trials=2))
    command = (sys.executable, "-m", "parcel_assets_tests.cases.heartless_worker")
    heartless = [*command, str(tmp_path / "once")]
    body = world.search(workers=1, engine=lambda: LocalEngine(tmp_path / "logs", heartless)).body
    assert body["ended"] == "budget"
    state = world.state()
    first, second = state.trials[1].attempts
    assert first.ended is not None
    assert "can no longer show that it lives" in first.ended.reason
    assert first.last_step < 10, "it did not train to its end"
    assert not first.used_up, "its machine's fault is not the trial's"
    assert second.started.worker_id != first.started.worker_id
    assert state.trials_by_state == {"completed": 2}


# ---- B39: killed after every kind of event -------------------------------------------------------

KINDS = [
    Kind.SEARCH_OPENED,
    Kind.WORKER_ADMITTED,
    Kind.BATCH_OPENED,
    Kind.ATTEMPT_STARTED,
    Kind.MILESTONE_REPORTED,
    Kind.CHECKPOINT_SAVED,
    Kind.ATTEMPT_ENDED,
    Kind.BATCH_CLOSED,
    Kind.SEARCH_ENDED,
    Kind.STAGE_RECORDED,
]


@pytest.mark.parametrize("kind", KINDS)
def test_b39_killed_after_an_event_of_each_kind_the_state_is_that_of_the_ledger(
    tmp_path: Path, quiet: str, kind: Kind
) -> None:
    case = Case(tmp_path, **SIX)
    case.search_until(lambda written, _body: written == kind)
    verify_chain(case.events)
    left = fold_search(case.world.plan(), case.events)
    case.search()
    assert case.table == quiet
    state = case.state
    assert (state.started, state.open_attempts, state.ended) == (6, (), "budget")
    lost = [one.attempt for one in state.attempts.values() if one.state == AttemptState.EXPIRED]
    assert lost == [one.attempt for one in left.open_attempts], "what was open is what was lost"


def test_b39_killed_after_each_single_event_of_a_small_search(tmp_path: Path) -> None:
    calm = Case(tmp_path / "calm", search__budget_trials=2, search__batch_trials=2)
    calm.search()
    count = len(calm.events)
    for place in range(4, count, 3):
        case = Case(tmp_path / str(place), search__budget_trials=2, search__batch_trials=2)
        case.search_until(lambda _kind, _body, c=case, p=place: len(c.events) >= p)  # type: ignore[misc]
        case.search()
        assert case.table == calm.table
        assert case.state.trials_by_state == {"completed": 2}


def test_further_a_retry_trains_what_its_trial_was_proposed(tmp_path: Path) -> None:
    """Where a retry draws anew, one slot holds two configurations and a result of neither."""
    case, script = Case(tmp_path, **SIX), SilentAt(4)
    case.search(script)
    orders = [order for _, order in script.orders if order["subject"] == "parcel-01"]
    assert len(orders) == 2
    assert orders[0]["configuration"] == orders[1]["configuration"]
    assert orders[0]["seed"] == orders[1]["seed"]
    row = case.rows()[0]
    assert (row.configuration, row.seed) == (orders[0]["configuration"], orders[0]["seed"])


def test_further_an_end_that_arrives_twice_and_one_that_overtakes_its_report(
    tmp_path: Path, quiet: str
) -> None:
    class Careless(Script):
        """Everything about the second trial comes twice; the third trial's end comes first."""

        def act(self, engine: CaseEngine, worker: Actor) -> Said:
            attempt, said = worker.attempt, super().act(engine, worker)
            return said * 2 if attempt.startswith("parcel-02") else said

        def say(self, worker: Actor, kind: str, facts: dict[str, Any]) -> None:
            if worker.attempt == "parcel-03/1" and kind == "milestone" and worker.step == 10:
                model = worker.folder / "model.safetensors"
                model.write_bytes(b"early")
                worker.really_say("finished", file=model.name, model=digest_bytes(b"early"))
            worker.really_say(kind, **facts)

    case = Case(tmp_path, **SIX)
    case.search(Careless())
    ends = [one["attempt"] for one in case.bodies(Kind.ATTEMPT_ENDED)]
    assert len(ends) == len(set(ends))
    assert [one.state for one in case.attempts(2)] == [AttemptState.COMPLETED]
    first, second = case.attempts(3)
    assert (first.state, second.state) == (AttemptState.FAILED, AttemptState.COMPLETED)
    assert case.table == quiet
