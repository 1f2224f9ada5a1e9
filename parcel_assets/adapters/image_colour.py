"""Colour by declared rules: any decoded mode becomes 8-bit sRGB, or the file is refused.

Palettes are unfolded, transparency falls on the declared background, colour profiles are applied
(PNG gamma is not), 16-bit gray is scaled from its declared depth. Opening, loading and turning are
left to `image_pillow`.
"""

import functools
import io

import numpy as np
from PIL import Image, ImageCms

from parcel_assets.adapters.image_bytes import ImageRefusedError
from parcel_assets.core.plan import ImageRules

SIXTEEN_BIT_MODES = frozenset({"I;16", "I;16L", "I;16B", "I;16N"})
_GRAY_MODES = {"1", "L", "LA", "La"}
_ALPHA_MODES = {"LA", "La", "PA", "RGBA", "RGBa"}
_PROFILE_SPACES = {"RGB": "RGB", "RGBA": "RGB", "L": "GRAY", "CMYK": "CMYK"}


def to_rgb(
    image: Image.Image, rules: ImageRules, *, depth_bits: int
) -> tuple[Image.Image, tuple[str, ...]]:
    """Return the image in mode RGB, and notes on what that took.

    `depth_bits` is the file's depth per channel, which a mode may hide. Raises ImageRefusedError
    where pixels have no declared scale.
    """
    profile = image.info.get("icc_profile")
    notes: tuple[str, ...] = ("16 bit",) if depth_bits > 8 else ()
    if image.mode in SIXTEEN_BIT_MODES:
        image = _from_sixteen_bits(image, rules)
    notes += _mode_notes(image.mode)
    transparent = image.mode in _ALPHA_MODES or "transparency" in image.info
    if transparent:
        image, notes = image.convert("RGBA"), (*notes, "transparency")
    elif image.mode in {"1", "P"}:
        image = image.convert("L" if image.mode == "1" else "RGB")
    image, profile_notes = _to_srgb(image, profile)
    if transparent:
        ground = Image.new("RGBA", image.size, (*rules.background, 255))
        image = Image.alpha_composite(ground, image)
    return image.convert("RGB"), notes + profile_notes


def _mode_notes(mode: str) -> tuple[str, ...]:
    """Return what is worth knowing of a mode; raises ImageRefusedError for one without a scale."""
    if mode in {"I", "F"}:
        raise ImageRefusedError(
            f"{'float' if mode == 'F' else '32-bit'} pixels without a declared scale",
            expected="8 bits per channel",
            remedy="Export it as 8-bit JPEG or PNG.",
            column="pixels",
        )
    if mode in _GRAY_MODES:
        return ("gray",)
    if mode in {"P", "PA"}:
        return ("palette",)
    return () if mode in {"RGB", "RGBA", "RGBa"} else (mode,)


def _from_sixteen_bits(image: Image.Image, rules: ImageRules) -> Image.Image:
    """Return 16-bit gray as 8 bits, scaled from the declared depth and never clipped."""
    values = np.asarray(image).astype(np.uint32)
    depth = rules.sixteen_bit_depth
    if depth is None or values.max() >= 2**depth:
        raise ImageRefusedError(
            f"16-bit gray with values up to {values.max()}",
            expected=f"values of {depth} bits" if depth else "8 bits, or a declared depth",
            remedy="Set snapshot.images.sixteen_bit_depth to the camera's depth "
            "(12 holds 0..4095), or export with 8 bits.",
            column="pixels",
        )
    brightest = 2**depth - 1
    return Image.fromarray(((values * 255 + brightest // 2) // brightest).astype(np.uint8))


def _to_srgb(image: Image.Image, profile: bytes | None) -> tuple[Image.Image, tuple[str, ...]]:
    """Return the image with its colour profile applied, where it has one that is not sRGB."""
    if image.mode == "LAB":
        return image, ()  # needs no profile: the mode says what its numbers mean
    if not profile:
        return image, ("CMYK without profile",) if image.mode == "CMYK" else ()
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if source.profile.xcolor_space.strip() != _PROFILE_SPACES.get(image.mode):
            return image, ("colour profile of another kind ignored",)
        described = ImageCms.getProfileDescription(source).strip()
        if "sRGB" in described:
            return image, ()
        mode = "RGBA" if image.mode == "RGBA" else "RGB"
        converted = ImageCms.profileToProfile(image, source, _srgb(), outputMode=mode)
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return image, ("unreadable colour profile ignored",)
    assert converted is not None  # only `inPlace` returns nothing
    return converted, (f"colour profile {described}",)


@functools.cache
def _srgb() -> ImageCms.ImageCmsProfile:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
