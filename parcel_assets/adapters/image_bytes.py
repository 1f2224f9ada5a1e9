"""What an image file's bytes say beside its pixels: kind, depth, end; and how a file is refused.

Reads structure only and decodes nothing; judging is left to `image_pillow`.
"""

import re
import struct
import zlib
from collections.abc import Iterator, Sequence


class ImageRefusedError(Exception):
    """A file that becomes no photo; `column` is `photo` for the file, `pixels` for its content."""

    def __init__(self, found: str, *, expected: str, remedy: str, column: str = "photo") -> None:
        super().__init__(found)
        self.found = found
        self.expected = expected
        self.remedy = remedy
        self.column = column


_MAGIC = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
    (b"\x00\x00\x00\x0cjP  ", "JPEG2000"),
    (b"\xff\x4f\xff\x51", "JPEG2000"),
)
_BRANDS = {
    "HEIC": (b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1"),
    "AVIF": (b"avif", b"avis"),
}
_FORMATS_OF_ENDING = {
    "jpg": ("JPEG", "MPO"),
    "jpeg": ("JPEG", "MPO"),
    "png": ("PNG",),
    "webp": ("WEBP",),
    "bmp": ("BMP", "DIB"),
    "tif": ("TIFF",),
    "tiff": ("TIFF",),
    "gif": ("GIF",),
}
# in a JPEG's scan FF is followed by 00 or a restart mark; anything else ends the scan
_SCAN_END = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_PNG_HEADER_BYTES = 8
_PNG_DEPTH_OFFSET = 24
_TIFF_BITS_PER_SAMPLE = 258
_TIFF_SHORT = 3


def formats_of_name(name: str) -> tuple[str, ...]:
    """Return the formats that a file name's ending stands for; empty where it says nothing."""
    return _FORMATS_OF_ENDING.get(name.rpartition(".")[2].lower(), ())


def sniff_format(data: bytes) -> str | None:
    """Return the image format that the first bytes announce, or None."""
    if data[4:8] == b"ftyp":
        brand = data[8:12]
        return next((name for name, brands in _BRANDS.items() if brand in brands), None)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    return next((name for magic, name in _MAGIC if data.startswith(magic)), None)


def looks_like(data: bytes, allowed: Sequence[str]) -> str:
    """Return, in words, what undecodable bytes look like."""
    announced = sniff_format(data)
    if announced == "HEIC":
        return "a HEIC photo (no decoder for it is installed)"
    if announced is not None:
        allowed_one = announced in allowed
        return f"a {announced} image, " + ("damaged" if allowed_one else "which the plan refuses")
    start = data[:512].lstrip().lower()
    known = (
        (b"<html" in start or start.startswith(b"<!doctype html"), "an HTML page, not an image"),
        (data.startswith(b"%PDF"), "a PDF document, not an image"),
        (data.startswith(b"PK\x03\x04"), "a ZIP archive, not an image"),
        (data[4:8] == b"ftyp", "a video, not an image"),
        (start.isascii(), "text, not an image"),
    )
    return next((words for true, words in known if true), "bytes of no known image format")


def channel_depth_bits(image_format: str | None, data: bytes) -> int:
    """Return the bits per channel where a decoder would hide them (PNG, TIFF); otherwise 8."""
    if image_format == "PNG" and len(data) > _PNG_DEPTH_OFFSET:
        return max(8, data[_PNG_DEPTH_OFFSET])
    if image_format == "TIFF":
        return max(8, _tiff_depth_bits(data))
    return 8


def _tiff_depth_bits(data: bytes) -> int:
    """Return BitsPerSample of a TIFF's first directory; 8 where it cannot be read."""
    order = "<" if data[:2] == b"II" else ">"
    try:
        (directory,) = struct.unpack_from(f"{order}I", data, 4)
        (count,) = struct.unpack_from(f"{order}H", data, directory)
        for number in range(count):
            entry = directory + 2 + 12 * number
            tag, kind, values = struct.unpack_from(f"{order}HHI", data, entry)
            if tag == _TIFF_BITS_PER_SAMPLE and kind == _TIFF_SHORT:
                place = entry + 8
                if values * 2 > 4:  # more than fits into the entry: it holds an offset
                    (place,) = struct.unpack_from(f"{order}I", data, place)
                return max(struct.unpack_from(f"{order}{values}H", data, place), default=8)
    except struct.error:
        return 8
    return 8


def find_trailing_bytes(image_format: str | None, data: bytes) -> int | None:
    """Return how many bytes follow the image; None where the image has no end.

    Zero for formats whose end is not looked for.
    """
    end: int | None = len(data)
    if image_format in {"JPEG", "MPO"}:
        end = _jpeg_end(data)
    elif image_format == "PNG":
        end = _png_end(data)
    elif image_format == "WEBP":
        end = min(len(data), 8 + int.from_bytes(data[4:8], "little"))
    return None if end is None else len(data) - end


def _jpeg_end(data: bytes) -> int | None:
    """Return the offset after the first picture's end mark, or None where it has none."""
    at = 2
    while at + 4 <= len(data) or data[at : at + 2] == b"\xff\xd9":
        if data[at] != 0xFF:
            return None
        mark = data[at + 1]
        if mark == 0xD9:
            return at + 2
        if mark == 0xFF:  # filling
            at += 1
            continue
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        at += 2 + length
        if mark == 0xDA:
            found = _SCAN_END.search(data, at)
            if found is None:
                return None
            at = found.start()
    return None


def _png_end(data: bytes) -> int | None:
    """Return the offset after the end chunk, or None where there is none."""
    return next((end for kind, _, end in _png_chunks(data) if kind == b"IEND"), None)


def find_damaged_chunk(image_format: str | None, data: bytes) -> str | None:
    """Return the name of a PNG's first chunk whose checksum fails; decoders do not look at them."""
    if image_format != "PNG":
        return None
    for kind, start, end in _png_chunks(data):
        checksum = int.from_bytes(data[end - 4 : end], "big")
        if zlib.crc32(memoryview(data)[start : end - 4]) != checksum:
            return kind.decode("latin-1")
    return None


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield kind, start (of the kind) and end of each whole chunk, up to the end chunk."""
    at, kind = _PNG_HEADER_BYTES, b""
    while at + 12 <= len(data) and kind != b"IEND":
        length = int.from_bytes(data[at : at + 4], "big")
        kind, start, at = data[at + 4 : at + 8], at + 4, at + 12 + length
        if at <= len(data):
            yield kind, start, at
