"""Contact sheets: one tile for each photo, the same bytes every time."""

import io

import numpy as np
import pytest
from PIL import Image, ImageFont

from parcel_assets.adapters.pictures_pillow import (
    CAPTION_SIZE,
    PAPER,
    PHOTO_PIXELS,
    PHOTOS_MAXIMUM,
    PillowPictures,
    _fitted,
)


def photos(count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.full((count, 16, 16, 3), (200, 30, 30), np.uint8)


def sheet(count: int, columns: int = 3, caption: str = "dent\ntop") -> Image.Image:
    data = PillowPictures().contact_sheet(photos(count), [caption] * count, columns)
    return Image.open(io.BytesIO(data))


def test_a_grid_grows_by_columns_and_rows() -> None:
    assert sheet(3).width > sheet(2).width
    assert sheet(3).width == sheet(7).width
    assert sheet(4).height > sheet(3).height


def test_photos_show_on_paper() -> None:
    image = sheet(2)
    assert image.format == "PNG"
    assert image.getpixel((0, 0)) == PAPER
    assert image.getpixel((60, 60)) == (200, 30, 30)


def test_the_same_photos_give_the_same_bytes() -> None:
    pictures = PillowPictures()
    assert pictures.contact_sheet(photos(5), ["a"] * 5, 2) == pictures.contact_sheet(
        photos(5), ["a"] * 5, 2
    )


@pytest.mark.parametrize("caption", ["", "x" * 300, "Ünïcödé\n包裹", "one\ntwo\nthree"])
def test_any_caption_fits(caption: str) -> None:
    assert sheet(2, caption=caption).width == sheet(2).width


def test_no_photos_is_an_empty_sheet_and_many_are_bounded() -> None:
    assert sheet(0).width > 0
    assert sheet(PHOTOS_MAXIMUM + 50, columns=20).height < 4000


def test_each_photo_has_a_caption() -> None:
    with pytest.raises(ValueError, match="2 photos, 1 captions"):
        PillowPictures().contact_sheet(photos(2), ["a"], 3)


def test_a_long_name_keeps_its_end_where_names_differ() -> None:
    font = ImageFont.load_default(CAPTION_SIZE)
    long = "belt-7/2026-11-30/0012345678901_{}.jpg"
    first, second = (_fitted(long.format(number), font) for number in (1, 2))
    assert first.startswith("belt")
    assert first.endswith("_1.jpg")
    assert first != second
    assert font.getlength(first) <= PHOTO_PIXELS
    assert _fitted("short", font) == "short"
