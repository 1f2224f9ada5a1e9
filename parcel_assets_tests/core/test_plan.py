"""A plan is read strictly: unknown keys, loose types and unsound caps are refused, all at once."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.core.errors import PlanChangedError, PlanError
from parcel_assets.core.plan_reader import (
    check_revision_key,
    first_difference,
    plan_from_fields,
    read_plan,
    require_same_plan,
)
from parcel_assets_tests.core.plans import fields, plan


def faults_of(**changes: Any) -> dict[str, str]:
    with pytest.raises(PlanError) as caught:
        plan_from_fields(fields(**changes))
    return {one["path"]: one["fault"] for one in caught.value.facts["faults"]}


@pytest.mark.parametrize("cap", [..., 0, -1.0, float("inf"), float("nan"), "10", True])
def test_a_missing_zero_negative_infinite_or_loose_cap_is_refused(cap: Any) -> None:
    assert "search.cap_accelerator_hours" in faults_of(search__cap_accelerator_hours=cap)


@pytest.mark.parametrize("budget", [..., 0, -82, 82.0, "82", True])
def test_a_missing_zero_negative_or_loose_budget_is_refused(budget: Any) -> None:
    assert "search.budget_trials" in faults_of(search__budget_trials=budget)


def test_an_unknown_key_is_refused_with_the_nearest_known_key() -> None:
    faults = faults_of(search__budget_trails=82)
    assert "did you mean 'budget_trials'?" in faults["search.budget_trails"]


def test_an_unknown_key_inside_an_optional_section_names_its_known_keys() -> None:
    faults = faults_of(training__rare_slice={"dimension": "damage_type", "valeu": "dent"})
    assert "did you mean 'value'?" in faults["training.rare_slice.valeu"]


def test_all_faults_are_reported_together_with_their_dotted_paths() -> None:
    faults = faults_of(
        search__budget_trials=0, metric__missed_damage=-1.0, split__kye="x", purpose=...
    )
    assert {"search.budget_trials", "metric.missed_damage", "split.kye", "purpose"} <= set(faults)


def test_a_duplicate_key_is_refused() -> None:
    with pytest.raises(PlanError, match="TOML"):
        read_plan('purpose = "a"\npurpose = "b"\n')


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training__milestones": [9, 27, 81]}, "last milestone must be the last step"),
        ({"training__milestones": [27, 9, 82]}, "must increase"),
        ({"pruning__keep_fractions": [0.5]}, "keep_fractions has 1"),
        ({"split__train": 0.6}, "expected 1"),
        ({"slices__crushed_corner__value": ...}, "names its value"),
        ({"slices__cameras__dimension": "camera_klass"}, "did you mean 'camera_class'?"),
        ({"space__widht": {"kind": "int", "low": 1, "high": 2}}, "did you mean 'width'?"),
        ({"search__cap_accelerator_hours": 0.01}, "no room for one trial"),
        ({"space__width": {"kind": "int", "low": 8, "high": 8}}, "low < high"),
        ({"rerun__seeds": [1]}, "at least 2"),
        ({"rerun__seeds": [101, 102, 101]}, "repeats a seed"),
        ({"slices__crushed_corner__margin_miss_points": 100.0}, "less than 100"),
        ({"split__minimum": [{"part": "holdout", "value": "dent"}]}, "of no dimension"),
        ({"metric__missed_damage": 1e308}, "less than or equal to"),
        ({"search__budget_trials": 10**12}, "less than or equal to"),
        ({"search__cap_accelerator_hours": 1e305}, "less than or equal to"),
        ({"purpose": "to \u202e find"}, "U+202E"),
        ({"purpose": " \n "}, "is blank"),
        ({"metric__unit": "\x1b[31mEUR"}, "U+001B"),
        ({"reference__name": "today\n# Released"}, "U+000A"),
        ({"parent": {"revision": "spring", "reason": "\t"}}, "U+0009"),
    ],
)
def test_an_unsound_plan_is_refused_in_words(changes: dict[str, Any], words: str) -> None:
    assert words in " ".join(faults_of(**changes).values())


def test_a_purpose_may_have_lines() -> None:
    assert plan(purpose="One line.\nAnother.").purpose == "One line.\nAnother."


def test_more_than_six_protected_slices_are_refused() -> None:
    slices = {
        f"s{n}": {"dimension": "damage_type", "value": str(n), "role": "protected"}
        for n in range(7)
    }
    assert "at most 6" in " ".join(faults_of(slices=slices).values())


def test_a_number_in_exponent_notation_is_a_number() -> None:
    text = "\n".join(
        [
            'purpose = "x"',
            "[snapshot]",
            'archive = "a"',
            'location = "b"',
            "[split]",
            'key = "k"',
            "[metric]",
            "missed_damage = 5e0",
            "needless_review = 1e-5",
            "[search]",
            "budget_trials = 82",
            "cap_accelerator_hours = 10",
            "[space.learning_rate]",
            'kind = "float"',
            "low = 1e-5",
            "high = 1e-2",
            "[reference.configuration]",
            "learning_rate = 1e-3",
            "[final]",
            "target_cost_per_1000 = 1000",
        ]
    )
    assert read_plan(text).metric.needless_review == 1e-5


def test_ready_is_outside_the_digest_and_everything_else_inside() -> None:
    assert plan(ready=True).digest == plan().digest
    assert plan(search__seed=8).digest != plan().digest


def test_a_used_revision_refuses_other_content_and_names_the_field() -> None:
    frozen = plan().document()
    require_same_plan("r1", frozen, plan())
    with pytest.raises(PlanChangedError) as caught:
        require_same_plan("r1", frozen, plan(search__budget_trials=83))
    assert caught.value.facts["field"] == "search.budget_trials"


def test_errors_survive_pickling_with_their_fields() -> None:
    with pytest.raises(PlanError) as caught:
        plan_from_fields(fields(search__budget_trials=0))
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.as_fields() == caught.value.as_fields()
    assert str(again) == str(caught.value)


@pytest.mark.parametrize("key", ["", "a/b", "A", "with space", "x\n", "../up", "a" * 64])
def test_a_revision_key_is_a_plain_name(key: str) -> None:
    with pytest.raises(PlanError):
        check_revision_key(key)


def test_the_first_difference_tells_true_from_one() -> None:
    assert first_difference({"a": 1}, {"a": True}) == ("a", 1, True)
    assert first_difference({"a": {"b": 1}}, {"a": {}}) == ("a.b", 1, None)


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("sample-corners-lost", "07852d02e89dd76e9255b56d556e7a70d9cfbc51aacf4853487913812e45b0b3"),
        ("sample-too-few", "23227da02ab3c7675a8853d1d281091ca0c6f1fd8044205f6c9e7e31bfed892d"),
        ("sample-undecided", "6a016d1b468d08b192782c95956157ab977926547f79d4c0c38adb57c9322dee"),
        ("small-kill-test", "0918c79015f01d1623a8e12109e64be992d0d4f80ba8f241b5e93bac993659ed"),
    ],
)
def test_a_new_key_that_a_plan_does_not_use_leaves_its_digest_alone(name: str, digest: str) -> None:
    # a digest that changes with our code would turn every frozen search into another one
    text = (Path(__file__).parents[2] / "data" / "plans" / f"{name}.toml").read_text()
    assert read_plan(text).digest == digest
