"""One canonical decode: what every nasty file becomes, as a table of refusals and one of notes."""

import io
import struct
import warnings
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageFile

from parcel_assets.adapters.image_bytes import ImageRefusedError
from parcel_assets.adapters.image_pillow import (
    DecodedImage,
    decode_image,
    decoding,
    pixel_digest,
    shrink,
)
from parcel_assets.core.errors import PlanError, SettingError
from parcel_assets.core.plan import ImageRules

RULES = ImageRules()


def scene(width: int = 96, height: int = 64) -> Image.Image:
    """A picture with a gradient, so that every turn and colour shift shows."""
    across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([across, down, 255 - across], axis=2).astype(np.uint8))


def saved(image: Image.Image, image_format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, image_format, **options)
    return file.getvalue()


def decoded(data: bytes, rules: ImageRules = RULES, name: str = "") -> DecodedImage:
    with decoding(rules):
        return decode_image(data, rules, name=name)


def pixels(data: bytes, rules: ImageRules = RULES) -> np.ndarray[Any, Any]:
    return np.asarray(decoded(data, rules).image)


def exif(orientation: int) -> bytes:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


def noise(size: tuple[int, ...], high: int, dtype: str) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(0, high, size).astype(dtype)


def sixteen_bit_gray(high: int = 4096) -> bytes:
    return saved(Image.fromarray(noise((64, 96), high, "uint16")), "PNG")


