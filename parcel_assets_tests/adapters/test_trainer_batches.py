"""Batches: functions of seed and step, every row seen, the rare slice drawn as often as asked."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from parcel_assets.adapters.trainer_batches import (
    Normalisation,
    SideCache,
    StepBatches,
    generator,
    resized,
    side_of,
)
from parcel_assets.core.errors import TrainingError
from parcel_assets.core.plan import PreprocessPlan
from parcel_assets.core.ports import TrainingTask
from parcel_assets.core.slice_plan import Oversample
from parcel_assets_tests.adapters.training_helpers import DATA, PREPROCESS, task

PHOTOS = len(DATA.train.damaged)


def batches(what: TrainingTask) -> StepBatches:
    return StepBatches(what, DATA.train, DATA.train.pixels)


def test_a_batch_is_a_function_of_seed_and_step() -> None:
    in_order = [one["images"] for one in batches(task())]
    for step in (12, 3, 7):
        assert torch.equal(batches(task()).batch(step)["images"], in_order[step - 1])
    assert not torch.equal(batches(task(seed=83)).batch(3)["images"], in_order[2])


def test_every_row_is_drawn_once_in_each_epoch() -> None:
    drawn = np.concatenate([batches(task(batch_photos=15)).rows(step) for step in range(1, 13)])
    first, second = drawn[:PHOTOS], drawn[PHOTOS:]
    assert sorted(first) == sorted(second) == list(range(PHOTOS))
    assert list(first) != list(second)


def test_a_batch_may_be_larger_than_the_training_part() -> None:
    rows = batches(task(batch_photos=200)).rows(1)
    assert len(rows) == 200
    assert set(Counter(rows.tolist()).values()) == {2, 3}


@pytest.mark.parametrize("factor", [1.0, 2.0, 2.5, 0.5])
def test_the_rare_slice_is_drawn_as_often_as_asked(factor: float) -> None:
    what = task({"rare_oversampling": factor}, batch_photos=1000)
    drawn = np.concatenate([batches(what).rows(step) for step in range(1, 13)])
    rare = np.array(DATA.train.attributes["damage_type"]) == "crushed_corner"
    per_row = len(drawn[rare[drawn]]) / rare.sum() / (len(drawn[~rare[drawn]]) / (~rare).sum())
    whole, share = divmod(factor, 1)  # a share of a few rows is a whole number of rows
    asked = whole + round(share * rare.sum()) / rare.sum()
    assert per_row == pytest.approx(asked, rel=0.02)


def test_without_a_rare_slice_the_knob_does_nothing() -> None:
    rows = [
        batches(task({"rare_oversampling": factor}, rare_slice=None)).rows(1)
        for factor in (1.0, 4.0)
    ]
    assert_array_equal(rows[0], rows[1])


def test_a_rare_slice_of_an_unmapped_dimension_is_refused() -> None:
    odd = Oversample(dimension="colour", value="red")
    with pytest.raises(TrainingError, match="colour"):
        batches(task({"rare_oversampling": 2.0}, rare_slice=odd))


def test_damaged_photos_weigh_as_the_plan_says() -> None:
    batch = batches(task({"positive_weight": 3.0})).batch(1)
    assert_array_equal(batch["weights"], 1 + 2 * batch["damaged"])
    assert_array_equal(batch["damaged"].bool(), DATA.train.damaged[batches(task()).rows(1)])
    assert batch["step"] == 1


def test_images_are_normalised_and_lie_channels_last() -> None:
    what = task({"augmentation": "none"})
    what = replace(what, preprocess=PreprocessPlan(
        image_size_pixels=32, mean=(0.1, 0.2, 0.3), standard_deviation=(0.5, 0.25, 1.0)
    ))  # fmt: skip
    images = batches(what).batch(2)["images"]
    pixels = DATA.train.pixels[batches(what).rows(2)].transpose(0, 3, 1, 2) / 255
    mean, deviation = np.array([0.1, 0.2, 0.3]), np.array([0.5, 0.25, 1.0])
    expected = (pixels - mean[:, None, None]) / deviation[:, None, None]
    assert_allclose(images, expected, atol=1e-5)
    assert images.is_contiguous(memory_format=torch.channels_last)


def test_augmentation_grows_with_its_strength_and_spares_the_source() -> None:
    before = DATA.train.pixels.copy()
    plain = batches(task({"augmentation": 0.0})).batch(1)["images"]
    change = [
        float((batches(task({"augmentation": one})).batch(1)["images"] - plain).abs().mean())
        for one in (0.0, 0.2, 1.0)
    ]
    assert change[0] == 0 < change[1] < change[2]
    for name, strength in {"none": 0.0, "light": 0.5, "strong": 1.0}.items():
        named, numbered = (
            batches(task({"augmentation": one})).batch(1)["images"] for one in (name, strength)
        )
        assert torch.equal(named, numbered)
    assert_array_equal(DATA.train.pixels, before)


def test_about_half_of_the_photos_are_mirrored() -> None:
    what = task({"augmentation": 1e-9}, batch_photos=PHOTOS)
    images = batches(what).batch(1)["images"]
    normalise = Normalisation(PREPROCESS, 32)
    plain = normalise.images(DATA.train.pixels[batches(what).rows(1)])
    same = (images - plain).abs().amax((1, 2, 3)) < 1e-5
    mirrored = (images - plain.flip(3)).abs().amax((1, 2, 3)) < 1e-5
    assert bool((same ^ mirrored).all())
    assert 0.3 < float(mirrored.float().mean()) < 0.7


def test_relighting_turns_about_gain_and_levels() -> None:
    pixels = np.full((2, 4, 4, 3), 100, dtype=np.uint8)
    images = Normalisation(PreprocessPlan(), 4).relit_images(
        pixels, np.array([1.0, 0.5]), np.array([10.0, 0.0])
    )
    expected = (np.array([110.0, 50.0]) / 255 - 0.5) / 0.25
    assert_allclose(images[:, 0, 0, 0], expected, atol=1e-5)


# ---- sides --------------------------------------------------------------------------------------


def test_pixels_are_shrunk_once_and_kept() -> None:
    cache = SideCache()
    small = cache.at_side(DATA.train.pixels, 24)
    assert small.shape == (PHOTOS, 24, 24, 3)
    assert cache.at_side(DATA.train.pixels, 24) is small
    assert cache.at_side(DATA.train.pixels, 32) is DATA.train.pixels
    other = cache.at_side(DATA.validation.pixels, 24)
    assert len(other) == len(DATA.validation.damaged)


def test_shrinking_keeps_flat_colours_and_means() -> None:
    flat = np.full((300, 32, 32, 3), (10, 200, 90), dtype=np.uint8)
    assert_array_equal(resized(flat, 20)[:, 0, 0], flat[:, 0, 0])
    small = resized(DATA.train.pixels[:9], 16)
    assert_allclose(small.mean((1, 2)), DATA.train.pixels[:9].mean((1, 2)), atol=2)


@pytest.mark.parametrize("side", [33, 7, 20.5, "32", True])
def test_a_side_that_cannot_be_is_refused(side: object) -> None:
    with pytest.raises(TrainingError, match="image_size"):
        side_of({"image_size": side}, PREPROCESS)  # type: ignore[dict-item]


def test_generators_differ_by_seed_purpose_and_counter() -> None:
    draws = {
        generator(seed, purpose, counter).integers(2**62)
        for seed in (0, 2**63 - 1) for purpose in (1, 2) for counter in (0, 1, 2**48 - 1)
    }  # fmt: skip
    assert len(draws) == 12
