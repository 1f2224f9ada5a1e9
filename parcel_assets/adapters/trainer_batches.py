"""Decides what a network sees at each step: which photos, how augmented, resized and normalised.

Every choice is a function of (trial seed, step), drawn from counter-based generators, so a training
that resumes at step 40 sees what one that never stopped sees. Loops, milestones and checkpoints are
left to `trainer_lightning`, what a network does with a batch to the network.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from parcel_assets.core.errors import TrainingError
from parcel_assets.core.plan import PreprocessPlan
from parcel_assets.core.ports import PartData, Pixels, TrainingTask
from parcel_assets.core.space import Scalar

Rows = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

DEFAULT_AUGMENTATION = "light"
# strength 0 leaves photos as they are; above it they are mirrored, moved and relit, in proportion
AUGMENTATIONS = {"none": 0.0, "light": 0.5, "strong": 1.0}
SHIFT_FRACTION = 1 / 16  # of the side, at most, in each direction
BRIGHTNESS_LEVELS = 24.0  # of 255, at most
CONTRAST_FRACTION = 0.2
OVERSAMPLING_MAXIMUM = 100.0
SIDE_PIXELS_MINIMUM = 8
RESIZE_CHUNK_PHOTOS = 256
CACHED_SIDES = 6

# purposes keep generators of one seed apart
_ORDER, _AUGMENT = 1, 2


def generator(seed: int, purpose: int, counter: int) -> np.random.Generator:
    """Return a generator that is a function of its three arguments alone."""
    return np.random.Generator(np.random.Philox(key=[seed, (purpose << 48) | counter]))


def side_of(configuration: Mapping[str, Scalar], preprocess: PreprocessPlan) -> int:
    """Return the side in pixels that a configuration trains at; raises TrainingError."""
    side = configuration.get("image_size", preprocess.image_size_pixels)
    highest = preprocess.image_size_pixels
    if isinstance(side, bool | str) or not SIDE_PIXELS_MINIMUM <= side <= highest or side % 1:
        raise _knob_error(
            "image_size", side, f"a whole number from {SIDE_PIXELS_MINIMUM} to {highest}"
        )
    return int(side)


class SideCache:
    """Pixel arrays at the sides asked for lately, made once in a process."""

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[int, int], tuple[Pixels, Pixels]] = OrderedDict()

    def at_side(self, pixels: Pixels, side_pixels: int) -> Pixels:
        """Return pixels (photos, side, side, 3), shrunk with antialiasing where need be."""
        if pixels.shape[1] == side_pixels:
            return pixels
        # the source is kept beside its copy: an id names it only as long as it lives
        key = (id(pixels), side_pixels)
        if key not in self._made:
            self._made[key] = (pixels, resized(pixels, side_pixels))
            if len(self._made) > CACHED_SIDES:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        return self._made[key][1]


def resized(pixels: Pixels, side_pixels: int) -> Pixels:
    """Return uint8 pixels (photos, side, side, 3) at another side."""
    result = np.empty((len(pixels), side_pixels, side_pixels, 3), dtype=np.uint8)
    for start in range(0, len(pixels), RESIZE_CHUNK_PHOTOS):
        piece = torch.from_numpy(np.array(pixels[start : start + RESIZE_CHUNK_PHOTOS]))
        small = functional.interpolate(
            piece.permute(0, 3, 1, 2), size=(side_pixels, side_pixels), mode="bilinear",
            antialias=True,
        )  # fmt: skip
        result[start : start + RESIZE_CHUNK_PHOTOS] = small.permute(0, 2, 3, 1).numpy()
    return result


class Normalisation:
    """The plan's normalisation of 8-bit pixels to float32 images, as one multiply and one add.

    Both run along whole rows of interleaved channels: several times faster than per channel.
    """

    def __init__(self, preprocess: PreprocessPlan, side_pixels: int) -> None:
        deviation = torch.tensor(preprocess.standard_deviation, dtype=torch.float64)
        mean = torch.tensor(preprocess.mean, dtype=torch.float64)
        self._scale = (1 / (255 * deviation)).float().repeat(side_pixels)
        self._offset = (-mean / deviation).float().repeat(side_pixels)

    def images(self, pixels: Pixels) -> Tensor:
        """Return images (photos, 3, side, side), channels last, of writable pixels."""
        return self._images(pixels, self._scale, self._offset)

    def relit_images(self, pixels: Pixels, gain: Reals, levels: Reals) -> Tensor:
        """Return images of `gain * pixels + levels`, gain and levels (photos,) being per photo."""
        gains = torch.from_numpy(gain.astype(np.float32)).view(-1, 1, 1)
        added = torch.from_numpy(levels.astype(np.float32)).view(-1, 1, 1)
        return self._images(pixels, self._scale * gains, self._offset + self._scale * added)

    def _images(self, pixels: Pixels, scale: Tensor, offset: Tensor) -> Tensor:
        photos, height, width, channels = pixels.shape
        rows = torch.from_numpy(pixels).view(photos, height, width * channels).float()
        rows.mul_(scale).add_(offset)
        return rows.view(photos, height, width, channels).permute(0, 3, 1, 2)


class StepBatches:
    """The training batches of one task, step by step; Lightning iterates it like a loader.

    `step` is the last step handed out; Lightning keeps and restores it with a checkpoint.
    """

    def __init__(self, task: TrainingTask, part: PartData, pixels: Pixels) -> None:
        self.step = 0
        self._seed = task.seed
        self._steps = task.training.steps
        self._batch_photos = task.training.batch_photos
        self._pixels = pixels
        self._normalisation = Normalisation(task.preprocess, pixels.shape[1])
        self._augmentation = _augmentation_of(task.configuration)
        self._rows = _repeated_rows(task, part)
        self._order: tuple[int, Rows] = (-1, self._rows)
        weight = _positive_number(task.configuration, "positive_weight", 1.0)
        self._damaged = torch.from_numpy(part.damaged.astype(np.float32))
        self._weights = 1 + (weight - 1) * self._damaged

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        if self.step >= self._steps:
            raise StopIteration
        self.step += 1
        return self.batch(self.step)

    def state_dict(self) -> dict[str, int]:
        """Return what a resumed training needs to go on with the next batch."""
        return {"step": self.step}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on after the step of a saved state."""
        self.step = state["step"]

    def batch(self, step: int) -> dict[str, Any]:
        """Return the batch of a step (from 1) as ready tensors."""
        rows = self.rows(step)
        selected = torch.from_numpy(rows)
        return {
            "images": self._images(rows, step),
            "damaged": self._damaged[selected],
            "weights": self._weights[selected],
            "step": step,
        }

    def rows(self, step: int) -> Rows:
        """Return the training rows of a step: each epoch goes through all rows in a new order."""
        first, photos = (step - 1) * self._batch_photos, len(self._rows)
        pieces, wanted = [], self._batch_photos
        while wanted > 0:
            epoch, start = divmod(first, photos)
            piece = self._ordered(epoch)[start : start + wanted]
            pieces.append(piece)
            first += len(piece)
            wanted -= len(piece)
        return np.concatenate(pieces)

    def _ordered(self, epoch: int) -> Rows:
        if self._order[0] != epoch:
            order = generator(self._seed, _ORDER, epoch).permutation(self._rows)
            self._order = (epoch, order)
        return self._order[1]

    def _images(self, rows: Rows, step: int) -> Tensor:
        pixels = self._pixels[rows]
        strength = self._augmentation
        if strength == 0:
            return self._normalisation.images(pixels)
        draws = generator(self._seed, _AUGMENT, step)
        _mirror(pixels, np.flatnonzero(draws.random(len(rows)) < 0.5))
        pixels = _moved(pixels, draws, round(strength * SHIFT_FRACTION * pixels.shape[1]))
        gain = 1 + strength * CONTRAST_FRACTION * draws.uniform(-1, 1, len(rows))
        levels = strength * BRIGHTNESS_LEVELS * draws.uniform(-1, 1, len(rows))
        # contrast turns about the middle grey
        return self._normalisation.relit_images(pixels, gain, levels + 127.5 * (1 - gain))


