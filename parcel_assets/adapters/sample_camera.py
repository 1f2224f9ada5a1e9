"""The photo of a sample parcel: background, box, light, camera faults, JPEG.

Decides what each camera class makes of a parcel whose faces `sample_carton` has painted. What
there is to photograph, and from where, comes from `sample_facts`.
"""

import io
from datetime import datetime

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from parcel_assets.adapters.sample_carton import (
    FACE_PIXELS,
    Pixels,
    cut_shares,
    draw_face,
    soft_noise,
)
from parcel_assets.adapters.sample_facts import FIRST_DAY, SPAN_MINUTES, Photo, Scene
from parcel_assets.adapters.sample_geometry import (
    CORNER_COUNT,
    IMAGE_PIXELS,
    TOP_FACE,
    Point,
    Pose,
    Vector,
    along,
    bottom_corner,
    corner_is_visible,
    dot,
    drawn_faces,
    face_normal,
    project,
    texture_coefficients,
    top_corner,
)
from parcel_assets.core.codec import derive_seed

JPEG_QUALITY = 90
FINE = 4  # small polygons are drawn this many times larger, then averaged
DRIFT = 0.08  # lamps and lenses lose this share of their light over the archive's span
NOISE_LEVELS = {"top": 7.0, "side": 6.0, "handheld": 9.0}
AMBIENT = 0.60

_STEPS = (np.arange(IMAGE_PIXELS, dtype=np.float64) + 0.5) / IMAGE_PIXELS
_Y, _X = np.meshgrid(_STEPS, _STEPS, indexing="ij")
_GROUNDS = (
    (96.0, 126.0, 62.0),
    (112.0, 140.0, 96.0),
    (138.0, 118.0, 104.0),
    (112.0, 106.0, 116.0),
    (140.0, 92.0, 68.0),
)
_SHAPE = (IMAGE_PIXELS, IMAGE_PIXELS)

Faces = dict[int, tuple[Pixels, Pixels]]


def draw_photos(photos: list[Photo]) -> list[bytes]:
    """Return the JPEG bytes of photos; faces are painted once for all photos of one parcel."""
    painted: dict[int, Faces] = {}
    return [
        _draw_photo(photo, painted.setdefault(photo.scene.texture_seed, {})) for photo in photos
    ]


def _draw_photo(photo: Photo, faces: Faces) -> bytes:
    random = np.random.default_rng(photo.pixel_seed)
    backdrop = _background(random, photo.camera_class)
    if photo.camera_class != "top":
        backdrop *= _shadow(photo.scene, photo.pose)[:, :, None]
    canvas = Image.fromarray(np.clip(backdrop, 0.0, 255.0).astype(np.uint8))
    _draw_box(canvas, random, photo, faces)
    blur = {"top": 0.25, "side": 0.3}.get(photo.camera_class) or random.uniform(0.0, 0.85)
    canvas = canvas.filter(ImageFilter.GaussianBlur(blur))
    pixels = np.asarray(canvas, dtype=np.float64) * _light(random, photo)
    noise = random.standard_normal((*_SHAPE, 3)) * NOISE_LEVELS[photo.camera_class]
    pixels += noise * random.uniform(0.6, 1.3)
    stream = io.BytesIO()
    finished = Image.fromarray(np.clip(np.rint(pixels), 0.0, 255.0).astype(np.uint8))
    finished.save(stream, "JPEG", quality=JPEG_QUALITY, subsampling=0)
    return stream.getvalue()


