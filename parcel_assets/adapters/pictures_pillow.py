"""Contact sheets as PNG: a captioned grid of photos that reads well in a report and in the UI.

Decides looks only; which photos are shown, and what their captions may tell, is the step's choice.
"""

import io
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from parcel_assets.core.ports import Pixels

PHOTO_PIXELS = 128
GAP_PIXELS = 12
MARGIN_PIXELS = 20
CAPTION_SIZE = 13
LINE_PIXELS = 17
CORNER_PIXELS = 6
PHOTOS_MAXIMUM = 200  # more is no overview; the last tile says how many are left out

PAPER = (250, 250, 248)
INK = (38, 42, 46)
PALE_INK = (112, 118, 124)
SMOOTHING = 4  # corner masks are drawn so many times larger

_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


class PillowPictures:
    """Draws with Pillow and the font that comes with it, so a sheet is the same everywhere."""

    def contact_sheet(self, pixels: Pixels, captions: Sequence[str], columns: int) -> bytes:
        """Return a PNG of photos, uint8 (N, side, side, 3), in a grid with a caption under each.

        A caption's first line is dark, further lines are pale; each is cut, in its middle, to the
        photo's width.
        Raises ValueError where there is not one caption for each photo.
        """
        if len(captions) != len(pixels) or columns < 1:
            raise ValueError(f"{len(pixels)} photos, {len(captions)} captions, {columns} columns")
        left_out = max(0, len(captions) - PHOTOS_MAXIMUM)
        shown = [_lines(one) for one in captions[:PHOTOS_MAXIMUM]]
        if left_out:
            shown[-1] = [*shown[-1], f"and {left_out} more"]
        font = ImageFont.load_default(CAPTION_SIZE)
        lines = max((len(one) for one in shown), default=0)
        tile_height = PHOTO_PIXELS + GAP_PIXELS // 2 + lines * LINE_PIXELS + GAP_PIXELS
        columns = max(1, min(columns, len(shown)))
        rows = -(-len(shown) // columns)
        width = 2 * MARGIN_PIXELS + columns * (PHOTO_PIXELS + GAP_PIXELS) - GAP_PIXELS
        height = 2 * MARGIN_PIXELS + max(1, rows * tile_height - GAP_PIXELS)
        sheet = Image.new("RGB", (width, height), PAPER)
        canvas, mask = ImageDraw.Draw(sheet), _rounded_mask()
        for number, caption in enumerate(shown):
            across, down = number % columns, number // columns
            left = MARGIN_PIXELS + across * (PHOTO_PIXELS + GAP_PIXELS)
            top = MARGIN_PIXELS + down * tile_height
            photo = Image.fromarray(pixels[number])
            photo = photo.resize((PHOTO_PIXELS, PHOTO_PIXELS), Image.Resampling.BICUBIC)
            sheet.paste(photo, (left, top), mask)
            for place, text in enumerate(caption):
                below = top + PHOTO_PIXELS + GAP_PIXELS // 2 + place * LINE_PIXELS
                ink = PALE_INK if place else INK
                canvas.text((left, below), _fitted(text, font), fill=ink, font=font)
        return _png(sheet)


def _lines(caption: str) -> list[str]:
    return caption.split("\n") if caption else []


def _fitted(text: str, font: _Font) -> str:
    """Return the text, an ellipsis in its middle where it is wider than a photo.

    Names of photos differ at their ends.
    """
    shown, kept = text, len(text)
    while kept and font.getlength(shown) > PHOTO_PIXELS:
        kept -= 1
        shown = f"{text[: kept // 3]}…{text[len(text) - (kept - kept // 3) :]}"
    return shown


def _rounded_mask() -> Image.Image:
    large = PHOTO_PIXELS * SMOOTHING
    mask = Image.new("L", (large, large), 0)
    ImageDraw.Draw(mask).rounded_rectangle(
        (0, 0, large - 1, large - 1), radius=CORNER_PIXELS * SMOOTHING, fill=255
    )
    return mask.resize((PHOTO_PIXELS, PHOTO_PIXELS), Image.Resampling.BOX)


def _png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()
