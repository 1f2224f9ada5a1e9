"""Make, save, load and run networks: everything about finished weights, nothing about training.

Decides how a network's class is found, what its file of weights says about itself, and that a
photo's score does not depend on the photos scored beside it. Layers are left to the network.
"""

import importlib
import json
import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytorch_lightning as lightning
import torch

from parcel_assets.adapters.checkpoint_safetensors import read_tensors, write_tensors
from parcel_assets.adapters.trainer_batches import Normalisation, Rows
from parcel_assets.core.codec import canonical_json, derive_seed
from parcel_assets.core.errors import CheckpointError, TrainingError
from parcel_assets.core.plan import BUILT_IN_NETWORK, PreprocessPlan
from parcel_assets.core.ports import Pixels, Scores, TrainingTask
from parcel_assets.core.space import Scalar

MODEL_FORMAT = "parcel_assets.model/1"
BUILT_IN_CLASS = "parcel_assets.adapters.network_cnn:DamageNetwork"
# every forward pass in evaluation has this many photos, so a photo's score has no neighbours in it
SCORED_TOGETHER_PHOTOS = 64


def build_network(
    name: str, configuration: Mapping[str, Scalar], training_steps: int
) -> lightning.LightningModule:
    """Return an untrained network, ours or `package.module:Class`, weights in channels-last layout.

    Raises TrainingError where the class cannot be found or is not a LightningModule.
    """
    place = BUILT_IN_CLASS if name == BUILT_IN_NETWORK else name
    module_name, _, class_name = place.partition(":")
    try:
        kind = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise _network_error(place, str(error), "a class that can be imported") from error
    if not (isinstance(kind, type) and issubclass(kind, lightning.LightningModule)):
        raise _network_error(place, f"{kind!r}", "a LightningModule class")
    network: lightning.LightningModule = kind(
        configuration=dict(configuration), training_steps=training_steps
    )
    return network.to(memory_format=torch.channels_last)


def save_network(path: Path, network: lightning.LightningModule, task: TrainingTask) -> None:
    """Write finished weights with what rebuilds the network; equal weights give equal bytes."""
    fields = {
        "network": task.training.network,
        "configuration": dict(task.configuration),
        "preprocess": task.preprocess.model_dump(mode="json"),
        "steps": task.training.steps,
    }
    header = {key: canonical_json(value).decode() for key, value in fields.items()}
    write_tensors(path, network.state_dict(), {"format": MODEL_FORMAT} | header)


def load_network(
    model: Path,
) -> tuple[lightning.LightningModule, dict[str, Scalar], PreprocessPlan]:
    """Return a saved network in evaluation mode, its configuration and its preprocessing.

    Raises CheckpointError where the file does not hold one.
    """
    header, tensors = read_tensors(model, MODEL_FORMAT)
    try:
        fields = {key: json.loads(text) for key, text in header.items() if key != "format"}
        preprocess = PreprocessPlan.model_validate_json(header["preprocess"])
        configuration: dict[str, Scalar] = fields["configuration"]
        network = build_network(fields["network"], configuration, fields["steps"])
        network.load_state_dict(tensors, strict=True)
    except (KeyError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            f"weights that do not fit their own header ({error})",
            expected="a model file as the trainer writes it",
            where=str(model),
            remedy="Train the model again from its plan.",
        ) from error
    return network.eval(), configuration, preprocess


def _network_error(place: str, found: str, expected: str) -> TrainingError:
    return TrainingError(
        found,
        expected=expected,
        where=f"network {place}",
        remedy="Name the class in the plan as `package.module:Class`; network_cnn.py states the "
        "contract.",
    )


class Scorer:
    """Scores photos of one part, in passes of equal size."""

    def __init__(self, pixels: Pixels, preprocess: PreprocessPlan) -> None:
        self._pixels = pixels
        self._normalisation = Normalisation(preprocess, pixels.shape[1])

    def scores(self, network: lightning.LightningModule, rows: Rows) -> Scores:
        """Return the sigmoid of the logits of rows, in their order, float32."""
        modes = [(module, module.training) for module in network.modules()]
        network.eval()
        result = np.empty(len(rows), dtype=np.float32)
        together = np.zeros((SCORED_TOGETHER_PHOTOS, *self._pixels.shape[1:]), dtype=np.uint8)
        try:
            with torch.no_grad():
                for start in range(0, len(rows), SCORED_TOGETHER_PHOTOS):
                    piece = rows[start : start + SCORED_TOGETHER_PHOTOS]
                    together[: len(piece)] = self._pixels[piece]
                    logits = network(self._normalisation.images(together))
                    scores = torch.sigmoid(logits.float()).numpy()
                    result[start : start + len(piece)] = scores[: len(piece)]
        finally:
            for module, training in modes:
                module.training = training
        return result


def settle_process(threads: int) -> None:
    """Set what makes equal trainings equal to the last bit, and quick on few cores."""
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    # outputs are written whole by every deterministic operation; filling them first costs time
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # a module with properties


def seed_everything(seed: int, step: int) -> None:
    """Seed torch, numpy and random for one step, so that a network's own draws repeat as well."""
    step_seed = derive_seed("step", seed, step)
    torch.default_generator.manual_seed(step_seed)
    np.random.seed(step_seed % 2**32)
    random.seed(step_seed)
