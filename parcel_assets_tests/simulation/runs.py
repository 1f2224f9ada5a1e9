"""Many seeds on several processes: what each came to, and the line that repeats a failing one."""

import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

from parcel_assets_tests.simulation.world import Outcome, simulate


@dataclass(slots=True)
class Tally:
    """What a range of seeds came to."""

    seeds: range
    failures: dict[int, str] = field(default_factory=dict)
    struck: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    facts: Counter[str] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    runs: int = 0

    def add(self, outcome: Outcome) -> None:
        """Count one world."""
        self.struck += outcome.struck
        self.facts += outcome.facts
        self.ended[outcome.ended] += 1
        self.places.update(outcome.places)
        self.compared += outcome.compared
        self.runs += outcome.runs

    def sum(self, others: "Sequence[Tally]") -> "Tally":
        """Return these seeds and others as one tally."""
        for other in others:
            self.failures |= other.failures
            self.struck += other.struck
            self.facts += other.facts
            self.ended += other.ended
            self.places += other.places
            self.compared += other.compared
            self.runs += other.runs
        return self


def command(seed: int) -> str:
    """Return the command that runs one seed alone."""
    return f"python -m parcel_assets_tests.simulation --seed {seed}"


def try_seeds(seeds: range) -> Tally:
    """Run seeds one after another; a failing one is noted and the next one goes on."""
    tally = Tally(seeds)
    for seed in seeds:
        try:
            tally.add(simulate(seed))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 (whatever ends a world is its failure)
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
            tally.failures[seed] = f"{type(error).__name__} at {place}: {error}\n  {command(seed)}"
    return tally


def in_processes(first: int, count: int, *, batch: int, processes: int) -> Iterator[Tally]:
    """Yield the tallies of batches of seeds, in their order."""
    starts = range(first, first + count, batch)
    ranges = [range(start, min(start + batch, first + count)) for start in starts]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(try_seeds, ranges)