def _mirror(pixels: Pixels, chosen: Rows) -> None:
    """Mirror the chosen photos in place; channel by channel, which numpy does fastest."""
    originals = pixels[chosen]
    for channel in range(pixels.shape[3]):
        pixels[chosen, :, :, channel] = originals[:, :, ::-1, channel]


def _moved(pixels: Pixels, draws: np.random.Generator, reach_pixels: int) -> Pixels:
    """Return each photo moved by its own few pixels, its border repeated."""
    if reach_pixels == 0:
        return pixels
    side = pixels.shape[1]
    border = ((0, 0), (reach_pixels, reach_pixels), (reach_pixels, reach_pixels), (0, 0))
    padded = np.pad(pixels, border, mode="edge")
    moved = np.empty_like(pixels)
    corners = draws.integers(0, 2 * reach_pixels + 1, (len(pixels), 2))
    for number, (down, right) in enumerate(corners):
        moved[number] = padded[number, down : down + side, right : right + side]
    return moved


def _repeated_rows(task: TrainingTask, part: PartData) -> Rows:
    """Return training rows, those of the rare slice repeated as `rare_oversampling` says.

    A factor of 2.5 lists each rare row twice and half of them, fixed by the seed, a third time.
    """
    rows = np.arange(len(part.damaged), dtype=np.int64)
    if not len(rows):
        raise TrainingError(
            "no training photo",
            expected="at least one",
            where="training part",
            remedy="Plan a split with a larger training fraction.",
        )
    factor = _positive_number(task.configuration, "rare_oversampling", 1.0)
    rare_slice = task.training.rare_slice
    if rare_slice is None or factor == 1.0:
        return rows
    if factor > OVERSAMPLING_MAXIMUM:
        raise _knob_error("rare_oversampling", factor, f"at most {OVERSAMPLING_MAXIMUM:g}")
    if rare_slice.dimension not in part.attributes:
        raise TrainingError(
            f"photos without the attribute {rare_slice.dimension!r}",
            expected=f"one of {', '.join(sorted(part.attributes))}",
            where="training.rare_slice.dimension",
            remedy="Name a dimension that the snapshot's columns map.",
        )
    is_rare = np.array(
        [value == rare_slice.value for value in part.attributes[rare_slice.dimension]]
    )
    rare = rows[is_rare]
    whole, share = divmod(factor, 1.0)
    shuffled = generator(task.seed, _ORDER, (1 << 48) - 1).permutation(rare)
    extra = shuffled[: round(share * len(rare))]
    return np.concatenate([rows[~is_rare], np.repeat(rare, int(whole)), extra])


def _augmentation_of(configuration: Mapping[str, Scalar]) -> float:
    """Return the strength of augmentation, 0 to 1, from a number or a name."""
    value = configuration.get("augmentation", DEFAULT_AUGMENTATION)
    strength = AUGMENTATIONS.get(value, -1.0) if isinstance(value, str) else value
    if isinstance(value, bool) or not 0 <= strength <= 1:
        names = ", ".join(AUGMENTATIONS)
        raise _knob_error("augmentation", value, f"a strength from 0 to 1, or one of {names}")
    return float(strength)


def _positive_number(configuration: Mapping[str, Scalar], name: str, default: float) -> float:
    value = configuration.get(name, default)
    if isinstance(value, bool | str) or not 0 < value < float("inf"):
        raise _knob_error(name, value, "a finite number above zero")
    return float(value)


def _knob_error(name: str, found: object, expected: str) -> TrainingError:
    return TrainingError(
        f"{name} = {found!r}",
        expected=expected,
        where="configuration",
        remedy=f"Change the domain of {name} in the plan's space, or the reference.",
    )
