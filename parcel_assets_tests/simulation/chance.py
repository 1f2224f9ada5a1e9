"""What goes wrong in a world, and when: drawn from the seed alone."""

import random
from collections import Counter
from collections.abc import Sequence

# What may happen to a coordinator, at any of its calls of a port, before or after it.
COORDINATOR_FAULTS = (
    "crash",  # its process ends
    "stall",  # it stands still past every lease, workers do not
    "rival",  # a second coordinator starts beside it
    "stall and rival",  # … and finds the lease run out
    "disk full",  # the next write into the store is refused
    "clock back",
    "clock forward",
)
# What may happen to a worker or to what it says.
WORKER_FAULTS = (
    "death",
    "silence",  # paused past its lease, then woken
    "undead",  # goes on writing and speaking after it was stopped
    "repeat",  # a message comes twice
    "reorder",
    "lost message",
    "clash",  # another worker's message comes under this one's id
    "foreign",  # speaks for another attempt, or with a wrong secret
    "malformed",
    "other identity",
    "wrong answer",
    "jump",  # claims to be ready, or done, before it is admitted
    "not finite",
    "wrong length",
    "other photos",  # scores of other photos than the milestone's
    "torn scores",
    "no scores",
    "off milestone",
    "other value",  # repeats a step with another value
    "skipped milestone",
    "past the end",
    "backwards",
    "other axis",  # photos seen are not steps times batch
    "early finish",
    "no model",
    "unasked stop",
    "own failure",
    "setting failure",
    "torn checkpoint",
    "other digest",
    "lost checkpoint",
    "outside",  # a file outside the prefix
    "half-written",
    "theft by copy",
    "theft by parent",
    "forged lineage",
    "foreign file",  # writes a checkpoint into another attempt's prefix
    "stolen marker",  # overwrites another attempt's owner marker
    "torn marker",
)
FAULTS = COORDINATOR_FAULTS + WORKER_FAULTS
CALLS_OF_A_RUN = 900  # about as many moments as an undisturbed run has


class Chance:
    """Draws; a fault that struck is counted, and only so many strike, so that worlds end."""

    def __init__(self, seed: int, faults: Sequence[str] | None = None) -> None:
        self.random = random.Random(seed)
        if faults is None:
            of_coordinators = self.random.sample(
                COORDINATOR_FAULTS, self.random.choice([0, 1, 2, 4])
            )
            of_workers = self.random.sample(WORKER_FAULTS, self.random.choice([0, 1, 2, 4, 8]))
            faults = [*of_coordinators, *of_workers]
        self.rates = {fault: self.random.choice([0.03, 0.1, 0.3]) for fault in faults}
        self.left = self.random.choice([2, 5, 10, 16])
        self._moments_left = self.random.choice([1, 2, 4, 8])
        self.struck: Counter[str] = Counter()

    def strikes(self, fault: str) -> bool:
        """Say whether a fault happens now."""
        rate = self.rates.get(fault)
        if rate is None or self.left == 0 or self.random.random() >= rate:
            return False
        self.left -= 1
        self.struck[fault] += 1
        return True

    def moments(self) -> dict[int, str]:
        """Return at which of its calls what happens to a coordinator."""
        found = {}
        for fault in COORDINATOR_FAULTS:
            if fault in self.rates and self._moments_left and self.random.random() < 0.7:
                self._moments_left -= 1
                reach = self.random.choice([CALLS_OF_A_RUN, CALLS_OF_A_RUN // 8])
                found[self.random.randint(1, reach)] = fault
        return found


class OneCrash(Chance):
    """Nothing happens but this: the first coordinator dies at one of its moments."""

    def __init__(self, moment: int) -> None:
        super().__init__(0, [])
        self._moment = {moment: "crash"}

    def moments(self) -> dict[int, str]:
        """Return the one moment, once."""
        found, self._moment = self._moment, {}
        return found
