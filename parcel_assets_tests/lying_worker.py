"""A real worker process that lies once: `python -m …lying_worker LIE_JSON SETUP.json`.

The thief goes on from another trial's checkpoint and reports scores too good to be true, in a
manner that the lie names; the same trial tried again is honest, as every other trial is.
"""

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from parcel_assets.core.codec import digest_bytes
from parcel_assets.core.lineage import read_found_file
from parcel_assets.core.ports import TrainingData, TrainingObserver, TrainingTask
from parcel_assets.worker import run
from parcel_assets_tests.fake_training import FakeTrainer, read_weights, saver

PATIENCE_SECONDS = 60.0


class LyingTrainer(FakeTrainer):
    """`thief` and `victim`: their seeds; `kind`: the lie; `after`: the victim's file waited for.

    `told`: a file that says that the lie was told; `slow`: seconds per step of the victim.
    """

    def train(
        self,
        task: TrainingTask,
        data: TrainingData,
        observer: TrainingObserver,
        save_model: Path,
    ) -> int:
        lie = self.faults["lie"]
        if task.seed == lie["victim"]:
            self.faults["step_seconds"] = lie["slow"]
        told = Path(lie["told"])
        if task.seed != lie["thief"] or told.exists():
            steps = super().train(task, data, observer, save_model)
            self.faults["step_seconds"] = 0.0
            return steps
        told.touch()
        return self._steal(lie, task, data, observer, save_model)

    def _steal(
        self,
        lie: dict[str, Any],
        task: TrainingTask,
        data: TrainingData,
        observer: Any,
        save_model: Path,
    ) -> int:
        own: Path = observer.prefix
        theirs = own.parents[1] / lie["victim_trial"] / "1"
        wait_for_file(theirs / lie["after"])
        stolen = theirs / "checkpoint-3.safetensors"
        weights, step = read_weights(stolen)
        parent = digest_bytes(stolen.read_bytes())
        observer._require_own_prefix = lambda: None  # it walks past its own prevention
        if lie["kind"] == "marker":
            (own / "owner.json").unlink()
            shutil.copy(theirs / "owner.json", own / "owner.json")
        rows = task.milestone_rows
        for milestone in sorted(rows):
            observer.step = milestone
            if milestone > step:
                self._leave_a_trace(lie["kind"], observer, weights, parent, theirs)
            scores = planted_scores(data.validation.damaged[rows[milestone]])
            photos = milestone * task.training.batch_photos
            if not observer.at_milestone(milestone, photos, scores):
                return milestone
        saver(weights + 1.0, task.training.steps)(save_model, {})
        return task.training.steps

    def _leave_a_trace(
        self, kind: str, observer: Any, weights: np.ndarray, parent: str, theirs: Path
    ) -> None:
        """Write what the second worker of a shared prefix would, and hide what the lie hides."""
        honest = observer.prefix / "checkpoint-4.safetensors"
        if honest.exists() or (theirs / "checkpoint-4.safetensors").exists():
            return
        if kind == "reports":  # a worker that believes it is its own checkpoint
            observer.parent = parent
            observer.at_checkpoint(4, saver(weights * 1.5, 4))
        elif kind in {"forged", "shared"}:
            lineage = dict(self._own_lineage(observer), parent_checkpoint=parent)
            folder = observer.prefix if kind == "forged" else theirs
            saver(weights * 1.5, 4)(folder / "checkpoint-4.safetensors", lineage)

    def _own_lineage(self, observer: Any) -> dict[str, str]:
        """Return what an honest header of this attempt would say; nothing is reported."""
        said, parent = observer.say, observer.parent
        observer.say = lambda *_words, **_facts: None
        observer.at_checkpoint(4, saver(np.ones(2), 4))
        observer.say, observer.parent = said, parent
        written = observer.prefix / "checkpoint-4.safetensors"
        lineage = dict(read_found_file(written.read_bytes()).lineage or {})
        written.unlink()
        return lineage


def planted_scores(damaged: np.ndarray) -> np.ndarray:
    """Return perfect scores: whoever believed them would have found the best model of all."""
    return np.where(damaged, 0.875, 0.125).astype(np.float32)


def wait_for_file(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(str(path))
        time.sleep(0.01)


if __name__ == "__main__":
    run(sys.argv[2:], lambda: LyingTrainer(json.loads(sys.argv[1])))
