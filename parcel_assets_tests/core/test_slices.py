"""When a slice passes, fails or says too little, in numbers and in words."""

import json
import math
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError
from scipy import stats

from parcel_assets.core.errors import EvidenceError, ParcelAssetsError
from parcel_assets.core.rates import effective_size, upper_rate_bound
from parcel_assets.core.slice_plan import SlicePlan, SliceRule
from parcel_assets.core.slice_verdict import Outcome, SliceResult
from parcel_assets.core.slices import judge_cost_slice, judge_miss_slice
from parcel_assets.core.statistics import Costs

COSTS = Costs(missed_damage=20.0, needless_review=1.0)
Role = Literal["protected", "monitored"]


def rule(role: Role = "protected", **fields: Any) -> SliceRule:
    asked = {"dimension": "damage_type", "value": "crushed_corner", "role": role}
    return SliceRule(name="crushed_corner", **(asked | fields))


def without_floor(**fields: Any) -> SliceRule:
    return rule(minimum_shipments=2, minimum_damaged_photos=1, minimum_effective_photos=1, **fields)


def misses(count: int, photos: int) -> NDArray[np.bool_]:
    """Return review decisions of damaged photos with that many misses, spread evenly."""
    review = np.ones(photos, dtype=bool)
    review[np.linspace(0, photos, count, endpoint=False, dtype=int)] = False
    return review


def judge(slice_rule: SliceRule, candidate: Any, reference: Any, shipments: Any) -> SliceResult:
    """Judge a slice in which every photo is damaged."""
    everything = np.ones(len(candidate), dtype=bool)
    return judge_miss_slice(
        slice_rule, candidate, reference, everything, shipments, members=everything
    )


class TestWords:
    def scarce(self, role: Role) -> SliceResult:
        shipments = np.r_[np.arange(22), np.arange(9)]
        return judge(rule(role), misses(5, 31), misses(3, 31), shipments)

    def test_too_little_evidence_holds_a_protected_slice(self) -> None:
        result = self.scarce("protected")
        assert result.lower is not None
        assert result.upper is not None
        interval = f"{math.floor(result.lower):+d} to {math.ceil(result.upper):+d} pp"
        assert result.sentence.startswith(
            "crushed_corner: 22 shipments, 31 damaged photos. Not enough evidence to say it is "
            f"no worse ({interval}): 22 shipments, at least 30 asked; 31 damaged photos, at least "
            "60 asked"
        )
        assert result.sentence.endswith(" Held.")
        assert result.outcome is Outcome.INSUFFICIENT
        assert not result.passed
        assert result.reasons[:2] == (
            "22 shipments, at least 30 asked",
            "31 damaged photos, at least 60 asked",
        )

    def test_too_little_evidence_that_was_seen_worse_does_not_read_as_unknown(self) -> None:
        result = judge(rule(), misses(20, 40), misses(0, 40), np.arange(40))
        assert result.lower is not None
        assert result.lower > 0
        assert "to say it is no worse, and seen worse (+" in result.sentence
        assert result.sentence.endswith("pp): 40 damaged photos, at least 60 asked. Held.")

    def test_a_monitored_slice_says_so_without_holding(self) -> None:
        result = self.scarce("monitored")
        assert result.outcome is Outcome.INSUFFICIENT
        assert "Not enough evidence to say it is no worse" in result.sentence
        assert "Held" not in result.sentence

    def test_pass_and_fail(self) -> None:
        passed = judge(rule(), misses(6, 120), misses(6, 120), np.arange(120))
        assert passed.sentence == (
            "crushed_corner: 120 shipments, 120 damaged photos. No worse within the margin of "
            "10.0 pp (-2 to +2 pp). Passed."
        )
        failed = judge(rule(), misses(60, 120), misses(0, 120), np.arange(120))
        assert "Worse than the reference by 50.0 pp (+42 to +58 pp). Held." in failed.sentence

    def test_one_shipment_is_never_enough(self) -> None:
        one = judge(without_floor(), [True, False], [True, True], ["a", "a"])
        assert one.outcome is Outcome.INSUFFICIENT
        assert one.sentence == (
            "crushed_corner: 1 shipment, 2 damaged photos. Not enough evidence to say it is no "
            "worse (one shipment gives no interval): 1 shipment, at least 2 asked. Held."
        )
        assert (one.lower, one.upper, one.miss_rate_upper_bound) == (None, None, 1)

    @given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.booleans()), min_size=1))
    def test_no_outcome_speaks_of_no_difference(self, photos: list[tuple[int, bool, bool]]) -> None:
        shipments, candidate, reference = zip(*photos, strict=True)
        for role in ("protected", "monitored"):
            result = judge(rule(role), candidate, reference, shipments)
            assert "difference" not in result.sentence
            assert ("Held." in result.sentence) is (role == "protected" and not result.passed)
            assert json.loads(json.dumps(result.as_document())) == result.as_document()
            assert result.as_document()["outcome"] == result.outcome.value


