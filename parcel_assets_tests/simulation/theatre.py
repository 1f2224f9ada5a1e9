"""A search whose workers follow a script: the real coordinator, a simulated engine, no chance.

A `Script` is honest in every hook; a case overrides the one in which its workers do wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parcel_assets.core.attempts import AttemptRecord
from parcel_assets.core.codec import digest_bytes
from parcel_assets.core.ledger import Event, Kind, Lease
from parcel_assets.core.ports import Flags, Scores
from parcel_assets.core.search import SearchState, fold_search
from parcel_assets.core.table import pack_scores, table_rows
from parcel_assets.core.trial import TrialRow
from parcel_assets_tests.fakes import FakeLedger
from parcel_assets_tests.search_world import REVISION, World, small_plan
from parcel_assets_tests.simulation.chance import Chance
from parcel_assets_tests.simulation.storage import CoordinatorKilledError
from parcel_assets_tests.simulation.worker import (
    IDENTITY,
    SimulatedWorker,
    Witness,
    write_checkpoint,
)

Said = list[tuple[str, dict[str, Any]]]
Entries = Sequence[tuple[Kind, Mapping[str, Any]]]
Dies = Callable[[Kind, Mapping[str, Any]], bool]

BATCH_PHOTOS = 8
# a trial has 82 steps; the step in question is 39
MILESTONE = "39 is a milestone"
BETWEEN = "39 lies between milestones"
WAYS = {MILESTONE: (9, 39, 82), BETWEEN: (9, 27, 82)}


def of_82_steps(way: str = MILESTONE, **changes: Any) -> dict[str, Any]:
    """Return the plan's changes for trials of 82 steps that save a checkpoint at step 39."""
    training = {
        "steps": 82,
        "batch_photos": BATCH_PHOTOS,
        "milestones": list(WAYS[way]),
        "checkpoint_every_steps": 13,
    }
    return {"training": training, "search__budget_trials": 6, "search__batch_trials": 2} | changes


def pruning(**changes: Any) -> dict[str, Any]:
    """Return the plan's changes for a search that prunes early and a lot."""
    eager = {
        "keep_fractions": [0.5, 0.5],
        "minimum_comparable": 2,
        "warm_up_trials": 0,
        "minimum_rank_correlation": -1.0,
    }
    return {"pruning": eager | changes}


def false_alarms(damaged: Flags, count: int) -> Scores:
    """Return scores that miss nothing and ask for `count` needless reviews: the less the better."""
    scores = np.where(damaged, 0.75, 0.25).astype(np.float32)
    scores[np.flatnonzero(~damaged)[:count]] = 0.875
    return scores


class Actor(SimulatedWorker):
    """A simulated worker that asks its script before it says or scores anything."""

    def __init__(self, worker_id: str, setup: Path, script: "Script") -> None:
        super().__init__(worker_id, setup, Chance(0, []), Witness())
        self.script = script
        self.rows = self.material.rows
        self.subsets = self.material.subsets

    @property
    def attempt(self) -> str:
        """The attempt at work, or nothing."""
        return "" if self.order is None else str(self.order["attempt"])

    @property
    def number(self) -> int:
        """The number of the trial at work."""
        return int(self.attempt.partition("/")[0].removeprefix("parcel-"))

    def say(self, kind: str, **facts: Any) -> None:
        """Let the script say it, otherwise, or not at all."""
        self.script.say(self, kind, facts)

    def really_say(self, kind: str, **facts: Any) -> None:
        """Say it."""
        super().say(kind, **facts)

    def scores_at(self, step: int) -> bytes:
        """Let the script score it, or find what it finds."""
        found = self.script.scores(self)
        return super().scores_at(step) if found is None else pack_scores(found)

    @property
    def flags(self) -> Flags:
        """The labels of the photos that are scored at its step."""
        rows = self.rows.get(self.step, self.rows[min(self.rows)])
        found: Flags = self.material.damaged[rows]
        return found

    def report(self, step: int, scores: Scores | None = None, **changes: Any) -> None:
        """Report at any step, on the photos of a milestone: a curve has more points than a plan."""
        milestone = step if step in self.rows else min(self.rows)
        content = pack_scores(false_alarms(self.flags, 3) if scores is None else scores)
        name = f"scores-{step}.f4"
        if not (self.folder / name).exists():
            (self.folder / name).write_bytes(content)
        said = {
            "step": step,
            "photos_seen": step * BATCH_PHOTOS,
            "subset": self.subsets[milestone],
            "file": name,
            "scores": digest_bytes(content),
        }
        self.really_say("milestone", **said | changes)

    def fail(self, found: str = "a loss") -> None:
        """Say that its trial failed by itself, and drop it."""
        self.really_say("failed", category="own", error={"found": found})
        self.order = None

    def leave_checkpoint(self, folder: Path, step: int) -> Path:
        """Write a checkpoint of its own lineage wherever it likes, and tell nobody."""
        path = folder / f"checkpoint-{step}.safetensors"
        write_checkpoint(path, self.lineage(step=str(step)), self.origin)
        return path


