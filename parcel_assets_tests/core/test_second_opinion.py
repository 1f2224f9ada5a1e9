"""The statistics against other people's implementations, and against a plain second one of ours.

Values of statsmodels 0.15.0 are written down with the call that gave them; scipy is called.
"""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from parcel_assets.core.bootstrap import display_interval
from parcel_assets.core.comparison import compare_paired_costs, compare_paired_miss_rates
from parcel_assets.core.rates import (
    EffectiveSize,
    effective_size,
    upper_rate_bound,
    wilson_interval,
)
from parcel_assets.core.slice_family import holm
from parcel_assets.core.statistics import (
    Costs,
    estimate_cost,
    ratio_and_error,
    shipment_costs,
    student_quantile,
)

COSTS = Costs(missed_damage=20.0, needless_review=1.0)
PHOTOS = st.lists(
    st.tuples(st.integers(0, 6), st.booleans(), st.booleans(), st.booleans()),
    min_size=2,
    max_size=40,
)


class TestOthers:
    def test_cluster_errors_are_those_of_statsmodels(self) -> None:
        totals = np.array([21, 0, 0, 40, 1, 2, 0, 20, 0, 0, 1, 61], dtype=np.float64)
        sizes = np.array([3, 1, 2, 5, 1, 4, 2, 6, 1, 3, 2, 9], dtype=np.float64)
        ratio, error = ratio_and_error(totals, sizes)
        # GEE(y, ones, groups=shipment, cov_struct=Independence()).fit(): params, bse * sqrt(12/11);
        # OLS(y, ones).fit(cov_type="cluster", use_correction=False) gives the same
        assert ratio == pytest.approx(3.7435897435897436, rel=1e-14)
        assert error == pytest.approx(1.131279684267278, rel=1e-12)

    def test_holm_is_that_of_statsmodels(self) -> None:
        chances = [0.012, 0.04, 0.0031, 0.2, 0.049, 0.0125]
        adjusted = holm({str(place): chance for place, chance in enumerate(chances)})
        # what multipletests gives with the method "holm"
        assert list(map(adjusted.get, map(str, range(6)))) == pytest.approx(
            [0.06, 0.12, 0.0186, 0.2, 0.12, 0.06], rel=1e-12
        )

    @given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
    def test_holm_is_the_closed_test_of_bonferroni(self, chances: list[float]) -> None:
        # plain words: a claim stands where every set that holds it is rejected by Bonferroni
        adjusted = holm({str(place): one for place, one in enumerate(chances)})
        for place, chance in enumerate(chances):
            larger = sorted(one for n, one in enumerate(chances) if n != place)
            worst = max(
                min(1.0, (1 + size) * min([chance, *larger[len(larger) - size :]]))
                for size in range(len(chances))
            )
            assert adjusted[str(place)] == pytest.approx(max(worst, min(chance, 1.0)))

    @pytest.mark.parametrize("hits", [0, 1, 9, 30, 59, 60])
    def test_bounds_of_a_rate_are_those_of_scipy(self, hits: int) -> None:
        # every photo a shipment of its own, the design effect taken out: n is n
        size = effective_size(np.arange(60) < hits, np.arange(60))
        plain = type(size)(size.rate, hits, 60, 60, 1.0, 60.0)
        exact = stats.binomtest(hits, 60).proportion_ci(0.90, method="exact")
        wilson = stats.binomtest(hits, 60).proportion_ci(0.95, method="wilson")
        assert upper_rate_bound(plain) == pytest.approx(exact.high, rel=1e-9)
        assert wilson_interval(plain) == pytest.approx((wilson.low, wilson.high), abs=1e-12)

    def test_few_shipments_widen_the_safety_bound_as_korn_and_graubard_say(self) -> None:
        # 12 misses in 60 photos of 15 shipments; the design effect is given, so n is 60 / 1.5
        size = EffectiveSize(0.2, 12, 60, 15, 1.5, 40.0)
        shrunk = 40 * (stats.t.ppf(0.95, 59) / stats.t.ppf(0.95, 14)) ** 2
        expected = stats.beta.ppf(0.95, 0.2 * shrunk + 1, shrunk - 0.2 * shrunk)
        assert upper_rate_bound(size) == pytest.approx(expected, rel=1e-9)
        assert upper_rate_bound(size) > stats.beta.ppf(0.95, 9, 32)

    def test_the_display_interval_is_scipy_s_bca(self) -> None:
        generator = np.random.default_rng(8)
        codes = np.repeat(np.arange(300), 1 + generator.poisson(2.0, 300))
        damaged = generator.random(len(codes)) < 0.15
        review = generator.random(len(codes)) < np.where(damaged, 0.85, 0.1)
        totals = shipment_costs(codes, damaged & ~review, review & ~damaged, COSTS)
        sizes = np.bincount(codes).astype(float)

        def cost(x: Any, m: Any, axis: int) -> Any:
            return 1000 * x.sum(axis=axis) / m.sum(axis=axis)

        theirs = stats.bootstrap(
            (totals, sizes), cost, paired=True, method="BCa", n_resamples=4000,
            rng=np.random.default_rng(1),
        ).confidence_interval  # fmt: skip
        ours = display_interval(review, damaged, codes, COSTS)
        assert ours is not None
        width = theirs.high - theirs.low
        assert ours == pytest.approx((theirs.low, theirs.high), abs=0.08 * width)

    @pytest.mark.parametrize(("confidence", "freedom"), [(0.95, 1), (0.95, 29), (0.975, 4)])
    def test_quantiles_are_scipy_s(self, confidence: float, freedom: int) -> None:
        assert student_quantile(confidence, freedom) == pytest.approx(
            stats.t.ppf(confidence, freedom)
        )


