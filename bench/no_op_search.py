"""What governing a search costs: 82 trials through real workers whose trainer does nothing.

Every message, file and flush of a real search is there, of real size; only the training is not.
Rounds alternate between numbers of workers. The time runs from the first order, when workers are
ready, to the end that the ledger records; start-up is printed apart. Prints medians, the load of
the machine, and where the coordinator's own time went with `--profile`.
"""

import argparse
import cProfile
import os
import pstats
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parcel_assets.adapters.engine_local import LocalEngine
from parcel_assets.core.ledger import Kind
from parcel_assets.core.plan import Plan
from parcel_assets.steps.search import run_trial_batches
from parcel_assets_tests.search_world import REVISION, World, small_plan

COMMAND = (sys.executable, "-m", "bench.no_op_worker")
PHOTOS = {"train": 2000, "validation": 1200, "holdout": 12}
WORKERS = (2, 8)
LIMIT_SECONDS = 10.0  # a no-op search of 82 trials may take so long after start-up


def no_op_plan(trials: int) -> Plan:
    """Return the sample plans' schedule: 82 steps, 3 milestones, a checkpoint every 20 steps."""
    return small_plan(
        search__budget_trials=trials,
        search__batch_trials=8,
        search__cap_accelerator_hours=20.0,
        search__trial_seconds_maximum=300.0,
        training={
            "steps": 82,
            "batch_photos": 64,
            "milestones": [9, 27, 82],
            "checkpoint_every_steps": 20,
        },
        # nothing is pruned: every trial says all that a trial can say
        pruning={"keep_fractions": [1.0, 1.0]},
    )


@dataclass(frozen=True)
class Round:
    """One search: seconds until the first order, from there to the end, and its events."""

    start_seconds: float
    search_seconds: float
    events: int


def search_once(trials: int, workers: int, profile: cProfile.Profile | None = None) -> Round:
    """Search once in a fresh folder."""
    with tempfile.TemporaryDirectory(prefix="no-op-search-") as name:
        folder = Path(name)
        world = World(folder)
        world.freeze(no_op_plan(trials), photos=PHOTOS)
        ports = replace(
            world.ports(workers=workers), open_engine=lambda: LocalEngine(folder / "logs", COMMAND)
        )
        if profile is not None:
            profile.enable()
        body: dict[str, Any] = run_trial_batches(REVISION, ports).body
        if profile is not None:
            profile.disable()
        assert body["ended"] == "budget", body
        assert body["trials_by_state"] == {"completed": trials}
        events = world.ledger.events(REVISION)
        at = {kind: [one.at_seconds for one in events if one.kind == kind] for kind in Kind}
        began, ended = at[Kind.ATTEMPT_STARTED][0], at[Kind.SEARCH_ENDED][0]
        return Round(began - at[Kind.SEARCH_OPENED][0], ended - began, len(events))


def main(rounds: int = 3, trials: int = 82, *, profile: bool = False) -> None:
    """Run interleaved rounds and print their medians."""
    taken: dict[int, list[Round]] = {workers: [] for workers in WORKERS}
    profiler = cProfile.Profile() if profile else None
    for number in range(rounds):
        for workers in WORKERS if number % 2 == 0 else WORKERS[::-1]:
            load = os.getloadavg()[0]
            began = time.process_time()
            one = search_once(trials, workers, profiler)
            own = time.process_time() - began
            taken[workers].append(one)
            print(
                f"  {workers} workers: {one.search_seconds:.2f} s after {one.start_seconds:.2f} s "
                f"of start-up, {one.events} events, coordinator's own CPU {own:.2f} s "
                f"(load before: {load:.1f})",
                flush=True,
            )
    for workers, found in taken.items():
        median = statistics.median(one.search_seconds for one in found)
        print(
            f"no-op search of {trials} trials, {workers} workers: median {median:.2f} s of "
            f"{len(found)} (at most {LIMIT_SECONDS:g})"
        )
    if profiler is not None:
        pstats.Stats(profiler).sort_stats("cumulative").print_stats(45)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=82)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    main(given.rounds, given.trials, profile=given.profile)
