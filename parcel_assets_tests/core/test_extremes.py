"""The statistics at their edges: huge shipments, one class, odd scores, ties, very many photos."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcel_assets.core.columns import shipment_codes
from parcel_assets.core.comparison import compare_paired_costs, compare_paired_miss_rates, tie_set
from parcel_assets.core.errors import EvidenceError
from parcel_assets.core.selection_bias import selection_corrected_cost
from parcel_assets.core.slice_verdict import Outcome
from parcel_assets.core.slices import judge_miss_slice
from parcel_assets.core.statistics import Costs, cost_words, estimate_cost
from parcel_assets.core.thresholds import (
    choose_threshold,
    cost_curve,
    review_decisions,
    threshold_interval,
)
from parcel_assets_tests.promises import rule

COSTS = Costs(missed_damage=20.0, needless_review=1.0)
SEEDS = st.integers(0, 2**32 - 1)


def drawn(seed: int, shipments: int = 40) -> tuple[Any, ...]:
    """Return shipments, labels, two models' decisions and scores with ties."""
    generator = np.random.default_rng(seed)
    codes = np.repeat(np.arange(shipments), 1 + generator.poisson(1.5, shipments))
    damaged = generator.random(len(codes)) < 0.4
    damaged[[0, -1]] = True  # at least two damaged shipments
    scores = np.round(generator.normal(size=(3, len(codes))) + 1.5 * damaged, 1)
    return codes, damaged, scores


# ---- a huge shipment -----------------------------------------------------------------------------


def test_a_shipment_of_half_the_photos_widens_every_interval() -> None:
    codes = np.r_[np.zeros(200, dtype=int), np.arange(1, 201)]
    alone = np.arange(400)
    damaged = np.ones(400, dtype=bool)
    candidate = np.arange(400) >= 20  # ten misses more, all in the huge shipment
    reference = np.ones(400, dtype=bool)
    together, apart = (
        compare_paired_miss_rates(candidate, reference, damaged, one) for one in (codes, alone)
    )
    assert together.difference == apart.difference
    assert together.upper - together.lower > 2 * (apart.upper - apart.lower)
    costs = [estimate_cost(candidate, damaged, one, COSTS) for one in (codes, alone)]
    assert costs[0].upper_bound_guarded > costs[1].upper_bound_guarded


def test_a_slice_that_is_half_one_shipment_is_worth_few_photos() -> None:
    codes = np.r_[np.zeros(100, dtype=int), np.arange(1, 101)]
    every = np.ones(200, dtype=bool)
    plan = rule().model_copy(update={"minimum_effective_photos": 30})
    judged = judge_miss_slice(plan, every, every, every, codes, members=every)
    assert judged.outcome is Outcome.INSUFFICIENT
    assert judged.effective_photos == pytest.approx(200**2 / (100**2 + 100))


# ---- one class, all missed, none missed ----------------------------------------------------------


@pytest.mark.parametrize("misses", [0, 60])
def test_no_miss_and_every_miss_still_leave_room_on_both_sides(misses: int) -> None:
    damaged, codes = np.ones(60, dtype=bool), np.arange(60)
    review = np.arange(60) >= misses
    paired = compare_paired_miss_rates(review, review, damaged, codes)
    assert paired.lower < 0 < paired.upper
    estimate = estimate_cost(review, damaged, codes, COSTS)
    assert estimate.upper_bound_guarded >= estimate.cost_per_1000
    assert (estimate.miss_rate, estimate.review_all_cost_per_1000) == (misses / 60, 0)


def test_a_part_that_is_all_damaged_chooses_to_review_everything_and_corrects_to_nothing() -> None:
    codes, damaged = np.arange(30), np.ones(30, dtype=bool)
    scores = np.random.default_rng(0).random((4, 30))
    corrected = selection_corrected_cost(scores, damaged, codes, COSTS, seed=1, draws=50)
    # on new shipments the lowest score seen is not the lowest there is
    assert corrected.apparent_cost_per_1000 == 0
    assert 0 <= corrected.cost_per_1000 < 5000
    assert review_decisions(scores[0], choose_threshold(scores[0], damaged, COSTS)).all()


# ---- more misses are never better ----------------------------------------------------------------