class Script:
    """What workers do, and what comes beside; honest unless overridden."""

    turn_seconds = 0.1

    def __init__(self) -> None:
        self.orders: list[tuple[str, dict[str, Any]]] = []

    def sent(self, engine: "CaseEngine", worker_id: str, message: Mapping[str, Any]) -> None:
        """Hear what the coordinator sends before the worker does."""

    def say(self, worker: Actor, kind: str, facts: dict[str, Any]) -> None:
        """Say a message in a worker's name."""
        worker.really_say(kind, **facts)

    def alarms(self, worker: Actor) -> int | None:
        """Return how many needless reviews a model asks for at its step; None: what it finds."""
        return None

    def scores(self, worker: Actor) -> Scores | None:
        """Return what a model scores at its step; None: what it finds."""
        count = self.alarms(worker)
        return None if count is None else false_alarms(worker.flags, count)

    def act(self, engine: "CaseEngine", worker: Actor) -> Said:
        """Let a worker do its next thing and return what reaches the coordinator."""
        return [(worker.worker_id, one) for one in worker.act()]

    def beside(self, engine: "CaseEngine") -> Said:
        """Return what else reaches the coordinator in a turn."""
        return []


class LosesOnce(Script):
    """The first worker of the first trial is gone at a step."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.gone_at = step

    def act(self, engine: "CaseEngine", worker: Actor) -> Said:
        said = super().act(engine, worker)
        if worker.attempt == "parcel-01/1" and worker.step >= self.gone_at:
            return [*said, *engine.lose(worker)]
        return said


class FadesLater(Script):
    """All are good up to a step, the last trials a little less so, and none is at the end."""

    def __init__(self, good_up_to: int) -> None:
        super().__init__()
        self.good_up_to = good_up_to

    def alarms(self, worker: Actor) -> int | None:
        early = 2 if worker.number >= 5 else 0
        return early if worker.step <= self.good_up_to else 8 + worker.number


class Sleeper(Script):
    """The first worker of the first trial says nothing past its step 45, and speaks too late.

    It speaks once its trial was handed on, as if nothing were; it does not wait for verdicts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.late: Said = []

    def act(self, engine: "CaseEngine", worker: Actor) -> Said:
        if worker.attempt == "parcel-01/1" and worker.step >= 45:
            engine.ledger.clock_seconds += 5.0
            return []
        return super().act(engine, worker)

    def beside(self, engine: "CaseEngine") -> Said:
        taken_over = any(one.attempt == "parcel-01/2" for one in engine.workers.values())
        sleeper = next(iter(engine.stopped.values()), None)
        if sleeper is None or not taken_over or sleeper.order is None:
            return []
        said = [(sleeper.worker_id, one) for one in sleeper.act()]
        sleeper.hear({"kind": "verdict", "go_on": True})
        self.late += said
        return said


class CaseEngine:
    """Carries messages between coordinator and actors; each turn moves the clock on."""

    def __init__(self, ledger: FakeLedger, script: Script) -> None:
        self.ledger = ledger
        self.script = script
        self.workers: dict[str, Actor] = {}
        self.stopped: dict[str, Actor] = {}  # what a stop could not reach may still act
        self.turn = 0

    def start(self, worker_id: str, setup: Path) -> None:
        assert worker_id not in self.workers
        self.workers[worker_id] = Actor(worker_id, setup, self.script)

    def send(self, worker_id: str, message: Mapping[str, Any]) -> None:
        if message["kind"] == "order":
            self.script.orders.append((worker_id, dict(message)))
        self.script.sent(self, worker_id, message)
        if worker_id in self.workers:
            self.workers[worker_id].hear(dict(message))

    def receive(self, timeout_seconds: float) -> Said:
        self.turn += 1
        assert self.turn < 20_000, "the search never ends"
        self.ledger.clock_seconds += self.script.turn_seconds
        heard: Said = []
        for worker in list(self.workers.values()):
            heard += self.script.act(self, worker)
        return heard + self.script.beside(self)

    def lose(self, worker: Actor, reason: str = "killed") -> Said:
        """Let a worker's process be gone, as an engine tells it."""
        del self.workers[worker.worker_id]
        return [(worker.worker_id, {"kind": "lost", "reason": reason})]

    def stop(self, worker_id: str) -> None:
        worker = self.workers.pop(worker_id, None)
        if worker is not None:
            self.stopped[worker_id] = worker

    def close(self) -> None:
        self.workers.clear()


