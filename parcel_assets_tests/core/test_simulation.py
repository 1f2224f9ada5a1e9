"""What the gates promise, counted in the world that ships with the product."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcel_assets.core import simulation_slices
from parcel_assets.core.errors import PlanError
from parcel_assets.core.plan import Plan
from parcel_assets.core.plan_reader import read_plan
from parcel_assets.core.ranks import rank_correlation
from parcel_assets.core.simulation import (
    Simulation,
    simulate,
    simulate_final,
    simulate_selection,
    summarize,
)
from parcel_assets.core.simulation_bounds import draws_within
from parcel_assets.core.simulation_pruning import correlated_costs, prune_once, simulate_pruning
from parcel_assets.core.simulation_sizes import (
    LabelledRows,
    rows_of_table,
    sizes_of_plan,
    sizes_of_rows,
)
from parcel_assets.core.simulation_slices import Odds, SliceGate, SliceOdds, simulate_slice
from parcel_assets.core.simulation_words import Remark, conclusion, document_of, remarks
from parcel_assets.core.simulation_world import (
    Clusters,
    best_threshold,
    damaged_clusters,
    least_cost,
    made_clusters,
    scores_of_models,
    separation_for,
    true_cost,
)
from parcel_assets.core.slice_verdict import SliceResult
from parcel_assets.core.statistics import estimate_cost
from parcel_assets_tests.core.plans import plan as small_plan
from parcel_assets_tests.promises import (
    COSTS,
    WORLD,
    Gate,
    bounds_of,
    chosen,
    generator,
    guarded_coverage,
    harmed_rate,
    pass_rate,
    passes,
    rule,
    shrunken_pass_rate,
)

ROOT = Path(__file__).parents[2]
PLANS = {
    name: ROOT / path
    for name, path in (
        ("small-kill-test", "data/plans/small-kill-test.toml"),
        ("own-archive", "examples/own-archive.toml"),
        ("sample-undecided", "data/plans/sample-undecided.toml"),
        ("sample-corners-lost", "data/plans/sample-corners-lost.toml"),
    )
}
LARGE = [pytest.param(name, marks=pytest.mark.slow) for name in ("sample-undecided",)]


class TestWorld:
    def test_it_is_the_one_that_the_statistics_were_tried_in(self) -> None:
        assert least_cost(WORLD.separation, 0.12, COSTS) == pytest.approx(372, abs=2)
        clusters = made_clusters(generator(), WORLD, 50_000)
        assert clusters.photos.mean() == pytest.approx(3, abs=0.05)
        assert clusters.damaged_share == pytest.approx(0.12, abs=0.003)

    def test_the_true_cost_is_what_very_many_shipments_show(self) -> None:
        chance = generator(1)
        codes, damaged = made_clusters(chance, WORLD, 200_000).drawn(chance)
        scores = scores_of_models(chance, WORLD, codes, damaged, np.array([WORLD.separation]))[0]
        shown = estimate_cost(scores >= 1.1, damaged, codes, COSTS).cost_per_1000
        assert shown == pytest.approx(true_cost(WORLD.separation, 1.1, 0.12, COSTS), rel=0.01)

    def test_the_best_threshold_is_the_cheapest(self) -> None:
        best = best_threshold(2.0, 0.12, COSTS)
        around = [true_cost(2.0, best + near, 0.12, COSTS) for near in np.linspace(-0.2, 0.2, 41)]
        assert int(np.argmin(around)) == 20

    def test_a_cost_names_its_model_and_the_impossible_has_none(self) -> None:
        separation = separation_for(300.0, 0.12, COSTS)
        assert separation is not None
        assert least_cost(separation, 0.12, COSTS) == pytest.approx(300)
        assert separation_for(5000.0, 0.12, COSTS) is None

    def test_models_err_together_as_much_as_assumed(self) -> None:
        chance = generator(2)
        codes, damaged = made_clusters(chance, WORLD, 20_000).drawn(chance)
        scores = scores_of_models(chance, WORLD, codes, damaged & False, np.zeros(2))
        assert float(scores[0] @ scores[1]) / len(codes) == pytest.approx(0.7, abs=0.02)
        assert scores.var(axis=1) == pytest.approx([1, 1], abs=0.02)

    def test_a_share_of_shipments_is_drawn_and_more_than_all_repeats_them(self) -> None:
        clusters = Clusters(np.array([2, 1, 3]), np.array([1, 0, 3]))
        codes, damaged = clusters.drawn(generator())
        assert codes.tolist() == [0, 0, 1, 2, 2, 2]
        assert damaged.tolist() == [True, False, False, True, True, True]
        twice = replace(clusters, share=2.0)
        assert len(twice.drawn(generator())[0]) == 12
        assert (twice.shipments_expected, twice.damaged_expected) == (6, 8)
        few = replace(clusters, share=0.25)
        drawn = [int(few.drawn(generator(n))[1].sum()) for n in range(400)]
        assert np.mean(drawn) == pytest.approx(1.0, abs=0.15)


# ---- what the statistics must hold ---------------------------------------------------------------


@pytest.mark.parametrize("shipments", [100, 200, 400, 800])
def test_the_guarded_bound_covers_the_true_cost(shipments: int) -> None:
    assert guarded_coverage(shipments, 1500) >= 0.94


@pytest.mark.slow
@pytest.mark.parametrize("shipments", [100, 200, 400, 800])
def test_the_guarded_bound_covers_the_true_cost_in_many_draws(shipments: int) -> None:
    assert guarded_coverage(shipments, 20_000) >= 0.94


def not_significantly_worse(result: SliceResult) -> bool:
    """Decide as the banned rule does: no difference was found, so there is none."""
    return result.harm_chance is None or result.harm_chance > 0.05


def smallest_enough(result: SliceResult) -> bool:
    """Decide on the point alone."""
    return result.difference is not None and result.difference <= 5


@pytest.mark.parametrize("shipments", [30, 60, 120])
def test_a_slice_ten_points_worse_rarely_passes(shipments: int) -> None:
    assert pass_rate(passes, shipments, 10.0, 1500) <= 0.06


def test_an_equal_slice_of_enough_shipments_mostly_passes() -> None:
    assert pass_rate(passes, 120, 0.0, 1500) >= 0.90


@pytest.mark.slow
@pytest.mark.parametrize("shipments", [30, 60, 120])
def test_a_slice_ten_points_worse_rarely_passes_in_many_draws(shipments: int) -> None:
    assert pass_rate(passes, shipments, 10.0, 20_000) <= 0.06
    assert pass_rate(passes, shipments, 15.0, 20_000) <= 0.012
    assert shipments < 120 or pass_rate(passes, shipments, 0.0, 20_000) >= 0.90


@pytest.mark.parametrize("banned", [not_significantly_worse, smallest_enough])
def test_other_gates_break_what_this_one_holds(banned: Gate) -> None:
    assert pass_rate(banned, 30, 10.0, 400) > 0.15
    assert pass_rate(banned, 60, 10.0, 400) > 0.06


def test_the_corrected_choice_covers_the_truth_and_the_winner_s_own_number_does_not() -> None:
    choices = chosen(150, 40, 5)
    own, corrected = bounds_of(choices)
    assert corrected.mean() >= 0.93
    assert own.mean() < 0.80
    assert summarize(choices, 82, 150).optimism > 0.25


@pytest.mark.slow
@pytest.mark.parametrize("shipments", [100, 200, 400, 800])
def test_the_corrected_choice_covers_the_truth_in_many_searches(shipments: int) -> None:
    own, corrected = bounds_of(chosen(shipments, 300, 6, shipments))
    assert corrected.mean() >= 0.93
    assert own.mean() < 0.93


def test_holm_is_what_keeps_equal_slices_from_being_called_harmed() -> None:
    alone, together = harmed_rate(12, 120, 150)
    assert alone > 0.2
    assert together <= 0.07


def test_a_shrunken_number_would_pass_what_its_gate_stops() -> None:
    gated, shrunken = shrunken_pass_rate(120, 150)
    assert gated <= 0.08
    assert shrunken > 0.5


# ---- pruning -------------------------------------------------------------------------------------


class TestPruning:
    PLAN = small_plan(pruning__keep_fractions=[0.75, 0.5], pruning__minimum_rank_correlation=-1.0)

    def test_costs_agree_in_rank_as_much_as_asked(self) -> None:
        values = correlated_costs(generator(), 20_000, 2, 0.6)
        for row in values[:-1]:
            assert rank_correlation(row, values[-1]) == pytest.approx(0.6, abs=0.02)

    def test_a_perfect_milestone_never_loses_the_best(self) -> None:
        for seed in range(20):
            final = generator(seed).normal(size=82)
            ends = prune_once(self.PLAN, np.vstack((final, final, final)))
            assert ends[int(np.argmin(final))] == 2
            assert (ends < 2).sum() > 20

    def test_the_warm_up_is_never_pruned_and_measures_the_correlation(self) -> None:
        final = np.arange(82.0)
        backwards = np.vstack((-final, -final, final))
        guarded = small_plan(pruning__keep_fractions=[0.75, 0.5])
        assert (prune_once(guarded, backwards) == 2).all()
        # so long a warm-up that cuts are made before it is over
        longer = small_plan(
            pruning__keep_fractions=[0.75, 0.5],
            pruning__minimum_rank_correlation=-1.0,
            pruning__warm_up_trials=40,
        )
        ends = prune_once(longer, np.vstack((final, final, final)))
        assert (ends[:40] == 2).all()
        assert (ends[40:] < 2).any()

    def test_nothing_is_lost_where_everything_is_kept(self) -> None:
        keep = small_plan(pruning__keep_fractions=[1.0, 1.0])
        odds = simulate_pruning(keep, 20, generator())
        assert {(one.best_is_pruned, one.trials_pruned) for one in odds} == {(0.0, 0.0)}

    def test_a_loose_milestone_loses_the_best_more_often(self) -> None:
        odds = simulate_pruning(self.PLAN, 150, generator(3))
        lost = [one.best_is_pruned for one in odds if one.step == 27]
        assert lost[0] > lost[-1]
        assert lost[-1] <= 0.02


# ---- sizes ---------------------------------------------------------------------------------------


CORNER = {"part": "validation", "dimension": "damage_type", "value": "crushed_corner"}
TABLE = [
    {"path": f"{n}.jpg", "shipment_id": f"s{n // 2}", "camera_class": "top",
     "label": "damaged" if n % 3 == 0 else "intact",
     "damage_type": "crushed_corner" if n % 6 == 0 else "dent"}
    for n in range(240)
]  # fmt: skip


class TestSizes:
    def test_a_label_table_is_counted_as_the_plan_reads_it(self) -> None:
        plan = small_plan()
        rows = rows_of_table(plan, TABLE)
        assert sum(rows.damaged) == 80
        assert set(rows.attributes["damage_type"]) == {"crushed_corner", "dent", ""}
        sizes = sizes_of_rows(
            plan, rows, WORLD, source="the table", validation_share=0.3, holdout_share=0.2
        )
        assert sizes.validation.shipments_expected == pytest.approx(36)
        assert sizes.holdout.damaged_expected == pytest.approx(16)
        corner, camera = sizes.slices
        assert (corner.rule.name, corner.assumed) == ("crushed_corner", False)
        assert corner.clusters.damaged_expected == pytest.approx(12)
        assert camera.rule.name == "cameras:top"
        assert sizes.world.damaged_share == pytest.approx(1 / 3)

    def test_unknown_labels_are_left_out_and_absent_columns_refused(self) -> None:
        rows = rows_of_table(small_plan(), [*TABLE, {**TABLE[0], "label": "unsure"}])
        assert len(rows.damaged) == 240
        without = [{k: v for k, v in one.items() if k != "camera_class"} for one in TABLE]
        with pytest.raises(Exception, match="no column 'camera_class'"):
            rows_of_table(small_plan(), without)

    def test_no_damage_is_refused(self) -> None:
        rows = LabelledRows(["a"], [False], {})
        with pytest.raises(Exception, match="none of them damaged"):
            sizes_of_rows(
                small_plan(), rows, WORLD, source="x", validation_share=1.0, holdout_share=1.0
            )

    def test_without_a_table_the_plan_s_own_minimum_is_taken(self) -> None:
        plan = small_plan(split__minimum=[{"part": "validation", "shipments": 300}])
        sizes = sizes_of_plan(plan, WORLD, generator())
        assert sizes.validation.shipments_expected == 300
        assert sizes.holdout.shipments_expected == pytest.approx(200)
        (corner,) = sizes.slices
        assert corner.assumed
        assert (corner.clusters.shipments_expected, corner.clusters.damaged_expected) == (30, 60)
        given_size = sizes_of_plan(plan, WORLD, generator(), shipments=2000)
        assert given_size.validation.shipments_expected == 600

    @pytest.mark.parametrize(
        ("asked", "held"),
        [
            ({"shipments": 3, "damaged_photos": 3}, (3, 3)),
            ({"shipments": 20, "damaged_photos": 40}, (20, 40)),
            ({"shipments": 90, "damaged_photos": 2000}, (90, 110)),  # never more than validation
            ({"damaged_photos": 40}, (30, 40)),
            ({"shipments": 20}, (20, 60)),
        ],
    )
    def test_a_slice_is_as_small_as_the_split_lets_it_be(
        self, asked: dict[str, int], held: tuple[int, int]
    ) -> None:
        plan = small_plan(split__minimum=[{"part": "validation", "shipments": 300}, CORNER | asked])
        (corner,) = sizes_of_plan(plan, WORLD, generator()).slices
        assert (corner.clusters.shipments_expected, corner.clusters.damaged_expected) == held

    def test_a_minimum_below_the_slice_s_own_floor_stops_the_plan(self) -> None:
        least = CORNER | {"shipments": 3, "damaged_photos": 3}
        plan = small_plan(split__minimum=[least], search__budget_trials=4)
        simulation = simulate(plan, sizes_of_plan(plan, WORLD, generator()), draws=20)
        told = remarks(plan, simulation)
        assert told[0].stops
        assert "3 shipments and 3 damaged photos in validation (assumed): below" in told[0].sentence
        assert "floor of 30 shipments and 60 damaged photos" in told[0].sentence
        assert conclusion(told).startswith("This plan cannot decide")


# ---- the whole -----------------------------------------------------------------------------------


def test_no_slice_of_a_given_archive_is_larger_than_its_validation() -> None:
    plan = small_plan(
        slices__crushed_corner__minimum_damaged_photos=1_000_000,
        slices__crushed_corner__minimum_shipments=1_000_000,
    )
    sizes = sizes_of_plan(plan, WORLD, generator(), shipments=40)
    (corners,) = [one for one in sizes.slices if one.rule.name == "crushed_corner"]
    assert len(corners.clusters.photos) <= len(sizes.validation.photos)
    assert corners.clusters.damaged.sum() <= max(1, sizes.validation.damaged.sum())


def simulated(plan: Plan, draws: int, seed: int = 3) -> dict[str, Any]:
    sizes = sizes_of_plan(plan, WORLD, np.random.default_rng(seed))
    return document_of(plan, simulate(plan, sizes, draws=draws, seed=seed))


@pytest.mark.parametrize("name", ["small-kill-test", "own-archive", *LARGE])
def test_shipped_plans_can_be_simulated(name: str) -> None:
    plan = read_plan(PLANS[name].read_text())
    document = simulated(plan, 30)
    assert document["remarks"]
    assert isinstance(document["conclusion"], str)


def test_the_same_seed_gives_the_same_numbers_and_another_does_not() -> None:
    plan = small_plan(search__budget_trials=6)
    first = simulated(plan, 30)
    assert first == simulated(plan, 30)
    assert first != simulated(plan, 30, seed=4)


def test_progress_is_told_step_by_step() -> None:
    plan = small_plan(search__budget_trials=4)
    heard: list[tuple[int, int, str]] = []
    sizes = sizes_of_plan(plan, WORLD, generator())
    simulate(plan, sizes, draws=20, progress=lambda *told: heard.append(told))
    assert [one[0] for one in heard] == sorted(one[0] for one in heard)
    assert {one[1] for one in heard} == {4}
    steps = [one[2] for one in heard if "search" not in one[2]]
    assert steps == ["crushed_corner", "pruning", "selection", "final evaluation"]
    assert (2, 4, "selection, search 12 of 12") in heard  # within what takes long, too


class TestBounds:
    """A plan may ask for anything: what is too large is refused, what is large drawn less often."""

    def test_a_floor_above_the_whole_part_holds_every_candidate_and_says_so(self) -> None:
        floor = 10**12
        plan = small_plan(
            slices__crushed_corner__minimum_damaged_photos=floor, search__budget_trials=6
        )
        sizes = sizes_of_plan(plan, WORLD, generator())
        document = document_of(plan, simulate(plan, sizes, draws=20))
        (corner,) = document["slices"]
        assert corner["equal"]["held"] == 1
        assert corner["below_floor"] == (f"{floor:,} damaged photos",)
        assert document["conclusion"].startswith("This plan cannot decide")
        words = document["remarks"][0]
        assert words["stops"]
        assert f"below the plan's own floor of {floor:,} damaged photos" in words["sentence"]

    def test_a_part_of_more_photos_than_are_simulated_is_refused(self) -> None:
        plan = small_plan(split__minimum=[{"part": "validation", "shipments": 10**9}])
        with pytest.raises(PlanError, match="3,000,000,000 photos") as refused:
            sizes_of_plan(plan, WORLD, generator())
        assert "at most 1,000,000" in refused.value.expected
        with pytest.raises(PlanError, match="1,500,000,000 photos"):
            sizes_of_plan(small_plan(), WORLD, generator(), shipments=10**9 + 10**9 * 2 // 3)

    def test_a_table_of_more_photos_than_are_simulated_is_refused(self) -> None:
        many = LabelledRows(["a"] * 1_100_000, [True] * 1_100_000, {})
        with pytest.raises(PlanError, match="--shipments"):
            sizes_of_rows(
                small_plan(), many, WORLD, source="x", validation_share=1.0, holdout_share=0.1
            )

    @pytest.mark.parametrize("changes", [{"budget": 10**6}, {"budget": 5000, "batch": 1}])
    def test_a_budget_beyond_all_searches_is_refused(self, changes: dict[str, int]) -> None:
        plan = small_plan(
            search__budget_trials=changes["budget"],
            search__batch_trials=changes.get("batch", 8),
            search__cap_accelerator_hours=1e7,
        )
        sizes = sizes_of_plan(plan, WORLD, generator())
        with pytest.raises(PlanError, match="trials in batches of") as refused:
            simulate(plan, sizes, draws=20)
        assert refused.value.where == "search.budget_trials"

    def test_a_large_slice_is_drawn_less_often_and_says_how_often(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(simulation_slices, "PHOTO_DRAWS", 30_000)
        large = damaged_clusters(generator(), 400, 1000)
        odds, passed = simulate_slice(SliceGate(rule(), large, WORLD, COSTS), 400, generator())
        assert odds.draws == len(passed) == 30

    def test_a_large_search_is_chosen_on_as_many_shipments_as_fit(self) -> None:
        large = made_clusters(generator(), WORLD, 30_000)
        plan = small_plan(search__budget_trials=500, metric__threshold_grid_points=10)
        chosen_on = {"shipments": 0.0}

        def told(words: str) -> None:
            chosen_on[words] = 1.0
            if words.startswith("selection, search 1 "):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):  # it may be stopped at any time
            simulate_selection(plan, large, WORLD, 400, generator(), tell=told)
        assert len(chosen_on) == 2

    def test_every_draw_is_drawn_where_it_is_cheap(self) -> None:
        assert draws_within(400, 90, 20_000_000) == 400
        assert draws_within(400, 1_000_000, 20_000_000) == 20
        assert draws_within(10, 1_000_000_000, 20_000_000) == 10
        assert draws_within(400, 0, 20_000_000) == 400


class TestWords:
    def plan_and_simulation(self, **changes: Any) -> tuple[Plan, Simulation]:
        plan = small_plan(search__budget_trials=4, **changes)
        sizes = sizes_of_plan(plan, WORLD, generator())
        return plan, simulate(plan, sizes, draws=20)

    @pytest.mark.parametrize(
        ("target", "words", "stops"),
        [
            (5000.0, "The target asks nothing of a model: the target is 5000 ", True),
            (1e-6, "No model can cost near the target, which is too near to nothing", True),
        ],
    )
    def test_a_target_that_no_model_costs_is_told_with_the_number_beside(
        self, target: float, words: str, stops: bool
    ) -> None:
        plan, simulation = self.plan_and_simulation(final__target_cost_per_1000=target)
        (said,) = [one for one in remarks(plan, simulation) if one.sentence.startswith(words)]
        assert said.stops is stops
        least = 1000 * min(5 * WORLD.damaged_share, 1 - WORLD.damaged_share)
        assert f"costs {least:.0f}" in said.sentence

    def test_a_target_above_a_trivial_policy_is_told_though_models_meet_it(self) -> None:
        least = 1000 * min(5 * WORLD.damaged_share, 1 - WORLD.damaged_share)
        plan, simulation = self.plan_and_simulation(final__target_cost_per_1000=least * 1.05)
        (said,) = [one for one in remarks(plan, simulation) if "asks nothing" in one.sentence]
        assert (said.good, said.stops) == (False, False)
        assert any(one.sentence.startswith("By true cost") for one in remarks(plan, simulation))

    def told(self, odds: SliceOdds) -> str:
        plan, simulation = self.plan_and_simulation()
        changed = replace(simulation, slices=(odds,))
        found = remarks(plan, changed)
        return next(one.sentence for one in found if one.sentence.startswith("crushed_corner"))

    ODDS = SliceOdds(
        name="crushed_corner",
        role="protected",
        measure="miss_rate",
        shipments=30,
        damaged_photos=60,
        worse_by=(5.0, 10.0),
        equal=Odds(0.27, 0.05, 0.68),
        fairly_worse=Odds(0.1, 0.4, 0.5),
        worse=Odds(0.03, 0.7, 0.27),
        growth=3.0,
    )

    def test_a_slice_that_mostly_holds_says_how_many_damaged_photos_it_lacks(self) -> None:
        words = self.told(self.ODDS)
        assert "an equal candidate is stopped in 73% of searches (held 68%, failed 5%)" in words
        assert "one truly 10 points worse passes in 3%" in words
        assert "It needs about 120 damaged photos more in validation, which is 400" in words

    def test_a_slice_that_no_size_helps_says_what_else_to_do(self) -> None:
        assert "widen the margin, or only monitor it" in self.told(replace(self.ODDS, growth=None))

    def test_a_slice_that_decides_is_good_news(self) -> None:
        words = self.told(replace(self.ODDS, growth=1.0, equal=Odds(0.95, 0.03, 0.02)))
        assert "an equal candidate passes in 95% of searches" in words

    def test_a_plan_without_a_protected_slice_is_told_so(self) -> None:
        plan, simulation = self.plan_and_simulation(slices={})
        found = remarks(plan, simulation)
        assert any("No slice is protected" in one.sentence and not one.good for one in found)
        open_points = tuple(one for one in found if not one.stops)
        assert "This plan can decide, with" in conclusion(open_points)
        assert "to change or to accept knowingly" in conclusion(open_points)

    def test_a_gate_that_stops_most_equals_is_called_unable_to_decide(self) -> None:
        plan, simulation = self.plan_and_simulation()
        for passed, stops in ((0.49, True), (0.51, False)):
            odds = replace(self.ODDS, equal=Odds(passed, 0.0, 1 - passed))
            found = remarks(plan, replace(simulation, slices=(odds,)))
            about = next(one for one in found if one.sentence.startswith("crushed_corner"))
            assert (about.good, about.stops) == (False, stops)
        assert conclusion((Remark(good=False, sentence="", stops=True),)).startswith(
            "This plan cannot decide: for 1 reason a search"
        )
        assert conclusion((Remark(good=True, sentence=""),)).startswith("This plan can decide:")

    def test_an_assumed_slice_says_how_much_to_ask_for(self) -> None:
        words = self.told(replace(self.ODDS, assumed=True))
        assert "Ask for 180 of them there in `split.minimum`" in words

    def test_nobody_may_quote_the_winner_s_own_number(self) -> None:
        plan, simulation = self.plan_and_simulation()
        found = remarks(plan, simulation)
        assert any("Never quote the winner's own number" in one.sentence for one in found)

    def test_a_holdout_below_the_plan_s_minimum_is_insufficient_before_it_starts(self) -> None:
        plan, simulation = self.plan_and_simulation(final__minimum_damaged_photos=5000)
        found = remarks(plan, simulation)
        assert any("would be INSUFFICIENT whatever it finds" in one.sentence for one in found)


def test_a_better_model_meets_the_target_more_often() -> None:
    plan = small_plan(final__target_cost_per_1000=300.0, final__minimum_damaged_photos=10)
    holdout = made_clusters(generator(), WORLD, 300)
    odds = simulate_final(plan, holdout, WORLD, 60, generator(1)).by_share_of_target
    passed = [odds[share].passed for share in sorted(odds)]
    assert passed == sorted(passed, reverse=True)
    assert passed[0] > passed[-1]


@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.integers(0, 120))
def test_drawn_photos_keep_their_shipments_sizes(seed: int, shipments: int, damaged: int) -> None:
    clusters = damaged_clusters(np.random.default_rng(seed), shipments, damaged)
    assert int(clusters.damaged.sum()) == max(shipments, damaged)
    codes, flags = clusters.drawn(np.random.default_rng(seed))
    assert np.bincount(codes).tolist() == clusters.photos.tolist()
    assert flags.all()
