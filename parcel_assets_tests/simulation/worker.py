"""A simulated worker: trains numbers that follow from configuration and seed, or does wrong.

What it finds is a function of the trial whose weights it holds: one that resumes another trial's
checkpoint reports that trial's values, which look as good as its own.
"""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from parcel_assets.core.codec import canonical_json, derive_seed, digest_bytes, digest_value
from parcel_assets.core.identity import FIELDS, identity_digest
from parcel_assets.core.identity_data import (
    answer_challenge,
    challenged_pixels,
    planned_images,
    sketch_images,
)
from parcel_assets.core.lineage import LINEAGE_PREFIX, lineage_of, owner_of
from parcel_assets.core.ports import Flags, TrainingData
from parcel_assets.core.split import milestone_rows, subset_digests
from parcel_assets.steps.worker import Setup, hello
from parcel_assets_tests.simulation.chance import Chance

IDENTITY = {name: f"the planned {name}" for name in FIELDS}
OWNER_FILE = "owner.json"
NOBODY = "f" * 64


@dataclass(slots=True)
class SavedCheckpoint:
    """A checkpoint that was written in this world, by whom, and whose weights it holds."""

    attempt: str
    subject: str
    path: Path
    digest: str
    step: int
    origin: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a theft left behind: who else is involved, and what alone names it (empty: a file)."""

    other: str = ""  # empty where nothing names anybody
    digest: str = ""  # of the checkpoint named as parent


@dataclass(slots=True)
class Witness:
    """What really happened, as only the simulation knows; the coordinator never sees it."""

    misfits: dict[str, str] = field(default_factory=dict)  # worker id -> what is wrong with it
    contaminated: dict[str, "Evidence"] = field(default_factory=dict)  # by attempt
    checkpoints: list[SavedCheckpoint] = field(default_factory=list)


@dataclass(frozen=True)
class Material:
    """What workers load from one setup."""

    setup: Setup
    plan_digest: str
    data: TrainingData
    hello: Mapping[str, Any]
    rows: Mapping[int, Any]
    subsets: Mapping[int, str]
    damaged: Flags


def _material(path: Path) -> Material:
    setup = Setup.read(path)
    data = setup.load()
    rows = milestone_rows(setup.plan, data.validation.shipments)
    return Material(
        setup=setup,
        plan_digest=setup.plan.digest,
        data=data,
        hello=hello(IDENTITY, data),
        rows=rows,
        subsets=subset_digests(data.validation.photo_ids, rows),
        damaged=data.validation.damaged,
    )


class _Materials:
    """Setups by digest: what they name lies in one place for all worlds of a process."""

    def __init__(self) -> None:
        self._known: dict[str, Material] = {}

    def of(self, path: Path) -> Material:
        if path.name not in self._known:
            self._known[path.name] = _material(path)
        return self._known[path.name]


MATERIALS = _Materials()


@functools.lru_cache(maxsize=100_000)
def _scores_of(origin: str, step: int, setup_name: str) -> bytes:
    """Return the scores that weights of this origin give at a step, as the store keeps them."""
    material = MATERIALS.of(Path(setup_name))
    noise = np.random.default_rng(derive_seed(origin, step))
    flags = material.damaged[material.rows[step]]
    quality = int(origin[:4], 16) % 100 / 100 + step / 20
    scores = flags * quality + noise.normal(0, 1, len(flags))
    return np.ascontiguousarray(scores, dtype="<f4").tobytes()


def write_checkpoint(path: Path, lineage: Mapping[str, str], origin: str) -> str:
    """Write a safetensors file whose one tensor is the origin of its weights; return its digest."""
    body = bytes.fromhex(origin)
    metadata = {LINEAGE_PREFIX + name: text for name, text in lineage.items()}
    tensor = {"dtype": "U8", "shape": [len(body)], "data_offsets": [0, len(body)]}
    header = canonical_json({"__metadata__": metadata, "weights": tensor})
    content = len(header).to_bytes(8, "little") + header + body
    path.write_bytes(content)
    return digest_bytes(content)


def origin_in(content: bytes) -> str:
    """Return the origin of the weights in a checkpoint."""
    return content[-32:].hex()


class SimulatedWorker:
    """Goes through one order step by step, a little further at each `act`."""

    def __init__(self, worker_id: str, setup: Path, chance: Chance, witness: Witness) -> None:
        self.worker_id = worker_id
        self.chance = chance
        self.witness = witness
        self.setup_name = setup.name
        self.material = MATERIALS.of(setup)
        self.plan = self.material.setup.plan
        self.paused_until = 0.0
        self.identity = dict(IDENTITY)
        if chance.strikes("other identity"):
            name = chance.random.choice(sorted(IDENTITY))
            change = chance.random.choice(["another", None])
            self.identity |= {name: "another"}
            if change is None:
                del self.identity[name]
            witness.misfits[worker_id] = name
        self.outbox: list[dict[str, Any]] = [{**self.material.hello, "identity": self.identity}]
        if chance.strikes("jump"):
            self.outbox.insert(0, {"kind": chance.random.choice(["ready", "answer", "finished"])})
        self.order: dict[str, Any] | None = None
        self.folder = Path()  # its own prefix
        self.step = 0
        self.origin = NOBODY
        self.parent: str | None = None
        self.saved_step = 0  # of the checkpoint that it goes on from
        self.waits = False
        self.spoken: list[dict[str, Any]] = []  # milestones reported, to repeat them otherwise

    # ---- what it hears --------------------------------------------------------------------------

    def hear(self, message: Mapping[str, Any]) -> None:
        """Take in what the coordinator says."""
        if message["kind"] == "challenge":
            self._answer(str(message["nonce"]), message["rows"])
        elif message["kind"] == "order":
            self._begin(dict(message))
        elif message["kind"] == "verdict" and self.order is not None:
            self.waits = False
            if not message["go_on"]:
                self.say("stopped")
                self.order = None

    def _answer(self, nonce: str, rows: Mapping[str, list[int]]) -> None:
        data, plan = self.material.data, self.plan
        digests = answer_challenge(data, nonce=nonce, rows=rows)
        images = planned_images(plan.preprocess, challenged_pixels(data, rows))
        sketch, threads = sketch_images(nonce, images), plan.training.threads_per_trial
        if self.chance.strikes("wrong answer"):
            wrong = self.chance.random.choice(["challenge", "preprocessing", "hardware"])
            self.witness.misfits[self.worker_id] = wrong
            if wrong == "challenge":
                digests[self.chance.random.randrange(len(digests))] = NOBODY
            elif wrong == "preprocessing":
                sketch = [one + 1.0 for one in sketch]
            else:
                threads += 1
        ready = {"kind": "ready", "threads": threads, "sketch": sketch}
        self.outbox += [{"kind": "answer", "digests": digests}, ready]

    def _begin(self, order: dict[str, Any]) -> None:
        self.order, self.step, self.saved_step = order, 0, 0
        self.parent, self.waits, self.spoken = None, False, []
        self.origin = digest_value([order["configuration"], order["seed"]])
        self.folder = Path(order["prefix"])
        marker = self.folder / OWNER_FILE
        revision = self.material.setup.revision
        expected = owner_of(revision, str(order["attempt"]), str(order["subject"]))
        resume = order["resume"]
        if not marker.exists() or marker.read_bytes() != canonical_json(expected):
            self._fail("the prefix is somebody else's")
            return
        if resume:
            content = Path(resume["file"]).read_bytes()
            if digest_bytes(content) != resume["checkpoint"]:
                self._fail("the checkpoint is another")
                return
            self.step, self.parent = resume["step"], resume["checkpoint"]
            self.origin, self.saved_step = origin_in(content), self.step
        self._steal()

    def _fail(self, found: str, category: str = "own") -> None:
        self.say("failed", category=category, error={"found": found})
        self.order = None

    # ---- what it does ---------------------------------------------------------------------------

    def say(self, kind: str, **facts: Any) -> None:
        """Put a message of the attempt into the outbox."""
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
        chance, training = self.chance, self.plan.training
        if chance.strikes("own failure"):
            self._fail("a loss")
            return
        if chance.strikes("setting failure"):
            self._fail("no space left", "setting")
            return
        if chance.strikes("unasked stop"):
            self.say("stopped")
            self.order = None
            return
        if chance.strikes("early finish") or self.step == training.steps:
            self._finish()
            return
        if self.step > self.saved_step and self._checkpoint_due():
            self._checkpoint()
        self.step += 1
        if self.step in training.milestones:
            self._report()
        elif not self._checkpoint_due() and chance.strikes("off milestone"):
            self.say("milestone", **self._facts(training.milestones[0]))
        if self.spoken and not self.waits and chance.strikes("other value"):
            earlier = chance.random.choice(self.spoken)
            content = bytes(len(self.scores_at(earlier["step"])))
            self.outbox.append(earlier | self._written(f"scores-{earlier['step']}.f4", content))

    def _checkpoint_due(self) -> bool:
        training = self.plan.training
        return self.step in training.milestones or self.step % training.checkpoint_every_steps == 0

    # ---- scores ---------------------------------------------------------------------------------

    def scores_at(self, step: int) -> bytes:
        """Return what its weights score at a step, as the store keeps it."""
        return _scores_of(self.origin, step, self.setup_name)

    def _written(self, name: str, content: bytes) -> dict[str, str]:
        """Write scores below the prefix; return how a report names them."""
        torn = self.chance.strikes("torn scores")
        if not self.chance.strikes("no scores"):
            (self.folder / name).write_bytes(content[:-3] if torn else content)
        return {"file": name, "scores": digest_bytes(content)}

    def _facts(self, step: int) -> dict[str, Any]:
        """Return what a report of this step says, or something wrong."""
        chance = self.chance
        content = self.scores_at(step)
        never = self._never_finite()
        if never or chance.strikes("not finite"):
            value = np.nan if never else chance.random.choice([np.nan, np.inf, -np.inf])
            content = np.full(len(content) // 4, value, dtype="<f4").tobytes()
        if chance.strikes("wrong length"):
            content = content[:-4]
        facts: dict[str, Any] = {
            "photos_seen": step * self.plan.training.batch_photos,
            "subset": NOBODY if chance.strikes("other photos") else self.material.subsets[step],
        }
        if chance.strikes("other axis"):
            facts["photos_seen"] += 1
        facts |= self._written(f"scores-{step}.f4", content)
        if chance.strikes("outside"):
            facts["file"] = f"../{facts['file']}"
        return facts

    def _never_finite(self) -> bool:
        """Say whether the configuration itself gives no finite scores."""
        assert self.order is not None
        some, every = (word in self.plan.purpose for word in ("some", "every"))
        return every or (some and self.order["configuration"]["width"] == 16)

    def _report(self) -> None:
        chance = self.chance
        if self.step < self.plan.training.steps and chance.strikes("skipped milestone"):
            return
        facts = self._facts(self.step)
        if chance.strikes("past the end"):
            facts["step"] = self.plan.training.steps + 1
        elif chance.strikes("backwards"):
            facts["step"] = chance.random.choice([0, self.plan.training.milestones[0]])
        self.waits = True
        self.say("milestone", **facts)
        self.spoken.append(self.outbox[-1])

    def _finish(self) -> None:
        content = b"weights of " + self.origin.encode()
        if not self.chance.strikes("no model"):
            (self.folder / "model.safetensors").write_bytes(content)
        self.say("finished", file="model.safetensors", model=digest_bytes(content))
        self.order = None

    # ---- checkpoints ----------------------------------------------------------------------------

    def lineage(self, **changes: str) -> dict[str, str]:
        """Return what the header of a checkpoint of this step says, or something else."""
        assert self.order is not None
        honest = lineage_of(
            revision=self.material.setup.revision,
            plan_digest=self.material.plan_digest,
            identity_digest=identity_digest(IDENTITY),
            subject=self.order["subject"],
            attempt=self.order["attempt"],
            configuration=self.order["configuration"],
            seed=self.order["seed"],
            step=self.step,
            parent_checkpoint=self.parent,
        )
        return honest | changes

    def _checkpoint(self, **changes: str) -> None:
        assert self.order is not None
        chance, name = self.chance, f"checkpoint-{self.step}.safetensors"
        path = self.folder / name
        digest = write_checkpoint(path, self.lineage(**changes), self.origin)
        reported = changes.get("parent_checkpoint", self.parent) or None
        self.say("checkpoint", file=name, checkpoint=digest, parent=reported)
        attempt, subject = str(self.order["attempt"]), str(self.order["subject"])
        self.witness.checkpoints.append(
            SavedCheckpoint(attempt, subject, path, digest, self.step, self.origin)
        )
        self.parent, self.saved_step = digest, self.step
        if chance.strikes("torn checkpoint"):
            path.write_bytes(path.read_bytes()[: chance.random.choice([0, 5, 60, -1])])
        elif chance.strikes("lost checkpoint"):
            path.unlink()
        elif chance.strikes("other digest"):
            self.outbox[-1]["checkpoint"] = NOBODY
        elif chance.strikes("half-written"):
            (self.folder / f"checkpoint-{self.step + 1}.safetensors").write_bytes(b"\0" * 9)
            (self.folder / ".checkpoint-9.safetensors").write_bytes(b"\0" * 9)
        elif chance.strikes("outside"):
            self.outbox[-1]["file"] = str(path)

    # ---- theft ----------------------------------------------------------------------------------

    def _steal(self) -> None:
        """Bypass the owner marker: leave the evidence first, then go on with another's weights."""
        assert self.order is not None
        chance, own = self.chance, str(self.order["attempt"])
        victims = [
            one
            for one in self.witness.checkpoints
            if one.subject != self.order["subject"] and one.path.exists()
        ]
        if not victims:
            return
        victim = chance.random.choice(victims)
        if chance.strikes("theft by copy"):
            name = chance.random.choice([victim.path.name, "warm-start.safetensors"])
            content = victim.path.read_bytes()
            if digest_bytes(content) == victim.digest:  # a torn file is no evidence
                (self.folder / name).write_bytes(content)
                self.origin = victim.origin
                self.witness.contaminated[own] = Evidence(victim.attempt)
                # its own checkpoint of that step may cover the evidence
                (self.folder / "first.safetensors").write_bytes(content)
        elif chance.strikes("theft by parent"):
            self.origin, self.step, self.parent = victim.origin, 1, victim.digest
            self.witness.contaminated[own] = Evidence(victim.attempt, victim.digest)
            self._checkpoint()
        elif chance.strikes("forged lineage"):
            self.origin, self.step = victim.origin, 1
            self.witness.contaminated[own] = Evidence()
            self._checkpoint(
                **chance.random.choice(
                    [
                        {"parent_checkpoint": NOBODY},
                        {"subject": victim.subject},
                        {"attempt": victim.attempt},
                        {"step": "7"},
                    ]
                )
            )
        elif chance.strikes("foreign file"):
            path = victim.path.with_name(
                chance.random.choice([victim.path.name, "new.safetensors"])
            )
            write_checkpoint(path, self.lineage(), self.origin)
            self.witness.contaminated[victim.attempt] = Evidence(own)
        elif chance.strikes("stolen marker"):
            self._mark(victim.path.parent, canonical_json(owner_of("spring", own, "another")))
            self.witness.contaminated[victim.attempt] = Evidence(own)
        elif chance.strikes("torn marker"):
            self._mark(victim.path.parent, b'{"revi')
            self.witness.contaminated[victim.attempt] = Evidence()

    @staticmethod
    def _mark(folder: Path, content: bytes) -> None:
        marker = folder / OWNER_FILE
        if marker.exists():
            marker.chmod(0o644)
        marker.write_bytes(content)


def read_header(path: Path) -> dict[str, str]:
    """Return the metadata in a safetensors file, nothing where there is none."""
    content = path.read_bytes()
    try:
        length = int.from_bytes(content[:8], "little")
        found = json.loads(content[8 : 8 + length])["__metadata__"]
    except (ValueError, KeyError):
        return {}
    return {str(name): str(text) for name, text in found.items()}
