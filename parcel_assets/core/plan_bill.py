"""The most that a plan can cost, worked out before anything runs.

The worst case: every trial uses up all its attempts, nothing is pruned, every attempt takes the
longest it may. What a search really cost is in the ledger.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any

from parcel_assets.core.plan import Plan
from parcel_assets.core.space import ChoiceDomain, IntDomain

# channels per block in units of width, rounded up: the built-in network grows no faster
CHANNELS_AT_MOST = (1, 2, 4, 8, 8, 8)
STATE_COPIES = 3  # weights and the optimizer's two moments
BYTES_PER_NUMBER = 4
WORKERS_SHOWN = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Bill:
    """Upper bounds: accelerator-hours by purpose, wall hours by workers, disk bytes by kind."""

    trials: int
    attempts: int
    uncapped_hours: float  # the plan's worst case if there were no cap
    cap_hours: float
    hours: float  # the lesser of both: no dispatch may pass it
    after_search_hours: float  # of them, kept for rerun, reference and final evaluation
    one_attempt_each_hours: float
    wall_hours: dict[int, float]
    disk_bytes: dict[str, int]

    @property
    def cap_binds(self) -> bool:
        """Whether the cap, not the plan's own limits, is what ends the worst case."""
        return self.cap_hours < self.uncapped_hours


def bill_of(plan: Plan, photos: int | None) -> Bill:
    """Return the bill of a plan for an archive of so many photos (None: not known)."""
    search = plan.search
    attempts = search.budget_trials * search.attempts_per_trial
    after = plan.after_search_seconds / 3600
    one_each = search.budget_trials * search.trial_seconds_maximum / 3600 + after
    uncapped = attempts * search.trial_seconds_maximum / 3600 + after
    hours = min(uncapped, search.cap_accelerator_hours)
    return Bill(
        trials=search.budget_trials,
        attempts=attempts,
        uncapped_hours=uncapped,
        cap_hours=search.cap_accelerator_hours,
        hours=hours,
        after_search_hours=after,
        one_attempt_each_hours=one_each,
        # reruns follow the search; they run side by side too, but never more than they are
        wall_hours={workers: hours / workers for workers in WORKERS_SHOWN},
        disk_bytes=_disk(plan, attempts, photos),
    )


def _disk(plan: Plan, attempts: int, photos: int | None) -> dict[str, int]:
    training = plan.training
    saved = attempts * math.ceil(training.steps / training.checkpoint_every_steps)
    found: dict[str, int] = {}
    if photos is not None:
        found["decoded pixels"] = photos * 3 * plan.preprocess.image_size_pixels**2
        found["scores"] = attempts * len(training.milestones) * photos * BYTES_PER_NUMBER
    weights = _largest_weights_bytes(plan)
    if weights is not None:
        found["checkpoints"] = saved * weights * STATE_COPIES
        found["models"] = attempts * weights
    return found


def _largest_weights_bytes(plan: Plan) -> int | None:
    """Return the size of the largest built-in network of the space; None for one's own network."""
    if plan.training.network != "cnn":
        return None
    width, depth = _largest(plan, "width", 16), min(_largest(plan, "depth", 4), 6)
    channels = [3, *(width * growth for growth in CHANNELS_AT_MOST[:depth])]
    numbers = sum(9 * a * b + 4 * b for a, b in itertools.pairwise(channels))
    return BYTES_PER_NUMBER * numbers


def _largest(plan: Plan, knob: str, usual: int) -> int:
    values: list[Any] = [plan.reference.configuration.get(knob, usual)]
    domain = plan.space.get(knob)
    if isinstance(domain, IntDomain):
        values.append(domain.high)
    elif isinstance(domain, ChoiceDomain):
        values.extend(domain.values)
    return max(int(one) for one in values)
