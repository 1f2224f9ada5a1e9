"""A user's network whose scores are no numbers at one learning rate; else the built-in one."""

import math

from torch import Tensor

from parcel_assets.adapters.network_cnn import DamageNetwork

LEARNING_RATE = "THE_LEARNING_RATE"


class NanNetwork(DamageNetwork):
    """The built-in network, broken at one point of the space."""

    def forward(self, images: Tensor) -> Tensor:
        """Return logits; when scoring at that learning rate, each is NaN."""
        logits = super().forward(images)
        broken = not self.training and repr(self.learning_rate) == LEARNING_RATE
        return logits * math.nan if broken else logits