@given(SEEDS)
def test_one_miss_more_raises_cost_and_difference(seed: int) -> None:
    codes, damaged, scores = drawn(seed)
    review, reference = scores[0] >= 0.5, scores[1] >= 0.5
    caught = np.flatnonzero(damaged & review)
    if not len(caught):
        return
    worse = review.copy()
    worse[caught[seed % len(caught)]] = False
    before, after = (
        compare_paired_costs(one, reference, damaged, codes, COSTS) for one in (review, worse)
    )
    assert after.difference > before.difference
    rates = [
        compare_paired_miss_rates(one, reference, damaged, codes).difference
        for one in (review, worse)
    ]
    assert rates[1] > rates[0]


@pytest.mark.parametrize("shipments", [30, 60, 120, 240])
def test_a_gate_never_goes_from_fail_to_pass_as_misses_are_added(shipments: int) -> None:
    order = [Outcome.PASS, Outcome.INSUFFICIENT, Outcome.FAIL]
    every = np.ones(shipments, dtype=bool)
    places = []
    for misses in range(shipments + 1):
        candidate = np.arange(shipments) >= misses
        judged = judge_miss_slice(
            rule(), candidate, every, every, np.arange(shipments), members=every
        )
        places.append(order.index(judged.outcome))
    assert places == sorted(places)
    assert places[-1] == 2


# ---- order changes no digit ----------------------------------------------------------------------


@given(SEEDS)
def test_the_order_of_photos_changes_no_digit_of_anything(seed: int) -> None:
    codes, damaged, scores = drawn(seed)
    order = np.random.default_rng(seed).permutation(len(codes))
    told = []
    for rows in (np.arange(len(codes)), order):
        some, hurt, mine = codes[rows], damaged[rows], scores[:, rows]
        threshold = choose_threshold(mine[0], hurt, COSTS)
        reviews = {name: one >= 0.5 for name, one in zip("abc", mine, strict=True)}
        told.append(
            (
                threshold,
                threshold_interval(mine[0], hurt, some, COSTS, threshold=threshold),
                compare_paired_costs(reviews["a"], reviews["b"], hurt, some, COSTS),
                tie_set(reviews, hurt, some, COSTS, "a"),
            )
        )
    assert told[0] == told[1]


@given(SEEDS)
def test_other_names_for_shipments_change_no_outcome(seed: int) -> None:
    codes, damaged, scores = drawn(seed)
    names = np.array([f"s{one}" for one in np.random.default_rng(seed).permutation(40)])
    renamed = names[codes]
    review = scores[0] >= 0.5
    first, again = (estimate_cost(review, damaged, one, COSTS) for one in (codes, renamed))
    assert first.cost_per_1000 == again.cost_per_1000
    assert first.upper_bound_guarded == pytest.approx(again.upper_bound_guarded)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60))
def test_codes_without_sorting_are_those_of_sorting(numbers: list[int]) -> None:
    expected = np.unique(numbers, return_inverse=True)[1]
    for kind in (np.int64, np.uint8, np.int32):
        assert shipment_codes(np.array(numbers, dtype=kind)).tolist() == expected.tolist()
    assert shipment_codes([-3, 5, -3]).tolist() == [0, 1, 0]


# ---- odd scores ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_is_refused_wherever_scores_are_read(bad: float) -> None:
    scores, damaged, codes = np.array([0.2, 0.4, bad]), [True, False, True], [0, 1, 2]
    with pytest.raises(EvidenceError):
        review_decisions(scores, 0.5)
    with pytest.raises(EvidenceError):
        cost_curve(scores, damaged, COSTS)
    with pytest.raises(EvidenceError):
        threshold_interval(scores, damaged, codes, COSTS, threshold=0.3)
    with pytest.raises(EvidenceError):
        selection_corrected_cost([scores], damaged, codes, COSTS, seed=1)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_denormal_scores_are_told_apart(kind: type[np.floating[Any]]) -> None:
    least = np.finfo(kind).smallest_subnormal
    scores = np.array([0.0, least, 2 * least, 3 * least], dtype=kind)
    damaged = np.array([False, False, True, True])
    threshold = choose_threshold(scores, damaged, COSTS)
    assert review_decisions(scores, threshold).tolist() == damaged.tolist()


