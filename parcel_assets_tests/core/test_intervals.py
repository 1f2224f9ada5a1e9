"""Intervals that pages show: the threshold's, the bootstrap's around a cost, Wilson's of a rate."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcel_assets.core.bootstrap import display_interval
from parcel_assets.core.comparison import compare_paired_costs
from parcel_assets.core.rates import effective_size, upper_rate_bound, wilson_interval
from parcel_assets.core.statistics import Costs, estimate_cost
from parcel_assets.core.thresholds import (
    choose_threshold,
    cost_curve,
    review_decisions,
    threshold_interval,
)

COSTS = Costs(missed_damage=20.0, needless_review=1.0)


def scored(seed: int, shipments: int) -> tuple[Any, Any, Any]:
    generator = np.random.default_rng(seed)
    codes = np.repeat(np.arange(shipments), 1 + generator.poisson(2.0, shipments))
    damaged = generator.random(len(codes)) < 0.2
    damaged[0] = True
    return codes, damaged, generator.normal(size=len(codes)) + 2.0 * damaged


class TestThresholdInterval:
    @pytest.mark.parametrize("seed", range(5))
    def test_it_is_what_comparing_each_threshold_in_turn_finds(self, seed: int) -> None:
        codes, damaged, scores = scored(seed, 60)
        chosen = choose_threshold(scores, damaged, COSTS)
        found = threshold_interval(scores, damaged, codes, COSTS, threshold=chosen)
        near = []
        for threshold in cost_curve(scores, damaged, COSTS).thresholds.tolist():
            paired = compare_paired_costs(
                review_decisions(scores, threshold),
                review_decisions(scores, chosen),
                damaged,
                codes,
                COSTS,
            )
            near.append((threshold, paired.difference <= paired.standard_error * (1 + 1e-12)))
        place = next(n for n, (threshold, _) in enumerate(near) if threshold == chosen)
        low = high = place
        while low > 0 and near[low - 1][1]:
            low -= 1
        while high + 1 < len(near) and near[high + 1][1]:
            high += 1
        assert (found.low, found.high) == (near[low][0], near[high][0])

    def test_more_shipments_pin_it_down(self) -> None:
        widths = []
        for shipments in (40, 4000):
            codes, damaged, scores = scored(3, shipments)
            chosen = choose_threshold(scores, damaged, COSTS)
            found = threshold_interval(scores, damaged, codes, COSTS, threshold=chosen)
            assert found.low <= chosen <= found.high
            widths.append(found.high - found.low)
        assert widths[1] < widths[0] / 2

    def test_one_shipment_has_no_error_so_only_equals_are_near(self) -> None:
        found = threshold_interval(
            [0.1, 0.5, 0.9], [False, False, True], [1, 1, 1], COSTS, threshold=0.7
        )
        assert (found.low, found.high) == (0.7, 0.7)

    def test_a_threshold_off_the_grid_is_inside_its_own_interval(self) -> None:
        codes, damaged, scores = scored(1, 50)
        found = threshold_interval(scores, damaged, codes, COSTS, threshold=99.0)
        assert found.low <= 99.0 <= found.high


class TestDisplayInterval:
    def test_it_covers_about_what_it_says(self) -> None:
        truth = estimate_cost(
            scored(0, 200_000)[2] >= 1.0, scored(0, 200_000)[1], scored(0, 200_000)[0], COSTS
        ).cost_per_1000
        covered = 0
        for seed in range(1, 201):
            codes, damaged, scores = scored(seed, 400)
            interval = display_interval(scores >= 1.0, damaged, codes, COSTS)
            assert interval is not None
            covered += interval[0] <= truth <= interval[1]
        assert covered / 200 >= 0.90

    def test_nothing_is_shown_where_every_draw_says_the_same(self) -> None:
        assert display_interval([True, True], [True, True], ["a", "b"], COSTS) is None
        assert display_interval([True, False], [True, False], ["a", "a"], COSTS) is None

    def test_the_order_of_photos_changes_no_digit(self) -> None:
        codes, damaged, scores = scored(4, 80)
        order = np.random.default_rng(0).permutation(len(codes))
        first = display_interval(scores >= 1.0, damaged, codes, COSTS)
        assert first == display_interval(scores[order] >= 1.0, damaged[order], codes[order], COSTS)

    def test_thousands_of_shipments_are_resampled_in_portions(self) -> None:
        codes, damaged, scores = scored(4, 9000)
        interval = display_interval(scores >= 1.0, damaged, codes, COSTS)
        estimate = estimate_cost(scores >= 1.0, damaged, codes, COSTS)
        assert interval is not None
        assert estimate.standard_error is not None
        reach = 1.96 * estimate.standard_error
        assert interval[0] == pytest.approx(estimate.cost_per_1000 - reach, rel=0.02)
        assert interval[1] == pytest.approx(estimate.cost_per_1000 + reach, rel=0.02)


class TestWilson:
    def test_ten_of_a_hundred_by_hand(self) -> None:
        hits = np.arange(100) < 10
        low, high = wilson_interval(effective_size(hits, np.arange(100)))
        # n_eff is 99 here (the ratio estimator's G-1): centre and reach of Wilson at p = 0.1
        share = 1.959964**2 / 99
        centre, scale = (0.1 + share / 2) / (1 + share), 1 / (1 + share)
        reach = 1.959964 * math.sqrt(0.09 / 99 + share / (4 * 99)) * scale
        assert low == pytest.approx(centre - reach, abs=1e-4)
        assert high == pytest.approx(centre + reach, abs=1e-4)

    @given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1))
    def test_it_holds_the_rate_and_stays_a_rate(self, photos: list[tuple[int, bool]]) -> None:
        shipments, hits = zip(*photos, strict=True)
        size = effective_size(hits, shipments)
        low, high = wilson_interval(size)
        assert 0 <= low <= size.rate <= high <= 1
        assert high > low

    def test_frames_that_agree_widen_it(self) -> None:
        hits = np.arange(50) < 10
        alone = wilson_interval(effective_size(hits, np.arange(50)))
        frames = wilson_interval(effective_size(np.repeat(hits, 4), np.repeat(np.arange(50), 4)))
        assert frames[0] == pytest.approx(alone[0], abs=0.01)
        assert frames[1] == pytest.approx(alone[1], abs=0.01)

    @pytest.mark.parametrize("hits", [0, 1, 5, 20])
    def test_the_safety_bound_is_no_lower_than_wilson_s_one_sided(self, hits: int) -> None:
        size = effective_size(np.arange(60) < hits, np.arange(60))
        assert upper_rate_bound(size) >= wilson_interval(size, 0.90)[1] - 0.005
