"""What the sample archive says: shipments, their damage, their photos and the recorded labels.

Decides every fact of a shipment as a function of (seed, shipment number) and nothing else, and how
the recorded label departs from the truth. How a fact looks in a photo is left to the drawing
modules, files and tables to `sample_archive`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import numpy as np

from parcel_assets.adapters.sample_geometry import (
    CORNER_COUNT,
    TOP_FACE,
    Pose,
    Size,
    corner_is_visible,
    face_is_visible,
    pose_camera,
)
from parcel_assets.core.codec import derive_seed

Colour = tuple[float, float, float]
Item = TypeVar("Item")

CAMERA_SHARES = {"top": 0.45, "side": 0.30, "handheld": 0.25}
DAMAGE_SHARES = {
    "dent": 0.26,
    "tear": 0.25,
    "wet": 0.20,
    "open_seam": 0.19,
    "crushed_corner": 0.10,
}
DAMAGED_SHARE = 0.50
FRAME_SHARES = {1: 0.20, 2: 0.30, 3: 0.30, 4: 0.20}
TOP_FACE_SHARE = 0.50
WHITE_SHARE = 0.18
REPHOTOGRAPHED_SHARE = 0.01  # of the odd numbers, so about one shipment in two hundred

SEVERITY_VISIBLE = 0.3  # below this nobody would call it damage
SEVERITY_EASY = 0.45  # below this reviewers sometimes miss it
MISS_SHARE = 0.15
FLIP_SHARE = 0.03
# Reviewers share the two rates above on average; some are hastier than others.
REVIEWER_HASTE = {
    "rev-01": 0.6,
    "rev-02": 0.8,
    "rev-03": 1.0,
    "rev-04": 1.0,
    "rev-05": 1.2,
    "rev-06": 1.4,
}
# An undamaged parcel recorded as damaged: harmless shades look like these two.
FALSE_ALARM_TYPES = ("dent", "wet")

SITES = ("ANR", "BRE", "GDN", "LYS", "RTM")
CARRIERS = ("Brightwheel", "Halyard", "Northlane", "Quillpost")
UNITS = {"top": 2, "side": 2, "handheld": 3}
FIRST_DAY = datetime(2025, 1, 6, 5, 0, tzinfo=UTC)
SPAN_MINUTES = 26 * 7 * 24 * 60
ID_SPACE = 10**13
ID_STEP = 7_368_787_421_873  # shares no factor with 10**13: no two shipments get the same id


@dataclass(frozen=True)
class Damage:
    """One damage; `place` is a face, or a corner of the top where the corner is crushed."""

    kind: str
    severity: float
    place: int


@dataclass(frozen=True)
class Scene:
    """The parcel itself, the same in all its photos."""

    size: Size
    colour: Colour
    is_white: bool
    texture_seed: int
    damage: Damage | None


@dataclass(frozen=True)
class Photo:
    """One row of the table and what is needed to draw its photo."""

    shipment_id: str
    frame: int
    camera_class: str
    camera_id: str
    site: str
    carrier: str
    lane: str
    captured_at: datetime
    label: str
    damage_type: str
    severity: str
    reviewer_id: str
    scene: Scene
    pose: Pose
    pixel_seed: int

    @property
    def path(self) -> str:
        """Where the photo lies in the archive."""
        return f"images/{self.shipment_id}_{self.frame}_{self.camera_class}.jpg"


def shipment_id(seed: int, number: int) -> str:
    """Return the shipment's 13 digits; about one in ten starts with a zero."""
    offset = derive_seed("sample-archive", seed, "ids") % ID_SPACE
    return f"{(offset + number * ID_STEP) % ID_SPACE:013d}"


def photos_of_shipment(seed: int, number: int) -> list[Photo]:
    """Return the photos of one shipment in the order they were taken.

    A re-photographed shipment is the parcel of the shipment before it, relabelled: the last photo
    of that shipment is filed under both ids, and the rest are new photos of the same parcel.
    """
    if number % 2 == 0 or not _is_rephotographed(seed, number):
        return _fresh_photos(seed, number, scene=_scene(seed, number))
    original = _fresh_photos(seed, number - 1, scene=_scene(seed, number - 1))
    shared, own = original[-1], _fresh_photos(seed, number, scene=original[-1].scene)
    delay = max(timedelta(0), shared.captured_at + timedelta(hours=6) - own[0].captured_at)
    return [
        _refiled(shared, shipment=own[0].shipment_id, frame=1),
        *(
            _refiled(photo, shipment=photo.shipment_id, frame=photo.frame + 1, delay=delay)
            for photo in own[:3]
        ),
    ]


def _is_rephotographed(seed: int, number: int) -> bool:
    return derive_seed("sample-archive", seed, number, "again") / 2**63 < REPHOTOGRAPHED_SHARE


def _refiled(photo: Photo, *, shipment: str, frame: int, delay: timedelta = timedelta(0)) -> Photo:
    return Photo(
        **{
            **vars(photo),
            "shipment_id": shipment,
            "frame": frame,
            "captured_at": photo.captured_at + delay,
        }
    )


def choose(random: np.random.Generator, shares: dict[Item, float]) -> Item:
    """Return one key by the shares, from a single uniform number."""
    level, keys = random.random() * sum(shares.values()), list(shares)
    for key in keys[:-1]:
        level -= shares[key]
        if level < 0:
            return key
    return keys[-1]


def _pick(random: np.random.Generator, items: Sequence[Item]) -> Item:
    return items[int(random.random() * len(items))]


