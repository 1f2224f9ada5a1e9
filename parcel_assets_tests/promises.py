"""What the statistics promise, counted in the shipped simulator's world: `make promises`.

Tests count each promise in as few draws as tell; run as a program this counts them in many, prints
every figure with its Monte-Carlo error and ends with 1 where one is broken.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from parcel_assets.core.columns import Booleans
from parcel_assets.core.reruns import judge_reruns
from parcel_assets.core.simulation import ChosenBest, choose_best
from parcel_assets.core.simulation_slices import SliceGate
from parcel_assets.core.simulation_world import (
    World,
    damaged_clusters,
    made_clusters,
    scores_of_models,
    true_cost,
)
from parcel_assets.core.slice_family import judge_together
from parcel_assets.core.slice_plan import SliceRule
from parcel_assets.core.slice_verdict import SliceResult
from parcel_assets.core.statistics import Costs, estimate_cost

WORLD, COSTS = World(), Costs(missed_damage=20.0, needless_review=1.0)
TRIALS = 82
Gate = Callable[[SliceResult], bool]


def generator(*seed: int) -> np.random.Generator:
    return np.random.default_rng([20_261_129, *seed])


# ---- one draw of each promise, many times --------------------------------------------------------


def guarded_coverage(shipments: int, draws: int, *seed: int) -> float:
    """Return how often the guarded bound is at or above the true cost."""
    chance, threshold = generator(shipments, *seed), 0.7
    truth = true_cost(WORLD.separation, threshold, WORLD.damaged_share, COSTS)
    separation, covered = np.array([WORLD.separation]), 0
    for _ in range(draws):
        codes, damaged = made_clusters(chance, WORLD, shipments).drawn(chance)
        scores = scores_of_models(chance, WORLD, codes, damaged, separation)[0]
        estimate = estimate_cost(scores >= threshold, damaged, codes, COSTS)
        covered += estimate.upper_bound_guarded >= truth
    return covered / draws


def passes(result: SliceResult) -> bool:
    return result.passed


def rule(name: str = "crushed_corner") -> SliceRule:
    """Return a protected slice of kinds of damage, its support floor aside."""
    return SliceRule(
        name=name,
        dimension="damage_type",
        value=name,
        role="protected",
        minimum_shipments=2,
        minimum_damaged_photos=1,
        minimum_effective_photos=1,
    )


def pass_rate(gate: Gate, shipments: int, worse_by: float, draws: int, *seed: int) -> float:
    """Return how often a protected slice passes that is truly worse by so many points."""
    chance = generator(shipments, round(worse_by), *seed)
    clusters = damaged_clusters(chance, shipments, round(1.5 * shipments))
    results = SliceGate(rule(), clusters, WORLD, COSTS).results(worse_by, draws, chance)
    return float(np.mean([one is not None and gate(one) for one in results]))


def chosen(shipments: int, searches: int, *seed: int) -> list[ChosenBest]:
    """Return so many simulated choices among 82 trials, each on shipments of its own."""
    chance = generator(*seed)
    clusters = (made_clusters(chance, WORLD, shipments) for _ in range(searches))
    found = (choose_best(one, WORLD, COSTS, TRIALS, chance) for one in clusters)
    return [one for one in found if one is not None]


def harmed_rate(slices: int, shipments: int, searches: int, *seed: int) -> tuple[float, float]:
    """Return how often some equal slice is called harmed: each on its own, and all together."""
    chance = generator(slices, shipments, *seed)
    rules = [rule(f"slice-{n}") for n in range(slices)]
    clusters = damaged_clusters(chance, shipments, round(1.5 * shipments))
    alone = together = 0
    for _ in range(searches):
        results: list[SliceResult] = []
        for one in rules:
            (result,) = SliceGate(one, clusters, WORLD, COSTS).results(0.0, 1, chance)
            assert result is not None
            results.append(result)
        alone += any(_is_harm(one.harm_chance) for one in results)
        together += any(_is_harm(r.harm_chance_adjusted) for r in judge_together(rules, results))
    return alone / searches, together / searches


def _is_harm(chance: float | None) -> bool:
    return chance is not None and chance < 0.05


def shrunken_pass_rate(shipments: int, searches: int, *seed: int) -> tuple[float, float]:
    """Return how often one bad slice of twelve passes: by its gate, and were it shrunken first."""
    chance = generator(shipments, *seed)
    rules = [rule(f"slice-{n}") for n in range(12)]
    clusters = damaged_clusters(chance, shipments, round(1.5 * shipments))
    gated = shrunken = 0
    for _ in range(searches):
        results: list[SliceResult] = []
        for n, one in enumerate(rules):
            worse = 10.0 if n == 0 else 0.0
            (result,) = SliceGate(one, clusters, WORLD, COSTS).results(worse, 1, chance)
            assert result is not None
            results.append(result)
        bad = judge_together(rules, results)[0]
        gated += bad.passed
        assert bad.shrunken_difference is not None
        shrunken += bad.shrunken_difference <= 5
    return gated / searches, shrunken / searches


def honest_luck_held(trials: int, seed_share: float, searches: int, *seed: int) -> float:
    """Return how often an honest winner of so many trials is called not reproduced.

    Trials differ by seed and by configuration; of their variance so much is the seed's.
    """
    chance = generator(trials, round(100 * seed_share), *seed)
    held = 0
    for _ in range(searches):
        quality = 100 + 5 * math.sqrt(1 - seed_share) * chance.normal(size=trials)
        by_seed = 5 * math.sqrt(seed_share)
        costs = quality + by_seed * chance.normal(size=trials)
        best = int(np.argmin(costs))
        extra = (quality[best] + by_seed * chance.normal(size=5)).tolist()
        found = judge_reruns(float(costs[best]), float(costs[best]), extra, costs.tolist())
        held += found.not_reproduced is True
    return held / searches


def bounds_of(choices: list[ChosenBest]) -> tuple[Booleans, Booleans]:
    """Return in which choices the winner's own bound and the corrected one cover the truth."""
    truth = np.array([one.truth for one in choices])
    own = np.array([one.shown_bound for one in choices]) >= truth
    return own, np.array([one.corrected_bound for one in choices]) >= truth


