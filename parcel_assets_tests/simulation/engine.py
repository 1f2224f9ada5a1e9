"""An engine whose workers act when the coordinator listens, and whose messages may go astray."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parcel_assets_tests.simulation.chance import Chance
from parcel_assets_tests.simulation.model import BrokenRuleError
from parcel_assets_tests.simulation.storage import Clock
from parcel_assets_tests.simulation.worker import NOBODY, SimulatedWorker, Witness

POLLS_MAXIMUM = 3000
Heard = list[tuple[str, dict[str, Any]]]
ABOUT_ATTEMPTS = {"milestone", "checkpoint", "finished", "failed", "stopped"}
MALFORMED: tuple[dict[str, Any], ...] = (
    {"step": "2"},
    {"step": -1},
    {"step": float("nan")},
    {"scores": "short"},
    {"file": None},
    {"attempt": None},
    {"token": 7},
    {"kind": "weather"},
)


class SimulatedEngine:
    """Carries messages; listening moves the machine's clock on."""

    def __init__(self, clock: Clock, chance: Chance, witness: Witness) -> None:
        self._clock = clock
        self._chance = chance
        self._witness = witness
        self._workers: dict[str, SimulatedWorker] = {}
        self._undead: list[SimulatedWorker] = []
        self._late: Heard = []
        self._polls = 0
        self._quiet = 0

    # ---- the port -------------------------------------------------------------------------------

    def start(self, worker_id: str, setup: Path) -> None:
        assert worker_id not in self._workers
        self._workers[worker_id] = SimulatedWorker(worker_id, setup, self._chance, self._witness)

    def send(self, worker_id: str, message: Mapping[str, Any]) -> None:
        if worker_id in self._workers:
            self._workers[worker_id].hear(message)

    def receive(self, timeout_seconds: float) -> Heard:
        self._polls += 1
        if self._polls > POLLS_MAXIMUM:
            raise BrokenRuleError("end", f"the coordinator waits for ever, {self._clock.read()} s")
        draw, heard = self._chance.random, self._late
        self._late = []
        workers = list(self._workers.values())
        if len(workers) > 1:
            draw.shuffle(workers)
        for worker in workers:
            heard += self._hear(worker)
        if self._undead:
            heard += self._hear_the_undead()
        # nobody speaks: whoever waits for something waits longer
        quiet = not any(message["kind"] != "alive" for _, message in heard)
        self._quiet = self._quiet + 1 if quiet else 0
        choices = [timeout_seconds, 15.0] if self._quiet > 3 else [0.01, 0.1]
        self._clock.machine_seconds += draw.choice(choices)
        return heard

    def stop(self, worker_id: str) -> None:
        worker = self._workers.pop(worker_id, None)
        if worker is not None:
            self._late += self._named(worker.worker_id, worker.outbox)
            if self._chance.strikes("undead"):
                self._undead.append(worker)

    def close(self) -> None:
        self._workers.clear()
        self._undead.clear()

    # ---- what happens ---------------------------------------------------------------------------

    def go_on_alone(self) -> None:
        """Let workers do something while nobody listens; it is heard later."""
        for worker in list(self._workers.values()):
            self._late += self._hear(worker)

    @staticmethod
    def _named(worker_id: str, messages: list[dict[str, Any]]) -> Heard:
        return [(worker_id, one) for one in messages]

    def _hear(self, worker: SimulatedWorker) -> Heard:
        chance, worker_id, now = self._chance, worker.worker_id, self._clock.machine_seconds
        if worker_id not in self._workers or worker.paused_until > now:
            return []
        if chance.strikes("death"):
            del self._workers[worker_id]
            said: list[dict[str, Any]] = []
            with contextlib.suppress(FileNotFoundError):
                said = worker.act() if chance.random.random() < 0.5 else []
            lost = {"kind": "lost", "reason": "killed", "log": "nowhere"}
            return self._named(worker_id, [*said, lost])
        if chance.strikes("silence"):
            worker.paused_until = now + chance.random.choice([10.0, 30.0, 200.0])
            return []
        if chance.random.random() < 0.2:
            return [(worker_id, {"kind": "alive"})]
        try:
            return self._spoil(worker_id, worker.act())
        except FileNotFoundError as error:  # its prefix was set aside
            del self._workers[worker_id]
            return self._named(worker_id, [{"kind": "lost", "reason": str(error)}])

    def _spoil(self, worker_id: str, said: list[dict[str, Any]]) -> Heard:
        chance = self._chance
        if len(said) > 1 and chance.strikes("reorder"):
            chance.random.shuffle(said)
        heard: Heard = []
        for true in said:
            message, kind = true, true["kind"]
            if kind == "alive":
                heard.append((worker_id, message))
                continue
            if chance.strikes("lost message"):
                continue
            if kind in ABOUT_ATTEMPTS:
                heard += self._beside(worker_id, message)
                if chance.strikes("malformed"):
                    message = message | chance.random.choice(MALFORMED)
            heard.append((worker_id, message))
            if chance.strikes("repeat"):
                heard.append((worker_id, dict(message)))
        kinds = [message["kind"] for _, message in heard]
        if "hello" in kinds and "answer" in kinds[kinds.index("hello") :]:
            # one that jumped ahead, and came in after all: an answer before it is asked is wrong
            self._witness.misfits.setdefault(worker_id, "challenge")
        return heard

    def _beside(self, worker_id: str, message: dict[str, Any]) -> Heard:
        """Return messages that speak for somebody else, beside a true one."""
        chance, heard = self._chance, Heard()
        if chance.strikes("clash"):
            others = sorted(self._workers)
            heard.append((chance.random.choice([*others, "nobody"]), dict(message)))
        if chance.strikes("foreign"):
            known = self._witness.checkpoints
            attempt = chance.random.choice(known).attempt if known else "parcel-01/1"
            wrong = chance.random.choice([{"token": NOBODY}, {"attempt": attempt}])
            heard.append((worker_id, message | wrong))
        return heard

    def _hear_the_undead(self) -> Heard:
        heard: Heard = []
        for worker in tuple(self._undead):
            try:
                heard += self._named(worker.worker_id, worker.act())
            except FileNotFoundError:  # its prefix was set aside
                worker.order = None
            if worker.order is None:
                self._undead.remove(worker)
        return heard
