"""How many trials, and how much time: B20-B28."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.core.errors import PlanError
from parcel_assets.core.ledger import Kind
from parcel_assets.core.plan import Plan
from parcel_assets.core.ports import PastTrial
from parcel_assets.core.space import Scalar
from parcel_assets.core.trial import AttemptState
from parcel_assets_tests.fake_training import FakeSampler
from parcel_assets_tests.search_world import small_plan
from parcel_assets_tests.simulation.theatre import (
    WAYS,
    Actor,
    Case,
    CaseEngine,
    Said,
    Script,
    of_82_steps,
)

BUDGET: dict[str, Any] = {"search__budget_trials": 82, "search__batch_trials": 16}


def require_exactly(case: Case, budget: int) -> None:
    """Every slot was started, none beyond, and each trial was settled by one attempt."""
    state = case.state
    assert (state.started, state.unstarted) == (budget, 0)
    assert sorted(state.trials) == list(range(1, budget + 1))
    subjects = {one["subject"] for one in case.bodies(Kind.ATTEMPT_STARTED)}
    assert len(subjects) == budget
    assert len(case.bodies(Kind.SEARCH_ENDED)) == 1


@pytest.fixture(scope="module")
def of_82(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Return a search of 82 trials over 16 workers that has ended."""
    case = Case(tmp_path_factory.mktemp("budget"), **BUDGET)
    assert case.search(workers=16)["ended"] == "budget"
    return case


def test_b20_sixteen_workers_start_exactly_82_trials(of_82: Case) -> None:
    require_exactly(of_82, 82)
    workers = {one["worker_id"] for one in of_82.bodies(Kind.ATTEMPT_STARTED)}
    assert len(workers) == 16


def test_b21_a_finished_search_of_82_run_again_with_eight_workers_starts_nothing(
    of_82: Case,
) -> None:
    before = of_82.events
    of_82.search(workers=8)
    assert of_82.events == before


def test_b21_a_search_in_which_all_that_may_be_pruned_are_stops_at_82(tmp_path: Path) -> None:
    class EverWorse(Script):
        """Each trial asks for more reviews than all before it: none of them reaches its cut."""

        def alarms(self, worker: Actor) -> int | None:
            return min(worker.number - 1, 14)

    pruning = {"keep_fractions": [0.01, 0.01], "minimum_comparable": 2, "warm_up_trials": 0}
    changes = BUDGET | {"search__batch_trials": 2, "search__lookahead_batches": 1}
    case = Case(tmp_path, **changes, pruning=pruning | {"minimum_rank_correlation": -1.0})
    assert case.search(EverWorse(), workers=8)["ended"] == "budget"
    require_exactly(case, 82)
    # the first batch has nobody to be compared with
    assert case.state.trials_by_state == {"completed": 2, "pruned": 80}


def test_b22_ten_trials_whose_workers_die_before_the_first_report(tmp_path: Path) -> None:
    class DieFirst(Script):
        def act(self, engine: CaseEngine, worker: Actor) -> Said:
            if worker.attempt.endswith("/1") and worker.number <= 10:
                return engine.lose(worker)
            return super().act(engine, worker)

    case = Case(tmp_path, search__budget_trials=20, search__batch_trials=10)
    case.search(DieFirst(), workers=5)
    require_exactly(case, 20)
    state = case.state
    # slots and attempts are two counts; what died used up no trial, and its time is charged
    assert sum(state.trials_by_state.values()) == 20
    assert state.attempts_by_state["expired"] == 10
    assert sum(state.attempts_by_state.values()) == 30
    died = [case.attempt(f"parcel-{number:02d}/1") for number in range(1, 11)]
    assert not any(one.used_up or one.reports for one in died)
    assert all(one.ended is not None and one.ended.charged_seconds > 0 for one in died)
    charges = [one["charged_seconds"] for one in case.bodies(Kind.ATTEMPT_ENDED)]
    assert sum(state.charged_seconds_by_purpose.values()) == pytest.approx(sum(charges))


# ---- time ----------------------------------------------------------------------------------------

HOUR_SECONDS = 3600.0


class FullTime(Script):
    """Trials train for as long as they may."""

    turn_seconds = 60.0

    def act(self, engine: CaseEngine, worker: Actor) -> Said:
        if worker.attempt:
            worker.waits = True
        return super().act(engine, worker)


