"""One world: a plan, simulated workers, and coordinators that run until the search has ended."""

import atexit
import functools
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from unittest import mock

from parcel_assets.core.errors import (
    HoldError,
    IdentityError,
    LeaseHeldError,
    NoWorkerError,
    SettingError,
    StaleFenceError,
)
from parcel_assets.core.ledger import Event, Kind, verify_chain
from parcel_assets.core.plan import Plan
from parcel_assets.core.ports import PastTrial, Ports
from parcel_assets.core.search import fold_search
from parcel_assets.core.space import Scalar
from parcel_assets.core.stage import Evidence
from parcel_assets.core.table import table_digest, table_rows
from parcel_assets.steps.admission import load_plan
from parcel_assets.steps.dispatch_desk import Labels
from parcel_assets.steps.search import run_trial_batches
from parcel_assets_tests.fake_training import FakeSampler
from parcel_assets_tests.fakes import FakeLedger, FakeStore
from parcel_assets_tests.search_world import REVISION, small_plan
from parcel_assets_tests.search_world import World as Preparation
from parcel_assets_tests.simulation.chance import Chance
from parcel_assets_tests.simulation.engine import SimulatedEngine
from parcel_assets_tests.simulation.model import BrokenRuleError, Model
from parcel_assets_tests.simulation.storage import (
    Clock,
    CoordinatorKilledError,
    Moments,
    WatchedLedger,
)
from parcel_assets_tests.simulation.worker import IDENTITY, Witness

RUNS_MAXIMUM = 120
# what ends a run and is mended by running again
GIVES_UP = (SettingError, NoWorkerError, IdentityError, LeaseHeldError, StaleFenceError, HoldError)

_USUAL: dict[str, Any] = {
    "search__budget_trials": 12,
    "search__batch_trials": 3,
    "search__attempts_per_trial": 3,
    # a stall must not be taken for a trial that reached its limit
    "search__trial_seconds_maximum": 3000.0,
    "search__cap_accelerator_hours": 200.0,
    "training": {
        "steps": 7,
        "batch_photos": 8,
        "milestones": [2, 5, 7],
        "checkpoint_every_steps": 3,
    },
}
# Plans whose searches end in every way that there is.
PLANS: dict[str, Mapping[str, Any]] = {
    "usual": _USUAL,
    "one attempt": _USUAL | {"search__attempts_per_trial": 1},
    "many attempts": _USUAL | {"search__attempts_per_trial": 6},
    "lookahead 1": _USUAL | {"search__lookahead_batches": 1, "search__batch_trials": 4},
    "guarded": _USUAL
    | {
        "pruning": {
            "keep_fractions": [0.5, 0.5],
            "minimum_comparable": 3,
            "warm_up_trials": 4,
            "minimum_rank_correlation": 0.2,
        }
    },
    "not finite": _USUAL | {"purpose": "some configurations give nan"},
    "all not finite": _USUAL
    | {
        "purpose": "every configuration gives nan",
        "search__budget_trials": 5,
    },
    "limit": _USUAL | {"search__trial_seconds_maximum": 30.0, "search__cap_accelerator_hours": 1.0},
    # room for three reservations, and for eight trials or so
    "cap": _USUAL
    | {
        "search__trial_seconds_maximum": 60.0,
        "search__cap_accelerator_hours": (14 * 60.0 + 3 * 60.0) / 3600,
    },
    "tight cap": _USUAL
    | {
        "search__trial_seconds_maximum": 60.0,
        "search__cap_accelerator_hours": (14 * 60.0 + 62.0) / 3600,
    },
    "space": _USUAL,
    "redrawn": _USUAL | {"search__equal_configurations": "redraw"},
}
DISTINCT = {"space": 8}  # plan -> configurations that its sampler knows
_JUDGED: dict[tuple[Any, str, bytes], tuple[float | None, float | None]] = {}
_OFTEN = ("usual", "many attempts", *PLANS)


@dataclass(slots=True)
class Outcome:
    """What a world came to."""

    seed: int
    plan: str
    runs: int
    ended: str
    struck: Counter[str]
    places: set[str]  # where coordinators were killed
    compared: bool  # whether its table had to equal the undisturbed one, and did
    digest: str
    table: list[list[Any]]
    facts: Counter[str] = field(default_factory=Counter)


class _WatchedSampler:
    """A sampler that remembers what it was told last."""

    def __init__(self, distinct_maximum: int | None) -> None:
        self.told: Sequence[PastTrial] = ()
        self._sampler = FakeSampler(distinct_maximum)

    def propose(
        self, plan: Plan, *, seed: int, past: Sequence[PastTrial], count: int
    ) -> list[dict[str, Scalar]]:
        self.told = past
        return self._sampler.propose(plan, seed=seed, past=past, count=count)


@functools.cache
def _home() -> Path:
    """Return the folder of this process's worlds, in memory where the machine has such a place."""
    memory = Path("/dev/shm")
    home = tempfile.mkdtemp(prefix="parcel-worlds-", dir=memory if memory.is_dir() else None)
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return Path(home)


