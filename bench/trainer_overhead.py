"""How much CPU the Lightning trainer takes over the plain loop, trial by trial, in one process.

Interleaved: each round runs every trial once on both sides, the side that goes first changing. Run
as `python -m bench.trainer_overhead [rounds]`.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.drawn_data import STRATA, squares, task_of
from bench.plain_loop import PlainRun, same_scores, train_plainly
from parcel_assets.adapters.network_weights import settle_process
from parcel_assets.adapters.trainer_batches import SideCache
from parcel_assets.adapters.trainer_lightning import LightningTrainer
from parcel_assets.core.ports import Scores, TrainingData, TrainingTask


@dataclass
class Listener:
    """A worker's part in small: keeps scores and saves the checkpoints that a search saves."""

    folder: Path
    scores: dict[int, Scores] = field(default_factory=dict)

    def at_step(self, step: int) -> None:
        pass

    def at_milestone(self, step: int, photos_seen: int, scores: Scores) -> bool:
        self.scores[step] = scores
        return True

    def at_checkpoint(self, step: int, save: Callable[[Path, Mapping[str, str]], None]) -> None:
        save(self.folder / f"step-{step}.safetensors", {"trial": "bench"})


def train_with_lightning(
    trainer: LightningTrainer, task: TrainingTask, data: TrainingData, folder: Path
) -> PlainRun:
    listener = Listener(folder)
    wall, cpu = time.perf_counter(), time.process_time()
    trainer.train(task, data, listener, folder / "model.safetensors")
    return PlainRun(listener.scores, time.perf_counter() - wall, time.process_time() - cpu)


def main(rounds: int) -> None:
    settle_process(1)
    data, trainer, sides = squares(), LightningTrainer(), SideCache()
    tasks = [task_of(n, one, len(data.validation.damaged)) for n, one in enumerate(STRATA)]
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for task in (tasks[0], tasks[1]):  # both image sizes, both sides warm
            train_plainly(task, data, sides)
            train_with_lightning(trainer, task, data, folder)
        for turn in range(rounds):
            plain_cpu = ours_cpu = 0.0
            for task in tasks:
                if turn % 2:
                    ours = train_with_lightning(trainer, task, data, folder)
                    plain = train_plainly(task, data, sides)
                else:
                    plain = train_plainly(task, data, sides)
                    ours = train_with_lightning(trainer, task, data, folder)
                if not same_scores(plain.scores, ours.scores):
                    raise SystemExit(f"{task.configuration}: the two sides trained differently")
                plain_cpu += plain.cpu_seconds
                ours_cpu += ours.cpu_seconds
            ratios.append(ours_cpu / plain_cpu)
            print(
                f"round {turn + 1}: plain {plain_cpu:.2f} CPU s, Lightning {ours_cpu:.2f} CPU s, "
                f"ratio {ratios[-1]:.3f}",
                flush=True,
            )
    print(f"median CPU ratio {statistics.median(ratios):.3f} over {len(tasks)} trials a round")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