def test_a_score_equal_to_the_threshold_goes_to_review() -> None:
    just_below = float(np.nextafter(0.5, 0))
    assert review_decisions([0.5, just_below, 0.6], 0.5).tolist() == [True, False, True]
    # a tie between damaged and intact at the threshold is decided for both alike
    scores, damaged = [0.1, 0.7, 0.7, 0.9], [False, True, False, True]
    review = review_decisions(scores, choose_threshold(scores, damaged, COSTS))
    assert review.tolist() == [False, True, True, True]


# ---- selection correction ------------------------------------------------------------------------


def test_a_correction_passes_over_as_many_as_a_person_did() -> None:
    codes, damaged, _ = drawn(3, 60)
    generator = np.random.default_rng(3)
    scores = generator.normal(size=(6, len(codes)))
    scores += np.linspace(4, 0.5, 6)[:, None] * damaged  # from a good trial to a poor one
    found = [
        selection_corrected_cost(scores, damaged, codes, COSTS, seed=2, draws=80, behind=behind)
        for behind in range(6)
    ]
    apparent = [one.apparent_cost_per_1000 for one in found]
    assert apparent == sorted(apparent)
    chosen = [
        estimate_cost(one >= choose_threshold(one, damaged, COSTS), damaged, codes, COSTS)
        for one in scores
    ]
    assert apparent == pytest.approx(sorted(one.cost_per_1000 for one in chosen))
    assert found[5].cost_per_1000 > found[0].cost_per_1000
    for behind in (-1, 6):
        with pytest.raises(EvidenceError, match="passed over"):
            selection_corrected_cost(scores, damaged, codes, COSTS, seed=2, behind=behind)


def test_equal_trials_inside_a_draw_go_to_the_first_in_the_plan_s_order() -> None:
    # both see all damage inside any draw alike; only on one shipment do they differ
    codes = np.arange(12)
    damaged = codes < 6
    first = np.where(damaged, 0.9, 0.1)
    second = first.copy()
    first[0] = 0.05  # the first misses, or pays for, shipment 0; a draw without it sees a tie
    corrected = [
        selection_corrected_cost(rows, damaged, codes, COSTS, seed=4, draws=300).cost_per_1000
        for rows in ([first, second], [second, first])
    ]
    assert corrected[1] == 0
    assert corrected[0] > 0


def test_a_correction_in_portions_is_the_same_correction(monkeypatch: pytest.MonkeyPatch) -> None:
    codes, damaged, _ = drawn(5, 50)
    scores = np.random.default_rng(5).normal(size=(5, len(codes))) + damaged
    whole = selection_corrected_cost(scores, damaged, codes, COSTS, seed=2, draws=70)
    monkeypatch.setattr("parcel_assets.core.selection_bias.CELLS_MAXIMUM", 500)
    assert selection_corrected_cost(scores, damaged, codes, COSTS, seed=2, draws=70) == whole


# ---- very many photos ----------------------------------------------------------------------------


def test_a_million_photos_are_estimated_as_a_thousand_are() -> None:
    small_codes, small_damaged, small_scores = drawn(1, 50)
    copies = 1_000_000 // len(small_codes)
    codes = np.concatenate([small_codes + 50 * n for n in range(copies)])
    damaged, scores = np.tile(small_damaged, copies), np.tile(small_scores[0], copies)
    threshold = choose_threshold(scores, damaged, COSTS)
    assert threshold == choose_threshold(small_scores[0], small_damaged, COSTS)
    many = estimate_cost(scores >= threshold, damaged, codes, COSTS)
    few = estimate_cost(small_scores[0] >= threshold, small_damaged, small_codes, COSTS)
    assert many.cost_per_1000 == pytest.approx(few.cost_per_1000)
    assert many.standard_error is not None
    assert few.standard_error is not None
    assert many.standard_error == pytest.approx(
        few.standard_error * math.sqrt(49 / 50 / copies), rel=1e-4
    )


# ---- what a page may print -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missed", "words"), [(None, "543"), (0, "543"), (9, "543"), (10, "543.2"), (500, "543.2")]
)
def test_a_cost_has_a_decimal_only_where_ten_misses_carry_it(
    missed: int | None, words: str
) -> None:
    assert cost_words(543.21, missed) == words
    assert cost_words(543.21, missed, sign=True) == f"+{words}"
