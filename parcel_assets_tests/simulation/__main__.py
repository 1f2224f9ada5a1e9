"""Long runs: `python -m parcel_assets_tests.simulation SEEDS [--from FIRST] [--processes N]`.

Prints every failing seed as it is found and goes on; `--seed N` runs one alone, with its traceback.
"""

import argparse
import sys
import time

from parcel_assets_tests.simulation.runs import Tally, in_processes
from parcel_assets_tests.simulation.world import simulate

BATCH = 50


def main() -> int:
    """Return 1 where a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m parcel_assets_tests.simulation")
    parser.add_argument("seeds", nargs="?", type=int, default=2_000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int)
    asked = parser.parse_args()
    if asked.seed is not None:
        outcome = simulate(asked.seed)
        print(
            f"seed {asked.seed}: plan {outcome.plan!r} ended {outcome.ended} in {outcome.runs} runs"
        )
        print(f"what struck: {dict(outcome.struck)}")
        return 0
    total, began = Tally(range(asked.first, asked.first + asked.seeds)), time.monotonic()
    tallies = in_processes(asked.first, asked.seeds, batch=BATCH, processes=asked.processes)
    for number, tally in enumerate(tallies, 1):
        total.sum([tally])
        for seed, failure in tally.failures.items():
            print(f"\rFAILED seed {seed}: {failure}", flush=True)
        done, spent = min(number * BATCH, asked.seeds), time.monotonic() - began
        print(
            f"\r{done} of {asked.seeds} seeds, {len(total.failures)} failed, "
            f"{spent:.0f} s, {spent / done * (asked.seeds - done):.0f} s left ",
            end="",
            flush=True,
        )
    print(f"\nended: {dict(total.ended)}")
    print(f"tables compared with the undisturbed one: {total.compared}; runs: {total.runs}")
    print(f"failing seeds: {sorted(total.failures)}")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
