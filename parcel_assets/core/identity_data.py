"""What an identity says of loaded data and of the plan in use, and the answer to a challenge.

Everything is measured from the very objects that a training gets: the mapped arrays, the rows, the
plan. A worker and its coordinator call the same functions, each on what it has loaded itself; no
expected value travels to a worker. Code, packages and hardware are measured by the host's adapter.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parcel_assets.core.codec import canonical_json, derive_seed, digest_bytes, digest_value
from parcel_assets.core.identity import RULES
from parcel_assets.core.identity_words import PhotosHeld
from parcel_assets.core.plan import Plan, PreprocessPlan
from parcel_assets.core.ports import Images, PartData, Pixels, TrainingData
from parcel_assets.core.split import milestone_rows, subset_digests

CHUNK_BYTES = 1 << 22
MARK_LENGTH = 8
TEXT_CHARACTERS = 1000
TORN_NAMED = 5  # shipments found in two parts that a refusal names
SKETCH_TOLERANCE = 1e-5  # per value; float32 rounding stays some twenty times below it
# sections of the plan with a field of their own; every other one is an item of `plan`
_OWN_FIELD = ("preprocess", "metric", "space", "training", "pruning")


def measure_data(plan: Plan, data: TrainingData) -> dict[str, str]:
    """Return the items of all fields that plan and loaded data give; reads all pixels once."""
    sections = plan.document()
    parts = parts_of(data)
    rows = milestone_rows(plan, data.validation.shipments)
    scored = subset_digests(data.validation.photo_ids, rows)
    items = {"rules": RULES} | _archive(parts) | _split(parts)
    for name, part in parts.items():
        items |= _pixels(name, part.pixels) | _rows(name, part)
    return items | {
        **_texts("preprocessing", sections["preprocess"]),
        **_texts("metric", sections["metric"]),
        **{f"metric.photos_scored_at_step_{step}": digest for step, digest in scored.items()},
        **_texts("space", sections["space"]),
        **_texts("training", sections["training"]),
        **_texts("training", {f"pruning_{k}": v for k, v in sections["pruning"].items()}),
        **{
            f"plan.{name}": digest_value(one)
            for name, one in sections.items()
            if name not in _OWN_FIELD
        },
    }


def parts_of(data: TrainingData) -> dict[str, PartData]:
    """Return the parts by their names."""
    return {"train": data.train, "validation": data.validation}


def pixels_digest(pixels: Pixels) -> str:
    """Return the digest of an array's type, shape and bytes, read in pieces."""
    hasher = hashlib.sha256(canonical_json([str(pixels.dtype), list(pixels.shape)]))
    photo_bytes = max(1, int(np.prod(pixels.shape[1:])) * pixels.dtype.itemsize)
    step = max(1, CHUNK_BYTES // photo_bytes)
    for start in range(0, len(pixels), step):
        hasher.update(np.ascontiguousarray(pixels[start : start + step]).data)
    return hasher.hexdigest()


def answer_challenge(
    data: TrainingData, *, nonce: str, rows: Mapping[str, Sequence[int]]
) -> list[str]:
    """Return one digest for each row asked for, in order of part and asking.

    The fresh nonce is in each of them, so that no answer can be kept, or made for another worker.
    """
    parts = parts_of(data)
    return [
        _row_digest(nonce, name, row, parts[name]) for name in sorted(rows) for row in rows[name]
    ]


def challenged_photos(data: TrainingData, rows: Mapping[str, Sequence[int]]) -> list[str]:
    """Return the photo ids that a challenge asks for, in the order of its answer."""
    parts = parts_of(data)
    return [parts[name].photo_ids[row] for name in sorted(rows) for row in rows[name]]


def challenged_pixels(data: TrainingData, rows: Mapping[str, Sequence[int]]) -> Pixels:
    """Return the pixels that a challenge asks for, in the order of its answer."""
    parts = parts_of(data)
    return np.concatenate([parts[name].pixels[list(rows[name])] for name in sorted(rows)])


def planned_images(preprocess: PreprocessPlan, pixels: Pixels) -> Images:
    """Return photos as the plan's normalisation says that networks get them."""
    mean = np.array(preprocess.mean).reshape(1, 3, 1, 1)
    deviation = np.array(preprocess.standard_deviation).reshape(1, 3, 1, 1)
    images: Images = ((pixels.transpose(0, 3, 1, 2) / 255 - mean) / deviation).astype(np.float32)
    return images


def sketch_images(nonce: str, images: Images) -> list[float]:
    """Return one number for each image: a random projection that the nonce draws."""
    draws = np.random.default_rng(derive_seed("sketch", nonce))
    flat = images.reshape(len(images), -1).astype(np.float64)
    return [float(one @ draws.standard_normal(one.size)) for one in flat]


def same_sketch(found: Sequence[float], expected: Sequence[float], values: int) -> bool:
    """Say whether sketches of images of so many values differ by no more than rounding does."""
    tolerance = SKETCH_TOLERANCE * np.sqrt(values)
    return len(found) == len(expected) and all(
        abs(one - other) <= tolerance for one, other in zip(found, expected, strict=True)
    )


def photo_marks(photo_ids: Sequence[str]) -> str:
    """Return eight characters for each photo: enough to count which of them others know."""
    return "".join(_mark(photo) for photo in photo_ids)


def photos_held(marks: str, known: Sequence[str], sealed: Sequence[str]) -> PhotosHeld:
    """Return how many marked photos are not among the known ones, and how many are sealed."""
    said = {marks[at : at + MARK_LENGTH] for at in range(0, len(marks), MARK_LENGTH)}
    hidden = {_mark(photo) for photo in sealed}
    strangers = said - {_mark(photo) for photo in known} - hidden
    return PhotosHeld(len(strangers), len(said & hidden))


def _mark(photo: str) -> str:
    return digest_bytes(photo.encode())[:MARK_LENGTH]


def _row_digest(nonce: str, name: str, row: int, part: PartData) -> str:
    facts = [
        nonce,
        name,
        row,
        part.photo_ids[row],
        part.shipments[row],
        bool(part.damaged[row]),
        list(part.pixels.shape),
    ]
    hasher = hashlib.sha256(canonical_json(facts))
    hasher.update(np.ascontiguousarray(part.pixels[row]).data)
    return hasher.hexdigest()


def _archive(parts: Mapping[str, PartData]) -> dict[str, str]:
    photos = sorted(photo for part in parts.values() for photo in part.photo_ids)
    return {
        "archive.photos": str(len(photos)),
        "archive.last_photo": photos[-1] if photos else "",
        "archive.photo_ids": digest_value(photos),
    }


def _split(parts: Mapping[str, PartData]) -> dict[str, str]:
    dealt = {name: sorted(set(part.shipments)) for name, part in parts.items()}
    torn = set(dealt["train"]) & set(dealt["validation"])
    grouping = sorted(
        [photo, shipment]
        for part in parts.values()
        for photo, shipment in zip(part.photo_ids, part.shipments, strict=True)
    )
    photos = {name: sorted(part.photo_ids) for name, part in parts.items()}
    return {
        **{f"split.{name}_shipments": str(len(one)) for name, one in dealt.items()},
        **{f"split.{name}_photos": str(len(one)) for name, one in photos.items()},
        "split.torn_shipments": str(len(torn)),
        # which, for whoever reads the refusal; a sound split has no such item
        **({"split.torn_first": ", ".join(sorted(torn)[:TORN_NAMED])} if torn else {}),
        "split.grouping": digest_value(grouping),
        "split.parts": digest_value(photos),
    }


def _pixels(name: str, pixels: Pixels) -> dict[str, str]:
    return {
        f"{name}_pixels.type": str(pixels.dtype),
        f"{name}_pixels.shape": "x".join(str(size) for size in pixels.shape),
        f"{name}_pixels.digest": pixels_digest(pixels),
    }


def _rows(name: str, part: PartData) -> dict[str, str]:
    fields = {
        "photo_ids": list(part.photo_ids),
        "shipments": list(part.shipments),
        "damaged": [bool(one) for one in part.damaged],
        "attributes": {key: list(values) for key, values in part.attributes.items()},
    }
    return {
        f"{name}_rows.damaged_photos": str(int(part.damaged.sum())),
        f"{name}_rows.digest": digest_value(fields),
    }


def _texts(field: str, section: Mapping[str, Any]) -> dict[str, str]:
    """Return a section's values as texts that a person can read; long ones as a digest."""
    texts = {
        f"{field}.{name}": value if isinstance(value, str) else canonical_json(value).decode()
        for name, value in section.items()
    }
    return {
        name: text if len(text) <= TEXT_CHARACTERS else digest_value(text)
        for name, text in texts.items()
    }
