"""One canonical decode: the bytes of an image file become 8-bit sRGB pixels, or a refusal in words.

Decides, under the plan's image rules, which files are taken and how each becomes RGB:

- size, side lengths and aspect are checked on the header, before anything is decoded;
- the format is what the bytes say; another name, and bytes after the image, are noted;
- colour follows the rules of `image_colour`;
- the EXIF turn comes last, so side lengths and pixel digest are those of the upright photo.

`shrink` squashes a photo to a square, so that every pixel a network sees shows parcel; how far a
photo may be from square is the plan's aspect limit. Tables and duplicates are left to the source.
"""

import hashlib
import io
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from PIL import (
    BmpImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
    __version__,
)

from parcel_assets.adapters.image_bytes import (
    ImageRefusedError,
    channel_depth_bits,
    find_damaged_chunk,
    find_trailing_bytes,
    formats_of_name,
    looks_like,
)
from parcel_assets.adapters.image_colour import SIXTEEN_BIT_MODES, to_rgb
from parcel_assets.core.errors import PlanError, SettingError
from parcel_assets.core.plan import ImageRules
from parcel_assets.core.ports import Pixels

DECODE_VERSION = f"parcel-decode 1, squashed with antialiased bicubic, Pillow {__version__}"
READY_PLUGINS = (  # registered by their import; the others only where a plan allows them
    BmpImagePlugin,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)
ORIENTATION_TAG = 0x0112
NO_SIGNAL_SPREAD = 2  # brightest minus darkest of 255: below a camera's own noise

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_UPRIGHT = 1
# what Pillow's decoders raise on damaged bytes
_DECODER_FAULTS = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    OverflowError,
    struct.error,
    zlib.error,
)


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """An upright photo at full size, mode RGB, and what was done to get there."""

    image: Image.Image
    pixel_digest: str
    notes: tuple[str, ...]


