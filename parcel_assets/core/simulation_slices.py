"""How often the slice gate passes, fails and holds candidates that are equal or worse."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from parcel_assets.core.columns import Booleans, Codes
from parcel_assets.core.simulation_bounds import PHOTO_DRAWS, PHOTOS_MAXIMUM, draws_within
from parcel_assets.core.simulation_world import (
    Clusters,
    Generator,
    World,
    best_threshold,
    least_cost,
    noise,
    scores_of_models,
    separation_for,
)
from parcel_assets.core.slice_plan import SliceRule
from parcel_assets.core.slice_verdict import Outcome, SliceResult
from parcel_assets.core.slices import judge_cost_slice, judge_miss_slice
from parcel_assets.core.statistics import Costs

WANTED_PASSES = 0.80  # of equal candidates; below it a gate mostly stops what it should let through
GROWTHS = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
GROWTH_DRAWS = 200


@dataclass(frozen=True, slots=True)
class Odds:
    """How often a gate passed, failed and held, as shares of the draws."""

    passed: float
    failed: float
    held: float


@dataclass(frozen=True, slots=True)
class SliceOdds:
    """One slice's gate: sizes in validation, and the odds of equal and of worse candidates.

    `worse_by` is in percentage points of the miss rate, or in percent of the reference's cost.
    `growth` is by how much the slice must grow until an equal candidate mostly passes: 1 where it
    does, None where none of the tried sizes was enough.
    """

    name: str
    role: str
    measure: str
    shipments: float
    damaged_photos: float
    worse_by: tuple[float, float]
    equal: Odds
    fairly_worse: Odds
    worse: Odds
    growth: float | None
    draws: int = 0
    assumed: bool = False
    below_floor: tuple[
        str, ...
    ] = ()  # what it lacks of the plan's own floor: held whatever it shows


@dataclass(frozen=True, slots=True)
class SliceGate:
    """One slice of a plan in the world: its rule, its shipments, and what errors cost."""

    rule: SliceRule
    clusters: Clusters
    world: World
    costs: Costs

    @property
    def worse_by(self) -> tuple[float, float]:
        """The plan's limit and margin: percentage points of misses, or percent of the cost."""
        points = (self.rule.fail_miss_points, self.rule.margin_miss_points)
        if self.rule.is_of_damage:
            return points
        margin = 100 * self.rule.margin_cost_fraction
        return margin * points[0] / points[1], margin

    def results(
        self, worse_by: float, draws: int, generator: Generator
    ) -> Iterator[SliceResult | None]:
        """Yield what the gate says of a candidate truly worse by so much; None without damage."""
        for _ in range(draws):
            codes, damaged = self.clusters.drawn(generator)
            if not damaged.any():
                yield None
            elif self.rule.is_of_damage:
                yield self._miss(worse_by, codes, damaged, generator)
            else:
                yield self._cost(worse_by, codes, damaged, generator)

    def outcomes(self, worse_by: float, draws: int, generator: Generator) -> list[Outcome]:
        """Return the outcomes; a slice without damage is held, as the chain holds it."""
        return [
            Outcome.INSUFFICIENT if one is None else one.outcome
            for one in self.results(worse_by, draws, generator)
        ]

    def _miss(
        self, worse_by: float, codes: Codes, damaged: Booleans, generator: Generator
    ) -> SliceResult:
        base = self.world.reference_miss_rate
        levels = ndtri([min(0.999, base + worse_by / 100), base])
        review = noise(generator, self.world, codes, 2) > levels[:, None]
        return judge_miss_slice(
            self.rule, review[0], review[1], damaged, codes, members=damaged, allow_no_damage=True
        )

    def _cost(
        self, worse_by: float, codes: Codes, damaged: Booleans, generator: Generator
    ) -> SliceResult:
        share, separation = self.world.damaged_share, self.world.separation
        wanted = least_cost(separation, share, self.costs) * (1 + worse_by / 100)
        # no model costs that little or that much: the nearest there is
        worse = separation_for(wanted, share, self.costs) if worse_by else separation
        both = np.array([0.1 if worse is None else worse, separation])
        scores = scores_of_models(generator, self.world, codes, damaged, both)
        levels = [best_threshold(float(one), share, self.costs) for one in both]
        review = scores >= np.array(levels)[:, None]
        return judge_cost_slice(
            self.rule,
            review[0],
            review[1],
            damaged,
            codes,
            members=np.ones(len(codes), dtype=np.bool_),
            costs=self.costs,
        )


def simulate_slice(
    gate: SliceGate, draws: int, generator: Generator
) -> tuple[SliceOdds, NDArray[np.bool_]]:
    """Return a slice's odds, and in which draws an equal candidate passed.

    A large slice is drawn less often than asked, as its odds say.
    """
    draws = draws_within(draws, gate.clusters.photos_expected, PHOTO_DRAWS)
    found = [gate.outcomes(worse, draws, generator) for worse in (0.0, *gate.worse_by)]
    equal, fairly, worse = (odds_of(one) for one in found)
    odds = SliceOdds(
        name=gate.rule.name,
        role=gate.rule.role,
        measure="miss_rate" if gate.rule.is_of_damage else "cost",
        shipments=gate.clusters.shipments_expected,
        damaged_photos=gate.clusters.damaged_expected,
        worse_by=gate.worse_by,
        equal=equal,
        fairly_worse=fairly,
        worse=worse,
        growth=_growth(gate, equal, generator),
        draws=draws,
        below_floor=_below_floor(gate),
    )
    return odds, np.array([one is Outcome.PASS for one in found[0]])


def odds_of(outcomes: Sequence[Outcome]) -> Odds:
    """Return the shares of the three outcomes."""
    counts = Counter(outcomes)
    passed, failed, held = (
        counts[one] / len(outcomes) for one in (Outcome.PASS, Outcome.FAIL, Outcome.INSUFFICIENT)
    )
    return Odds(passed, failed, held)


def _below_floor(gate: SliceGate) -> tuple[str, ...]:
    asked = (
        (gate.clusters.shipments_expected, gate.rule.minimum_shipments, "shipments"),
        (gate.clusters.damaged_expected, gate.rule.minimum_damaged_photos, "damaged photos"),
    )
    return tuple(f"{least:,} {words}" for found, least, words in asked if round(found) < least)


def _growth(gate: SliceGate, equal: Odds, generator: Generator) -> float | None:
    if equal.passed >= WANTED_PASSES:
        return 1.0
    if gate.rule.role == "monitored":
        return None  # it holds nothing, so nobody need collect for it
    for growth in GROWTHS:
        larger = replace(gate.clusters, share=gate.clusters.share * growth)
        if larger.photos_expected > PHOTOS_MAXIMUM:
            break
        draws = draws_within(GROWTH_DRAWS, larger.photos_expected, PHOTO_DRAWS)
        found = replace(gate, clusters=larger).outcomes(0.0, draws, generator)
        if odds_of(found).passed >= WANTED_PASSES:
            return growth
    return None