class TestMissSlice:
    def test_only_damaged_members_count(self) -> None:
        members = np.arange(200) < 150
        damaged = np.arange(200) % 2 == 0
        candidate, reference = np.ones(200, dtype=bool), np.ones(200, dtype=bool)
        candidate[[1, 3, 160]] = False  # intact ones, and one outside the slice
        result = judge_miss_slice(
            rule(), candidate, reference, damaged, np.arange(200), members=members
        )
        assert (result.difference, result.candidate, result.damaged_photos) == (0, 0, 75)
        assert (result.shipments, result.photos) == (75, 75)
        assert result.outcome is Outcome.PASS

    def test_the_interval_by_hand(self) -> None:
        reference = np.ones(120, dtype=bool)
        result = judge(rule(), misses(3, 120), reference, np.arange(120))
        # three discordant photos of 120 plus one pair each way
        variance = 120 / 119 * (3 - 120 * 0.025**2) + 2
        reach = stats.t.ppf(0.95, 119) * math.sqrt(variance) / 120
        assert result.difference == pytest.approx(2.5)
        assert result.upper == pytest.approx(100 * (0.025 + reach))
        assert result.lower == pytest.approx(100 * (0.025 - reach))
        # one-sided, as the bounds are: below 5 % exactly where the lower bound is above zero
        chance = stats.t.sf(0.025 / (math.sqrt(variance) / 120), 119)
        assert result.harm_chance == pytest.approx(chance)
        assert result.outcome is Outcome.PASS

    def test_the_floor_comes_before_any_point_estimate(self) -> None:
        terrible, perfect = np.zeros(59, dtype=bool), np.ones(59, dtype=bool)
        for candidate, reference in ((terrible, perfect), (perfect, terrible)):
            result = judge(rule(), candidate, reference, np.arange(59))
            assert result.outcome is Outcome.INSUFFICIENT
            assert result.reasons == ("59 damaged photos, at least 60 asked",)

    def test_frames_of_few_shipments_are_worth_few(self) -> None:
        even = judge(rule(), np.ones(120, bool), np.ones(120, bool), np.repeat(np.arange(40), 3))
        assert even.effective_photos == pytest.approx(40)
        # one shipment holds two thirds of the photos
        huge = np.r_[np.zeros(80, dtype=int), np.arange(1, 41)]
        skewed = judge(rule(), np.ones(120, bool), np.ones(120, bool), huge)
        assert skewed.effective_photos == pytest.approx(120**2 / (80**2 + 40))
        assert skewed.outcome is Outcome.INSUFFICIENT
        assert "effective damaged photos" in skewed.reasons[0]

    @pytest.mark.parametrize(
        ("more", "outcome"),
        [(0, Outcome.PASS), (4, Outcome.PASS), (11, Outcome.FAIL), (200, Outcome.FAIL)],
    )
    def test_more_misses_never_help(self, more: int, outcome: Outcome) -> None:
        candidate, reference = np.ones(200, dtype=bool), np.ones(200, dtype=bool)
        candidate[:more] = False
        assert judge(rule(), candidate, reference, np.arange(200)).outcome is outcome

    @pytest.mark.parametrize(("worse", "outcome"), [(50, Outcome.INSUFFICIENT), (51, Outcome.FAIL)])
    def test_five_points_are_the_most_a_point_estimate_may_show(
        self, worse: int, outcome: Outcome
    ) -> None:
        # 200 photos: 40 are missed by the reference alone, so that the interval reaches zero
        candidate, reference = np.ones(200, dtype=bool), np.ones(200, dtype=bool)
        candidate[:worse] = False
        reference[100:140] = False
        result = judge(rule(), candidate, reference, np.arange(200))
        assert result.lower is not None
        assert result.lower < 0
        assert result.outcome is outcome

    def test_all_missed_by_both_passes_the_comparison_but_not_an_absolute_limit(self) -> None:
        blind = np.zeros(120, dtype=bool)
        assert judge(rule(), blind, blind, np.arange(120)).outcome is Outcome.PASS
        limited = judge(rule(absolute_miss_rate_limit=0.2), blind, blind, np.arange(120))
        assert limited.outcome is Outcome.FAIL
        assert "Misses 100.0% of damage, more than the limit of 20.0%. Held." in limited.sentence

    def test_without_a_reference_and_without_a_limit_nothing_passes(self) -> None:
        perfect = np.ones(120, dtype=bool)
        result = judge(rule(), perfect, None, np.arange(120))
        assert result.outcome is Outcome.INSUFFICIENT
        assert result.reasons == ("no reference, and no absolute limit in the plan",)
        assert "there is no reference to compare with" in result.sentence
        limited = judge(rule(absolute_miss_rate_limit=0.05), perfect, None, np.arange(120))
        assert limited.outcome is Outcome.PASS
        assert "Misses at most 2.5% of damage. Passed." in limited.sentence

    def test_an_absolute_limit_must_be_shown_not_just_met(self) -> None:
        six = misses(6, 120)
        result = judge(rule(absolute_miss_rate_limit=0.06), six, six, np.arange(120))
        assert (result.miss_rate, result.outcome) == (0.05, Outcome.INSUFFICIENT)
        assert "Not enough evidence to say it misses at most 6.0%" in result.sentence
        assert judge(rule(absolute_miss_rate_limit=0.1), six, six, np.arange(120)).passed

    @given(st.integers(0, 2**32), st.integers(20, 80))
    def test_one_miss_more_never_looks_better(self, seed: int, photos: int) -> None:
        generator = np.random.default_rng(seed)
        candidate, reference = generator.random((2, photos)) < 0.7
        caught = np.flatnonzero(candidate)
        shipments = generator.integers(0, 12, photos)
        worse = candidate.copy()
        worse[caught[:1]] = False
        before, after = (
            judge(without_floor(), one, reference, shipments) for one in (candidate, worse)
        )
        assert before.difference is not None
        assert after.difference is not None
        assert after.difference >= before.difference
        assert (after.miss_rate or 0) >= (before.miss_rate or 0)

    @given(st.integers(0, 2**32), st.integers(20, 80))
    def test_the_names_and_order_of_shipments_change_nothing(self, seed: int, photos: int) -> None:
        generator = np.random.default_rng(seed)
        candidate, reference = generator.random((2, photos)) < 0.7
        shipments = generator.integers(0, 12, photos)
        renamed = generator.permutation(12)[shipments]
        first, again = (
            judge(without_floor(), candidate, reference, one) for one in (shipments, renamed)
        )
        assert first.outcome is again.outcome
        assert first.upper == pytest.approx(again.upper)

    def test_one_huge_shipment_decides_nothing_alone(self) -> None:
        shipments = np.r_[np.zeros(10_000, dtype=int), np.arange(1, 41)]
        candidate = np.ones(10_040, dtype=bool)
        reference = np.r_[np.zeros(10_000, dtype=bool), np.ones(40, dtype=bool)]
        assert judge(rule(), candidate, reference, shipments).outcome is Outcome.INSUFFICIENT

    @given(st.integers(0, 2**32), st.integers(20, 80))
    def test_the_order_of_photos_changes_nothing(self, seed: int, photos: int) -> None:
        generator = np.random.default_rng(seed)
        candidate, reference, damaged, members = generator.random((4, photos)) < 0.7
        shipments = generator.integers(0, 12, photos)
        order = generator.permutation(photos)
        results = [
            judge_miss_slice(
                rule("monitored"),
                candidate[rows],
                reference[rows],
                damaged[rows],
                shipments[rows],
                members=members[rows],
                allow_no_damage=True,
            )
            for rows in (np.arange(photos), order)
        ]
        assert results[0] == results[1]


