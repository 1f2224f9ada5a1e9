"""What a worker does: load its data once, say who it is, then train one order after another.

A worker decides nothing: it reports scores, not costs, and goes on or stops as it is told. It
writes only below the prefix of its order. How messages travel is left to the channel (see
`parcel_assets.worker`), training to the trainer.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from parcel_assets.core.codec import digest_bytes, short
from parcel_assets.core.errors import (
    CheckpointError,
    IdentityError,
    ParcelAssetsError,
    SettingError,
    WorkerError,
    refused_by_the_system,
    words_of,
)
from parcel_assets.core.identity import identity_digest
from parcel_assets.core.identity_data import (
    answer_challenge,
    challenged_pixels,
    parts_of,
    photo_marks,
    pixels_digest,
    sketch_images,
)
from parcel_assets.core.lineage import lineage_of, owner_of
from parcel_assets.core.plan import Plan
from parcel_assets.core.plan_reader import plan_from_fields
from parcel_assets.core.ports import Message, Scores, Trainer, TrainingData, TrainingTask
from parcel_assets.core.split import milestone_rows, part_data, subset_digests
from parcel_assets.core.table import pack_scores

OWNER_FILE = "owner.json"
MODEL_FILE = "model.safetensors"
PARTS = ("train", "validation")
CHUNK_BYTES = 1 << 20

log = logging.getLogger(__name__)


class Channel(Protocol):
    """A worker's line to its coordinator; it ends the process when that is gone."""

    def send(self, message: Message) -> None:
        """Send a message."""
        ...

    def receive(self) -> dict[str, Any]:
        """Wait for the next message."""
        ...

    def note(self, attempt: str, step: int) -> None:
        """Remember how far the worker is, for the signs of life; raises if those have ceased."""
        ...


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker is told at its start: where things are, never what they should be."""

    revision: str
    plan: Plan
    files: Mapping[str, str]  # train_pixels, train_rows, validation_pixels, validation_rows

    @classmethod
    def read(cls, path: Path) -> "Setup":
        """Return the setup in a JSON file."""
        fields = json.loads(path.read_bytes())
        plan = plan_from_fields(fields["plan"], where=str(path))
        return cls(str(fields["revision"]), plan, dict(fields["files"]))

    def load(self) -> TrainingData:
        """Return the data, pixels mapped from their files and shared between workers."""
        parts = {}
        for part in PARTS:
            pixels = np.load(self.files[f"{part}_pixels"], mmap_mode="r", allow_pickle=False)
            rows = json.loads(Path(self.files[f"{part}_rows"]).read_bytes())
            parts[part] = part_data(rows, pixels)
        return TrainingData(train=parts["train"], validation=parts["validation"])


def serve(
    setup: Setup,
    channel: Channel,
    *,
    measure_identity: Callable[[Plan, TrainingData], dict[str, str]],
    open_trainer: Callable[[], Trainer],
) -> None:
    """Say who this worker is, answer the challenge, and train orders until the channel ends."""
    data = setup.load()
    watch = PixelWatch(setup.files, data)  # first: what changes while it measures is noticed too
    identity = measure_identity(setup.plan, data)
    watch.measured = {part: identity.get(f"{part}_pixels.digest", "") for part in PARTS}
    channel.send(hello(identity, data))
    challenge = channel.receive()
    nonce, rows = str(challenge["nonce"]), challenge["rows"]
    channel.send({"kind": "answer", "digests": answer_challenge(data, nonce=nonce, rows=rows)})
    trainer = open_trainer()
    images, threads = trainer.rehearse(
        setup.plan.training, setup.plan.preprocess, challenged_pixels(data, rows)
    )
    channel.send({"kind": "ready", "threads": threads, "sketch": sketch_images(nonce, images)})
    worker = _Worker(
        setup=setup,
        data=data,
        watch=watch,
        identity=identity_digest(identity),
        trainer=trainer,
        channel=channel,
    )
    while True:
        message = channel.receive()
        if message["kind"] == "order":
            worker.obey(message)


def hello(identity: Mapping[str, str], data: TrainingData) -> dict[str, Any]:
    """Return a worker's first message: who it is, and marks that tell which photos it holds."""
    marks = photo_marks([*data.train.photo_ids, *data.validation.photo_ids])
    return {"kind": "hello", "identity": dict(identity), "photos": marks}