@functools.cache
def _prepared(plan: str) -> tuple[FakeStore, tuple[Event, ...], Ports]:
    """Return a frozen revision to start worlds from: store, first events, ports that stay shut."""
    folder = _home() / plan.replace(" ", "-")
    folder.mkdir()
    store, ledger = FakeStore(folder), FakeLedger()
    preparation = Preparation(folder, ledger=ledger, store=store)
    preparation.freeze(small_plan(**PLANS[plan]))
    return store, ledger.events(REVISION), preparation.ports()


@contextmanager
def _remembered_costs() -> Iterator[None]:
    """Let worlds share what scores cost: a pure function that takes a fifth of a world's time."""
    measure = Labels.judge

    def judge(labels: Labels, step: int, content: bytes) -> tuple[float | None, float | None]:
        key = (measure, labels.subsets[step], content)  # labels and metric are the same in all
        if key not in _JUDGED:
            _JUDGED[key] = measure(labels, step, content)
        return _JUDGED[key]

    with mock.patch.object(Labels, "judge", judge):
        yield


class World:
    """One seed's world; `search` runs coordinators in it until the search has ended."""

    def __init__(self, seed: int, *, chance: Chance, plan: str, workers: int) -> None:
        self.seed = seed
        self.plan_name = plan
        self.chance = chance
        self.workers = workers
        self.clock = Clock()
        self.witness = Witness()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{seed}-", dir=_home()))
        base, events, self._ports = _prepared(plan)
        self.store = FakeStore(self.folder, base=base)
        self.ledger = FakeLedger()
        self.model = Model(self.folder / "attempts", self.store.get, self.witness)
        lease = self.ledger.acquire(REVISION, "test")
        self.ledger.append(lease, [(event.kind, event.body) for event in events])
        self.ledger.release(lease)
        for event in self.ledger.events(REVISION):
            self.model.take(event, lease.fence)
        self.places: set[str] = set()
        self.facts: Counter[str] = Counter()
        self.traces: list[list[str]] = []  # the moments of each coordinator
        self._runs = 0
        self._depth = 0
        self._evidence: Evidence | None = None

    def search(self) -> Outcome:
        """Run coordinators until one gives evidence; check all that can be checked at the end."""
        try:
            with _remembered_costs():
                while self._evidence is None:
                    self._run()
                return self._finished(self._evidence)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self) -> None:
        """Let one coordinator run, to its end or to the search's."""
        self._runs += 1
        if self._runs > RUNS_MAXIMUM:
            raise BrokenRuleError("end", f"no end in {RUNS_MAXIMUM} runs")
        coordinator = _Coordinator(self, f"run-{self._runs}")
        events = len(self.ledger.events(REVISION))
        try:
            self._evidence = run_trial_batches(REVISION, coordinator.ports)
        except CoordinatorKilledError:
            self._bury(coordinator)
        except GIVES_UP as error:
            self.facts[type(error).__name__] += 1
            if isinstance(error, LeaseHeldError):
                same = events == len(self.ledger.events(REVISION))
                self._require("S5", same, "a coordinator without the lease writes")
                self.clock.machine_seconds += 30.0
        finally:
            # what the coordinator says of an event that the model refused comes later
            if self.model.broken is not None:
                raise self.model.broken

    def _bury(self, coordinator: "_Coordinator") -> None:
        """Let the machine be the same one, where the dead are known, or another."""
        coordinator.engine_dies()
        if self.chance.random.random() < 0.7:
            coordinator.ledger.bury(REVISION)
        else:
            self.clock.machine_seconds += 100.0

    def happen(self, coordinator: "_Coordinator", fault: str, place: str) -> None:
        """Let something happen to a coordinator at one of its calls."""
        chance, clock = self.chance, self.clock
        chance.struck[fault] += 1
        if fault == "crash":
            self.places.add(place)
            coordinator.moments.dead = True
            raise CoordinatorKilledError
        if fault == "disk full":
            coordinator.moments.disk_full = True
        elif fault == "clock back":
            clock.machine_seconds -= chance.random.choice([0.5, 30.0, 300.0])
        elif fault == "clock forward":
            clock.machine_seconds += chance.random.choice([5.0, 100.0, 1000.0])
        if "stall" in fault:
            clock.machine_seconds += chance.random.choice([25.0, 70.0])
            coordinator.go_on_alone()
        if "rival" in fault and self._depth == 0 and self._evidence is None:
            self._depth += 1
            try:
                self._run()
            finally:
                self._depth -= 1

    def _require(self, rule: str, holds: bool, sentence: str) -> None:
        if not holds:
            raise BrokenRuleError(rule, sentence)

    # ---- the end --------------------------------------------------------------------------------

    def _finished(self, evidence: Evidence) -> Outcome:
        model, events = self.model, self.ledger.events(REVISION)
        verify_chain(events)
        model.check_evidence(evidence.body)
        quiet = _Coordinator(self, "afterwards", quiet=True)
        again = run_trial_batches(REVISION, quiet.ports)
        same = again == evidence and self.ledger.events(REVISION) == events
        self._require("end", same, "a search that has ended goes on")
        plan, _ = load_plan(REVISION, quiet.ports)
        state = fold_search(plan, events)
        rows = table_rows(plan, state)
        told = [
            [
                row.number,
                str(row.state),
                row.configuration,
                dict(row.costs),
                row.scores,
            ]
            for row in rows
        ]
        table = model.table()
        self._require("S8", told == table, f"the table says {told}, the events {table}")
        faults = state.lineage_faults
        self._require("S6", bool(faults) == model.in_doubt, f"late: {model.late}, {faults}")
        for attempt in model.attempts.values():
            end = attempt.end or {"state": None, "reason": ""}
            self.facts["resumed"] += attempt.body["resume_step"] > 0
            self.facts[str(end["state"])] += 1
            for lost in ("worker was lost", "coordinator was lost"):
                self.facts[lost] += lost in end["reason"]
        self.facts["set aside"] += sum(one.kind == Kind.MESSAGE_SET_ASIDE for one in events)
        self.facts["late"] += model.late
        self.facts["in doubt"] += model.in_doubt
        outcome = Outcome(
            seed=self.seed,
            plan=self.plan_name,
            runs=self._runs,
            ended=str(model.ended),
            struck=self.chance.struck,
            places=self.places,
            compared=False,
            digest=table_digest(rows),
            table=table,
            facts=self.facts,
        )
        if self.seed >= 0:
            outcome.compared = self._compare(outcome)
        return outcome

    def _compare(self, outcome: Outcome) -> bool:
        """Compare with the undisturbed table where the design promises the same one (S8)."""
        quiet = undisturbed(self.plan_name)
        spent = {"failed", "quarantined"}
        used_up = [row for row in outcome.table if row[1] in spent]
        expected = [row for row in quiet.table if row[1] in spent]
        excused = self.model.late or self.model.limit_reached or used_up != expected
        if excused or "cap" in {outcome.ended, quiet.ended}:
            return False
        same = (outcome.digest, outcome.table) == (quiet.digest, quiet.table)
        first = next(
            (pair for pair in zip(outcome.table, quiet.table, strict=True) if pair[0] != pair[1]),
            None,
        )
        self._require("S8", same, f"the table differs from the undisturbed one: {first}")
        return True


