"""Simulated workers on a simulated clock: the real coordinator runs against them, seed by seed.

Nothing here sleeps. With a seed, workers die, stall, repeat themselves and speak too late, and the
coordinator itself is killed at any of its calls.
"""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from parcel_assets.core.codec import derive_seed, digest_bytes
from parcel_assets.core.identity import identity_digest
from parcel_assets.core.identity_data import (
    answer_challenge,
    challenged_pixels,
    planned_images,
    sketch_images,
)
from parcel_assets.core.ledger import Event, Kind, Lease
from parcel_assets.core.lineage import lineage_of
from parcel_assets.core.ports import Scores
from parcel_assets.core.split import milestone_rows, subset_digests
from parcel_assets.core.table import pack_scores
from parcel_assets.steps.worker import Setup, hello
from parcel_assets_tests.fake_training import saver
from parcel_assets_tests.fakes import FakeLedger

IDENTITY = {"plan": "one", "code": "same"}


class CoordinatorKilledError(BaseException):
    """The simulated end of the coordinator's process: nothing of it runs any more."""


class Misfortune:
    """When what goes wrong, by seed; probability zero is an undisturbed run."""

    def __init__(self, seed: int, *, per_call: float) -> None:
        self.random = random.Random(seed)
        self.per_call = per_call

    def strikes(self, weight: float = 1.0) -> bool:
        return self.random.random() < self.per_call * weight


class MortalLedger(FakeLedger):
    """A ledger whose writer may be killed before or after any append; then it is dead for good."""

    def __init__(self, misfortune: Misfortune, shared: FakeLedger | None = None) -> None:
        super().__init__(shared=shared, lives=lambda owner: owner != "dead")
        self._misfortune = misfortune
        self.killed = False
        if shared is not None:
            self.clock_seconds = shared.clock_seconds

    def append(self, lease: Lease, entries: Any) -> tuple[Event, ...]:
        self.check()
        if self._misfortune.strikes(0.3):
            self.kill()
        events = super().append(lease, entries)
        if self._misfortune.strikes(0.3):
            self.kill()
        return events

    def kill(self) -> None:
        self.killed = True
        raise CoordinatorKilledError

    def check(self) -> None:
        if self.killed:
            raise CoordinatorKilledError

    def release(self, lease: Lease) -> None:
        if not self.killed:
            super().release(lease)


class SimulatedEngine:
    """An engine whose workers act when the coordinator listens; each call moves the clock on."""

    def __init__(self, ledger: MortalLedger, misfortune: Misfortune) -> None:
        self.ledger = ledger
        self.misfortune = misfortune
        self.workers: dict[str, SimulatedWorker] = {}
        self.ghosts: list[tuple[str, dict[str, Any]]] = []  # late messages of the dead
        self.closed = False

    def start(self, worker_id: str, setup: Path) -> None:
        self.workers[worker_id] = SimulatedWorker(Setup.read(setup))

    def send(self, worker_id: str, message: Mapping[str, Any]) -> None:
        if worker_id in self.workers:
            self.workers[worker_id].hear(dict(message))

    def receive(self, timeout_seconds: float) -> list[tuple[str, dict[str, Any]]]:
        self.ledger.check()
        luck = self.misfortune
        self.ledger.clock_seconds += luck.random.choice([0.01, 0.1, timeout_seconds])
        if luck.strikes(0.3):
            self.ledger.kill()
        found: list[tuple[str, dict[str, Any]]] = []
        for worker_id in luck.random.sample(sorted(self.workers), len(self.workers)):
            worker = self.workers[worker_id]
            if luck.strikes():
                del self.workers[worker_id]
                self.ghosts += [(worker_id, one) for one in worker.act()]
                found.append((worker_id, {"kind": "lost", "reason": "killed"}))
            elif luck.strikes(0.3):
                self.ledger.clock_seconds += 30.0  # all are silent past their lease
            elif luck.random.random() < 0.7:
                said = worker.act()
                again = [one for one in said if luck.strikes() and one["kind"] == "milestone"]
                found += [(worker_id, one) for one in said + again]
        if self.ghosts and luck.random.random() < 0.5:
            found.append(self.ghosts.pop())
        return found

    def stop(self, worker_id: str) -> None:
        worker = self.workers.pop(worker_id, None)
        if worker is not None:
            self.ghosts += [(worker_id, one) for one in worker.act()]

    def close(self) -> None:
        self.workers.clear()
        self.closed = True