# ---- all of them as a table ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Figure:
    """One promise: what was counted, in how many draws, and the share that it must keep to."""

    words: str
    share: float
    draws: int
    at_least: float | None = None
    at_most: float | None = None

    @property
    def error(self) -> float:
        """The Monte-Carlo standard error of the share."""
        return math.sqrt(self.share * (1 - self.share) / self.draws)

    @property
    def kept(self) -> bool:
        """Whether the share keeps to its bound."""
        low = self.at_least if self.at_least is not None else 0.0
        high = self.at_most if self.at_most is not None else 1.0
        return low <= self.share <= high


def figures(draws: int, searches: int) -> Iterator[Figure]:
    for size in (100, 200, 400, 800):
        share = guarded_coverage(size, draws)
        yield Figure(f"guarded bound covers, {size} shipments", share, draws, at_least=0.94)
    for size in (30, 60, 120):
        share = pass_rate(passes, size, 10.0, draws)
        yield Figure(f"10 points worse passes, {size} shipments", share, draws, at_most=0.06)
    yield Figure("equal passes, 120 shipments", pass_rate(passes, 120, 0.0, draws), draws, 0.90)
    for size in (100, 200, 400, 800):
        own, corrected = bounds_of(chosen(size, searches, 6, size))
        words = f"bound covers the best of {TRIALS}, {size} shipments"
        yield Figure(f"corrected {words}", float(corrected.mean()), len(corrected), at_least=0.93)
        yield Figure(f"winner's own {words}", float(own.mean()), len(own), at_most=0.93)
    alone, together = harmed_rate(12, 120, searches)
    yield Figure("some of 12 equal slices harmed, each alone", alone, searches, at_least=0.2)
    yield Figure("some of 12 equal slices harmed, Holm", together, searches, at_most=0.06)
    gated, shrunken = shrunken_pass_rate(120, searches)
    yield Figure("one bad slice of 12 passes its gate", gated, searches, at_most=0.06)
    yield Figure("the same, were it shrunken first", shrunken, searches, at_least=0.5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("draws", type=int, nargs="?", default=20_000)
    parser.add_argument("--searches", type=int, default=1000, help="of 82 trials each")
    asked = parser.parse_args()
    broken = 0
    for one in figures(asked.draws, asked.searches):
        bound = f"at least {one.at_least:.0%}" if one.at_least is not None else ""
        bound += f"at most {one.at_most:.0%}" if one.at_most is not None else ""
        broken += not one.kept
        print(
            f"{one.words:<62} {one.share:7.2%} ± {one.error:.2%}  {bound:<13} "
            f"{'kept' if one.kept else 'BROKEN'}  ({one.draws} draws)",
            flush=True,
        )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
