"""The disposition contract: its precedence, its two examples, its errors and its cost."""

import pickle
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcel_assets.core.disposition import TRIAL_STATES, parcel_search_disposition
from parcel_assets.core.errors import DispositionError


def record(trial_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "trial_id": trial_id,
        "state": "completed",
        "lineage_ok": True,
        "slice_gate_passed": True,
        **fields,
    }


EXAMPLES = [record("parcel-47", slice_gate_passed=False), record("parcel-82")]


class CountingRecord(dict[str, Any]):
    """A record that counts how often a key of any record is read."""

    reads: ClassVar[int] = 0

    def __getitem__(self, key: str) -> Any:
        CountingRecord.reads += 1
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        CountingRecord.reads += 1
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        CountingRecord.reads += 1
        return super().get(key, default)


def test_the_two_example_records() -> None:
    assert parcel_search_disposition(EXAMPLES, 82, "parcel-47") == "hold:slice-quality"
    assert parcel_search_disposition(EXAMPLES, 82, "parcel-82") == "evaluate:final-holdout"


def test_any_iterable_of_mappings_serves() -> None:
    assert parcel_search_disposition(iter(EXAMPLES), 82, "parcel-82") == "evaluate:final-holdout"
    assert (
        parcel_search_disposition(map(MappingProxyType, EXAMPLES), 82, "parcel-82")
        == "evaluate:final-holdout"
    )


@pytest.mark.parametrize("budget", [0, -1, 1])
def test_budget_comes_before_everything_else(budget: int) -> None:
    assert parcel_search_disposition(EXAMPLES, budget, "parcel-47") == "hold:budget"
    assert parcel_search_disposition(EXAMPLES, budget, "nobody") == "hold:budget"


def test_as_many_trials_as_budget_are_within_it() -> None:
    assert parcel_search_disposition(EXAMPLES, 2, "parcel-82") == "evaluate:final-holdout"


@pytest.mark.parametrize("state", sorted(TRIAL_STATES - {"completed"}))
def test_only_completed_trials_win(state: str) -> None:
    trials = [record("parcel-01", state=state, slice_gate_passed=False)]
    assert parcel_search_disposition(trials, 82, "parcel-01") == "hold:invalid-winner"


def test_broken_lineage_comes_before_a_failed_slice() -> None:
    trials = [record("parcel-01", lineage_ok=False, slice_gate_passed=False)]
    assert parcel_search_disposition(trials, 82, "parcel-01") == "hold:invalid-winner"


@pytest.mark.parametrize("selected", ["parcel-99", None])
def test_an_unknown_or_absent_selection_is_an_invalid_winner(selected: str | None) -> None:
    assert parcel_search_disposition(EXAMPLES, 82, selected) == "hold:invalid-winner"
    assert parcel_search_disposition([], 82, selected) == "hold:invalid-winner"


def test_the_slice_flag_is_needed_on_the_selected_trial_only() -> None:
    other = record("parcel-01", slice_gate_passed=None)
    bare = {"trial_id": "parcel-02", "state": "completed", "lineage_ok": True}
    waiting = {"trial_id": "parcel-03", "state": "waiting", "lineage_ok": None}
    trials = [other, bare, waiting, record("parcel-82")]
    assert parcel_search_disposition(trials, 82, "parcel-82") == "evaluate:final-holdout"


@pytest.mark.parametrize(
    ("trials", "where"),
    [
        ([record("a"), record("a")], "trials[1].trial_id"),
        ([record("a"), record("a", state="running")], "trials[1].trial_id"),
        ([record("a", state="finished")], "trial a.state"),
        ([record("a", state=None)], "trial a.state"),
        ([record("a", state=["completed"])], "trial a.state"),
        ([record("")], "trials[0].trial_id"),
        ([{**record("a"), "trial_id": 1}], "trials[0].trial_id"),
        ([{"state": "completed"}], "trials[0]"),
        ([{"trial_id": "a"}], "trial a"),
        ([{"trial_id": "a", "state": "completed", "slice_gate_passed": True}], "trial a"),
        ([{"trial_id": "a", "state": "completed", "lineage_ok": True}], "trial a"),
        ([record("a", slice_gate_passed="yes")], "trial a.slice_gate_passed"),
        ([record("a", slice_gate_passed=1)], "trial a.slice_gate_passed"),
        ([record("a", slice_gate_passed=None)], "trial a.slice_gate_passed"),
        ([record("a", lineage_ok=1)], "trial a.lineage_ok"),
        ([record("a", lineage_ok=None)], "trial a.lineage_ok"),
        ([record("a"), record("b", state="failed", lineage_ok="no")], "trial b.lineage_ok"),
        (["a"], "trials[0]"),
        (record("a"), "trials"),
        ("a", "trials"),
        (None, "trials"),
    ],
)
def test_bad_records_are_refused_where_they_stand(trials: Any, where: str) -> None:
    with pytest.raises(DispositionError) as refusal:
        parcel_search_disposition(trials, 82, "a")
    assert refusal.value.where == where
    assert str(pickle.loads(pickle.dumps(refusal.value))) == str(refusal.value)


@pytest.mark.parametrize("budget", [True, False, 82.0, "82", None])
def test_a_budget_that_is_no_integer_is_refused(budget: Any) -> None:
    with pytest.raises(DispositionError, match="integer budget"):
        parcel_search_disposition(EXAMPLES, budget, "parcel-82")


@pytest.mark.parametrize("selected", [82, b"parcel-82", ["parcel-82"]])
def test_a_selection_that_is_no_id_is_refused(selected: Any) -> None:
    with pytest.raises(DispositionError, match="trial id"):
        parcel_search_disposition(EXAMPLES, 82, selected)


def test_faults_in_every_record_are_found_even_where_the_budget_is_broken() -> None:
    with pytest.raises(DispositionError):
        parcel_search_disposition([record("a"), record("a")], 0, "a")


RECORDS = st.lists(
    st.builds(
        record,
        st.sampled_from([f"parcel-{number:02d}" for number in range(1, 9)]),
        state=st.sampled_from(sorted(TRIAL_STATES)),
        lineage_ok=st.booleans(),
        slice_gate_passed=st.booleans(),
    ),
    unique_by=lambda one: str(one["trial_id"]),
)


@given(RECORDS, st.integers(-1, 9), st.integers(1, 9), st.randoms())
def test_the_answer_is_the_contract_in_any_order(
    trials: list[dict[str, Any]], budget: int, number: int, chance: Any
) -> None:
    selected = f"parcel-{number:02d}"
    eligible = {
        one["trial_id"]: one["slice_gate_passed"]
        for one in trials
        if one["state"] == "completed" and one["lineage_ok"]
    }
    if budget <= 0 or len(trials) > budget:
        expected = "hold:budget"
    elif selected not in eligible:
        expected = "hold:invalid-winner"
    else:
        expected = "evaluate:final-holdout" if eligible[selected] else "hold:slice-quality"
    assert parcel_search_disposition(trials, budget, selected) == expected
    chance.shuffle(trials)
    assert parcel_search_disposition(trials, budget, selected) == expected


def test_a_million_trials_cost_a_constant_number_of_reads_each() -> None:
    per_record = []
    for count in (1_000, 1_000_000):
        CountingRecord.reads = 0
        trials = (CountingRecord(record(str(number))) for number in range(count))
        assert parcel_search_disposition(trials, count, "7") == "evaluate:final-holdout"
        per_record.append(CountingRecord.reads / count)
    assert per_record[1] <= per_record[0] <= 8
