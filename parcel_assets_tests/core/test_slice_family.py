"""What several slices say together: claims of harm among many, shrunken numbers, crossings."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcel_assets.core.errors import EvidenceError
from parcel_assets.core.plan_reader import plan_from_fields
from parcel_assets.core.ports import PartData
from parcel_assets.core.slice_family import holm, judge_together, shrunken_differences
from parcel_assets.core.slice_plan import MinimumSupport, SlicePlan, SliceRule
from parcel_assets.core.slice_report import ScoredModel, judge_slices, slice_photos, slice_rules
from parcel_assets.core.slice_verdict import Outcome, SliceResult
from parcel_assets.core.slices import judge_miss_slice
from parcel_assets.core.statistics import Costs
from parcel_assets_tests.core.plans import plan as small_plan

EVERYTHING = np.ones(200, dtype=np.bool_)


def rule(name: str, role: str = "monitored", **fields: Any) -> SliceRule:
    return SliceRule.model_validate(
        {"name": name, "dimension": "damage_type", "value": name, "role": role, **fields}
    )


def judged(slice_rule: SliceRule, worse: int, better: int = 0) -> SliceResult:
    """Judge 200 damaged photos, so many missed by the candidate alone or the reference alone."""
    candidate, reference = EVERYTHING.copy(), EVERYTHING.copy()
    candidate[:worse] = False
    reference[100 : 100 + better] = False
    return judge_miss_slice(
        slice_rule, candidate, reference, EVERYTHING, np.arange(200), members=EVERYTHING
    )


class TestHolm:
    def test_by_hand(self) -> None:
        # 3 * 0.01, then 2 * 0.02, then 0.03 raised to the one before it
        assert holm({"c": 0.03, "a": 0.01, "b": 0.02}) == {"a": 0.03, "b": 0.04, "c": 0.04}

    def test_no_slice_and_one_slice(self) -> None:
        assert holm({}) == {}
        assert holm({"a": 0.2}) == {"a": 0.2}

    @given(st.dictionaries(st.text(max_size=3), st.floats(0, 1), max_size=12))
    def test_it_never_claims_more_and_keeps_the_order(self, chances: dict[str, float]) -> None:
        adjusted = holm(chances)
        ordered = sorted(chances, key=lambda name: (chances[name], name))
        assert all(chances[name] <= adjusted[name] <= 1 for name in chances)
        assert [adjusted[name] for name in ordered] == sorted(adjusted.values())

    def test_equal_slices_are_rarely_called_harmed(self) -> None:
        generator = np.random.default_rng(12)
        chances = generator.random((4000, 12))
        alone = np.mean((chances < 0.05).any(axis=1))
        together = np.mean(
            [min(holm(dict(enumerate(map(float, one)))).values()) < 0.05 for one in chances]  # type: ignore[arg-type]
        )
        assert alone > 0.4
        assert together <= 0.06


class TestTogether:
    def test_a_claim_that_many_slices_explain_is_withdrawn_but_passes_nothing(self) -> None:
        # 4.5 points worse, below the tolerated five, with a lower bound just above zero
        rules = [rule("seen-worse"), *(rule(f"equal-{n}") for n in range(11))]
        alone = judged(rules[0], worse=13, better=4)
        assert alone.outcome is Outcome.FAIL
        assert alone.harm_chance is not None
        assert 0.05 / 12 < alone.harm_chance < 0.05
        results = judge_together(rules, [alone, *(judged(one, 5, 5) for one in rules[1:])])
        assert results[0].outcome is Outcome.INSUFFICIENT
        assert results[0].harm_chance_adjusted == pytest.approx(12 * alone.harm_chance)
        assert "among so many slices chance is not ruled out" in results[0].sentence
        assert [one.outcome for one in results[1:]] == [Outcome.PASS] * 11

    def test_monitored_slices_do_not_weaken_a_protected_one(self) -> None:
        rules = [rule("corner", "protected"), *(rule(f"equal-{n}") for n in range(11))]
        results = judge_together(
            rules, [judged(rules[0], 13, 4), *(judged(r, 5, 5) for r in rules[1:])]
        )
        assert results[0].outcome is Outcome.FAIL

    def test_slices_without_support_are_no_claims(self) -> None:
        few: dict[str, Any] = {"minimum_damaged_photos": 300}
        rules = [rule("seen-worse"), *(rule(f"few-{n}", **few) for n in range(11))]
        results = judge_together(
            rules, [judged(rules[0], 13, 4), *(judged(r, 5, 5) for r in rules[1:])]
        )
        assert results[0].outcome is Outcome.FAIL

    def test_plain_harm_stays_harm(self) -> None:
        rules = [rule(f"slice-{n}") for n in range(12)]
        results = judge_together(rules, [judged(one, 60) for one in rules])
        assert {one.outcome for one in results} == {Outcome.FAIL}


class TestShrunken:
    def test_values_move_towards_their_mean_and_no_outcome_with_them(self) -> None:
        rules = [rule(f"slice-{n}") for n in range(6)]
        results = judge_together(rules, [judged(one, 2 * n) for n, one in enumerate(rules)])
        before = [one.difference for one in results]
        after = [one.shrunken_difference for one in results]
        assert None not in before
        assert None not in after
        assert np.ptp(np.array(after, dtype=float)) < np.ptp(np.array(before, dtype=float))
        assert sorted(after, key=float) == after  # type: ignore[arg-type]
        assert results[-1].outcome is judged(rules[-1], 10).outcome

    def test_two_slices_do_not_say_how_slices_vary(self) -> None:
        assert shrunken_differences([judged(rule("a"), 1), judged(rule("b"), 9)]) == {}

    def test_a_slice_named_twice_counts_once(self) -> None:
        twin = SliceRule(name="corner", dimension="damage_type", value="s0", role="protected")
        rules = [rule(f"s{n}") for n in range(4)]
        results = [judged(one, 3 * n) for n, one in enumerate(rules)]
        alone = shrunken_differences(results)
        both = shrunken_differences([judged(twin, 0), *results])
        assert both == {**alone, "corner": alone["s0"]}


PART = PartData(
    photo_ids=tuple("abcdef"),
    shipments=("1", "1", "2", "2", "3", "3"),
    pixels=np.zeros((6, 2, 2, 3), np.uint8),
    damaged=np.array([True, True, True, False, False, True]),
    attributes={
        "damage_type": ("corner", "tear", "corner", "", "", "corner"),
        "camera_class": ("top", "top", "side", "top", "side", "top"),
        "site": ("north", "north", "south", "south", "north", "north"),
    },
)
MODEL = ScoredModel(np.array([0.4, 0.9, 0.1, 0.2, 0.8, 0.4], np.float32), 0.5)


def photos_of(one: SlicePlan) -> list[str]:
    (found,) = slice_rules({"one": one}, PART.attributes)
    inside = slice_photos(found, PART.attributes, 6)
    return [photo for photo, flag in zip(PART.photo_ids, inside, strict=True) if flag]


class TestCrossing:
    def test_it_holds_photos_that_have_every_value(self) -> None:
        crossing = SlicePlan(
            dimension="damage_type", value="corner", crossed_with={"camera_class": "top"}
        )
        assert photos_of(crossing) == ["a", "f"]
        narrower = crossing.model_copy(
            update={"crossed_with": {"camera_class": "top", "site": "south"}}
        )
        assert photos_of(narrower) == []

    def test_with_damage_in_it_the_miss_rate_counts_from_either_side(self) -> None:
        top = SlicePlan(
            dimension="camera_class", value="top", crossed_with={"damage_type": "corner"}
        )
        assert top.is_of_damage
        assert photos_of(top) == ["a", "f"]
        rules = slice_rules({"one": top}, PART.attributes)
        (result,) = judge_slices(rules, PART, MODEL, MODEL, Costs(5.0, 1.0))
        assert (result.measure, result.damaged_photos) == ("miss_rate", 2)
        assert result.crossed_with == {"damage_type": "corner"}

    def test_two_kinds_of_place_cost(self) -> None:
        place = SlicePlan(dimension="camera_class", value="top", crossed_with={"site": "north"})
        assert not place.is_of_damage
        assert photos_of(place) == ["a", "b", "f"]

    def test_every_value_may_be_crossed(self) -> None:
        tops = SlicePlan(dimension="damage_type", crossed_with={"camera_class": "top"})
        names = [one.name for one in slice_rules({"tops": tops}, PART.attributes)]
        assert names == ["tops:corner", "tops:tear"]

    def test_a_protected_crossing_that_nobody_is_in_is_an_error(self) -> None:
        empty = SlicePlan(
            dimension="damage_type",
            value="tear",
            crossed_with={"camera_class": "side"},
            role="protected",
        )
        with pytest.raises(EvidenceError, match="no damaged photo"):
            judge_slices(
                slice_rules({"one": empty}, PART.attributes), PART, MODEL, MODEL, Costs(5.0, 1.0)
            )

    def test_a_plan_without_a_crossing_keeps_its_digest_and_one_with_it_has_another(self) -> None:
        plain = small_plan()
        fields = plain.document()
        assert "crossed_with" not in str(fields)
        name = next(iter(fields["slices"]))
        one = fields["slices"][name]
        other = "camera_class" if one["dimension"] != "camera_class" else "damage_type"
        crossed = plan_from_fields(
            {**fields, "slices": {name: {**one, "crossed_with": {other: "top"}}}}
        )
        assert crossed.slices[name].crossed_with == {other: "top"}
        assert crossed.digest != plain.digest
        assert plan_from_fields(crossed.document()).digest == crossed.digest

    def test_a_crossing_with_an_unmapped_column_is_refused(self) -> None:
        fields = small_plan().document()
        name = next(iter(fields["slices"]))
        fields["slices"] = {name: {**fields["slices"][name], "crossed_with": {"belt": "7"}}}
        with pytest.raises(Exception, match=r"slices\..*crossed_with: 'belt' is no mapped column"):
            plan_from_fields(fields)

    def test_support_may_be_asked_of_a_crossing(self) -> None:
        with pytest.raises(ValueError, match="of its own"):
            MinimumSupport(part="validation", crossed_with={"camera_class": "top"})