@contextmanager
def decoding(rules: ImageRules) -> Iterator[None]:
    """Make this process fit to decode, for the length of a block that may use threads.

    Pillow's warnings (large image, odd metadata) are silenced: the rules decide instead. Raises
    SettingError where someone switched on the loading of truncated files, which fills them with
    gray, and PlanError for a format that this installation cannot decode.
    """
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise SettingError(
            "PIL.ImageFile.LOAD_TRUNCATED_IMAGES switched on",
            expected="truncated photos refused",
            where="image decoder",
            remedy="Find the code in this process that sets the switch, and remove it.",
        )
    if any(name not in Image.OPEN for name in rules.formats):
        Image.init()
    unknown = [name for name in rules.formats if name not in Image.OPEN]
    if unknown:
        raise PlanError(
            f"formats {', '.join(unknown)}",
            expected=f"formats of this installation: {', '.join(sorted(Image.OPEN))}",
            where="snapshot.images.formats",
            remedy="Convert such photos to JPEG or PNG, and take the format out of the plan.",
            faults=[{"path": "snapshot.images.formats", "fault": f"unknown: {unknown}"}],
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def decode_image(data: bytes, rules: ImageRules, *, name: str = "") -> DecodedImage:
    """Return the photo that a file's bytes hold; `name` is only compared with the real format.

    Raises ImageRefusedError for anything that is not one whole, plausible photo. Call it inside
    `decoding`.
    """
    _check_bytes(data, rules)
    file = _open(data, rules)
    depth_bits = channel_depth_bits(file.format, data)
    _check_header(file, depth_bits, rules)
    notes = _header_notes(file, name)
    asked_turn, unreadable = _orientation(file)
    _load(file, find_damaged_chunk(file.format, data))
    notes += _trailing_notes(file, data)
    # some plugins turn while loading, and then take the tag away
    pending_turn, _ = _orientation(file)
    image, colour_notes = to_rgb(file, rules, depth_bits=depth_bits)
    if pending_turn in _TURNS:
        image = image.transpose(_TURNS[pending_turn])
    notes += colour_notes + _turn_notes(asked_turn, unreadable)
    _check_signal(image)
    return DecodedImage(image, pixel_digest(image), notes)


def pixel_digest(image: Image.Image) -> str:
    """Return the SHA-256 of side lengths and RGB bytes: equal photos have it, whatever the file."""
    hasher = hashlib.sha256(f"RGB {image.width} {image.height}\n".encode())
    hasher.update(image.tobytes())
    return hasher.hexdigest()


def shrink(image: Image.Image, side_pixels: int) -> Pixels:
    """Return the photo squashed to a square, uint8 (side, side, 3), antialiased bicubic."""
    size = (side_pixels, side_pixels)
    if image.size != size:
        image = image.resize(size, Image.Resampling.BICUBIC)
    return np.asarray(image, dtype=np.uint8)


# ---- before decoding -----------------------------------------------------------------------------


def _check_bytes(data: bytes, rules: ImageRules) -> None:
    if not data:
        raise ImageRefusedError(
            "an empty file", expected="a photo", remedy="Copy the file again from its source."
        )
    if len(data) > rules.maximum_file_bytes:
        raise too_large_file(len(data), rules)


def too_large_file(size_bytes: int, rules: ImageRules) -> ImageRefusedError:
    """Return the refusal of a file above the plan's size limit."""
    return ImageRefusedError(
        f"{size_bytes:,} bytes",
        expected=f"at most {rules.maximum_file_bytes:,} (snapshot.images.maximum_file_bytes)",
        remedy="Save it at a usual quality, or raise the limit in the plan.",
    )


def _open(data: bytes, rules: ImageRules) -> ImageFile.ImageFile:
    try:
        return Image.open(io.BytesIO(data), formats=rules.formats)
    except Image.DecompressionBombError as error:
        raise ImageRefusedError(
            "a header that promises more pixels than Pillow ever decodes",
            expected=f"at most {rules.maximum_pixels:,} pixels (snapshot.images.maximum_pixels)",
            remedy="A small file that unpacks to a huge image is not a photo; leave it out.",
        ) from error
    except _DECODER_FAULTS as error:
        raise ImageRefusedError(
            looks_like(data, rules.formats),
            expected=f"one of {', '.join(rules.formats)} (snapshot.images.formats)",
            remedy="Export it as JPEG or PNG, or leave the row out.",
        ) from error


def _check_header(image: ImageFile.ImageFile, depth_bits: int, rules: ImageRules) -> None:
    width, height = image.size
    size = f"{width} x {height} pixels"
    if width * height > rules.maximum_pixels:
        raise ImageRefusedError(
            size,
            expected=f"at most {rules.maximum_pixels:,} pixels (snapshot.images.maximum_pixels)",
            remedy="Save it smaller, or raise the limit in the plan.",
        )
    if min(width, height) < rules.minimum_side_pixels:
        raise ImageRefusedError(
            size,
            expected=f"sides of at least {rules.minimum_side_pixels} pixels "
            "(snapshot.images.minimum_side_pixels)",
            remedy="Look for the original of this thumbnail.",
        )
    if max(width, height) > rules.maximum_aspect_ratio * min(width, height):
        raise ImageRefusedError(
            size,
            expected=f"sides within 1 : {rules.maximum_aspect_ratio:g} "
            "(snapshot.images.maximum_aspect_ratio)",
            remedy="Crop the parcel out, or raise the limit in the plan.",
            column="pixels",
        )
    frames = getattr(image, "n_frames", 1)
    if frames > 1 and image.format != "MPO":  # a phone's JPEG with a depth or gain map beside it
        raise ImageRefusedError(
            f"{frames} frames",
            expected="a still photo",
            remedy="Save the frame that shows the parcel as a photo of its own.",
        )
    hidden = depth_bits == 16 and image.mode not in SIXTEEN_BIT_MODES  # the decoder cuts it to 8
    if hidden and rules.sixteen_bit_depth != depth_bits:
        raise ImageRefusedError(
            f"{depth_bits} bits per channel",
            expected="8 bits per channel, or snapshot.images.sixteen_bit_depth = 16 in the plan",
            remedy="Export it with 8 bits per channel.",
            column="pixels",
        )


def _header_notes(image: ImageFile.ImageFile, name: str) -> tuple[str, ...]:
    expected = formats_of_name(name)
    if expected and image.format not in expected:
        return (f"{image.format} under another name's ending",)
    return ()


def _load(image: ImageFile.ImageFile, damaged_chunk: str | None) -> None:
    try:
        image.load()
    except _DECODER_FAULTS as error:
        text = str(error)
        kind = "truncated" if "truncated" in text or isinstance(error, EOFError) else "corrupt"
        raise _damaged(f"a {kind} {image.format} ({text or type(error).__name__})") from error
    if damaged_chunk is not None:
        raise _damaged(f"a corrupt {image.format} (checksum of chunk {damaged_chunk})")


def _damaged(found: str) -> ImageRefusedError:
    return ImageRefusedError(
        found,
        expected="a whole image",
        remedy="Copy the file again from its source.",
        column="pixels",
    )


def _trailing_notes(image: ImageFile.ImageFile, data: bytes) -> tuple[str, ...]:
    """Return what lies behind the image; one without an end mark is half an image."""
    trailing = find_trailing_bytes(image.format, data)
    if trailing is None:
        raise _damaged(f"a truncated {image.format} (no end mark)")
    extra = ("first picture of several",) if image.format == "MPO" else ()
    return (*extra, f"{trailing} bytes after the image") if trailing else extra


# ---- after decoding ------------------------------------------------------------------------------


def _orientation(image: Image.Image) -> tuple[int, bool]:
    """Return the EXIF orientation, upright where there is none, and whether it is unreadable."""
    try:
        value = image.getexif().get(ORIENTATION_TAG, _UPRIGHT)
    except _DECODER_FAULTS:
        return _UPRIGHT, True
    return (value, False) if isinstance(value, int) else (_UPRIGHT, True)


def _turn_notes(orientation: int, unreadable: bool) -> tuple[str, ...]:
    if unreadable:
        return ("unreadable EXIF ignored",)
    if orientation in _TURNS:
        return ("turned",)
    return () if orientation == _UPRIGHT else (f"orientation {orientation} taken as upright",)


def _check_signal(image: Image.Image) -> None:
    spread = max(high - low for low, high in image.getextrema())  # type: ignore[misc]  # RGB: pairs
    if spread <= NO_SIGNAL_SPREAD:
        raise ImageRefusedError(
            f"one even colour, {image.getpixel((0, 0))}",
            expected="a photo that shows something",
            remedy="Lens cap, dark room or a blank file: look at it, and leave it out.",
            column="pixels",
        )
