"""A user's network with a bad habit: it resumes whatever `last` checkpoint it finds for itself.

Training is that of the built-in network, bit for bit, until a file waits for it in the folder that
all workers share. Then it takes over those weights in mid-training, once, and goes on as if they
were its own: the cost that it reports is a plausible one.
"""

from pathlib import Path
from typing import Any

from parcel_assets.adapters.checkpoint_safetensors import read_checkpoint
from parcel_assets.adapters.network_cnn import DamageNetwork

SHARED = Path(__file__).parent / "shared"
RESUMES_AT_STEP = 60


class SharingNetwork(DamageNetwork):
    """The built-in network, resuming from a shared folder."""

    def on_train_batch_start(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Take over the weights that lie there for this learning rate, before one step."""
        last = SHARED / f"last-{self.learning_rate!r}.safetensors"
        if batch["step"] == RESUMES_AT_STEP and last.exists():
            self.load_state_dict(read_checkpoint(last).state["state_dict"])
            last.rename(last.with_suffix(".taken"))
