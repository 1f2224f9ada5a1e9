"""A trainer of a few numbers, deterministic per seed and step, and a sampler to go with it."""

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parcel_assets.core.codec import canonical_json, derive_seed
from parcel_assets.core.errors import CheckpointError, StorageError, TrainingError
from parcel_assets.core.lineage import LINEAGE_PREFIX, read_found_file
from parcel_assets.core.plan import Plan, PreprocessPlan, TrainingPlan
from parcel_assets.core.ports import (
    Images,
    PastTrial,
    Pixels,
    Scores,
    TrainingData,
    TrainingObserver,
    TrainingTask,
)
from parcel_assets.core.space import ChoiceDomain, FloatDomain, IntDomain, Scalar

FEATURES = 6


class FakeTrainer:
    """Learns weights of a few pixel statistics; `faults` plants trouble, by trial seed.

    Keys: `step_seconds`; `nan`, `raises`, `raves`, `exits`, `crashes`, `full_disk`, `prints`
    (seed -> step).
    """

    def __init__(self, faults: Mapping[str, Any] | None = None) -> None:
        self.faults = dict(faults or {})

    def train(
        self,
        task: TrainingTask,
        data: TrainingData,
        observer: TrainingObserver,
        save_model: Path,
    ) -> int:
        train, validation = features(data.train.pixels), features(data.validation.pixels)
        labels = data.train.damaged.astype(np.float64)
        weights, first = np.zeros(FEATURES), 0
        if task.resume_from is not None:
            weights, first = read_weights(task.resume_from)
        rate = float(task.configuration.get("learning_rate", 0.01))
        for step in range(first + 1, task.training.steps + 1):
            draw = np.random.default_rng(derive_seed("step", task.seed, step))
            rows = draw.integers(0, len(train), 8)
            guess = 1 / (1 + np.exp(-train[rows] @ weights))
            weights = weights + rate * 30 * (labels[rows] - guess) @ train[rows] / 8
            time.sleep(float(self.faults.get("step_seconds", 0.0)))
            self._misbehave(task.seed, step)
            observer.at_step(step)
            if step in task.milestone_rows:
                scores = score(weights, validation[task.milestone_rows[step]])
                if self.faults.get("nan", {}).get(str(task.seed)) == step:
                    scores = np.full_like(scores, np.nan)
                if not observer.at_milestone(step, step * task.training.batch_photos, scores):
                    return step
            due = step in task.milestone_rows or step % task.training.checkpoint_every_steps == 0
            if due and step < task.training.steps:
                observer.at_checkpoint(step, saver(weights, step))
        saver(weights, task.training.steps)(save_model, {})
        return task.training.steps

    def _misbehave(self, seed: int, step: int) -> None:
        planted = {
            kind: at
            for kind in self.faults
            if kind != "step_seconds"
            for at in [self.faults[kind].get(str(seed))]
        }
        if planted.get("raises") == step:
            raise TrainingError("a loss", expected="less", where="fake", remedy="None.")
        if planted.get("raves") == step:  # longer than any message, and no text at its end
            raise RuntimeError("\ud800" + "a loss " * 1_000_000)
        if planted.get("exits") == step:
            raise SystemExit(3)
        if planted.get("full_disk") == step:
            raise StorageError("no space left", expected="room", where="fake", remedy="Free some.")
        if planted.get("crashes") == step:
            os.kill(os.getpid(), signal.SIGKILL)
        if planted.get("prints") == step:
            print("a library that prints", flush=True)

    def rehearse(
        self, training: TrainingPlan, preprocess: PreprocessPlan, pixels: Pixels
    ) -> tuple[Images, int]:
        images = (pixels.transpose(0, 3, 1, 2) / 255).astype(np.float32)
        for channel, mean in enumerate(preprocess.mean):
            images[:, channel] -= np.float32(mean)
            images[:, channel] /= np.float32(preprocess.standard_deviation[channel])
        return images, training.threads_per_trial

    def score(self, model: Path, pixels: Pixels) -> Scores:
        return score(read_weights(model)[0], features(pixels))

    def read_lineage(self, checkpoint: Path) -> Mapping[str, str]:
        lineage = read_found_file(checkpoint.read_bytes()).lineage
        if lineage is None:
            raise CheckpointError(
                "no lineage", expected="one", where=str(checkpoint), remedy="It is not resumed."
            )
        return lineage


def features(pixels: Pixels) -> np.ndarray:
    flat = pixels.reshape(len(pixels), -1).astype(np.float64) / 255
    parts = np.array_split(flat, FEATURES - 1, axis=1)
    columns = [part.mean(axis=1) - 0.5 for part in parts]
    return np.stack([*columns, np.ones(len(pixels))], axis=1)


def score(weights: np.ndarray, rows: np.ndarray) -> Scores:
    scores: Scores = (1 / (1 + np.exp(-rows @ weights))).astype(np.float32)
    return scores


def saver(weights: np.ndarray, step: int) -> Callable[[Path, Mapping[str, str]], None]:
    """Return what writes the weights as a safetensors file with a lineage in its header."""

    def save(path: Path, lineage: Mapping[str, str]) -> None:
        body = weights.astype("<f8").tobytes()
        metadata = {"step": str(step)} | {LINEAGE_PREFIX + k: v for k, v in lineage.items()}
        tensor = {"dtype": "F64", "shape": [len(weights)], "data_offsets": [0, len(body)]}
        header = canonical_json({"__metadata__": metadata, "weights": tensor})
        temporary = path.with_name(f".{path.name}")
        temporary.write_bytes(len(header).to_bytes(8, "little") + header + body)
        temporary.replace(path)

    return save


def read_weights(path: Path) -> tuple[np.ndarray, int]:
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length])["__metadata__"]
    return np.frombuffer(content[8 + length :], "<f8"), int(metadata["step"])


class FakeSampler:
    """Draws at random from the plan's space, a function of seed and past alone."""

    def __init__(self, distinct_maximum: int | None = None) -> None:
        self._left = distinct_maximum

    def propose(
        self, plan: Plan, *, seed: int, past: Sequence[PastTrial], count: int
    ) -> list[dict[str, Scalar]]:
        known = [
            [one.number, one.state, one.cost, sorted(one.costs_by_step.items())] for one in past
        ]
        if self._left is not None:
            count = max(0, min(count, self._left - len(past)))
        return [
            self._draw(plan, derive_seed("draw", seed, slot, str(known))) for slot in range(count)
        ]

    def _draw(self, plan: Plan, seed: int) -> dict[str, Scalar]:
        generator = np.random.default_rng(seed)
        drawn: dict[str, Scalar] = {}
        for name, domain in sorted(plan.space.items()):
            match domain:
                case FloatDomain(low=low, high=high):
                    drawn[name] = float(generator.uniform(low, high))
                case IntDomain(low=low, high=high, step=step):
                    drawn[name] = low + step * int(generator.integers(0, (high - low) // step + 1))
                case ChoiceDomain(values=values):
                    drawn[name] = values[int(generator.integers(0, len(values)))]
        return drawn
