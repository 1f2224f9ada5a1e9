"""What the statistics say about cases a reader can compute by hand, and how often bounds hold."""

import json
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from parcel_assets.core.columns import shipment_codes
from parcel_assets.core.comparison import compare_paired_costs, compare_paired_miss_rates, tie_set
from parcel_assets.core.errors import EvidenceError
from parcel_assets.core.ranks import area_under_curve, rank_correlation
from parcel_assets.core.reruns import expected_best, judge_reruns
from parcel_assets.core.selection_bias import selection_corrected_cost
from parcel_assets.core.statistics import CostEstimate, Costs, estimate_cost
from parcel_assets.core.thresholds import choose_threshold, cost_curve, review_decisions
from parcel_assets_tests.promises import honest_luck_held

COSTS = Costs(missed_damage=20.0, needless_review=1.0)

PHOTOS = st.lists(
    st.tuples(st.integers(0, 5), st.booleans(), st.booleans(), st.integers(0, 10)),
    min_size=1,
    max_size=40,
)


def columns(photos: list[tuple[int, bool, bool, int]]) -> tuple[NDArray[Any], ...]:
    """Return shipments, damaged, review and scores with at least one damaged photo."""
    shipments, damaged, review, scores = (np.array(column) for column in zip(*photos, strict=True))
    assume(damaged.any())
    return shipments, damaged, review, scores / 10