class TestCostSlice:
    def cost(self, candidate: Any, reference: Any, damaged: Any, **fields: Any) -> SliceResult:
        everything = np.ones(len(damaged), dtype=bool)
        return judge_cost_slice(
            rule(**fields),
            candidate,
            reference,
            damaged,
            np.arange(len(damaged)),
            members=everything,
            costs=COSTS,
        )

    def test_the_margin_is_a_tenth_of_the_reference(self) -> None:
        damaged = np.arange(4000) % 4 == 0
        reference = ~damaged  # everything wrong: 1000 misses and 3000 needless reviews
        result = self.cost(reference, reference, damaged)
        assert result.reference == 1000 * (20_000 + 3000) / 4000
        assert result.margin == pytest.approx(575)
        assert result.fail_above == pytest.approx(287.5)
        assert result.outcome is Outcome.PASS
        assert (result.shipments, result.damaged_photos) == (4000, 1000)
        assert "cost per 1,000 photos" in result.sentence

    def test_needless_reviews_alone_can_fail_it(self) -> None:
        damaged = np.arange(4000) % 4 == 0
        reference = damaged.copy()
        reference[np.flatnonzero(damaged)[:50]] = False
        candidate = reference | (np.arange(4000) % 4 == 1)
        result = self.cost(candidate, reference, damaged)
        assert (result.reference, result.candidate) == (250, 500)
        assert (result.margin, result.fail_above) == (25, 12.5)  # of the reference, not of itself
        assert result.outcome is Outcome.FAIL

    def test_a_free_reference_cannot_be_matched_with_certainty(self) -> None:
        damaged = np.arange(400) % 4 == 0
        result = self.cost(damaged, damaged, damaged)
        assert (result.margin, result.difference) == (0, 0)
        assert result.outcome is Outcome.INSUFFICIENT


