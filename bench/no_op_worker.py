"""A worker whose trainer trains nothing: `python -m bench.no_op_worker SETUP.json`.

It says and writes what the real one would: scores at every milestone, flushed checkpoints with
their lineage, weights at the end.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from parcel_assets.core.codec import canonical_json, derive_seed
from parcel_assets.core.lineage import LINEAGE_PREFIX
from parcel_assets.core.ports import TrainingData, TrainingObserver, TrainingTask
from parcel_assets.worker import run
from parcel_assets_tests.fake_training import FakeTrainer

CHECKPOINT_BYTES = 200_000  # weights, optimizer and averages of the sample plans' networks


class NoOpTrainer(FakeTrainer):
    """Speaks the protocol; its scores are drawn from the trial's seed."""

    def train(
        self,
        task: TrainingTask,
        data: TrainingData,
        observer: TrainingObserver,
        save_model: Path,
    ) -> int:
        """Step through the training without doing any of it."""
        _ = data
        draws = np.random.default_rng(derive_seed("no-op", task.seed))
        first = 0 if task.resume_from is None else int(self.read_lineage(task.resume_from)["step"])
        for step in range(first + 1, task.training.steps + 1):
            observer.at_step(step)
            milestone = step in task.milestone_rows
            if milestone:
                scores = draws.random(len(task.milestone_rows[step]), dtype=np.float32)
                if not observer.at_milestone(step, step * task.training.batch_photos, scores):
                    return step
            due = milestone or step % task.training.checkpoint_every_steps == 0
            if due and step < task.training.steps:
                observer.at_checkpoint(step, _saver(task.seed, step))
        _saver(task.seed, task.training.steps)(save_model, {})
        return task.training.steps


def _saver(seed: int, step: int) -> Callable[[Path, Mapping[str, str]], None]:
    """Return what writes a safetensors file whole or not at all, flushed, as the real one does."""

    def save(path: Path, lineage: Mapping[str, str]) -> None:
        body = np.random.default_rng(derive_seed("weights", seed, step)).bytes(CHECKPOINT_BYTES)
        fields = {LINEAGE_PREFIX + key: text for key, text in lineage.items()}
        tensor = {"dtype": "U8", "shape": [len(body)], "data_offsets": [0, len(body)]}
        fields |= {"step": str(step)}
        header = canonical_json({"__metadata__": fields, "weights": tensor})
        temporary = path.with_name(f".{path.name}")
        with temporary.open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header + body)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    return save


if __name__ == "__main__":
    run(sys.argv[1:], NoOpTrainer)