class TestCost:
    def test_two_shipments_by_hand(self) -> None:
        # first: one miss and one needless review in two photos, second: no error in two
        estimate = estimate_cost(
            [False, True, True, False], [True, False, True, False], ["a", "a", "b", "b"], COSTS
        )
        assert estimate.cost_per_1000 == 1000 * 21 / 4
        # residuals 21 - 10.5 and 0 - 10.5: sqrt(2/1 * 220.5) / 4
        assert estimate.standard_error == pytest.approx(1000 * 21 / 4)
        assert estimate.lower_bound == 0
        assert (estimate.shipments, estimate.photos, estimate.damaged_photos) == (2, 4, 2)
        assert (estimate.missed, estimate.needless) == (1, 1)
        assert (estimate.miss_rate, estimate.review_rate) == (0.5, 0.5)
        assert estimate.review_all_cost_per_1000 == 500
        assert estimate.review_none_cost_per_1000 == 10_000

    def test_the_guarded_bound_counts_one_more_missed_shipment(self) -> None:
        estimate = estimate_cost([True] * 3, [True] * 3, [1, 2, 3], COSTS)
        assert estimate.cost_per_1000 == 0
        # four shipments of one photo, totals 0, 0, 0, 20: mean 5, standard error 10 / sqrt(4)
        expected = 1000 * (5 + stats.t.ppf(0.95, 3) * 5)
        assert estimate.upper_bound_guarded == pytest.approx(expected)

    def test_everything_missed_costs_as_much_as_no_review(self) -> None:
        damaged = [True, False, True, False]
        estimate = estimate_cost([False] * 4, damaged, [1, 2, 3, 4], COSTS)
        assert estimate.cost_per_1000 == estimate.review_none_cost_per_1000
        assert estimate.miss_rate == 1
        assert estimate.upper_bound_guarded > estimate.cost_per_1000 > estimate.lower_bound

    def test_one_shipment_has_no_standard_error_and_a_wide_bound(self) -> None:
        estimate = estimate_cost([True] * 9, [True] * 8 + [False], ["a"] * 9, COSTS)
        assert estimate.standard_error is None
        assert estimate.lower_bound == 0
        assert estimate.upper_bound_guarded > estimate.review_none_cost_per_1000

    def test_one_huge_shipment_counts_as_one(self) -> None:
        damaged = np.ones(10_010, dtype=bool)
        review = np.r_[np.zeros(10_000, dtype=bool), np.ones(10, dtype=bool)]
        shipments = np.r_[np.zeros(10_000, dtype=int), np.arange(1, 11)]
        estimate = estimate_cost(review, damaged, shipments, COSTS)
        independent = estimate_cost(review, damaged, np.arange(10_010), COSTS)
        assert estimate.standard_error is not None
        assert independent.standard_error is not None
        assert estimate.cost_per_1000 == independent.cost_per_1000
        assert estimate.standard_error > 3 * independent.standard_error

    def test_text_and_numbers_name_shipments_alike(self) -> None:
        review, damaged = [True, False, True], [True, True, False]
        by_number = estimate_cost(review, damaged, [1, 1, 2], COSTS)
        assert by_number == estimate_cost(review, damaged, ["s1", "s1", "s2"], COSTS)
        objects = np.array(["s1", "s1", "s2"], dtype=object)
        assert by_number == estimate_cost(review, damaged, objects, COSTS)

    @given(PHOTOS, st.randoms())
    def test_the_order_of_photos_changes_no_digit(self, photos: Any, chance: Any) -> None:
        shipments, damaged, review, _ = columns(photos)
        chance.shuffle(photos)
        again = columns(photos)
        first = estimate_cost(review, damaged, shipments, COSTS)
        assert first == estimate_cost(again[2], again[1], again[0], COSTS)
        assert json.loads(json.dumps(first.as_document())) == first.as_document()

    @given(PHOTOS)
    def test_one_miss_more_costs_more(self, photos: Any) -> None:
        shipments, damaged, review, _ = columns(photos)
        caught = np.flatnonzero(damaged & review)
        assume(len(caught))
        worse = review.copy()
        worse[caught[0]] = False
        better = estimate_cost(review, damaged, shipments, COSTS)
        missed = estimate_cost(worse, damaged, shipments, COSTS)
        assert missed.cost_per_1000 > better.cost_per_1000
        assert missed.miss_rate > better.miss_rate

    @given(PHOTOS)
    def test_the_bounds_enclose_the_cost(self, photos: Any) -> None:
        shipments, damaged, review, _ = columns(photos)
        estimate = estimate_cost(review, damaged, shipments, COSTS)
        assert 0 <= estimate.lower_bound <= estimate.cost_per_1000
        assert estimate.cost_per_1000 <= estimate.upper_bound_guarded * (1 + 1e-12)
        if estimate.missed < estimate.photos:
            assert estimate.cost_per_1000 < estimate.upper_bound_guarded

    @pytest.mark.parametrize(
        ("review", "damaged", "shipments", "where"),
        [
            ([True], [False], [1], "damaged"),
            ([1], [True], [1], "review"),
            ([True], [1], [1], "damaged"),
            ([True, True], [True], [1], "review"),
            ([True], [True], [1, 2], "shipments"),
            ([True], [True], [1.0], "shipments"),
            ([True], [True], np.array([None], dtype=object), "shipments"),
            ([[True]], [[True]], [[1]], "damaged"),
        ],
    )
    def test_columns_that_say_nothing_are_refused(
        self, review: Any, damaged: Any, shipments: Any, where: str
    ) -> None:
        with pytest.raises(EvidenceError) as refusal:
            estimate_cost(review, damaged, shipments, COSTS)
        assert refusal.value.where == where
        assert str(pickle.loads(pickle.dumps(refusal.value))) == str(refusal.value)

    def test_no_photos_are_refused(self) -> None:
        nothing = np.zeros(0, dtype=bool)
        with pytest.raises(EvidenceError, match="0 photos"):
            estimate_cost(nothing, nothing, np.zeros(0, dtype=int), COSTS)

    @pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
    def test_costs_are_positive_and_finite(self, value: float) -> None:
        with pytest.raises(EvidenceError):
            Costs(missed_damage=value, needless_review=1.0)