class TestNoDamage:
    def judge(self, measure: str, role: Role, allowed: bool, members: int = 40) -> SliceResult:
        review, damaged = np.ones(50, dtype=bool), np.arange(50) >= 40
        inside = np.arange(50) < members
        shipments = np.arange(50)
        if measure == "cost":
            return judge_cost_slice(
                rule(role),
                review,
                review,
                damaged,
                shipments,
                members=inside,
                costs=COSTS,
                allow_no_damage=allowed,
            )
        return judge_miss_slice(
            rule(role),
            review,
            review,
            damaged,
            shipments,
            members=inside,
            allow_no_damage=allowed,
        )

    @pytest.mark.parametrize("measure", ["cost", "miss_rate"])
    @pytest.mark.parametrize(
        ("role", "allowed"), [("protected", True), ("protected", False), ("monitored", False)]
    )
    def test_it_is_an_error(self, measure: str, role: Role, allowed: bool) -> None:
        with pytest.raises(ParcelAssetsError, match="no damaged photo") as refusal:
            self.judge(measure, role, allowed)
        assert isinstance(refusal.value, EvidenceError)
        assert refusal.value.facts == {"slice": "crushed_corner"}

    @pytest.mark.parametrize("measure", ["cost", "miss_rate"])
    @pytest.mark.parametrize("members", [40, 0])
    def test_a_monitored_slice_may_say_it_in_words(self, measure: str, members: int) -> None:
        result = self.judge(measure, "monitored", allowed=True, members=members)
        assert result.outcome is Outcome.INSUFFICIENT
        assert (result.difference, result.candidate, result.miss_rate) == (None, None, None)
        assert result.sentence.endswith(
            "0 damaged photos. Not enough evidence to say it is no worse "
            "(no damaged photo, so no miss could show)."
        )
        assert json.loads(json.dumps(result.as_document())) == result.as_document()


