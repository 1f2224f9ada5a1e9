"""Train one configuration with a real `pytorch_lightning.Trainer`, bit for bit repeatable.

Decides the loop: a lean Trainer, seeds before each step, what happens between two steps (step
heard, milestone scored, checkpoint offered), early failure, and the file of finished weights.
Batches are left to `trainer_batches`, the network to the plan, files to `checkpoint_safetensors`;
whether a training goes on is the observer's to say.

One process trains one configuration at a time; thread count, denormal flushing and deterministic
algorithms are set for the whole process.
"""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as lightning
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment

from parcel_assets.adapters.checkpoint_safetensors import (
    SafetensorsCheckpointIO,
    read_lineage,
    read_training,
)
from parcel_assets.adapters.network_weights import (
    Scorer,
    build_network,
    load_network,
    save_network,
    seed_everything,
    settle_process,
)
from parcel_assets.adapters.trainer_batches import Normalisation, SideCache, StepBatches, side_of
from parcel_assets.core.errors import CheckpointError, ParcelAssetsError, TrainingError
from parcel_assets.core.plan import PreprocessPlan, TrainingPlan
from parcel_assets.core.ports import (
    Images,
    Pixels,
    Scores,
    TrainingData,
    TrainingObserver,
    TrainingTask,
)


class LightningTrainer:
    """The Trainer port on Lightning, on the CPU."""

    def __init__(self) -> None:
        self._sides = SideCache()
        for name in ("pytorch_lightning", "lightning", "lightning_fabric"):
            logging.getLogger(name).setLevel(logging.ERROR)

    def train(
        self,
        task: TrainingTask,
        data: TrainingData,
        observer: TrainingObserver,
        save_model: Path,
    ) -> int:
        """Train to the end or until the observer stops it; return the last step done.

        Raises TrainingError for the trial's own failures, CheckpointError where `resume_from` does
        not fit, StorageError where a file cannot be written, and whatever the observer raises.
        """
        settle_process(task.training.threads_per_trial)
        side = side_of(task.configuration, task.preprocess)
        if task.resume_from is not None:
            _require_same_training(task.resume_from, task)
        batches = StepBatches(task, data.train, self._sides.at_side(data.train.pixels, side))
        scorer = Scorer(self._sides.at_side(data.validation.pixels, side), task.preprocess)
        with _quiet(), _own_failures(task.training.network) as relay:
            seed_everything(task.seed, 0)
            network = build_network(task.training.network, task.configuration, task.training.steps)
            loop = _lean_trainer()
            between = _BetweenSteps(
                task=task,
                batches=batches,
                scorer=scorer,
                observer=observer,
                loop=loop,
                network=network,
                relay=relay,
            )
            loop.fit(
                network,
                train_dataloaders=between,
                ckpt_path=None if task.resume_from is None else str(task.resume_from),
                weights_only=False,  # our CheckpointIO reads nothing but data
            )
            between.finish()
        if between.step == task.training.steps and not between.stopped:
            save_network(save_model, network, task)
        return between.step

    def rehearse(
        self, training: TrainingPlan, preprocess: PreprocessPlan, pixels: Pixels
    ) -> tuple[Images, int]:
        """Return photos as networks get them, without augmentation, and the threads in force."""
        settle_process(training.threads_per_trial)
        images = Normalisation(preprocess, pixels.shape[1]).images(np.array(pixels))
        return images.numpy(), torch.get_num_threads()

    def score(self, model: Path, pixels: Pixels) -> Scores:
        """Return the damage score in 0..1 of each photo, (N,) float32, under saved weights.

        Raises CheckpointError where the file is not one of `train`'s.
        """
        settle_process(1)
        network, configuration, preprocess = load_network(model)
        side = side_of(configuration, preprocess)
        scorer = Scorer(self._sides.at_side(pixels, side), preprocess)
        return scorer.scores(network, np.arange(len(pixels), dtype=np.int64))

    def read_lineage(self, checkpoint: Path) -> Mapping[str, str]:
        """Return the lineage in a checkpoint's header; raises CheckpointError if it has none."""
        return read_lineage(checkpoint)


# ---- the loop -----------------------------------------------------------------------------------


def _lean_trainer() -> lightning.Trainer:
    """Return a Trainer that trains and nothing else: no logger, bars, files or validation loop."""
    return lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,  # one pass over the batches of all steps
        deterministic=True,
        logger=False,
        callbacks=[_LossWatch()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        limit_val_batches=0,
        use_distributed_sampler=False,
        plugins=[SafetensorsCheckpointIO(), LightningEnvironment()],
    )


class _LossWatch(lightning.Callback):
    """Ends a training at the step that has no loss, or one that is not a finite number."""

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: dict[str, Any],
        batch_idx: int,
    ) -> None:
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if loss is None and pl_module.automatic_optimization:
            # Lightning would skip the step in silence: such a network ends as it began
            raise TrainingError(
                "no loss from training_step",
                expected="a loss at every step, or manual optimization",
                where=f"step {batch['step']}",
                remedy="Return the loss from training_step, under a new search revision.",
                step=batch["step"],
            )
        if isinstance(loss, torch.Tensor) and not bool(torch.isfinite(loss).all()):
            raise _not_finite(f"loss {float(loss)}", batch["step"])


