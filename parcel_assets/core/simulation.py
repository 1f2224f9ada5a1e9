"""How often a plan's gates pass, fail and hold candidates whose quality is known.

Draws shipments and scores in the assumed world and hands them to the chain's own functions: what is
counted here is what they say. Slices are in `simulation_slices`, pruning
in `simulation_pruning`, the words in `simulation_words`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from parcel_assets.core.bootstrap import SEED
from parcel_assets.core.columns import Floats
from parcel_assets.core.errors import EvidenceError
from parcel_assets.core.final import judge_final
from parcel_assets.core.plan import Plan
from parcel_assets.core.rerun_report import costs_of
from parcel_assets.core.selection_bias import selection_corrected_cost
from parcel_assets.core.simulation_bounds import (
    PHOTO_DRAWS,
    SCORES_MAXIMUM,
    draws_within,
    require_budget,
)
from parcel_assets.core.simulation_pruning import PruningOdds, simulate_pruning
from parcel_assets.core.simulation_sizes import Sizes
from parcel_assets.core.simulation_slices import (
    Odds,
    SliceGate,
    SliceOdds,
    odds_of,
    simulate_slice,
)
from parcel_assets.core.simulation_world import (
    Clusters,
    Generator,
    World,
    best_threshold,
    scores_of_models,
    separation_for,
    true_cost,
)
from parcel_assets.core.slice_verdict import Outcome
from parcel_assets.core.statistics import Costs, estimate_cost
from parcel_assets.core.thresholds import GRID_POINTS, choose_threshold

SEARCHES_MINIMUM, DRAWS_PER_SEARCH = 12, 25
CORRECTION_DRAWS = 100
TARGET_SHARES = (0.7, 0.8, 0.9, 1.0, 1.1)

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class SelectionOdds:
    """What the best of so many trials shows, what it truly costs, what the correction says."""

    searches: int
    trials: int
    shipments: float  # simulated: of a large validation part not all of them
    shown_cost: float
    true_cost: float
    corrected_cost: float
    shown_bound_covers: float
    corrected_bound_covers: float

    @property
    def optimism(self) -> float:
        """By what share of the truth the winner's own number is too low."""
        return 1 - self.shown_cost / self.true_cost


@dataclass(frozen=True, slots=True)
class FinalOdds:
    """The one look at the holdout: its size, its misses, and verdicts by true cost."""

    shipments: float
    damaged_photos: float
    misses_expected: float
    draws: int
    by_share_of_target: dict[float, Odds]  # true cost as a share of the target -> verdicts


@dataclass(frozen=True, slots=True)
class Simulation:
    """All that was found for one plan."""

    draws: int
    seed: int
    sizes: Sizes
    slices: tuple[SliceOdds, ...]
    all_equal_pass: float | None  # every protected slice at once; None where there is none
    pruning: tuple[PruningOdds, ...]
    selection: SelectionOdds
    final: FinalOdds


def simulate(
    plan: Plan, sizes: Sizes, *, draws: int, seed: int = SEED, progress: Progress | None = None
) -> Simulation:
    """Return the odds of a plan's gates; the same seed, sizes and draws give the same odds.

    Raises PlanError for a budget that is larger than what is simulated.
    """
    require_budget(plan)
    costs, world = costs_of(plan), world_at_target(plan, sizes.world)
    streams = iter(np.random.SeedSequence(seed).spawn(len(sizes.slices) + 3))
    done, total = -1, len(sizes.slices) + 3

    def tell(words: str) -> None:
        if progress is not None:
            progress(done, total, words)

    def step(words: str) -> Generator:
        nonlocal done
        done += 1
        tell(words)
        return np.random.default_rng(next(streams))

    slices, passes = [], []
    for one in sizes.slices:
        odds, passed = simulate_slice(
            SliceGate(one.rule, one.clusters, world, costs), draws, step(one.rule.name)
        )
        slices.append(replace(odds, assumed=one.assumed))
        if one.rule.role == "protected":
            passes.append(passed)
    return Simulation(
        draws=draws,
        seed=seed,
        sizes=sizes,
        slices=tuple(slices),
        all_equal_pass=_all_pass(passes),
        pruning=simulate_pruning(plan, draws, step("pruning")),
        selection=simulate_selection(
            plan, sizes.validation, world, draws, step("selection"), tell=tell
        ),
        final=simulate_final(plan, sizes.holdout, world, draws, step("final evaluation")),
    )


def _all_pass(passes: list[NDArray[np.bool_]]) -> float | None:
    """Return how often all pass at once, over the draws that every slice had."""
    if not passes:
        return None
    common = min(map(len, passes))
    return float(np.all([one[:common] for one in passes], axis=0).mean())


def world_at_target(plan: Plan, world: World) -> World:
    """Return the world with models that cost about the plan's target, if any model costs that."""
    target = plan.final.target_cost_per_1000
    separation = separation_for(target, world.damaged_share, costs_of(plan))
    return world if separation is None else world.with_separation(separation)


# ---- selection -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChosenBest:
    """One simulated choice: what the winner shows, its bounds, the correction and the truth."""

    shown: float
    shown_bound: float
    corrected: float
    corrected_bound: float
    truth: float


