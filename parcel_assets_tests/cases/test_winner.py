"""Who wins: B42-B46, B60."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parcel_assets.core.errors import AdmissionError
from parcel_assets.core.evidence import RerunBody
from parcel_assets.core.ledger import Kind
from parcel_assets.core.ports import Scores
from parcel_assets.core.selection import choose, rank_trials
from parcel_assets.core.trial import AttemptState, TrialState
from parcel_assets.steps import selection
from parcel_assets.steps.selection import report_slices, rerun_selected
from parcel_assets.steps.table import validate_table
from parcel_assets_tests.simulation.theatre import (
    Actor,
    Case,
    CaseEngine,
    FadesLater,
    Said,
    Script,
    pruning,
)
from parcel_assets_tests.steps.desk import desk_plan, make_desk


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_b42_one_of_ten_has_no_number_for_a_score(tmp_path: Path, value: float) -> None:
    class Diverges(Script):
        """One photo's score of the fourth trial is no number at the end."""

        def scores(self, worker: Actor) -> Scores | None:
            found = super().scores(worker)
            assert found is not None
            if worker.number == 4 and worker.step == 10:
                found[0] = value
            return found

        def alarms(self, worker: Actor) -> int | None:
            return 0 if worker.number == 4 else worker.number

    case = Case(tmp_path, search__budget_trials=10, search__batch_trials=10)
    case.search(Diverges())
    assert case.state.trial_state(4) == TrialState.FAILED
    rows = {row.number: row for row in case.rows()}
    assert rows[4].final_cost_per_1000 is None
    assert rows[4].costs["10"] is None, "it is listed, as what it is"
    reasons = {one["reason"] for one in case.bodies(Kind.ATTEMPT_ENDED) if one["reason"]}
    assert reasons == {"the scores give no finite cost"}
    assert [row.number for row in rank_trials(case.rows())] == [1, 2, 3, 5, 6, 7, 8, 9, 10]
    assert case.state.best_trial == "parcel-01"


def test_b44_a_pruned_trial_with_the_best_value_is_best_nowhere(tmp_path: Path) -> None:
    told: list[tuple[Any, Any]] = []

    def hear(kind: str, facts: Mapping[str, Any]) -> None:
        if kind == "progress":
            told.append((facts["best_trial"], facts["best_cost_per_1000"]))

    case = Case(
        tmp_path,
        search__budget_trials=6,
        search__batch_trials=2,
        **pruning(keep_fractions=[1.0, 0.5]),
    )
    script = FadesLater(5)
    script.turn_seconds = 1.0
    body = case.search(script, notify=hear)
    rows = {row.number: row for row in case.rows()}
    assert rows[5].state == rows[6].state == TrialState.PRUNED
    best = rows[1].final_cost_per_1000
    early = rows[5].costs["5"]
    assert early is not None
    assert best is not None
    assert early < best, "else nothing is tried"
    chosen = choose(case.rows(), case.table, case.revision)
    assert chosen.trial == "parcel-01"
    assert not {"parcel-05", "parcel-06"} & set(chosen.ranking)
    assert (body["best_trial"], body["best_cost_per_1000"]) == ("parcel-01", best)
    assert (case.state.best_trial, case.state.best_cost_per_1000) == ("parcel-01", best)
    assert {trial for trial, _ in told} <= {None, "parcel-01", "parcel-02"}
    assert told[-1] == ("parcel-01", best)


def test_b46_a_worker_ends_well_and_has_reported_nothing(tmp_path: Path) -> None:
    class SaysOnlyTheEnd(Script):
        """The first trial's first worker hands in weights and no report; the second's just goes."""

        def act(self, engine: CaseEngine, worker: Actor) -> Said:
            if worker.attempt == "parcel-01/1":
                worker.step = 10
                worker._finish()
            if worker.attempt == "parcel-02/1":
                return engine.lose(worker, "its process ended (exit status 0)")
            return super().act(engine, worker)

    case = Case(tmp_path, search__budget_trials=2)
    assert case.search(SaysOnlyTheEnd())["ended"] == "budget"
    empty, _ = case.attempts(1)
    gone, _ = case.attempts(2)
    assert empty.ended is not None
    assert (empty.state, gone.state) == (AttemptState.FAILED, AttemptState.EXPIRED)
    assert "without that step's report" in empty.ended.reason
    assert empty.ended.model is None
    assert case.state.trials_by_state == {"completed": 2}


def test_b60_a_winner_whose_reruns_spread_more_than_the_plan_allows_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = {"seeds": [101, 102, 103], "maximum_instability": 0.01}
    desk = make_desk(tmp_path, plan=desk_plan(rerun=seeds))
    monkeypatch.setattr(selection, "run_tasks", desk.run_tasks)
    validate_table(desk.revision, desk.ports)
    body = RerunBody.model_validate(rerun_selected(desk.revision, desk.ports).body)
    costs = [one.cost_per_1000 for one in body.extra]
    assert float(np.std(costs, ddof=1)) > 0.01 * float(np.mean(costs)), "else nothing is tried"
    assert body.scores_equal, "with its own seed it repeats"
    with pytest.raises(AdmissionError, match="unstable over seeds") as refused:
        report_slices(desk.revision, desk.ports)
    assert refused.value.facts["hold"] == "hold:rerun"
    assert refused.value.facts["gate"] == "stable_over_seeds"


def test_further_equal_costs_go_to_the_lower_number_whoever_ended_first(tmp_path: Path) -> None:
    """Where the first found wins, the same results read in another order name another best."""

    class SlowFirst(Script):
        """All are equally good; the lower its number, the later a trial ends."""

        def alarms(self, worker: Actor) -> int | None:
            return 3

        def act(self, engine: CaseEngine, worker: Actor) -> Said:
            waits = worker.attempt and engine.turn % (4 - worker.number % 3) != 0
            return [] if waits else super().act(engine, worker)

    case = Case(tmp_path, search__budget_trials=3)
    case.search(SlowFirst(), workers=3)
    ends = [one["subject"] for one in case.bodies(Kind.ATTEMPT_ENDED)]
    assert ends[0] != "parcel-01", "else nothing is tried"
    assert len({row.final_cost_per_1000 for row in case.rows()}) == 1
    assert [row.number for row in rank_trials(case.rows())] == [1, 2, 3]
    assert case.state.best_trial == "parcel-01"


def test_further_the_hundredth_trial_is_not_ranked_as_text(tmp_path: Path) -> None:
    """`parcel-100` comes before `parcel-99` in the alphabet, and nowhere else."""

    class AllEqual(Script):
        def alarms(self, worker: Actor) -> int | None:
            return 5 if worker.number < 99 else 3

    short = {"steps": 1, "milestones": [1], "batch_photos": 8, "checkpoint_every_steps": 3}
    budget: dict[str, Any] = {"search__budget_trials": 101, "search__batch_trials": 50}
    case = Case(tmp_path, training=short, **pruning(keep_fractions=[]), **budget)
    case.search(AllEqual(), workers=4)
    ranked = [row.trial_id for row in rank_trials(case.rows())]
    assert ranked[:3] == ["parcel-99", "parcel-100", "parcel-101"]
    assert case.state.best_trial == "parcel-99"
    assert [row.number for row in case.rows()] == list(range(1, 102))