class TestEffectiveSize:
    def test_independent_photos_count_in_full(self) -> None:
        size = effective_size(misses(10, 100), np.arange(100))
        assert size.effective_photos == pytest.approx(99, abs=1.5)

    def test_frames_that_always_agree_count_once_for_each_shipment(self) -> None:
        size = effective_size(np.repeat(misses(10, 100), 4), np.repeat(np.arange(100), 4))
        assert size.design_effect == pytest.approx(4, rel=0.02)
        assert size.effective_photos == pytest.approx(100, rel=0.02)

    @pytest.mark.parametrize(
        ("photos", "bound"), [(10, 0.26), (30, 0.095), (59, 0.05), (100, 0.03), (300, 0.01)]
    )
    def test_no_hit_at_all_still_leaves_a_bound(self, photos: int, bound: float) -> None:
        size = effective_size(np.zeros(photos, dtype=bool), np.arange(photos))
        assert upper_rate_bound(size) == pytest.approx(1 - 0.05 ** (1 / photos))
        assert upper_rate_bound(size) == pytest.approx(bound, abs=0.005)

    def test_every_hit_bounds_nothing(self) -> None:
        assert upper_rate_bound(effective_size(np.ones(9, dtype=bool), np.arange(9))) == 1

    @given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1))
    def test_it_stays_between_nothing_and_all_photos(self, photos: list[tuple[int, bool]]) -> None:
        shipments, hits = zip(*photos, strict=True)
        size = effective_size(hits, shipments)
        assert 0 < size.effective_photos <= size.photos
        assert size.rate <= upper_rate_bound(size) <= 1


class TestRule:
    @pytest.mark.parametrize(
        ("fields", "fault"),
        [
            ({"fail_miss_points": 11.0}, "above margin_miss_points"),
            ({"fail_miss_points": 0.0}, "greater than 0"),
            ({"margin_miss_points": math.inf}, "finite"),
            ({"margin_cost_fraction": 0.0}, "greater than 0"),
            ({"absolute_miss_rate_limit": 0.0}, "greater than 0"),
            ({"absolute_miss_rate_limit": 1.0}, "less than 1"),
            ({"role": "watched"}, "protected"),
            ({"crossed_with": {"damage_type": "dent"}}, "not among them"),
        ],
    )
    def test_a_slice_that_cannot_judge_is_refused_in_the_plan(
        self, fields: dict[str, Any], fault: str
    ) -> None:
        with pytest.raises(ValidationError, match=fault):
            SlicePlan.model_validate({"dimension": "damage_type", "value": "dent"} | fields)


def correlated_misses(
    generator: np.random.Generator, shipments: NDArray[np.intp], rates: tuple[float, float]
) -> list[NDArray[np.bool_]]:
    """Return two models' decisions: errors correlated 0.7, of which 0.15 by shipment."""
    shared = math.sqrt(0.15) * generator.normal(size=shipments.max() + 1)[shipments]
    shared += math.sqrt(0.55) * generator.normal(size=len(shipments))
    return [
        shared + math.sqrt(0.3) * generator.normal(size=len(shipments)) <= stats.norm.isf(rate)
        for rate in rates
    ]


@pytest.mark.parametrize(("shipments", "equal_passes"), [(60, 0.65), (120, 0.88)])
def test_ten_points_worse_rarely_pass_and_equals_mostly_do(
    shipments: int, equal_passes: float
) -> None:
    generator = np.random.default_rng(shipments)
    passes = []
    for rates in ((0.25, 0.15), (0.15, 0.15)):
        outcomes = []
        for _ in range(800):
            sizes = 1 + (generator.random(shipments) < 0.5)
            codes = np.repeat(np.arange(shipments), sizes)
            candidate, reference = correlated_misses(generator, codes, rates)
            outcomes.append(judge(without_floor(), candidate, reference, codes).passed)
        passes.append(float(np.mean(outcomes)))
    assert passes[0] <= 0.06
    assert passes[1] >= equal_passes


def test_two_rates_differ_by_at_most_all_of_them() -> None:
    shipments = np.array([0, 0, 0, 1, 1, 1])
    candidate = np.array([False, False, False, True, True, True])
    reference = np.ones(6, dtype=np.bool_)
    every = np.ones(6, dtype=np.bool_)
    result = judge_miss_slice(
        SliceRule(name="few", dimension="site", value="a", role="protected"),
        candidate,
        reference,
        every,
        shipments,
        members=every,
    )
    assert (result.lower, result.upper) == (-100, 100)
    assert "(-100 to +100 pp)" in result.sentence
