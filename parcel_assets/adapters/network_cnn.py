"""The built-in network: a small family of convolutional nets with a handful of knobs.

Decides the layers, the loss, the optimizer and the rate at each step. Batches, augmentation,
milestones and checkpoints are left to the trainer.

Your own network
----------------
A plan names it in `training.network = "package.module:Class"`. `Class` is a LightningModule with
this contract; nothing else is asked, and this file's `DamageNetwork` is an example of it:

- `Class(*, configuration, training_steps)` makes an untrained network. `configuration` maps knob
  names to values (all knobs of the plan's space, also those the trainer uses), `training_steps` is
  the plan's `training.steps`. torch, numpy and random are seeded just before.
- `forward(images) -> logits`: float32 images (photos, 3, side, side), normalised by the plan's
  mean and standard deviation, to damage logits (photos,). Calls in `eval()` mode must score a photo
  alike whatever the photos beside it.
- `training_step(batch, index) -> loss`: `batch` maps `images` (as above, augmented), `damaged`
  (float32 0 or 1, (photos,)), `weights` (float32, (photos,): `positive_weight` for a damaged photo,
  else 1) and `step` (whole number from 1).
- `configure_optimizers()` as Lightning documents it; schedulers count steps
  (`"interval": "step"`).

The trainer itself obeys four knobs for every network: `image_size`, `augmentation` (a strength from
0 to 1, or "none", "light", "strong"), `rare_oversampling` and `positive_weight`. Whatever must
survive a stop lies in parameters, buffers, optimizers, schedulers or `on_save_checkpoint` (tensors,
numbers, texts, lists, mappings). Randomness comes from torch, numpy or random, which are seeded
before each step. The code must be importable in the worker; its digest is part of the worker's
identity.
"""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as lightning
import torch
from torch import Tensor, nn
from torch.nn import functional

from parcel_assets.core.errors import TrainingError
from parcel_assets.core.space import Scalar

DEFAULTS: dict[str, Scalar] = {
    "learning_rate": 3e-3,
    "width": 16,
    "depth": 4,
    "weight_decay": 1e-2,
}
# channels of each block, in widths: growth is capped, or the last blocks would take all the time
CHANNEL_GROWTH = (1, 2, 4, 6, 8, 8)
# a warm-up and normalised pooled features keep the result from hanging on a lucky first draw:
# without them one seed in four was still at the cost of reviewing everything after 82 steps
WARM_UP_FRACTION = 0.15
FIRST_RATE_FRACTION = 0.05
LAST_RATE_FRACTION = 0.002
# running statistics must follow within the first milestone's few steps
STATISTICS_MOMENTUM = 0.4


class DamageNetwork(lightning.LightningModule):
    """Convolution blocks, then mean and maximum pooling, then one logit."""

    def __init__(self, *, configuration: Mapping[str, Scalar], training_steps: int) -> None:
        super().__init__()
        knobs = DEFAULTS | dict(configuration)
        self.learning_rate = _number(knobs, "learning_rate", 0.0, 10.0)
        self.weight_decay = _number(knobs, "weight_decay", 0.0, 10.0)
        self.training_steps = training_steps
        depth = int(_number(knobs, "depth", 1, len(CHANNEL_GROWTH)))
        width = int(_number(knobs, "width", 1, 512))
        channels = [3, *(width * growth for growth in CHANNEL_GROWTH[:depth])]
        self.blocks = nn.Sequential(
            *(_block(before, after, first=before == 3) for before, after in _pairs(channels))
        )
        self.head = nn.Sequential(
            nn.BatchNorm1d(2 * channels[-1], momentum=STATISTICS_MOMENTUM),
            nn.Linear(2 * channels[-1], 1),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return damage logits (photos,) of images (photos, 3, side, side)."""
        features = self.blocks(images)
        pooled = torch.cat([features.mean((2, 3)), features.amax((2, 3))], dim=1)
        logits: Tensor = self.head(pooled)
        return logits.squeeze(1)

    def training_step(self, batch: dict[str, Any], index: int) -> Tensor:
        """Return the weighted cross-entropy of one batch."""
        return functional.binary_cross_entropy_with_logits(
            self(batch["images"]), batch["damaged"], weight=batch["weights"]
        )

    def configure_optimizers(self) -> Any:
        """Return AdamW and a one-cycle rate that is a function of the step alone."""
        decayed = [one for one in self.parameters() if one.dim() > 1]
        others = [one for one in self.parameters() if one.dim() <= 1]
        optimizer = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": self.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=self.learning_rate,
            fused=True,
        )
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self.rate_fraction)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    def rate_fraction(self, steps_done: int) -> float:
        """Return the share of the top learning rate used by the step after `steps_done` steps."""
        warm_up = max(1.0, WARM_UP_FRACTION * self.training_steps)
        if steps_done < warm_up:
            return _cosine(FIRST_RATE_FRACTION, 1.0, steps_done / warm_up)
        rest = max(1.0, self.training_steps - warm_up)
        return _cosine(1.0, LAST_RATE_FRACTION, min(1.0, (steps_done - warm_up) / rest))


def _block(before: int, after: int, *, first: bool) -> nn.Sequential:
    """Halve the side: the first block by a stride, later ones by pooling after the convolution."""
    side, stride = (5, 2) if first else (3, 1)
    convolution = nn.Conv2d(before, after, side, stride, padding=side // 2, bias=False)
    normalise = nn.BatchNorm2d(after, momentum=STATISTICS_MOMENTUM)
    layers = [convolution, normalise, nn.ReLU(inplace=True)]
    return nn.Sequential(*layers if first else [*layers, nn.MaxPool2d(2, ceil_mode=True)])


def _pairs(channels: list[int]) -> list[tuple[int, int]]:
    return list(itertools.pairwise(channels))


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


def _number(knobs: Mapping[str, Scalar], name: str, low: float, high: float) -> float:
    """Return a numeric knob; raises TrainingError outside its bounds."""
    value = knobs[name]
    if isinstance(value, bool | str) or not low <= value <= high:
        raise TrainingError(
            f"{name} = {value!r}",
            expected=f"a number from {low:g} to {high:g}",
            where="configuration of the built-in network",
            remedy=f"Change the domain of {name} in the plan's space, or the reference.",
        )
    return float(value)