def one_hour(trial_hours: float, **changes: Any) -> dict[str, Any]:
    """Return a plan whose trials have one accelerator-hour together."""
    seconds = trial_hours * HOUR_SECONDS
    after = small_plan(
        search__trial_seconds_maximum=seconds, search__cap_accelerator_hours=1000.0
    ).after_search_seconds
    hours = (after + HOUR_SECONDS) / HOUR_SECONDS
    return {
        "search__trial_seconds_maximum": seconds,
        "search__cap_accelerator_hours": hours,
        "search__attempts_per_trial": 1,
    } | changes


@pytest.mark.parametrize("workers", [1, 8])
def test_b25_a_trial_that_would_end_after_1_2_hours_of_1_is_not_started(
    tmp_path: Path, workers: int
) -> None:
    case = Case(tmp_path, **one_hour(0.4))
    body = case.search(FullTime(), workers=workers)
    assert body["ended"] == "cap"
    assert (body["started_trials"], body["unstarted_trials"]) == (2, 10)
    assert case.state.charged_seconds_by_purpose == {"search": 0.8 * HOUR_SECONDS}
    assert {one["reason"] for one in case.bodies(Kind.ATTEMPT_ENDED)} == {
        "it reached the limit of 1440 s"
    }
    case.require_cap(HOUR_SECONDS)


def test_b25_a_plan_whose_first_trial_would_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="leaves no room for one trial"):
        Case(tmp_path, **one_hour(1.2))


def test_b27_the_cap_is_reached_while_the_last_trial_fails(tmp_path: Path) -> None:
    class FailsAtTheEnd(FullTime):
        def act(self, engine: CaseEngine, worker: Actor) -> Said:
            if worker.attempt and engine.turn > 20:
                worker.fail()
            return super().act(engine, worker)

    case = Case(tmp_path, **one_hour(0.9, search__budget_trials=2, search__attempts_per_trial=2))
    body = case.search(FailsAtTheEnd(), workers=2)
    assert body["ended"] == "cap"
    assert [one["reason"] for one in case.bodies(Kind.SEARCH_ENDED)] == ["cap"]
    case.require_cap(HOUR_SECONDS)
    before = case.events
    case.search(workers=8)
    assert case.events == before, "it ended once"


# ---- declared limits and invalid proposals -------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["milestone", "checkpoint", "finished"])
def test_b26_a_trial_says_step_83_of_82(tmp_path: Path, way: str, kind: str) -> None:
    class GoesOn(Script):
        def say(self, worker: Actor, said: str, facts: dict[str, Any]) -> None:
            if worker.attempt == "parcel-02/1" and said == kind and worker.step >= 39:
                worker.step = 83
                facts |= {"photos_seen": 83 * 8} if kind == "milestone" else {}
            worker.really_say(said, **facts)

    case = Case(tmp_path, **of_82_steps(way, search__budget_trials=2))
    case.search(GoesOn())
    first, second = case.attempts(2)
    assert (first.state, second.state) == (AttemptState.FAILED, AttemptState.COMPLETED)
    assert first.ended is not None
    assert "step 83 of 82" in first.ended.reason
    assert first.started.worker_id != second.started.worker_id, "its worker was stopped"
    assert first.last_step <= 82


def test_b28_the_fifth_configuration_is_invalid(tmp_path: Path) -> None:
    class Strays(FakeSampler):
        def propose(
            self, plan: Plan, *, seed: int, past: Sequence[PastTrial], count: int
        ) -> list[dict[str, Scalar]]:
            found = super().propose(plan, seed=seed, past=past, count=count)
            if len(past) <= 4 < len(past) + len(found):
                found[4 - len(past)]["width"] = 9999
            return found

    case = Case(tmp_path)
    with pytest.raises(PlanError, match="width = 9999"):
        case.search(sampler=Strays())
    state = case.state
    assert (state.proposed, state.open_attempts, state.ended) == (3, (), None), "it took no slot"
    assert case.search()["ended"] == "budget"
    require_exactly(case, 12)
    for row in case.rows():
        assert row.configuration["width"] in {4, 8, 12, 16}


def test_further_a_frozen_plan_gets_no_second_budget(tmp_path: Path) -> None:
    """Where a study goes on by raising its count, results of two searches become one."""
    from parcel_assets.core.errors import PlanChangedError
    from parcel_assets.core.plan_reader import require_same_plan

    case = Case(tmp_path)
    case.search()
    frozen: Mapping[str, Any] = case.bodies(Kind.PLAN_FROZEN)[0]["plan"]
    for change in ({"search__budget_trials": 20}, {"search__cap_accelerator_hours": 2.0}):
        with pytest.raises(PlanChangedError) as refused:
            require_same_plan(case.revision, frozen, small_plan(**change))
        assert refused.value.facts["field"] == next(iter(change)).replace("__", ".")
        assert "new search revision" in refused.value.remedy