class RunLedger(FakeLedger):
    """The ledger as one run reaches it; the run is killed right after it wrote what it is told."""

    def __init__(self, shared: FakeLedger, dies: Dies | None) -> None:
        super().__init__(shared=shared, lives=lambda owner: owner != "dead")
        self.shared = shared
        self._dies = dies or (lambda _kind, _body: False)
        self._dead = False

    def now(self) -> float:
        return self.shared.now()

    def append(self, lease: Lease, entries: Entries) -> tuple[Event, ...]:
        if self._dead:
            raise CoordinatorKilledError
        events = super().append(lease, entries)
        if any(self._dies(one.kind, one.body) for one in events):
            self._dead = True
            raise CoordinatorKilledError
        return events

    def release(self, lease: Lease) -> None:
        if not self._dead:
            super().release(lease)


class Case:
    """One revision in a folder, and searches of it that follow a script."""

    def __init__(
        self,
        folder: Path,
        *,
        ledger: FakeLedger | None = None,
        revision: str = REVISION,
        **changes: Any,
    ) -> None:
        self.ledger = ledger or FakeLedger()
        self.revision = revision
        self.world = World(folder, ledger=self.ledger, revision=revision)
        self.world.freeze(small_plan(**changes))

    def search(
        self,
        script: Script | None = None,
        *,
        workers: int = 2,
        dies: Dies | None = None,
        ledger: type[RunLedger] = RunLedger,
        **settings: Any,
    ) -> dict[str, Any]:
        """Search to the end and return what the evidence says; raises as the step does."""
        self.world.ledger = ledger(self.ledger, dies)
        script = script or Script()
        settings = {
            "engine": lambda: CaseEngine(self.ledger, script),
            "identity": lambda _plan, _files: dict(IDENTITY),
        } | settings
        try:
            body: dict[str, Any] = self.world.search(workers=workers, **settings).body
        finally:
            self.world.ledger = self.ledger
        return body

    def search_until(self, dies: Dies, script: Script | None = None, **settings: Any) -> None:
        """Search until the coordinator is killed, as it must be, right after what `dies` names."""
        try:
            self.search(script, dies=dies, **settings)
        except CoordinatorKilledError:
            self.ledger.bury(self.revision)
            return
        raise AssertionError("it was not killed")

    # ---- what came of it ------------------------------------------------------------------------

    @property
    def events(self) -> tuple[Event, ...]:
        return self.ledger.events(self.revision)

    @property
    def state(self) -> SearchState:
        return self.world.state()

    def bodies(self, kind: Kind) -> list[Mapping[str, Any]]:
        return [event.body for event in self.events if event.kind == kind]

    def attempt(self, name: str) -> AttemptRecord:
        return self.state.attempts[name]

    def attempts(self, number: int) -> list[AttemptRecord]:
        return self.state.trials[number].attempts

    def rows(self) -> tuple[TrialRow, ...]:
        return table_rows(self.world.plan(), self.state)

    @property
    def table(self) -> str:
        return self.world.table_digest()

    def prefix(self, name: str) -> Path:
        """Return the folder of an attempt's prefix, wherever it lies now."""
        prefix = self.attempt(name).started.prefix
        kept = self.world.folder / "store" / "quarantine" / prefix
        return kept if kept.exists() else self.world.store.prefix_path(prefix)

    @property
    def quarantined(self) -> set[str]:
        return {one.attempt for one in self.state.attempts.values() if not one.clean}

    @property
    def set_aside(self) -> list[Mapping[str, Any]]:
        return self.bodies(Kind.MESSAGE_SET_ASIDE)

    def require_cap(self, limit_seconds: float) -> None:
        """Require that at no event what is charged and held was above a limit."""
        state = fold_search(self.world.plan(), ())
        for event in self.events:
            state.apply(event)
            held = sum(one.started.reserved_seconds for one in state.open_attempts)
            assert sum(state.charged_seconds_by_purpose.values()) + held <= limit_seconds

    def verdicts(self) -> dict[tuple[str, int], tuple[str, str]]:
        """Return (attempt, step) -> verdict and reason."""
        bodies = self.bodies(Kind.MILESTONE_REPORTED)
        return {(one["attempt"], one["step"]): (one["verdict"], one["reason"]) for one in bodies}

    def compared(self) -> set[float]:
        """Return every value that a cut table was made from."""
        cuts = [cut for body in self.bodies(Kind.BATCH_OPENED) for cut in body["cut_table"]]
        return {cost for cut in cuts for _, cost in cut["values"]}