def sixteen_bit_colour_png(width: int = 32, height: int = 32) -> bytes:
    """A PNG with 16 bits per colour channel, which Pillow can read but not write."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + checksum

    rows = noise((height, width * 3), 65536, ">u2")
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(raw))
        + chunk(b"IEND", b"")
    )


def bomb(side: int) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return saved(Image.new("1", (side, side)), "PNG")


def animated(image_format: str) -> bytes:
    frames = [scene(), scene().transpose(Image.Transpose.ROTATE_180)]
    return saved(frames[0], image_format, save_all=True, append_images=frames[1:])


def flipped_byte(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]


JPEG = saved(scene(640, 480), "JPEG", quality=90)
PNG = saved(scene(), "PNG")
SMALL_JPEG = saved(scene(48, 32), "JPEG")
HEIC = b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic" + bytes(200)
GIF_ALLOWED = ImageRules(formats=("GIF", "WEBP"))

REFUSED = {
    "empty": (b"", "an empty file", "photo"),
    "truncated JPEG": (JPEG[: len(JPEG) * 6 // 10], "a truncated JPEG", "pixels"),
    "JPEG without its end": (JPEG[:-2], "a truncated JPEG", "pixels"),
    "JPEG half filled with zeros": (
        JPEG[: len(JPEG) // 2] + bytes(len(JPEG) // 2),
        "a truncated JPEG",
        "pixels",
    ),
    "half a PNG": (PNG[: len(PNG) // 2], "PNG", "pixels"),
    "PNG with a flipped byte": (flipped_byte(PNG), "a corrupt PNG", "pixels"),
    "PNG without its end chunk": (PNG[:-12], "a truncated PNG", "pixels"),
    "JPEG header only": (JPEG[:20], "a JPEG image, damaged", "photo"),
    "web page": (b"<html>404</html>", "an HTML page", "photo"),
    "plain text": (b"version https://git-lfs.github.com/spec/v1", "text", "photo"),
    "PDF": (b"%PDF-1.7 \xff", "a PDF document", "photo"),
    "ZIP": (b"PK\x03\x04\xff\xff", "a ZIP archive", "photo"),
    "video": (b"\x00\x00\x00\x18ftypisom\xff", "a video", "photo"),
    "random bytes": (bytes(range(128, 256)), "no known image format", "photo"),
    "HEIC": (HEIC, "a HEIC photo (no decoder", "photo"),
    "GIF, not on the list": (saved(scene(), "GIF"), "a GIF image, which the plan refuses", "photo"),
    "AVIF, not on the list": (saved(scene(), "AVIF"), "a AVIF image", "photo"),
    "float TIFF": (
        saved(Image.fromarray(noise((64, 64), 2, "float32")), "TIFF"),
        "float pixels",
        "pixels",
    ),
    "32-bit TIFF": (
        saved(Image.fromarray(noise((64, 64), 70_000, "int32")), "TIFF"),
        "32-bit pixels",
        "pixels",
    ),
    "16-bit gray without a depth": (sixteen_bit_gray(), "16-bit gray", "pixels"),
    "16-bit colour without a depth": (sixteen_bit_colour_png(), "16 bits per channel", "pixels"),
    "bomb beyond Pillow's limit": (bomb(20_000), "more pixels than Pillow ever decodes", "photo"),
    "bomb in Pillow's warning range": (bomb(10_000), "10000 x 10000 pixels", "photo"),
    "panorama": (saved(scene(2400, 64), "JPEG"), "2400 x 64 pixels", "pixels"),
    "one pixel": (saved(scene(1, 1), "PNG"), "1 x 1 pixels", "photo"),
    "all black": (saved(Image.new("RGB", (640, 480)), "JPEG"), "one even colour", "pixels"),
    "constant gray": (saved(Image.new("L", (64, 64), 127), "PNG"), "one even colour", "pixels"),
    "two-page TIFF": (animated("TIFF"), "2 frames", "photo"),
    "animated WebP": (animated("WEBP"), "2 frames", "photo"),
}


@pytest.mark.parametrize(("data", "found", "column"), REFUSED.values(), ids=list(REFUSED))
def test_a_file_that_is_no_whole_photo_is_refused_in_words(
    data: bytes, found: str, column: str
) -> None:
    with pytest.raises(ImageRefusedError) as caught:
        decoded(data)
    assert found in caught.value.found
    assert caught.value.column == column
    assert caught.value.expected
    assert caught.value.remedy


def test_limits_of_the_plan_are_checked_before_decoding() -> None:
    for rules, expected in (
        (ImageRules(maximum_file_bytes=100), "maximum_file_bytes"),
        (ImageRules(maximum_pixels=1000), "maximum_pixels"),
        (ImageRules(minimum_side_pixels=65), "minimum_side_pixels"),
        (ImageRules(maximum_aspect_ratio=1.2), "maximum_aspect_ratio"),
    ):
        with pytest.raises(ImageRefusedError) as caught:
            decoded(PNG, rules)
        assert expected in caught.value.expected


def test_an_animated_gif_is_refused_where_gif_is_allowed() -> None:
    with pytest.raises(ImageRefusedError, match="2 frames"):
        decoded(animated("GIF"), GIF_ALLOWED)


def with_comment(jpeg: bytes) -> bytes:
    return jpeg[:2] + b"\xff\xfe\x00\x07hello" + jpeg[2:]


def half_transparent() -> Image.Image:
    image = scene().convert("RGBA")
    image.putalpha(Image.new("L", image.size, 0))
    image.paste(scene().convert("RGBA"), (48, 0))
    return image


def palette_with_transparency() -> bytes:
    return saved(scene().quantize(16), "PNG", transparency=0)


def in_lab(image: Image.Image) -> Image.Image:
    spaces = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    found = ImageCms.applyTransform(image, ImageCms.buildTransform(*spaces, "RGB", "LAB"))
    assert found is not None
    return found


SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
NOTED = {
    "plain JPEG": (JPEG, "a.jpg", ()),
    "plain PNG": (PNG, "a.png", ()),
    "WebP": (saved(scene(), "WEBP"), "a.webp", ()),
    "BMP": (saved(scene(), "BMP"), "a.bmp", ()),
    "TIFF": (saved(scene(), "TIFF"), "a.tif", ()),
    "PNG named .jpg": (PNG, "a.jpg", ("PNG under another name's ending",)),
    "turned JPEG": (saved(scene(), "JPEG", exif=exif(6)), "a.jpg", ("turned",)),
    "turned PNG": (saved(scene(), "PNG", exif=exif(3)), "a.png", ("turned",)),
    "turned TIFF": (saved(scene(), "TIFF", exif=exif(6)), "a.tif", ("turned",)),
    "upright by EXIF": (saved(scene(), "JPEG", exif=exif(1)), "a.jpg", ()),
    "orientation 9": (
        saved(scene(), "JPEG", exif=exif(9)),
        "a.jpg",
        ("orientation 9 taken as upright",),
    ),
    "black and white": (saved(scene().convert("1"), "PNG"), "a.png", ("gray",)),
    "gray": (saved(scene().convert("L"), "JPEG"), "a.jpg", ("gray",)),
    "gray with alpha": (saved(scene().convert("LA"), "PNG"), "a.png", ("gray", "transparency")),
    "alpha": (saved(half_transparent(), "PNG"), "a.png", ("transparency",)),
    "palette": (saved(scene().quantize(16), "PNG"), "a.png", ("palette",)),
    "palette with transparency": (
        palette_with_transparency(),
        "a.png",
        ("palette", "transparency"),
    ),
    "CMYK": (
        saved(scene().convert("CMYK"), "JPEG"),
        "a.jpg",
        ("CMYK", "CMYK without profile"),
    ),
    "LAB": (
        saved(in_lab(scene()), "TIFF"),
        "a.tif",
        ("LAB",),
    ),
    "sRGB profile": (saved(scene(), "JPEG", icc_profile=SRGB), "a.jpg", ()),
    "broken profile": (
        saved(scene(), "PNG", icc_profile=b"not a profile"),
        "a.png",
        ("unreadable colour profile ignored",),
    ),
    "profile of another kind": (
        saved(scene().convert("L"), "PNG", icc_profile=SRGB),
        "a.png",
        ("gray", "colour profile of another kind ignored"),
    ),
    "motion photo": (
        JPEG + b"\x00\x00\x00\x18ftypmp42" + bytes(100),
        "a.jpg",
        ("112 bytes after the image",),
    ),
    "two JPEGs glued": (JPEG + PNG, "a.jpg", (f"{len(PNG)} bytes after the image",)),
    "PNG with a tail": (PNG + b"tail", "a.png", ("4 bytes after the image",)),
    "multi-picture JPEG": (
        saved(scene(), "MPO", save_all=True, append_images=[scene(48, 32)]),
        "a.jpg",
        ("first picture of several",),
    ),
    "progressive JPEG": (saved(scene(), "JPEG", progressive=True), "a.jpg", ()),
}


@pytest.mark.parametrize(("data", "name", "notes"), NOTED.values(), ids=list(NOTED))
def test_what_normalising_did_is_noted(data: bytes, name: str, notes: tuple[str, ...]) -> None:
    photo = decoded(data, name=name)
    assert photo.image.mode == "RGB"
    assert photo.image.width >= 48
    assert photo.notes[: len(notes)] == notes
    assert len(photo.notes) == len(notes) or "first picture of several" in notes


def test_the_turn_swaps_the_sides_and_moves_the_pixels() -> None:
    upright = scene(96, 64)
    for orientation, back in (
        (3, Image.Transpose.ROTATE_180),
        (6, Image.Transpose.ROTATE_90),
        (8, Image.Transpose.ROTATE_270),
    ):
        stored = saved(upright.transpose(back), "PNG", exif=exif(orientation))
        assert decoded(stored).pixel_digest == pixel_digest(upright)
        tiff = saved(upright.transpose(back), "TIFF", exif=exif(orientation))
        assert decoded(tiff).pixel_digest == pixel_digest(upright)


def test_equal_pixels_have_one_digest_whatever_the_file() -> None:
    assert decoded(with_comment(JPEG)).pixel_digest == decoded(JPEG).pixel_digest
    assert decoded(saved(scene(), "BMP")).pixel_digest == decoded(PNG).pixel_digest
    turned = scene().transpose(Image.Transpose.ROTATE_90)
    assert pixel_digest(turned) != pixel_digest(scene())
    assert pixel_digest(Image.new("RGB", (4, 9))) != pixel_digest(Image.new("RGB", (6, 6)))


def test_transparency_falls_on_the_declared_background() -> None:
    data = saved(half_transparent(), "PNG")
    assert pixels(data)[0, 0].tolist() == [255, 255, 255]
    assert pixels(data, ImageRules(background=(9, 8, 7)))[0, 0].tolist() == [9, 8, 7]
    assert (pixels(data)[:, 48:] == np.asarray(scene())[:, :48]).all()


def test_sixteen_bits_are_scaled_from_the_declared_depth_and_never_clipped() -> None:
    twelve = ImageRules(sixteen_bit_depth=12)
    found = pixels(sixteen_bit_gray(), twelve)
    assert 120 < found.mean() < 135
    assert found.max() == 255
    with pytest.raises(ImageRefusedError, match="16-bit gray with values up to"):
        decoded(sixteen_bit_gray(high=5000), twelve)


def test_sixteen_bit_colour_needs_the_full_depth() -> None:
    photo = decoded(sixteen_bit_colour_png(), ImageRules(sixteen_bit_depth=16))
    assert photo.notes == ("16 bit",)
    with pytest.raises(ImageRefusedError, match="16 bits per channel"):
        decoded(sixteen_bit_colour_png(), ImageRules(sixteen_bit_depth=12))


def test_a_foreign_profile_changes_the_colours_and_is_named() -> None:
    wide = wide_gamut_profile()
    photo = decoded(saved(scene(), "PNG", icc_profile=wide))
    assert photo.notes == ("colour profile wide test gamut",)
    assert photo.pixel_digest != pixel_digest(scene())


def wide_gamut_profile() -> bytes:
    """A minimal matrix profile (v2) with primaries wider than sRGB and a plain gamma of 2.2."""

    def fixed(value: float) -> bytes:
        return struct.pack(">i", round(value * 65536))

    def xyz(*values: float) -> bytes:
        return b"XYZ " + bytes(4) + b"".join(fixed(one) for one in values)

    text = b"wide test gamut\0"
    described = b"desc" + bytes(4) + struct.pack(">I", len(text)) + text + bytes(4 + 4 + 2 + 1 + 67)
    curve = b"curv" + bytes(4) + struct.pack(">IH", 1, round(2.2 * 256)) + bytes(2)
    tags = {
        b"desc": described + bytes(-len(described) % 4),
        b"cprt": b"text" + bytes(4) + b"none\0\0\0\0",
        b"wtpt": xyz(0.9642, 1.0, 0.8249),
        b"rXYZ": xyz(0.6097, 0.3111, 0.0195),
        b"gXYZ": xyz(0.2053, 0.6257, 0.0609),
        b"bXYZ": xyz(0.1492, 0.0632, 0.7446),
        b"rTRC": curve,
        b"gTRC": curve,
        b"bTRC": curve,
    }
    table, body = struct.pack(">I", len(tags)), b""
    offset = 128 + 4 + 12 * len(tags)
    for name, data in tags.items():
        table += name + struct.pack(">II", offset + len(body), len(data))
        body += data
    size = 128 + len(table) + len(body)
    header = struct.pack(">I4sI4s4s4s", size, b"test", 0x02100000, b"mntr", b"RGB ", b"XYZ ")
    header += bytes(12) + b"acsp" + bytes(28) + fixed(0.9642) + fixed(1.0) + fixed(0.8249)
    return header.ljust(128, b"\0") + table + body


def test_shrinking_squashes_to_a_square_and_averages() -> None:
    small = shrink(scene(320, 180), 64)
    assert small.shape == (64, 64, 3)
    assert small.dtype == np.uint8
    stripes = np.zeros((64, 640, 3), np.uint8)
    stripes[:, ::2] = 255
    assert np.abs(shrink(Image.fromarray(stripes), 64).astype(int) - 127).max() <= 4


def test_a_photo_of_the_right_size_is_left_alone() -> None:
    assert (shrink(scene(64, 64), 64) == np.asarray(scene(64, 64))).all()


def test_the_switch_that_fills_truncated_photos_with_gray_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(SettingError, match="LOAD_TRUNCATED_IMAGES"):
        decoded(JPEG)


def test_a_format_without_a_decoder_is_a_fault_of_the_plan() -> None:
    with pytest.raises(PlanError, match="HEIF"):
        decoded(HEIC, ImageRules(formats=("JPEG", "HEIF")))


@pytest.mark.parametrize("cut", range(0, len(PNG), 97))
def test_no_prefix_of_a_photo_passes_or_crashes(cut: int) -> None:
    with pytest.raises(ImageRefusedError):
        decoded(PNG[:cut])


@pytest.mark.parametrize("cut", range(0, len(SMALL_JPEG), 53))
def test_no_prefix_of_a_jpeg_passes_or_crashes(cut: int) -> None:
    with pytest.raises(ImageRefusedError):
        decoded(SMALL_JPEG[:cut])