def _between(random: np.random.Generator, low: float, high: float) -> float:
    return low + (high - low) * float(random.random())


def _scene(seed: int, number: int) -> Scene:
    random = np.random.default_rng(derive_seed("sample-archive", seed, number, "scene"))
    size = (
        _between(random, 0.65, 1.05),
        _between(random, 0.50, 0.90),
        _between(random, 0.35, 0.80),
    )
    is_white = bool(random.random() < WHITE_SHARE)
    tone = _between(random, 0.72, 1.10)
    if is_white:
        colour = (214.0 * tone**0.5, 209.0 * tone**0.5, 200.0 * tone**0.5)
    else:
        warmth = _between(random, -14.0, 14.0)
        colour = (188.0 * tone + warmth, 132.0 * tone, 80.0 * tone - warmth)
    damage = None
    if random.random() < DAMAGED_SHARE:
        kind = choose(random, DAMAGE_SHARES)
        severity = SEVERITY_VISIBLE + 0.7 * float(random.beta(2.0, 1.6))
        if kind == "crushed_corner":
            place = int(random.integers(CORNER_COUNT))
        else:
            place = TOP_FACE if random.random() < TOP_FACE_SHARE else int(random.integers(4))
        damage = Damage(kind, severity, place)
    return Scene(size, colour, is_white, int(random.integers(2**62)), damage)


def _fresh_photos(seed: int, number: int, *, scene: Scene) -> list[Photo]:
    random = np.random.default_rng(derive_seed("sample-archive", seed, number, "photos"))
    origin = _pick(random, SITES)
    destination = _pick(random, [site for site in SITES if site != origin])
    carrier = _pick(random, CARRIERS)
    moment = FIRST_DAY + timedelta(minutes=int(random.integers(SPAN_MINUTES)))
    count, site, photos = choose(random, FRAME_SHARES), origin, []
    for frame in range(1, count + 1):
        if frame > 1 and site == origin and random.random() < 0.4:
            site = destination
            moment += timedelta(minutes=int(random.integers(18 * 60, 60 * 60)))
        moment += timedelta(seconds=int(random.integers(20, 2400)))
        camera = choose(random, CAMERA_SHARES)
        pose = _pose(random, camera, scene.size)
        label, kind, severity, reviewer = _record(random, scene, pose)
        photos.append(
            Photo(
                shipment_id=shipment_id(seed, number),
                frame=frame,
                camera_class=camera,
                camera_id=f"{site}-{camera}-{int(random.integers(UNITS[camera])) + 1}",
                site=site,
                carrier=carrier,
                lane=f"{origin}-{destination}",
                captured_at=moment,
                label=label,
                damage_type=kind,
                severity=severity,
                reviewer_id=reviewer,
                scene=scene,
                pose=pose,
                pixel_seed=int(random.integers(2**62)),
            )
        )
    return photos


def _pose(random: np.random.Generator, camera: str, size: Size) -> Pose:
    """Place a camera of this class: a belt from above, a gate from the side, or a person."""
    if camera == "top":
        yaw, pitch, roll = (
            _between(random, 0.0, 360.0),
            _between(random, 74.0, 88.0),
            float(random.normal(0.0, 3.0)),
        )
        fill, wander = _between(random, 0.62, 0.86), 3.0
    elif camera == "side":
        yaw = 90.0 * int(random.integers(4)) + _between(random, 12.0, 78.0)
        pitch, roll = _between(random, 12.0, 26.0), float(random.normal(0.0, 2.0))
        fill, wander = _between(random, 0.66, 0.92), 3.0
    else:
        yaw, pitch = _between(random, 0.0, 360.0), _between(random, 24.0, 52.0)
        roll = float(random.normal(0.0, 14.0))
        fill, wander = _between(random, 0.62, 0.98), 5.0
    return pose_camera(
        size,
        yaw=math.radians(yaw),
        pitch=math.radians(pitch),
        roll=math.radians(roll),
        fill=fill,
        offset=(_between(random, -wander, wander), _between(random, -wander, wander)),
    )


def shows_damage(scene: Scene, pose: Pose) -> bool:
    """Return the truth of one photo: there is damage worth a review, and this camera sees it."""
    damage = scene.damage
    if damage is None or damage.severity <= SEVERITY_VISIBLE:
        return False
    if damage.kind == "crushed_corner":
        return corner_is_visible(scene.size, pose, damage.place)
    return face_is_visible(scene.size, pose, damage.place)


def _record(random: np.random.Generator, scene: Scene, pose: Pose) -> tuple[str, str, str, str]:
    """Return what the reviewer wrote: label, damage type, severity, reviewer.

    Type and severity are written only beside `damaged`. A false alarm on a parcel that is damaged
    out of sight carries that damage; on a whole parcel it is taken for one of FALSE_ALARM_TYPES.
    """
    reviewer = _pick(random, list(REVIEWER_HASTE))
    haste = REVIEWER_HASTE[reviewer]
    overlooks, slips = random.random() < MISS_SHARE * haste, random.random() < FLIP_SHARE * haste
    alarm = Damage(_pick(random, FALSE_ALARM_TYPES), _between(random, 0.30, 0.45), TOP_FACE)
    damage = scene.damage
    damaged = shows_damage(scene, pose)
    if damage is not None and damage.severity < SEVERITY_EASY and overlooks:
        damaged = False
    if damaged == slips:
        return "intact", "", "", reviewer
    written = damage or alarm
    return "damaged", written.kind, f"{written.severity:.2f}", reviewer