class SimulatedWorker:
    """Goes through one order step by step; what it finds follows from configuration and seed."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.data = data = setup.load()
        self.rows = milestone_rows(setup.plan, data.validation.shipments)
        self.subsets = subset_digests(data.validation.photo_ids, self.rows)
        self.damaged = data.validation.damaged
        self.outbox: list[dict[str, Any]] = [hello(IDENTITY, data)]
        self.order: dict[str, Any] | None = None
        self.step = 0
        self.parent: str | None = None
        self.waits = False

    def hear(self, message: dict[str, Any]) -> None:
        if message["kind"] == "challenge":
            nonce, rows = message["nonce"], message["rows"]
            digests = answer_challenge(self.data, nonce=nonce, rows=rows)
            plan = self.setup.plan
            images = planned_images(plan.preprocess, challenged_pixels(self.data, rows))
            ready = {
                "kind": "ready",
                "threads": plan.training.threads_per_trial,
                "sketch": sketch_images(nonce, images),
            }
            self.outbox += [{"kind": "answer", "digests": digests}, ready]
        elif message["kind"] == "order":
            self.order, resume = message, message["resume"]
            self.step, self.parent = 0, None
            if resume:
                self.step, self.parent = resume["step"], resume["checkpoint"]
        elif message["kind"] == "verdict":
            self.waits = False
            if not message["go_on"] and self.order is not None:
                self.say("stopped")
                self.order = None

    def say(self, kind: str, **facts: Any) -> None:
        assert self.order is not None
        head = {"attempt": self.order["attempt"], "token": self.order["token"], "step": self.step}
        self.outbox.append({"kind": kind} | head | facts)

    def act(self) -> list[dict[str, Any]]:
        """Do the next thing and return what is said."""
        if self.order is not None and not self.waits:
            self._advance()
        said, self.outbox = self.outbox, [{"kind": "alive"}]
        return said

    def _advance(self) -> None:
        training = self.setup.plan.training
        if self.step == training.steps:
            self._finish()
            return
        if self.step in training.milestones or self.step % training.checkpoint_every_steps == 0:
            self._checkpoint()
        self.step += 1
        if self.step in training.milestones:
            self._report()

    def _folder(self) -> Path:
        assert self.order is not None
        return Path(self.order["prefix"])

    def _report(self) -> None:
        content = pack_scores(self._scores())
        name = f"scores-{self.step}.f4"
        (self._folder() / name).write_bytes(content)
        self.waits = True
        self.say(
            "milestone",
            photos_seen=self.step * self.setup.plan.training.batch_photos,
            subset=self.subsets[self.step],
            file=name,
            scores=digest_bytes(content),
        )

    def _scores(self) -> Scores:
        assert self.order is not None
        quality = derive_seed("quality", str(sorted(self.order["configuration"].items()))) % 100
        noise = np.random.default_rng(derive_seed(self.order["seed"], self.step))
        signal = self.damaged[self.rows[self.step]] * (quality / 100 + self.step / 20)
        scores: Scores = (signal + noise.normal(0, 1, len(signal))).astype(np.float32)
        return scores

    def _checkpoint(self) -> None:
        if self.step == 0 or self.order is None:
            return
        name = f"checkpoint-{self.step}.safetensors"
        if (self._folder() / name).exists() or self.parent_is_current:
            return
        lineage = lineage_of(
            revision=self.setup.revision,
            plan_digest=self.setup.plan.digest,
            identity_digest=identity_digest(IDENTITY),
            subject=self.order["subject"],
            attempt=self.order["attempt"],
            configuration=self.order["configuration"],
            seed=self.order["seed"],
            step=self.step,
            parent_checkpoint=self.parent,
        )
        saver(self._weights(), self.step)(self._folder() / name, lineage)
        digest = digest_bytes((self._folder() / name).read_bytes())
        self.say("checkpoint", file=name, checkpoint=digest, parent=self.parent)
        self.parent = digest

    def _weights(self) -> np.ndarray:
        assert self.order is not None
        return np.random.default_rng(derive_seed("weights", self.order["seed"], self.step)).random(
            2
        )

    @property
    def parent_is_current(self) -> bool:
        """Whether the checkpoint of this very step is the one that was resumed."""
        assert self.order is not None
        resume = self.order["resume"]
        return bool(resume) and resume["step"] == self.step

    def _finish(self) -> None:
        saver(self._weights(), self.step)(self._folder() / "model.safetensors", {})
        content = (self._folder() / "model.safetensors").read_bytes()
        self.say("finished", file="model.safetensors", model=digest_bytes(content))
        self.order = None


def started_once(events: tuple[Event, ...]) -> bool:
    """Say whether every prefix was given out once."""
    prefixes = [event.body["prefix"] for event in events if event.kind == Kind.ATTEMPT_STARTED]
    return len(prefixes) == len(set(prefixes))