# ---- a second implementation, in loops -----------------------------------------------------------


def plain_cost(photos: list[tuple[int, bool, bool, bool]]) -> tuple[float, float, float]:
    """Return cost, standard error and guarded bound per 1,000 from one loop over shipments."""
    sums: dict[int, list[float]] = {}
    for shipment, damaged, review, _ in photos:
        entry = sums.setdefault(shipment, [0.0, 0.0])
        entry[0] += 1
        entry[1] += 20 if damaged and not review else 1 if review and not damaged else 0

    def ratio(rows: list[list[float]]) -> tuple[float, float]:
        whole = sum(m for m, _ in rows)
        mean = sum(x for _, x in rows) / whole
        squares = sum((x - mean * m) ** 2 for m, x in rows)
        error = math.sqrt(len(rows) / (len(rows) - 1) * squares) / whole
        return mean, error

    rows = list(sums.values())
    mean, error = ratio(rows)
    guarded, guarded_error = ratio([*rows, [1.0, 20.0]])
    bound = guarded + float(stats.t.ppf(0.95, len(rows))) * guarded_error
    return 1000 * mean, 1000 * error, 1000 * bound


def plain_paired(
    photos: list[tuple[int, bool, bool, bool]], *, misses: bool
) -> tuple[float, float, float]:
    """Return difference and 95 % bounds, in costs per photo or in missed damage."""
    sums: dict[int, list[float]] = {}
    for shipment, damaged, candidate, reference in photos:
        if misses and not damaged:
            continue
        entry = sums.setdefault(shipment, [0.0, 0.0])
        entry[0] += 1
        for review, sign in ((candidate, 1), (reference, -1)):
            miss = damaged and not review
            needless = review and not damaged
            entry[1] += sign * (miss if misses else 20 * miss + needless)
    rows = list(sums.values())
    whole = sum(m for m, _ in rows)
    mean = sum(x for _, x in rows) / whole
    squares = len(rows) / (len(rows) - 1) * sum((x - mean * m) ** 2 for m, x in rows)
    pair = 1.0 if misses else 20.0**2
    reach = float(stats.t.ppf(0.95, len(rows) - 1)) * math.sqrt(squares + 2 * pair) / whole
    return mean, mean - reach, mean + reach


def shipments_of(photos: list[tuple[int, bool, bool, bool]], *, damaged: bool) -> int:
    return len({one[0] for one in photos if one[1] or not damaged})


@given(PHOTOS)
def test_costs_are_those_of_the_second_implementation(
    photos: list[tuple[int, bool, bool, bool]],
) -> None:
    if shipments_of(photos, damaged=False) < 2 or not any(one[1] for one in photos):
        return
    shipments, damaged, review, _ = zip(*photos, strict=True)
    found = estimate_cost(review, damaged, shipments, COSTS)
    cost, error, bound = plain_cost(photos)
    assert found.cost_per_1000 == pytest.approx(cost, abs=1e-9)
    assert found.standard_error == pytest.approx(error, abs=1e-6)
    assert found.upper_bound_guarded == pytest.approx(bound, rel=1e-9)


@given(PHOTOS)
def test_paired_comparisons_are_those_of_the_second_implementation(
    photos: list[tuple[int, bool, bool, bool]],
) -> None:
    if shipments_of(photos, damaged=True) < 2:
        return
    shipments, damaged, candidate, reference = zip(*photos, strict=True)
    cost = compare_paired_costs(candidate, reference, damaged, shipments, COSTS)
    missed = compare_paired_miss_rates(candidate, reference, damaged, shipments)
    for found, scale, misses in ((cost, 1000, False), (missed, 1, True)):
        plain = plain_paired(photos, misses=misses)
        assert (found.difference, found.lower, found.upper) == pytest.approx(
            tuple(scale * one for one in plain), abs=1e-9 * scale
        )
