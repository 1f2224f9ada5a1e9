"""What pruning can lose: how often the trial that would have ended best is stopped on the way.

Cuts, their guard and the order of batches are the plan's own; only the trials' costs are drawn, so
that a milestone's order agrees with the last one's as much as is assumed.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parcel_assets.core.columns import Booleans, Floats
from parcel_assets.core.plan import Plan
from parcel_assets.core.search_batches import cut_from_values, guard_from_pairs
from parcel_assets.core.simulation_bounds import (
    PRUNING_WORK,
    draws_within,
    pruning_work,
    require_budget,
)

CORRELATIONS = (0.4, 0.6, 0.8, 0.95)


@dataclass(frozen=True, slots=True)
class PruningOdds:
    """One milestone under one assumed rank correlation with the end."""

    step: int
    keep: float
    rank_correlation: float
    best_is_pruned: float  # share of searches that lose their best trial here
    trials_pruned: float  # share of all trials stopped here
    draws: int


def simulate_pruning(
    plan: Plan, draws: int, generator: np.random.Generator
) -> tuple[PruningOdds, ...]:
    """Return what each milestone before the last loses, for several rank correlations.

    Raises PlanError for a budget that is larger than what is simulated.
    """
    require_budget(plan)
    draws = draws_within(draws, pruning_work(plan), PRUNING_WORK)
    milestones = plan.training.milestones[:-1]
    found = []
    for correlation in CORRELATIONS:
        lost, stopped = np.zeros(len(milestones)), np.zeros(len(milestones))
        for _ in range(draws):
            values = correlated_costs(
                generator, plan.search.budget_trials, len(milestones), correlation
            )
            ends = prune_once(plan, values)
            best = int(np.argmin(values[-1]))
            for place in range(len(milestones)):
                lost[place] += ends[best] == place
                stopped[place] += np.mean(ends == place)
        found += [
            PruningOdds(
                step, keep, correlation, float(lost[n]) / draws, float(stopped[n]) / draws, draws
            )
            for n, (step, keep) in enumerate(
                zip(milestones, plan.pruning.keep_fractions, strict=True)
            )
        ]
    return tuple(found)


def correlated_costs(
    generator: np.random.Generator, trials: int, milestones: int, correlation: float
) -> Floats:
    """Return costs (milestones + 1, trials), the last row final, ranks correlated with it."""
    linear = 2 * math.sin(math.pi * correlation / 6)  # of normal values with these ranks
    final = generator.normal(size=trials)
    early = linear * final + math.sqrt(1 - linear**2) * generator.normal(size=(milestones, trials))
    return np.vstack((early, final))


def prune_once(plan: Plan, values: Floats) -> NDArray[np.intp]:
    """Return for each trial at which milestone (its place) it is stopped; the last place: never.

    Batches close in order and a batch's cuts are made from those that it may know.
    """
    count, last = values.shape[1], len(values) - 1
    ends = np.full(count, last)
    size, lookahead = plan.search.batch_trials, plan.search.lookahead_batches
    warm_up = min(plan.pruning.warm_up_trials, count)
    for batch, first in enumerate(range(0, count, size), start=1):
        known = max(0, min(count, (batch - lookahead) * size))
        seen = values[:, :known]
        cuts = [_cut_cost(plan, seen, ends[:known] >= place, place) for place in range(last)]
        for trial in range(max(first, warm_up), min(first + size, count)):
            for place, cut in enumerate(cuts):
                if cut is not None and values[place, trial] > cut:
                    ends[trial] = place
                    break
    return ends


def _cut_cost(plan: Plan, seen: Floats, reached: Booleans, place: int) -> float | None:
    """Return the cut that the plan's rule makes of the trials seen, of which some got so far."""
    warm_up = min(plan.pruning.warm_up_trials, plan.search.budget_trials)
    guard = None
    if warm_up and plan.pruning.minimum_rank_correlation > -1:
        if seen.shape[1] < warm_up:
            guard = f"the warm-up of {warm_up} trials is not over"
        else:
            pairs = zip(seen[place, :warm_up].tolist(), seen[-1, :warm_up].tolist(), strict=True)
            guard = guard_from_pairs(plan, [*pairs])
    values = tuple((int(n) + 1, float(seen[place, n])) for n in np.flatnonzero(reached))
    step, keep = plan.training.milestones[place], plan.pruning.keep_fractions[place]
    return cut_from_values(plan, step, keep, values, guard=guard).cut_cost