class _Coordinator:
    """The ports of one coordinator's process, and what may happen to it."""

    def __init__(self, world: World, owner: str, *, quiet: bool = False) -> None:
        self._world = world
        self._engines: list[SimulatedEngine] = []
        self.moments = Moments(
            {} if quiet else world.chance.moments(),
            lambda fault, place: world.happen(self, fault, place),
        )
        sampler = _WatchedSampler(DISTINCT.get(world.plan_name))
        world.traces.append(self.moments.trace)
        self.ledger = WatchedLedger(
            world.clock,
            lambda event, fence: world.model.take(event, fence, sampler.told),
            owner=owner,
            shared=world.ledger,
        )
        door, call = self.moments.door, self.moments.call
        self.ports = replace(
            world._ports,
            ledger=cast("Any", door("ledger", self.ledger)),
            store=cast("Any", door("store", world.store)),
            open_engine=call("engine.open", self._open_engine),
            sampler=lambda _name: cast("Any", door("sampler", sampler)),
            measure_identity=call("identity.measure", lambda _plan, _files: dict(IDENTITY)),
            notify=call("notify", lambda _kind, _facts: None),
            workers=world.workers,
        )

    def _open_engine(self) -> Any:
        world = self._world
        engine = SimulatedEngine(world.clock, world.chance, world.witness)
        self._engines.append(engine)
        return self.moments.door("engine", engine)

    def go_on_alone(self) -> None:
        """Let the workers act while the coordinator stands still."""
        for engine in self._engines:
            for _ in range(self._world.chance.random.randint(1, 4)):
                engine.go_on_alone()

    def engine_dies(self) -> None:
        """Let workers outlive their coordinator a little."""
        self.go_on_alone()
        for engine in self._engines:
            engine.close()


@functools.cache
def undisturbed(plan: str) -> Outcome:
    """Return the outcome of one worker to whom nothing happens."""
    return World(-1, chance=Chance(0, []), plan=plan, workers=1).search()


def simulate(seed: int, *, faults: Sequence[str] | None = None, plan: str | None = None) -> Outcome:
    """Run one seed's world to its end; raises BrokenRuleError at the first rule that breaks."""
    chance = Chance(seed, faults)
    drawn = chance.random.choice(_OFTEN)
    workers = chance.random.choice([1, 2, 2, 3, 4, 8])
    return World(seed, chance=chance, plan=plan or drawn, workers=workers).search()
