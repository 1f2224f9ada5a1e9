"""The assumed world that a plan's gates are tried in: shipments, damage, scores that err together.

Everything in here is an assumption, none is a measurement; what the gates make of it is asked in
`simulation`. Noise is normal with variance one, part of it shared by a shipment's photos and part
by all models, so that what a model truly costs has a closed form.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from parcel_assets.core.columns import Booleans, Codes, Floats
from parcel_assets.core.statistics import PER, Costs

Generator = np.random.Generator
REFERENCE_MISS_RATE = 0.15
SEPARATIONS = (0.02, 9.0)  # from a model that sees nothing to one that errs almost never


@dataclass(frozen=True, slots=True)
class World:
    """What is assumed: how good the reference is, and how much alike photos and models err."""

    photos_per_shipment: float = 3.0
    damaged_share: float = 0.12
    area_under_curve: float = 0.94
    reference_miss_rate: float = REFERENCE_MISS_RATE
    shipment_likeness: float = 0.15  # of damage within a shipment, and of noise by shipment
    model_likeness: float = 0.7  # correlation of two models' errors, the shipment's share with it
    trial_spread: float = 0.15  # standard deviation of the trials' separation

    @property
    def separation(self) -> float:
        """How far damaged photos score above intact ones, in standard deviations of the noise."""
        return math.sqrt(2) * float(ndtri(self.area_under_curve))

    def with_separation(self, separation: float) -> Self:
        """Return the world with models of another quality."""
        return replace(self, area_under_curve=float(ndtr(separation / math.sqrt(2))))


@dataclass(frozen=True, slots=True)
class Clusters:
    """Photos and damaged photos of each shipment; `share` of the shipments fall into the part."""

    photos: Codes
    damaged: Codes
    share: float = 1.0

    @property
    def shipments_expected(self) -> float:
        """How many shipments the part holds on average."""
        return self.share * len(self.photos)

    @property
    def photos_expected(self) -> float:
        """How many photos the part holds on average."""
        return self.share * float(self.photos.sum())

    @property
    def damaged_expected(self) -> float:
        """How many damaged photos the part holds on average."""
        return self.share * float(self.damaged.sum())

    @property
    def damaged_share(self) -> float:
        """The share of photos that are damaged."""
        return float(self.damaged.sum()) / max(1, int(self.photos.sum()))

    def drawn(self, generator: Generator) -> tuple[Codes, Booleans]:
        """Return one part's photos: their shipments, and which of them are damaged."""
        count = len(self.photos)
        whole = int(self.share)
        chosen = np.repeat(np.arange(count), whole)
        extra = np.flatnonzero(generator.random(count) < self.share - whole)
        chosen = np.concatenate((chosen, extra)).astype(np.intp)
        sizes, hurt = self.photos[chosen], self.damaged[chosen]
        codes = np.repeat(np.arange(len(chosen)), sizes)
        first = np.repeat(np.cumsum(sizes) - sizes, sizes)
        return codes, np.arange(len(codes)) - first < hurt[codes]


def made_clusters(generator: Generator, world: World, shipments: int) -> Clusters:
    """Return shipments as the world has them: one photo or more, damage alike within each."""
    extra = max(world.photos_per_shipment - 1, 0.0)
    photos = (1 + generator.poisson(extra, shipments)).astype(np.intp)
    spread = 1 / world.shipment_likeness - 1
    rates = generator.beta(
        world.damaged_share * spread, (1 - world.damaged_share) * spread, shipments
    )
    return Clusters(photos, generator.binomial(photos, rates).astype(np.intp))


def damaged_clusters(generator: Generator, shipments: int, damaged_photos: int) -> Clusters:
    """Return shipments of damaged photos only, each at least one, so many in all."""
    sizes = np.ones(shipments, dtype=np.intp)
    extra = max(0, damaged_photos - shipments)
    np.add.at(sizes, generator.integers(0, shipments, extra), 1)
    return Clusters(sizes, sizes)


def noise(generator: Generator, world: World, codes: Codes, models: int) -> Floats:
    """Return noise (models, photos) of variance one: by shipment, by photo, and by model alone."""
    by_shipment = generator.normal(size=int(codes.max()) + 1 if len(codes) else 0)[codes]
    by_photo = generator.normal(size=len(codes))
    alone = generator.normal(size=(models, len(codes)))
    together = max(world.model_likeness - world.shipment_likeness, 0.0)
    shared = math.sqrt(world.shipment_likeness) * by_shipment + math.sqrt(together) * by_photo
    rest = 1 - world.shipment_likeness - together
    result: Floats = shared + math.sqrt(rest) * alone
    return result


def scores_of_models(
    generator: Generator, world: World, codes: Codes, damaged: Booleans, separations: Floats
) -> Floats:
    """Return scores (models, photos): noise, and the model's separation where there is damage."""
    scores: Floats = noise(generator, world, codes, len(separations))
    scores += np.asarray(separations)[:, None] * damaged
    return scores


def true_cost(separation: float, threshold: float, damaged_share: float, costs: Costs) -> float:
    """Return what a model costs per 1,000 photos over all shipments that there could be."""
    missed = damaged_share * costs.missed_damage * float(ndtr(threshold - separation))
    needless = (1 - damaged_share) * costs.needless_review * float(ndtr(-threshold))
    return PER * (missed + needless)


def best_threshold(separation: float, damaged_share: float, costs: Costs) -> float:
    """Return the threshold of least true cost: where both errors weigh the same."""
    odds = (1 - damaged_share) * costs.needless_review / (damaged_share * costs.missed_damage)
    return separation / 2 + math.log(odds) / separation


def least_cost(separation: float, damaged_share: float, costs: Costs) -> float:
    """Return a model's true cost per 1,000 photos at its best threshold."""
    threshold = best_threshold(separation, damaged_share, costs)
    return true_cost(separation, threshold, damaged_share, costs)


def separation_for(cost: float, damaged_share: float, costs: Costs) -> float | None:
    """Return the separation whose least cost is this one, or None where no model costs that."""
    low, high = SEPARATIONS
    if not least_cost(high, damaged_share, costs) < cost < least_cost(low, damaged_share, costs):
        return None

    def excess(separation: float) -> float:
        return least_cost(separation, damaged_share, costs) - cost

    return float(brentq(excess, low, high, xtol=1e-6))
