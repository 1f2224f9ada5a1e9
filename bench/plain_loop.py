"""The rival: a plain sequential torch loop, without Lightning, ledger, workers or checkpoints.

It is given our network, our batches and our scoring, each at its fastest (decoded arrays, channels
last, one thread, fused optimizer), so that nothing but the loop around them differs. Its scores
must equal the trainer's to the last bit: that is how we know it does the same work.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from parcel_assets.adapters.network_cnn import DamageNetwork
from parcel_assets.adapters.network_weights import Scorer, settle_process
from parcel_assets.adapters.trainer_batches import SideCache, StepBatches, side_of
from parcel_assets.core.codec import derive_seed
from parcel_assets.core.ports import Scores, TrainingData, TrainingTask


@dataclass(frozen=True)
class PlainRun:
    """What one training gave and took."""

    scores: dict[int, Scores]
    wall_seconds: float
    cpu_seconds: float


def train_plainly(task: TrainingTask, data: TrainingData, sides: SideCache) -> PlainRun:
    """Train one configuration and score its milestones, the way a careful script would."""
    wall, cpu = time.perf_counter(), time.process_time()
    side = side_of(task.configuration, task.preprocess)
    batches = StepBatches(task, data.train, sides.at_side(data.train.pixels, side))
    scorer = Scorer(sides.at_side(data.validation.pixels, side), task.preprocess)
    torch.default_generator.manual_seed(derive_seed("step", task.seed, 0))
    network = DamageNetwork(
        configuration=task.configuration, training_steps=task.training.steps
    ).to(memory_format=torch.channels_last)
    prepared = network.configure_optimizers()
    optimizer, scheduler = prepared["optimizer"], prepared["lr_scheduler"]["scheduler"]
    network.train()
    scores: dict[int, Scores] = {}
    for step, batch in enumerate(batches, start=1):
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(network.training_step(batch, step - 1))
        optimizer.step()
        scheduler.step()
        if step in task.milestone_rows:
            scores[step] = scorer.scores(network, task.milestone_rows[step])
    return PlainRun(scores, time.perf_counter() - wall, time.process_time() - cpu)


def train_all_plainly(tasks: Sequence[TrainingTask], data: TrainingData) -> list[PlainRun]:
    """Train one configuration after the other in this process."""
    settle_process(1)
    sides = SideCache()
    return [train_plainly(task, data, sides) for task in tasks]


def same_scores(first: dict[int, Scores], second: dict[int, Scores]) -> bool:
    """Say whether two trainings scored the same milestones alike, to the last bit."""
    return first.keys() == second.keys() and all(
        np.array_equal(first[step], second[step]) for step in first
    )