def _background(random: np.random.Generator, camera: str) -> Pixels:
    """Return a ribbed belt, a gate's plain floor and wall, or the ground a person stands on."""
    if camera == "top":
        ribs = np.sin(_Y * (2.0 * np.pi * random.uniform(6.0, 9.0)) + random.uniform(0.0, 6.0))
        level = 70.0 + 17.0 * ribs + 5.0 * soft_noise(random, 7, IMAGE_PIXELS) - 16.0 * _X
        return _tinted(level, 0.95, 0.98, 1.06)
    if camera == "side":
        horizon = random.uniform(0.25, 0.5)
        level = 96.0 + random.uniform(20.0, 60.0) * np.clip(_Y - horizon, 0.0, 1.0)
        level += 34.0 * np.clip(horizon - _Y, 0.0, 1.0) + 3.0 * soft_noise(random, 5, IMAGE_PIXELS)
        return _tinted(level, 1.04, 1.0, 0.93)
    ground = _GROUNDS[int(random.integers(len(_GROUNDS)))]
    grain = 0.10 * soft_noise(random, 24, IMAGE_PIXELS) + 0.09 * soft_noise(random, 9, IMAGE_PIXELS)
    return _tinted(1.0 + grain, *ground)


def _tinted(level: Pixels, red: float, green: float, blue: float) -> Pixels:
    tinted: Pixels = level[:, :, None] * np.array([red, green, blue])
    return tinted


def _shadow(scene: Scene, pose: Pose) -> Pixels:
    """Return how much light is left on the ground around the box."""
    canvas = Image.new("L", _SHAPE)
    corners = [bottom_corner(scene.size, corner) for corner in range(CORNER_COUNT)]
    spread = [project(pose, (x * 1.18, y * 1.18, z)) for x, y, z in corners]
    ImageDraw.Draw(canvas).polygon(spread, fill=150)
    blurred = canvas.filter(ImageFilter.GaussianBlur(2.0))
    return 1.0 - np.asarray(blurred, dtype=np.float64) / 255.0


def _draw_box(canvas: Image.Image, random: np.random.Generator, photo: Photo, faces: Faces) -> None:
    scene, pose = photo.scene, photo.pose
    lamp = _lamp(random, photo)
    seen = drawn_faces(scene.size, pose)
    _draw_inner_edges(canvas, scene, pose, seen)
    for face in seen:
        if face not in faces:
            faces[face] = draw_face(scene, face)
        board, coverage = faces[face]
        shade = AMBIENT + (1.0 - AMBIENT) * max(0.0, dot(face_normal(face), lamp))
        texture = np.zeros((FACE_PIXELS + 2, FACE_PIXELS + 2, 4), dtype=np.uint8)
        texture[1:-1, 1:-1, :3] = np.clip(board * shade, 0.0, 255.0)
        texture[1:-1, 1:-1, 3] = np.rint(coverage * 255.0)
        warped = Image.fromarray(texture).transform(
            _SHAPE,
            Image.Transform.PERSPECTIVE,
            texture_coefficients(scene.size, pose, face, FACE_PIXELS),
            Image.Resampling.BILINEAR,
        )
        canvas.paste(warped, (0, 0), warped)
    if scene.damage is not None and scene.damage.kind == "crushed_corner":
        _draw_crushed_corner(canvas, scene, pose, lamp)


def _draw_inner_edges(canvas: Image.Image, scene: Scene, pose: Pose, seen: list[int]) -> None:
    """Lay worn board under the edges between two seen faces: their soft borders let through."""
    pen = ImageDraw.Draw(canvas)
    worn = tuple(int(0.55 * part) for part in scene.colour)
    for corner in range(CORNER_COUNT):
        start = top_corner(scene.size, corner)
        if corner in seen and TOP_FACE in seen:
            _line(pen, pose, start, top_corner(scene.size, corner + 1), worn)
        if corner in seen and (corner - 1) % CORNER_COUNT in seen:
            _line(pen, pose, start, bottom_corner(scene.size, corner), worn)


def _line(
    pen: ImageDraw.ImageDraw, pose: Pose, start: Vector, end: Vector, colour: tuple[int, ...]
) -> None:
    pen.line([project(pose, start), project(pose, end)], fill=colour, width=2)