class TestThreshold:
    def test_by_hand(self) -> None:
        # reviewing the top two costs 1 needless; more reviews cost more, fewer miss the damage
        scores, damaged = [0.1, 0.2, 0.6, 0.8], [False, False, True, False]
        assert choose_threshold(scores, damaged, COSTS) == 0.4
        curve = cost_curve(scores, damaged, COSTS)
        assert curve.missed.tolist() == [0, 0, 0, 1, 1]
        assert curve.needless.tolist() == [3, 2, 1, 1, 0]
        assert curve.cost_per_1000.tolist() == [750, 500, 250, 5250, 5000]

    def test_a_tie_takes_the_lower_threshold(self) -> None:
        # catching the damage at 0.1 costs two needless reviews, as much as missing it
        scores, damaged = [0.1, 0.5, 0.6], [True, False, False]
        threshold = choose_threshold(scores, damaged, Costs(2.0, 1.0))
        assert threshold == 0.1
        assert review_decisions(scores, threshold).all()

    def test_review_none_is_on_the_grid(self) -> None:
        threshold = choose_threshold([0.2, 0.9], [True, False], Costs(1.0, 3.0))
        assert not review_decisions([0.2, 0.9], threshold).any()

    def test_all_damaged_reviews_all(self) -> None:
        assert choose_threshold([0.3, 0.2], [True, True], COSTS) == 0.2

    def test_one_score_for_all_photos_leaves_two_choices(self) -> None:
        curve = cost_curve([0.5] * 9, [True] * 3 + [False] * 6, COSTS)
        assert curve.missed.tolist() == [0, 3]
        assert curve.needless.tolist() == [6, 0]

    @pytest.mark.parametrize("scores", [[0.5, math.nan], [0.5, math.inf], [True, False], []])
    def test_scores_that_are_not_finite_numbers_are_refused(self, scores: list[Any]) -> None:
        with pytest.raises(EvidenceError):
            choose_threshold(scores, [True, False], COSTS)

    def test_no_damage_is_refused(self) -> None:
        with pytest.raises(EvidenceError, match="no damaged photo"):
            choose_threshold([0.5, 0.6], [False, False], COSTS)

    @given(PHOTOS, st.randoms())
    def test_it_is_the_minimum_reads_back_and_ignores_order(self, photos: Any, chance: Any) -> None:
        shipments, damaged, _, scores = columns(photos)
        threshold = choose_threshold(scores, damaged, COSTS)
        assert float(repr(threshold)) == threshold
        review = review_decisions(scores, threshold)
        cost = estimate_cost(review, damaged, shipments, COSTS).cost_per_1000
        for level in (*scores, 2.0):
            other = estimate_cost(scores >= level, damaged, shipments, COSTS)
            assert cost <= other.cost_per_1000 * (1 + 1e-12)
        chance.shuffle(photos)
        again = columns(photos)
        assert choose_threshold(again[3], again[1], COSTS) == threshold

    @given(
        st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=30),
        st.integers(2, 12),
    )
    def test_the_curve_counts_what_its_thresholds_decide(
        self, scores: list[float], grid_points: int
    ) -> None:
        damaged = np.arange(len(scores)) % 2 == 0
        curve = cost_curve(scores, damaged, COSTS, grid_points)
        assert len(curve.thresholds) <= grid_points
        assert (np.diff(curve.thresholds) > 0).all()
        for threshold, missed, needless in zip(
            curve.thresholds, curve.missed, curve.needless, strict=True
        ):
            review = review_decisions(scores, float(threshold))
            assert missed == (damaged & ~review).sum()
            assert needless == (review & ~damaged).sum()

    @given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=30))
    def test_single_precision_scores_decide_alike(self, scores: list[float]) -> None:
        damaged = np.arange(len(scores)) % 2 == 0
        single = np.array(scores, dtype=np.float32)
        assert choose_threshold(single, damaged, COSTS) == choose_threshold(scores, damaged, COSTS)


class TestPaired:
    def test_costs_by_hand(self) -> None:
        damaged, shipments = [True, True, False, False], [1, 2, 3, 4]
        candidate, reference = [True, False, False, False], [True, True, True, False]
        paired = compare_paired_costs(candidate, reference, damaged, shipments, COSTS)
        # differences 0, 20, -1, 0: mean 4.75, sum of squared residuals 310.75
        assert paired.difference == 4750
        assert paired.standard_error == pytest.approx(1000 * math.sqrt(4 / 3 * 310.75) / 4)
        guarded = 1000 * math.sqrt(4 / 3 * 310.75 + 2 * 20**2) / 4
        assert paired.guarded_standard_error == pytest.approx(guarded)
        assert paired.upper == pytest.approx(4750 + stats.t.ppf(0.95, 3) * guarded)
        assert paired.lower == pytest.approx(4750 - stats.t.ppf(0.95, 3) * guarded)

    def test_miss_rates_look_at_damaged_photos_alone(self) -> None:
        damaged = [True, True, True, True, False, False]
        candidate = [True, False, True, True, True, True]
        reference = [True, True, True, True, False, False]
        paired = compare_paired_miss_rates(candidate, reference, damaged, [1, 1, 2, 2, 3, 4])
        assert (paired.difference, paired.photos, paired.shipments) == (0.25, 4, 2)

    def test_agreement_is_not_certainty(self) -> None:
        same = [True] * 50
        paired = compare_paired_miss_rates(same, same, same, list(range(50)))
        assert (paired.difference, paired.standard_error) == (0, 0)
        assert paired.guarded_standard_error == pytest.approx(math.sqrt(2) / 50)
        assert paired.lower < 0 < paired.upper

    def test_one_shipment_gives_no_interval(self) -> None:
        with pytest.raises(EvidenceError, match="two shipments"):
            compare_paired_miss_rates([True], [False], [True], ["a"])

    @given(PHOTOS)
    def test_swapping_the_models_swaps_the_sign(self, photos: Any) -> None:
        shipments, damaged, review, scores = columns(photos)
        assume(len(set(shipments.tolist())) > 1)
        forth = compare_paired_costs(review, scores >= 0.5, damaged, shipments, COSTS)
        back = compare_paired_costs(scores >= 0.5, review, damaged, shipments, COSTS)
        assert forth.difference == -back.difference
        assert (forth.lower, forth.upper) == (-back.upper, -back.lower)


