"""What both sides of a benchmark train on: the sample archive, or squares on noise where it is not.

Only shapes and counts matter for speed, so the squares are no worse a ground for it.
"""

from collections.abc import Mapping

import numpy as np

from parcel_assets.core.codec import derive_seed
from parcel_assets.core.plan import PreprocessPlan, TrainingPlan
from parcel_assets.core.ports import PartData, TrainingData, TrainingTask
from parcel_assets.core.space import Scalar

SIDE_PIXELS = 64
# every width, depth and image size that the sample plans search
STRATA: tuple[dict[str, Scalar], ...] = tuple(
    {"width": width, "depth": depth, "image_size": side, "augmentation": augmentation}
    for width, depth, side, augmentation in (
        (8, 3, 48, 0.0), (12, 4, 64, 0.5), (16, 3, 48, 1.0), (20, 4, 48, 0.5),
        (8, 4, 64, 1.0), (12, 3, 48, 0.5), (16, 4, 64, 0.0), (20, 3, 64, 1.0),
    )
)  # fmt: skip


def squares(train_photos: int = 4800, validation_photos: int = 3000) -> TrainingData:
    """Return grey noise with a bright square where a photo is damaged."""
    return TrainingData(_part(train_photos, 1), _part(validation_photos, 2))


def _part(photos: int, seed: int) -> PartData:
    draws = np.random.default_rng(seed)
    pixels = draws.integers(60, 160, (photos, SIDE_PIXELS, SIDE_PIXELS, 3), dtype=np.uint8)
    damaged = draws.random(photos) < 0.3
    pixels[damaged, 8:24, 8:24] = 250
    return PartData(
        photo_ids=tuple(f"{seed}-{number:05d}" for number in range(photos)),
        shipments=tuple(f"s{number // 2}" for number in range(photos)),
        pixels=pixels,
        damaged=damaged,
        attributes={"damage_type": tuple("dent" if one else "" for one in damaged)},
    )


def task_of(number: int, configuration: Mapping[str, Scalar], photos: int) -> TrainingTask:
    """Return one training of 82 steps; milestones before the last score every second photo."""
    training = TrainingPlan()
    every, half = np.arange(photos, dtype=np.int64), np.arange(0, photos, 2, dtype=np.int64)
    rows = {step: every if step == training.steps else half for step in training.milestones}
    seed = derive_seed("bench", number)
    return TrainingTask(dict(configuration), seed, training, PreprocessPlan(), rows)
