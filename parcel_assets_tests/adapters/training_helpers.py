"""Small synthetic photos, a listening observer and networks of a user's own, for trainer tests."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as lightning
import torch
from torch import Tensor, nn
from torch.nn import functional

from parcel_assets.core.plan import PreprocessPlan, TrainingPlan
from parcel_assets.core.ports import PartData, Scores, TrainingData, TrainingTask
from parcel_assets.core.slice_plan import Oversample

STEPS = 12
MILESTONES = (3, 7, 12)
SIDE_PIXELS = 32
PREPROCESS = PreprocessPlan(image_size_pixels=SIDE_PIXELS)
HERE = "parcel_assets_tests.adapters.training_helpers"


def training_plan(network: str = "cnn", **changes: Any) -> TrainingPlan:
    fields: dict[str, Any] = {
        "steps": STEPS,
        "batch_photos": 16,
        "milestones": MILESTONES,
        "checkpoint_every_steps": 2,
        "network": network,
        "rare_slice": Oversample(dimension="damage_type", value="crushed_corner"),
    }
    return TrainingPlan(**fields | changes)


def part(photos: int, seed: int) -> PartData:
    """Return grey noise with a bright square where a photo is damaged."""
    draws = np.random.default_rng(seed)
    pixels = draws.integers(60, 160, (photos, SIDE_PIXELS, SIDE_PIXELS, 3), dtype=np.uint8)
    damaged = draws.random(photos) < 0.4
    pixels[damaged, 8:16, 8:16] = 250
    kinds = np.where(damaged, np.where(draws.random(photos) < 0.2, "crushed_corner", "dent"), "")
    pixels.setflags(write=False)
    return PartData(
        photo_ids=tuple(f"{seed}-{number:04d}.png" for number in range(photos)),
        shipments=tuple(f"s{number // 2}" for number in range(photos)),
        pixels=pixels,
        damaged=damaged,
        attributes={"damage_type": tuple(map(str, kinds)), "camera_class": ("top",) * photos},
    )


DATA = TrainingData(train=part(90, 1), validation=part(70, 2))
ROWS = {step: np.arange(0, 70, 2, dtype=np.int64) for step in MILESTONES} | {
    STEPS: np.arange(70, dtype=np.int64)
}


def task(
    configuration: Mapping[str, Any] | None = None,
    *,
    seed: int = 82,
    resume_from: Path | None = None,
    network: str = "cnn",
    **changes: Any,
) -> TrainingTask:
    small: dict[str, Any] = {"width": 4, "depth": 3, "augmentation": "strong"} | dict(
        configuration or {}
    )
    plan = training_plan(network, **changes)
    rows = {step: ROWS.get(step, ROWS[3]) for step in plan.milestones}
    return TrainingTask(small, seed, plan, PREPROCESS, rows, resume_from)


class StopNowError(RuntimeError):
    """What a worker raises when it must stop at once."""


@dataclass
class Observer:
    """Writes down what it hears, saves every checkpoint to a folder, stops where it is told."""

    folder: Path | None = None
    stop_at_milestone: int | None = None
    raise_at_step: int | None = None
    lineage: Mapping[str, str] = field(default_factory=lambda: {"trial": "parcel-07"})
    heard: list[tuple[str, int]] = field(default_factory=list)
    scores: dict[int, Scores] = field(default_factory=dict)
    photos_seen: dict[int, int] = field(default_factory=dict)

    def at_step(self, step: int) -> None:
        self.heard.append(("step", step))
        if step == self.raise_at_step:
            raise StopNowError(str(step))

    def at_milestone(self, step: int, photos_seen: int, scores: Scores) -> bool:
        self.heard.append(("milestone", step))
        self.scores[step] = scores
        self.photos_seen[step] = photos_seen
        return step != self.stop_at_milestone

    def at_checkpoint(self, step: int, save: Callable[[Path, Mapping[str, str]], None]) -> None:
        self.heard.append(("checkpoint", step))
        if self.folder is not None:
            save(self.folder / f"step-{step:03d}.safetensors", self.lineage)


class OwnNetwork(lightning.LightningModule):
    """A user's network: dropout, numpy noise, SGD with momentum, and one of torch's schedulers."""

    def __init__(self, *, configuration: Mapping[str, Any], training_steps: int) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.rate = float(configuration.get("rate", 0.05))
        self.scheduler = str(configuration.get("scheduler", "onecycle"))
        self.training_steps = training_steps
        self.body = nn.Sequential(
            nn.Conv2d(3, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(4)
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(96, 1))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(images)).squeeze(1)
        return logits

    def training_step(self, batch: Mapping[str, Any], index: int) -> Tensor:
        noise = torch.from_numpy(np.random.standard_normal(len(batch["damaged"]))).float()
        loss = functional.binary_cross_entropy_with_logits(
            self(batch["images"]) + 0.1 * noise, batch["damaged"], weight=batch["weights"]
        )
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.rate, momentum=0.9)
        schedulers: dict[str, Callable[[], Any]] = {
            "onecycle": lambda: torch.optim.lr_scheduler.OneCycleLR(
                optimizer, max_lr=self.rate, total_steps=self.training_steps
            ),
            "multistep": lambda: torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5, 9]),
            "sequential": lambda: torch.optim.lr_scheduler.SequentialLR(
                optimizer,
                [
                    torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=4),
                    torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.training_steps),
                ],
                milestones=[4],
            ),
            "plateau": lambda: torch.optim.lr_scheduler.ReduceLROnPlateau(
                optimizer, factor=0.5, patience=0
            ),
        }
        entry = {
            "scheduler": schedulers[self.scheduler](),
            "interval": "step",
            "monitor": "loss",
        }
        return {"optimizer": optimizer, "lr_scheduler": entry}


class RaisingNetwork(OwnNetwork):
    """A user's network with a bug that shows at the fifth step."""

    def training_step(self, batch: Mapping[str, Any], index: int) -> Tensor:
        if batch["step"] == 5:
            raise IndexError("label 7 is out of bounds")
        return super().training_step(batch, index)


class DivergingNetwork(OwnNetwork):
    """A user's network whose loss becomes NaN at the fourth step."""

    def training_step(self, batch: Mapping[str, Any], index: int) -> Tensor:
        loss = super().training_step(batch, index)
        return loss * float("nan") if batch["step"] == 4 else loss


class SilentNetwork(OwnNetwork):
    """A user's network that gives no loss at its third step."""

    def training_step(self, batch: Mapping[str, Any], index: int) -> Tensor:
        loss = super().training_step(batch, index)
        return loss if batch["step"] != 3 else None  # type: ignore[return-value]  # the fault


class HoardingNetwork(OwnNetwork):
    """A user's network that puts an object into its checkpoint."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["note"] = Path("somewhere")


class NotALightningModule:
    """What a plan may name by mistake."""