class TestTieSet:
    def test_near_trials_tie_and_far_ones_do_not(self) -> None:
        damaged = np.arange(40) % 2 == 0
        near, far = damaged.copy(), ~damaged
        near[0] = False  # one miss more: one shipment's difference is one standard error
        # ten needless reviews: far beyond one plain error, within a guarded one
        dearer = damaged | (np.arange(40) >= 20)
        reviews = {
            "far": far, "winner": damaged, "near": near, "twin": damaged, "dearer": dearer
        }  # fmt: skip
        beside = compare_paired_costs(dearer, damaged, damaged, np.arange(40), COSTS)
        assert beside.standard_error < beside.difference < beside.guarded_standard_error
        ties = tie_set(reviews, damaged, np.arange(40), COSTS, "winner")
        assert list(ties) == ["winner", "twin", "near"]
        assert ties["near"].difference == 500
        with pytest.raises(EvidenceError):
            tie_set(reviews, damaged, np.arange(40), COSTS, "nobody")


def world(generator: np.random.Generator, shipments: int) -> tuple[NDArray[Any], ...]:
    """Return shipments, labels and scores: 12 % damaged, area about 0.94, shipments alike."""
    sizes = 1 + generator.poisson(2.0, shipments)
    codes = np.repeat(np.arange(shipments), sizes)
    damaged = generator.random(len(codes)) < generator.beta(0.68, 4.99, shipments)[codes]
    noise = math.sqrt(0.15) * generator.normal(size=shipments)[codes]
    noise += math.sqrt(0.85) * generator.normal(size=len(codes))
    return codes, damaged, noise + 2.2 * damaged


class TestSelectionCorrection:
    def scores(self, trials: int, shipments: int) -> tuple[NDArray[Any], ...]:
        generator = np.random.default_rng(5)
        codes, damaged, shared = world(generator, shipments)
        noise = generator.normal(size=(trials, len(codes)))
        return codes, damaged, shared + 0.8 * noise

    def test_the_winner_looks_better_than_it_is(self) -> None:
        codes, damaged, scores = self.scores(trials=30, shipments=120)
        result = selection_corrected_cost(scores, damaged, codes, COSTS, seed=7, draws=200)
        assert result.cost_per_1000 > 1.1 * result.apparent_cost_per_1000
        assert result.range_low < result.cost_per_1000 < result.range_high
        assert (result.draws, result.draws_used, result.trials) == (200, 200, 30)
        assert json.loads(json.dumps(result.as_document())) == result.as_document()

    def test_it_is_what_a_plain_loop_computes(self) -> None:
        codes, damaged, scores = self.scores(trials=4, shipments=25)
        result = selection_corrected_cost(scores, damaged, codes, COSTS, seed=3, draws=20)
        weights = np.random.default_rng(3).multinomial(25, np.full(25, 1 / 25), 20)
        outside = []
        for draw in weights:
            best = (math.inf, 0.0, scores[0])
            for row in scores:
                for threshold in cost_curve(row, damaged, COSTS).thresholds:
                    missed = (row < threshold) & damaged
                    needless = (row >= threshold) & ~damaged
                    inside = float(((20 * missed + needless) * draw[codes]).sum())
                    if inside < best[0]:
                        best = (inside, float(threshold), row)
            kept = draw[codes] == 0
            if not (damaged[kept].any() and damaged[~kept].any()):
                continue
            estimate = estimate_cost(best[2][kept] >= best[1], damaged[kept], codes[kept], COSTS)
            outside.append(estimate.cost_per_1000)
        assert result.draws_used == len(outside)
        assert result.cost_per_1000 == pytest.approx(np.mean(outside))

    def test_the_order_of_photos_changes_no_digit(self) -> None:
        codes, damaged, scores = self.scores(trials=5, shipments=40)
        order = np.random.default_rng(1).permutation(len(codes))
        first = selection_corrected_cost(scores, damaged, codes, COSTS, seed=3, draws=50)
        again = selection_corrected_cost(
            scores[:, order], damaged[order], codes[order], COSTS, seed=3, draws=50
        )
        assert first == again
        assert first != selection_corrected_cost(scores, damaged, codes, COSTS, seed=4, draws=50)

    def test_one_shipment_leaves_nothing_out(self) -> None:
        with pytest.raises(EvidenceError, match="both sides"):
            selection_corrected_cost([[0.1, 0.9]], [False, True], [1, 1], COSTS, seed=1)