def choose_best(
    clusters: Clusters,
    world: World,
    costs: Costs,
    trials: int,
    generator: Generator,
    *,
    correction_draws: int = CORRECTION_DRAWS,
    grid_points: int = GRID_POINTS,
) -> ChosenBest | None:
    """Return one choice among trials of spread quality, each at its own threshold, and its truth.

    None where the drawn shipments hold too little damage for any correction.
    """
    codes, damaged = clusters.drawn(generator)
    separations: Floats = world.separation + world.trial_spread * generator.normal(size=trials)
    scores = scores_of_models(generator, world, codes, damaged, np.maximum(separations, 0.1))
    try:
        corrected = selection_corrected_cost(
            scores, damaged, codes, costs, seed=int(generator.integers(2**31)),
            draws=correction_draws, grid_points=grid_points,
        )  # fmt: skip
    except EvidenceError:
        return None
    thresholds = [choose_threshold(one, damaged, costs, grid_points) for one in scores]
    estimates = [
        estimate_cost(one >= threshold, damaged, codes, costs)
        for one, threshold in zip(scores, thresholds, strict=True)
    ]
    best = int(np.argmin([one.cost_per_1000 for one in estimates]))
    truth = true_cost(float(separations[best]), thresholds[best], world.damaged_share, costs)
    return ChosenBest(
        shown=estimates[best].cost_per_1000,
        shown_bound=estimates[best].upper_bound_guarded,
        corrected=corrected.cost_per_1000,
        corrected_bound=corrected.range_high,
        truth=truth,
    )


def simulate_selection(
    plan: Plan,
    validation: Clusters,
    world: World,
    draws: int,
    generator: Generator,
    *,
    tell: Callable[[str], None] = lambda _words: None,
) -> SelectionOdds:
    """Return how far the best of the budget flatters itself on this validation part.

    Of a large part so many shipments are taken as fit; on more of them it flatters itself less.
    """
    trials, searches = plan.search.budget_trials, max(SEARCHES_MINIMUM, draws // DRAWS_PER_SEARCH)
    fitting = min(1.0, SCORES_MAXIMUM / trials / max(validation.photos_expected, 1))
    part = replace(validation, share=validation.share * fitting)
    found = []
    for search in range(searches):
        tell(f"selection, search {search + 1} of {searches}")
        found.append(
            choose_best(
                part, world, costs_of(plan), trials, generator,
                grid_points=plan.metric.threshold_grid_points,
            )
        )  # fmt: skip
    return summarize([one for one in found if one is not None], trials, part.shipments_expected)


def summarize(chosen: list[ChosenBest], trials: int, shipments: float) -> SelectionOdds:
    """Return what so many simulated choices have in common; NaN where there is none."""
    columns = np.array(
        [(o.shown, o.truth, o.corrected, o.shown_bound, o.corrected_bound) for o in chosen]
    ).reshape(-1, 5)
    shown, truth, corrected, shown_bound, corrected_bound = columns.T
    means = [float(one.mean()) if len(one) else float("nan") for one in (shown, truth, corrected)]
    return SelectionOdds(
        searches=len(chosen),
        trials=trials,
        shipments=shipments,
        shown_cost=means[0],
        true_cost=means[1],
        corrected_cost=means[2],
        shown_bound_covers=float(np.mean(shown_bound >= truth)) if len(chosen) else float("nan"),
        corrected_bound_covers=(
            float(np.mean(corrected_bound >= truth)) if len(chosen) else float("nan")
        ),
    )


# ---- final evaluation ----------------------------------------------------------------------------


def simulate_final(
    plan: Plan, holdout: Clusters, world: World, draws: int, generator: Generator
) -> FinalOdds:
    """Return how often models of known cost meet the plan's target on this holdout."""
    costs, share, by_share = costs_of(plan), world.damaged_share, {}
    draws = draws_within(draws, holdout.photos_expected, PHOTO_DRAWS)
    misses = 0.0
    for part_of_target in TARGET_SHARES:
        separation = separation_for(part_of_target * plan.final.target_cost_per_1000, share, costs)
        if separation is None:
            continue
        threshold, verdicts, missed = best_threshold(separation, share, costs), [], []
        for _ in range(draws):
            codes, damaged = holdout.drawn(generator)
            if not damaged.any():
                verdicts.append("INSUFFICIENT")
                continue
            scores = scores_of_models(generator, world, codes, damaged, np.array([separation]))[0]
            estimate = estimate_cost(scores >= threshold, damaged, codes, costs)
            missed.append(estimate.missed)
            verdicts.append(judge_final(estimate, plan.final)[0])
        by_share[part_of_target] = odds_of([Outcome(one.lower()) for one in verdicts])
        if part_of_target <= 0.9 and missed:
            misses = float(np.mean(missed))
    return FinalOdds(
        shipments=holdout.shipments_expected,
        damaged_photos=holdout.damaged_expected,
        misses_expected=misses,
        draws=draws,
        by_share_of_target=by_share,
    )