def _lamp(random: np.random.Generator, photo: Photo) -> Vector:
    """Return the direction light comes from: over the belt, beside the gate, or anywhere."""
    turn = random.uniform(0.0, 2.0 * np.pi)
    if photo.camera_class == "top":
        return 0.25 * float(np.cos(turn)), 0.25 * float(np.sin(turn)), 0.94
    if photo.camera_class == "side":
        right, forward = photo.pose.right, photo.pose.forward
        side = random.uniform(-0.7, 0.7)
        return (
            side * right[0] - 0.5 * forward[0],
            side * right[1] - 0.5 * forward[1],
            0.72,
        )
    return 0.6 * float(np.cos(turn)), 0.6 * float(np.sin(turn)), 0.75


def _draw_crushed_corner(canvas: Image.Image, scene: Scene, pose: Pose, lamp: Vector) -> None:
    """Fill the cut with three folded triangles of board, if it is turned towards the camera."""
    assert scene.damage is not None
    corner = scene.damage.place
    if not corner_is_visible(scene.size, pose, corner):
        return
    tip, size = top_corner(scene.size, corner), scene.size
    before, after, down = cut_shares(scene)
    ends = (
        along(tip, top_corner(size, corner - 1), before),
        along(tip, top_corner(size, corner + 1), after),
        along(tip, bottom_corner(size, corner), down),
    )
    middle: Vector = (
        (ends[0][0] + ends[1][0] + ends[2][0]) / 3.0,
        (ends[0][1] + ends[1][1] + ends[2][1]) / 3.0,
        (ends[0][2] + ends[1][2] + ends[2][2]) / 3.0,
    )
    pit = along(middle, (0.0, 0.0, 0.0), 0.12)
    layer = Image.new("RGBA", (IMAGE_PIXELS * FINE, IMAGE_PIXELS * FINE))
    pen = ImageDraw.Draw(layer)
    lit = AMBIENT + (1.0 - AMBIENT) * max(0.0, lamp[2])
    for first, second, shade in ((0, 1, 0.58), (1, 2, 0.80), (2, 0, 1.06)):
        colour = tuple(min(255, int(part * shade * lit)) for part in scene.colour)
        shape = [_fine(project(pose, point)) for point in (ends[first], ends[second], pit)]
        pen.polygon(shape, fill=(*colour, 255))
        folds = tuple(int(part * 0.42 * lit) for part in scene.colour)
        pen.line([*shape, shape[0]], fill=(*folds, 255), width=2)
    small = layer.reduce(FINE)
    canvas.paste(small, (0, 0), small)


def _fine(point: Point) -> Point:
    return point[0] * FINE, point[1] * FINE


def _light(random: np.random.Generator, photo: Photo) -> Pixels:
    """Return the factor by which light and lens change each pixel and colour."""
    if photo.camera_class == "handheld":
        gain, slope = random.uniform(0.6, 1.3), random.uniform(-0.15, 0.15, 2)
    else:
        gain, slope = random.uniform(0.88, 1.10), random.uniform(-0.10, 0.10, 2)
    field = 1.0 + slope[0] * (_X - 0.5) + slope[1] * (_Y - 0.5)
    if photo.camera_class == "handheld" and random.random() < 0.35:
        x, y = random.uniform(0.25, 0.75, 2)
        field += 0.45 * np.exp(-((_X - x) ** 2 + (_Y - y) ** 2) / 0.045)
    field *= gain * (1.0 - DRIFT * _age(photo.captured_at))
    light: Pixels = field[:, :, None] * _cast(photo.site, 0.07) * _cast(photo.camera_id, 0.04)
    return light


def _age(moment: datetime) -> float:
    return (moment - FIRST_DAY).total_seconds() / (SPAN_MINUTES * 60.0)


def _cast(name: str, strength: float) -> Pixels:
    """Return the colour cast of a site or a camera unit: a function of its name."""
    return np.array(
        [
            1.0 + strength * (derive_seed("cast", name, part) / 2.0**62 - 1.0)
            for part in ("red", "green", "blue")
        ]
    )