class TestRanks:
    def test_area_by_hand(self) -> None:
        assert area_under_curve([0.1, 0.4, 0.4, 0.8], [False, False, True, True]) == 0.875
        assert area_under_curve([1, 2], [True, False]) == 0
        assert area_under_curve([1, 1], [True, False]) == 0.5

    @pytest.mark.parametrize("damaged", [[True, True], [False, False]])
    def test_area_needs_both_classes(self, damaged: list[bool]) -> None:
        with pytest.raises(EvidenceError):
            area_under_curve([0.1, 0.2], damaged)

    def test_correlation_by_hand(self) -> None:
        assert rank_correlation([1, 2, 3], [10, 20, 90]) == pytest.approx(1)
        assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)

    @pytest.mark.parametrize(("a", "b"), [([1], [2]), ([1, 1], [1, 2]), ([1, 2], [3, 3])])
    def test_correlation_that_does_not_exist_is_none(self, a: list[int], b: list[int]) -> None:
        assert rank_correlation(a, b) is None

    def test_columns_of_other_lengths_are_refused(self) -> None:
        with pytest.raises(EvidenceError):
            rank_correlation([1, 2], [1, 2, 3])

    @given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=20))
    def test_it_agrees_with_scipy(self, pairs: list[tuple[int, int]]) -> None:
        a, b = zip(*pairs, strict=True)
        mine = rank_correlation(a, b)
        if mine is None:
            assert len(set(a)) == 1 or len(set(b)) == 1
        else:
            assert mine == pytest.approx(float(stats.spearmanr(a, b).statistic), abs=1e-12)