class PixelWatch:
    """Notices that mapped pixels changed after they were measured.

    A file's inode, size and times are looked at before each report; only where they changed is the
    whole array measured again. A change that leaves them as they were is not noticed here: the
    rerun of the winner shows it.
    """

    def __init__(self, files: Mapping[str, str], data: TrainingData) -> None:
        self._data = data
        self._files = [Path(files[f"{part}_pixels"]) for part in PARTS]
        self._signs = self._look()
        self.measured: dict[str, str] = {}  # part -> digest of its pixels

    def require_unchanged(self) -> None:
        """Raise IdentityError where the pixels of a part are no longer those measured."""
        signs = self._look()
        if signs == self._signs:
            return
        parts = parts_of(self._data)
        for name, digest in self.measured.items():
            found = pixels_digest(parts[name].pixels)
            if found != digest:
                raise IdentityError(
                    f"pixels {short(found)}",
                    expected=f"pixels {short(digest)}, with which the worker was admitted",
                    where=f"{name} photos",
                    remedy="Their file changed while it was in use. Restore it from a copy.",
                    field=f"{name}_pixels",
                )
        self._signs = signs

    def _look(self) -> list[tuple[int, ...]]:
        looks = [file.stat() for file in self._files]
        return [(one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in looks]


class _Worker:
    def __init__(
        self,
        *,
        setup: Setup,
        data: TrainingData,
        watch: PixelWatch,
        identity: str,
        trainer: Trainer,
        channel: Channel,
    ) -> None:
        self.setup = setup
        self.data = data
        self.watch = watch
        self.identity = identity
        self.trainer = trainer
        self.channel = channel
        self.rows = milestone_rows(setup.plan, data.validation.shipments)
        self.subsets = subset_digests(data.validation.photo_ids, self.rows)

    def obey(self, order: Mapping[str, Any]) -> None:
        """Train one order and say how it ended; a failure is a message, not the worker's end."""
        attempt = _Attempt(self, order)
        try:
            attempt.train()
        except IdentityError as error:
            attempt.say("failed", category="identity", error=error.as_fields())
        except WorkerError as error:
            attempt.say("failed", category="worker", error=error.as_fields())
        except SettingError as error:
            attempt.say("failed", category="setting", error=error.as_fields())
        except OSError as error:
            refusal = refused_by_the_system(error)
            attempt.say("failed", category="setting", error=refusal.as_fields())
        except ParcelAssetsError as error:
            attempt.say("failed", category="own", error=error.as_fields())
        except (Exception, SystemExit) as error:
            # whatever a user's network raises ends its attempt, and the log keeps where
            log.exception("attempt %s failed", attempt.name)
            attempt.say("failed", category="own", error={"found": words_of(error)})


class _Attempt:
    """One order at work; it is the trainer's observer."""

    def __init__(self, worker: _Worker, order: Mapping[str, Any]) -> None:
        self.worker = worker
        self.order = order
        self.name = str(order["attempt"])
        self.prefix = Path(order["prefix"])
        resume = order.get("resume")
        self.parent: str | None = resume["checkpoint"] if resume else None
        self.resume_from = Path(resume["file"]) if resume else None
        self.step = int(resume["step"]) if resume else 0
        self.stopped = False

    def say(self, kind: str, **facts: Any) -> None:
        """Send a message of this attempt."""
        self.worker.channel.send(
            {"kind": kind, "attempt": self.name, "token": self.order["token"], "step": self.step}
            | facts
        )

    def train(self) -> None:
        """Train to the end or to the stop that the coordinator asks for."""
        self._require_own_prefix()
        self.worker.watch.require_unchanged()
        plan = self.worker.setup.plan
        if self.resume_from is not None:
            self._require_own_checkpoint(self.resume_from)
        task = TrainingTask(
            configuration=dict(self.order["configuration"]),
            seed=int(self.order["seed"]),
            training=plan.training,
            preprocess=plan.preprocess,
            milestone_rows=self.worker.rows,
            resume_from=self.resume_from,
        )
        model = self.prefix / MODEL_FILE
        self.worker.channel.note(self.name, self.step)
        self.step = self.worker.trainer.train(task, self.worker.data, self, model)
        self.worker.watch.require_unchanged()
        if self.stopped:
            self.say("stopped")
        else:
            self.say("finished", file=MODEL_FILE, model=_file_digest(model))

    def _require_own_prefix(self) -> None:
        marker = self.prefix / OWNER_FILE
        expected = owner_of(self.worker.setup.revision, self.name, str(self.order["subject"]))
        found = json.loads(marker.read_bytes()) if marker.exists() else None
        if found != expected:
            raise CheckpointError(
                f"owner marker {found}",
                expected=f"{expected}",
                where=str(self.prefix),
                remedy="The prefix is somebody else's; nothing is written there.",
            )

    def _require_own_checkpoint(self, path: Path) -> None:
        lineage = self.worker.trainer.read_lineage(path)
        if _file_digest(path) != self.parent or lineage.get("subject") != self.order["subject"]:
            raise CheckpointError(
                f"a checkpoint of {lineage.get('subject')}",
                expected=f"the checkpoint {str(self.parent)[:8]} of {self.order['subject']}",
                where=str(path),
                remedy="A checkpoint is resumed by its own trial only.",
            )

    # ---- the observer -------------------------------------------------------------------------

    def at_step(self, step: int) -> None:
        """Note the step for the signs of life."""
        self.step = step
        self.worker.channel.note(self.name, step)

    def at_milestone(self, step: int, photos_seen: int, scores: Scores) -> bool:
        """Report the scores and wait for the verdict."""
        self.step = step
        self._require_own_prefix()
        self.worker.watch.require_unchanged()
        content = pack_scores(scores)
        name = f"scores-{step}.f4"
        (self.prefix / name).write_bytes(content)
        self.say(
            "milestone",
            photos_seen=photos_seen,
            subset=self.worker.subsets[step],
            file=name,
            scores=digest_bytes(content),
        )
        answer = self.worker.channel.receive()
        while answer["kind"] != "verdict":
            answer = self.worker.channel.receive()
        self.stopped = not answer["go_on"]
        return bool(answer["go_on"])

    def at_checkpoint(self, step: int, save: Callable[[Path, Mapping[str, str]], None]) -> None:
        """Save a checkpoint below the prefix, its lineage inside, and report it."""
        self.step = step
        self._require_own_prefix()
        self.worker.watch.require_unchanged()
        name = f"checkpoint-{step}.safetensors"
        lineage = lineage_of(
            revision=self.worker.setup.revision,
            plan_digest=self.worker.setup.plan.digest,
            identity_digest=self.worker.identity,
            subject=str(self.order["subject"]),
            attempt=self.name,
            configuration=self.order["configuration"],
            seed=int(self.order["seed"]),
            step=step,
            parent_checkpoint=self.parent,
        )
        save(self.prefix / name, lineage)
        digest = _file_digest(self.prefix / name)
        self.say("checkpoint", file=name, checkpoint=digest, parent=self.parent)
        self.parent = digest


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
