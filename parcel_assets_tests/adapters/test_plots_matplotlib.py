"""Charts: PNG bytes that are the same for the same numbers, whatever is missing."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from parcel_assets.adapters.plots_matplotlib import (
    OUTCOMES,
    cost_curve,
    learning_curves,
    slice_heat_map,
)
from parcel_assets.core.slice_verdict import Outcome


def row(outcome: str, **fields: Any) -> dict[str, Any]:
    told = {"candidate": 12.0, "reference": 10.0, "difference": 2.0, "margin": 10.0}
    return {"name": "corner", "measure": "miss_rate", "outcome": outcome, **told, **fields}


def colours(png: bytes) -> set[tuple[int, ...]]:
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).reshape(-1, 3)
    return {tuple(int(one) for one in pixel) for pixel in np.unique(pixels, axis=0)}


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour.removeprefix("#")))


def test_charts_without_any_number_are_still_charts() -> None:
    for png in (learning_curves([]), learning_curves([[]]), cost_curve([]), slice_heat_map([])):
        assert png.startswith(b"\x89PNG")


def test_equal_numbers_give_equal_bytes() -> None:
    assert cost_curve([3.0, 2.0]) == cost_curve([3.0, 2.0])


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_its_colour(outcome: Outcome) -> None:
    assert rgb(OUTCOMES[outcome.value.upper()]) in colours(slice_heat_map([row(outcome.value)]))


def test_worse_is_red_and_better_is_green() -> None:
    def reddest(difference: float) -> int:
        found = colours(slice_heat_map([row("insufficient", difference=difference)]))
        return max(red - green for red, green, _ in found)

    assert reddest(20.0) > 100
    assert reddest(-20.0) < 50


def test_a_slice_without_numbers_has_dashes_and_no_warmth() -> None:
    nothing = dict.fromkeys(("candidate", "reference", "difference", "margin"))
    assert slice_heat_map([row("insufficient", **nothing)]).startswith(b"\x89PNG")