class TestReruns:
    TRIALS = (100.0, 110.0, 120.0, 130.0)

    def test_five_seeds_by_hand(self) -> None:
        seeds = [98.0, 99.0, 100.0, 101.0, 102.0]
        judgement = judge_reruns(100.0, 100.0, seeds, self.TRIALS, unit="minutes")
        assert judgement.mean == 100
        assert judgement.standard_deviation == pytest.approx(math.sqrt(2.5))
        assert judgement.tolerance == pytest.approx(3.0414 * math.sqrt(2.5), rel=1e-4)
        assert (judgement.within_tolerance, judgement.judged) == (True, True)
        assert (judgement.not_reproduced, judgement.unstable) == (False, False)
        assert "within 5 minutes per 1,000 photos of their mean" in judgement.sentence

    @pytest.mark.parametrize(("seeds", "factor"), [(3, 4.97), (5, 3.04), (8, 2.51)])
    def test_the_tolerance_narrows_with_seeds(self, seeds: int, factor: float) -> None:
        extra = [100.0 + number for number in range(seeds)]
        judgement = judge_reruns(100.0, 100.0, extra, self.TRIALS)
        assert judgement.tolerance is not None
        assert judgement.standard_deviation is not None
        ratio = judgement.tolerance / judgement.standard_deviation
        assert ratio == pytest.approx(factor, abs=0.01)

    @pytest.mark.parametrize("extra", [[], [100.0]])
    def test_fewer_than_two_seeds_judge_nothing(self, extra: list[float]) -> None:
        judgement = judge_reruns(100.0, 100.0, extra, self.TRIALS)
        assert judgement.tolerance is None
        assert judgement.within_tolerance is None
        assert judgement.not_reproduced is None
        assert judgement.unstable is None
        assert not judgement.judged
        assert "no tolerance can be stated" in judgement.sentence
        assert judgement.mean == (100 if extra else None)

    def test_two_seeds_say_how_little_they_say(self) -> None:
        judgement = judge_reruns(100.0, 100.0, [99.0, 101.0], self.TRIALS)
        assert judgement.tolerance == pytest.approx(
            12.7062 * math.sqrt(2) * math.sqrt(1.5), rel=1e-4
        )
        assert "rules out little" in judgement.sentence

    def test_a_search_cost_that_luck_does_not_explain(self) -> None:
        # the best of four gains 1.0294 of 12.91, and twice a spread of 1: 15.29 above the search's
        for shift, expected in ((15.28, False), (15.30, True)):
            extra = [99.0 + shift, 100.0 + shift, 101.0 + shift]
            judgement = judge_reruns(100.0, 100.0, extra, self.TRIALS)
            assert judgement.not_reproduced is expected
            assert judgement.within_tolerance is False
            assert ("not reproduced" in judgement.sentence) is expected

    @pytest.mark.parametrize(
        ("trials", "gain"),
        # Harter, Biometrika 1961, table 1; 82 by simulation and by quadrature
        [(1, 0.0), (2, 0.56419), (5, 1.16296), (10, 1.53875), (20, 1.86748), (50, 2.24907),
         (82, 2.4358), (100, 2.50759), (400, 2.96818)],
    )  # fmt: skip
    def test_luck_is_that_of_the_trials_that_there_were(self, trials: int, gain: float) -> None:
        assert expected_best(trials) == pytest.approx(gain, abs=6e-6 if trials != 82 else 1e-4)

    def test_nobody_gains_nothing_and_very_many_gain_little_more(self) -> None:
        assert expected_best(0) is None
        gains = [expected_best(10**power) for power in range(8)]
        assert gains == sorted(gains, key=lambda one: one or 0.0)
        assert 5.1 < (gains[-1] or 0) < 5.4

    def test_fewer_trials_leave_luck_less_to_explain(self) -> None:
        # four deviations of ten trials above the search's cost, and of eighty-two
        few, many = [[90.0, 110.0] * (count // 2) for count in (10, 82)]
        extra = [99.0 + 20.5, 100.0 + 20.5, 101.0 + 20.5]
        judged = [judge_reruns(100.0, 100.0, extra, trials) for trials in (few, many)]
        assert [one.not_reproduced for one in judged] == [True, False]
        assert [one.trials for one in judged] == [10, 82]
        assert [one.luck_deviations for one in judged] == [expected_best(10), expected_best(82)]

    @pytest.mark.parametrize("trials", [4, 12, 82])
    @pytest.mark.parametrize("seed_share", [0.25, 0.75])
    def test_an_honest_winner_is_rarely_called_not_reproduced(
        self, trials: int, seed_share: float
    ) -> None:
        assert honest_luck_held(trials, seed_share, 400) <= 0.06

    def test_spread_above_a_tenth_of_the_mean_is_unstable(self) -> None:
        assert judge_reruns(100.0, 100.0, [89.0, 100.0, 111.0], self.TRIALS).unstable is True
        assert judge_reruns(100.0, 100.0, [91.0, 100.0, 109.0], self.TRIALS).unstable is False

    def test_one_completed_trial_cannot_say_what_luck_is(self) -> None:
        judgement = judge_reruns(100.0, 100.0, [99.0, 100.0, 101.0], [100.0])
        assert judgement.not_reproduced is None
        assert not judgement.judged
        assert "Too few completed trials" in judgement.sentence

    def test_identical_reruns_need_identity(self) -> None:
        assert judge_reruns(0.1, 0.1, [0.1] * 3, self.TRIALS).within_tolerance is True
        assert judge_reruns(0.1, 0.2, [0.1] * 3, self.TRIALS).within_tolerance is False

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_costs_that_are_not_finite_are_refused(self, bad: float) -> None:
        with pytest.raises(EvidenceError):
            judge_reruns(bad, 1.0, [1.0, 2.0], self.TRIALS)
        with pytest.raises(EvidenceError):
            judge_reruns(1.0, 1.0, [1.0, bad], self.TRIALS)

    def test_the_document_is_json(self) -> None:
        document = judge_reruns(100.0, 101.0, [99.0, 101.0], self.TRIALS).as_document()
        assert json.loads(json.dumps(document)) == document
        assert document["own_seed_difference"] == 1


def test_codes_follow_the_order_of_names() -> None:
    assert shipment_codes(["b", "a", "b"]).tolist() == [1, 0, 1]


def test_the_guarded_bound_covers_the_truth() -> None:
    threshold, draws, generator = 1.3, 1200, np.random.default_rng(20_261_129)

    def estimate(shipments: int) -> CostEstimate:
        codes, damaged, scores = world(generator, shipments)
        return estimate_cost(scores >= threshold, damaged, codes, COSTS)

    truth = estimate(400_000).cost_per_1000
    for shipments in (100, 400):
        covered = [estimate(shipments).upper_bound_guarded >= truth for _ in range(draws)]
        assert np.mean(covered) >= 0.93
