"""The table's expectations: a sound table meets all, each planted fault fails the named one."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from parcel_assets.adapters.validator_expectations import ExpectationsValidator, trivial_bound
from parcel_assets.core.codec import digest_value
from parcel_assets.core.plan import Plan
from parcel_assets.core.trial import TrialRow, TrialState, trial_id_of, trial_seed
from parcel_assets_tests.adapters.plan_helpers import plan_of

Rows = list[dict[str, Any]]
PLAN = plan_of()


def sound_rows(plan: Plan = PLAN) -> Rows:
    return [sound_row(number, plan) for number in range(1, plan.search.budget_trials + 1)]


def sound_row(number: int, plan: Plan) -> dict[str, Any]:
    state = {0: TrialState.PRUNED, 11: TrialState.FAILED}.get(number % 12, TrialState.COMPLETED)
    completed = state == TrialState.COMPLETED
    steps = {TrialState.COMPLETED: (9, 27, 82), TrialState.PRUNED: (9,)}.get(state, ())
    costs: dict[str, float | None] = {str(step): 700.0 - step - number for step in steps}
    return TrialRow(
        number=number,
        trial_id=trial_id_of(number),
        seed=trial_seed(plan.search.seed, number),
        configuration={"learning_rate": 1e-3 * (1 + number % 5), "width": 4 * (1 + number % 4)},
        state=state,
        costs=costs,
        final_cost_per_1000=costs["82"] if completed else None,
        threshold=0.3 if completed else None,
        scores=digest_value(number) if completed else None,
        lineage_ok=True,
    ).document()


def failed(rows: Rows) -> dict[str, dict[str, Any]]:
    results = ExpectationsValidator().validate(rows, PLAN)
    return {one["name"]: one for one in results if not one["passed"]}


def test_a_sound_table_meets_every_expectation() -> None:
    results = ExpectationsValidator().validate(sound_rows(), PLAN)
    assert len(results) >= 14
    assert len({one["name"] for one in results}) == len(results)
    assert [one["name"] for one in results if not one["passed"]] == []
    assert all(one["sentence"].endswith(".") and one["unexpected"] == [] for one in results)


def test_a_search_that_ended_at_its_cap_has_waiting_slots() -> None:
    rows = sound_rows()
    rows[81] |= {"state": "waiting", "configuration": {}, "costs": {}} | NO_RESULT
    assert failed(rows) == {}


NO_RESULT = {"final_cost_per_1000": None, "threshold": None, "scores": None}


def change(**fields: Any) -> Callable[[Rows], None]:
    """Return a fault planted in the first row, which is a completed trial."""
    return lambda rows: rows[0].update(fields)


FAULTS: list[tuple[str, Callable[[Rows], object]]] = [
    ("one_row_per_slot", lambda rows: rows.pop()),
    ("numbers_unique", lambda rows: rows[0].update(rows[1])),
    ("numbers_within_budget", change(number=83)),
    ("ids_match_numbers", change(trial_id="parcel-40")),
    ("seeds_unique", lambda rows: rows[0].update(seed=rows[4]["seed"])),
    ("seeds_derived", change(seed=12345)),
    ("states_known", change(state="abandoned")),
    ("nothing_running", change(state="running", **NO_RESULT)),
    ("completed_has_final_cost", change(final_cost_per_1000=None)),
    ("completed_has_final_cost", change(final_cost_per_1000=float("nan"))),
    ("only_completed_has_final", change(state="failed")),
    ("threshold_in_unit_interval", change(threshold=1.2)),
    ("threshold_present", change(threshold=None)),
    ("scores_digest", change(scores="0" * 63 + "G")),
    ("scores_present", change(scores=None)),
    ("cost_at_9_plausible", lambda rows: rows[0]["costs"].update({"9": -1.0})),
    ("cost_at_27_plausible", lambda rows: rows[0]["costs"].update({"27": float("nan")})),
    ("cost_at_82_plausible", lambda rows: rows[0]["costs"].update({"82": 834.0})),
    ("final_cost_is_last_milestone", change(final_cost_per_1000=17.0)),
    ("milestones_exact", lambda rows: rows[0]["costs"].update({"39": 500.0})),
    ("milestones_exact", lambda rows: rows[0]["costs"].pop("27")),
    ("milestones_exact", lambda rows: rows[11]["costs"].clear()),
    ("configuration_in_space", change(configuration={"learning_rate": 1e-3, "width": 5})),
    ("configuration_in_space", change(configuration={"learning_rate": 1e-3})),
    ("configuration_in_space", change(configuration={})),
    ("completed_lineage_intact", change(lineage_ok=False)),
]


@pytest.mark.parametrize(("name", "plant"), FAULTS, ids=[name for name, _ in FAULTS])
def test_a_planted_fault_fails_the_named_expectation(
    name: str, plant: Callable[[Rows], object]
) -> None:
    rows = sound_rows()
    plant(rows)
    assert name in failed(rows)


def test_a_failed_expectation_says_where_and_what() -> None:
    rows = sound_rows()
    rows[2]["state"] = "abandoned"
    result = failed(rows)["states_known"]
    assert result["unexpected"] == ["parcel-03: abandoned"]
    assert result["sentence"].startswith("Not so: Every state is one of")
    assert result["sentence"].endswith("1 of 82 rows differ.")


def test_a_single_fault_fails_little_else() -> None:
    rows = sound_rows()
    rows[0]["lineage_ok"] = False
    assert list(failed(rows)) == ["completed_lineage_intact"]


def test_unexpected_rows_are_listed_up_to_a_limit() -> None:
    plan = plan_of(budget_trials=300)
    rows = sound_rows(plan)
    for row in rows:
        row["seed"] = 5
    results = {one["name"]: one for one in ExpectationsValidator().validate(rows, plan)}
    assert len(results["seeds_derived"]["unexpected"]) == 200
    assert "300 of 300" in results["seeds_derived"]["sentence"]


@pytest.mark.parametrize("rows", [[], [{}], [{"number": "one", "state": None, "costs": None}]])
def test_rows_that_are_none_of_ours_fail_and_do_not_crash(rows: Rows) -> None:
    assert "one_row_per_slot" in failed(rows)


def test_the_trivial_bound_is_reached_where_both_policies_cost_the_same() -> None:
    share = 1 / 6  # damaged, at costs 5 and 1
    assert trivial_bound(PLAN) == pytest.approx(1000 * min(5 * share, 1 - share))


def test_the_library_is_not_imported_with_the_adapter() -> None:
    code = (
        "import sys, parcel_assets.adapters.validator_expectations;"
        "assert 'great_expectations' not in sys.modules and 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    ExpectationsValidator().validate(sound_rows(), PLAN)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""