@dataclass(slots=True)
class _BetweenSteps:
    """The loader that Lightning iterates; asked for the next batch, it first settles the step done.

    Only here is a step wholly over: optimizer, schedulers and every hook have run, so a checkpoint
    taken here lacks nothing. After the last step `finish` does the same.
    """

    task: TrainingTask
    batches: StepBatches
    scorer: Scorer
    observer: TrainingObserver
    loop: lightning.Trainer
    network: lightning.LightningModule
    relay: "_Relay"
    stopped: bool = False
    settled_step: int = 0

    @property
    def step(self) -> int:
        """The last step handed out."""
        return self.batches.step

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        self.finish()
        if self.stopped:
            raise StopIteration
        seed_everything(self.task.seed, self.step + 1)
        return next(self.batches)

    def state_dict(self) -> dict[str, int]:
        """Return what Lightning keeps in a checkpoint."""
        return self.batches.state_dict()

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on after the step of a checkpoint, which its first attempt has already settled."""
        self.batches.load_state_dict(state)
        self.settled_step = self.step

    def finish(self) -> None:
        """Settle the step done, once: tell the observer, score a milestone, offer a checkpoint."""
        step, training = self.step, self.task.training
        if step == self.settled_step or self.stopped:
            return
        self.settled_step = step
        with self.relay.observing():
            self.observer.at_step(step)
        is_milestone = step in self.task.milestone_rows
        if is_milestone:
            self._require_finite(step)
            scores = self.scorer.scores(self.network, self.task.milestone_rows[step])
            if not np.isfinite(scores).all():
                raise _not_finite("a score", step)
            with self.relay.observing():
                seen = step * training.batch_photos
                self.stopped = not self.observer.at_milestone(step, seen, scores)
        is_due = is_milestone or step % training.checkpoint_every_steps == 0
        if is_due and not self.stopped and step < training.steps:
            self._require_finite(step)
            with self.relay.observing():
                self.observer.at_checkpoint(step, self._save)
        if step == training.steps:
            self._require_finite(step)

    def _save(self, path: Path, lineage: Mapping[str, str]) -> None:
        training = training_fields(self.task) | {"step": self.step}
        options = {"lineage": dict(lineage), "training": training}
        self.loop.save_checkpoint(path, weights_only=False, storage_options=options)

    def _require_finite(self, step: int) -> None:
        for name, values in self.network.state_dict().items():
            if not bool(torch.isfinite(values).all()):
                raise _not_finite(f"a value in {name}", step)


# ---- one training and its failures --------------------------------------------------------------


def training_fields(task: TrainingTask) -> dict[str, Any]:
    """Return what makes a training this one and no other; a checkpoint carries it."""
    return {
        "network": task.training.network,
        "configuration": dict(task.configuration),
        "seed": task.seed,
        "steps": task.training.steps,
        "batch_photos": task.training.batch_photos,
        "preprocess": task.preprocess.model_dump(mode="json"),
    }


def _require_same_training(checkpoint: Path, task: TrainingTask) -> None:
    """Raise CheckpointError where a checkpoint was taken in another training than the task's."""
    found = read_training(checkpoint)
    for field, expected in training_fields(task).items():
        if found.get(field) != expected:
            raise CheckpointError(
                f"a checkpoint of {field} = {found.get(field)!r}",
                expected=f"{field} = {expected!r}",
                where=str(checkpoint),
                remedy="A checkpoint is resumed by its own trial only.",
                field=field,
            )


class _Relay:
    """Remembers what the observer raised, so that it is not taken for the trial's own failure."""

    def __init__(self) -> None:
        self.raised: BaseException | None = None

    @contextmanager
    def observing(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.raised = error
            raise


@contextmanager
def _own_failures(network: str) -> Iterator[_Relay]:
    """Turn what the network or its framework raises into TrainingError, with the cause in words."""
    relay = _Relay()
    try:
        yield relay
    except ParcelAssetsError:
        raise
    except Exception as error:
        if error is relay.raised:
            raise
        raise TrainingError(
            f"{type(error).__name__}: {error}",
            expected="training that runs to its end",
            where=f"network {network}",
            remedy="Mend the network or narrow the space; the traceback names the line.",
        ) from error


def _not_finite(what: str, step: int) -> TrainingError:
    return TrainingError(
        f"{what} that is not finite",
        expected="finite loss, weights and scores",
        where=f"step {step}",
        remedy="Lower the highest learning rate of the space, or look at the network.",
        step=step,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Lightning's advice for interactive use out of a worker's log."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"(pytorch_lightning|lightning_fabric)\b.*")
        yield
