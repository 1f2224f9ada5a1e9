"""The faces of a sample carton: board, tape, labels, harmless marks, and damage on a face.

Decides how a face looks before any camera sees it. A crushed corner takes away part of up to three
faces: the cut and its crease are here, the hole that opens behind it is in `sample_camera`.

Pixel work is elementwise in float64: no matrix products, so every processor gives the same bytes.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from parcel_assets.adapters.sample_facts import Damage, Scene
from parcel_assets.adapters.sample_geometry import CORNER_COUNT, TOP_FACE

Pixels = NDArray[np.float64]

FACE_PIXELS = 56
CONFUSERS = 0.6  # how strong the harmless marks are
DAMAGE_SIZE = 1.35
DENT_SHADING = 1.0
WET_SHADING = 0.64
CREASE = 2.4
CUT_BASE, CUT_BY_SEVERITY, CUT_SIZE = 0.10, 0.34, 1.25
CUT_LIMIT = 0.62  # of an edge, so that two faces always keep their shape

_STEPS = (np.arange(FACE_PIXELS, dtype=np.float64) + 0.5) / FACE_PIXELS
_V, _U = np.meshgrid(_STEPS, _STEPS, indexing="ij")
_TORN_BOARD = np.array([52.0, 34.0, 22.0])


def cut_shares(scene: Scene) -> tuple[float, float, float]:
    """Return what a crushed corner takes of its edges: to the corner before, after, and down."""
    if scene.damage is None or scene.damage.kind != "crushed_corner":
        return 0.0, 0.0, 0.0
    random = np.random.default_rng([scene.texture_seed, 9])
    length = CUT_SIZE * (CUT_BASE + CUT_BY_SEVERITY * scene.damage.severity)
    before, after, down = (
        min(CUT_LIMIT, length * float(share)) for share in random.uniform(0.8, 1.2, 3)
    )
    return before, after, down


def soft_noise(random: np.random.Generator, cells: int, pixels: int) -> Pixels:
    """Return smooth noise, about unit size, with this many cells across."""
    coarse = Image.fromarray(random.standard_normal((cells, cells)).astype(np.float32))
    smooth = coarse.resize((pixels, pixels), Image.Resampling.BICUBIC)
    return np.asarray(smooth, dtype=np.float64)


def draw_face(scene: Scene, face: int) -> tuple[Pixels, Pixels]:
    """Return a face's colours (0 to 255, rows by columns by three) and its coverage (0 to 1)."""
    random = np.random.default_rng([scene.texture_seed, face])
    board = _board(random, scene)
    _add_tape(random, board, face, scene)
    _add_print(random, board)
    if random.random() < (0.75 if face == TOP_FACE else 0.45):
        _add_label(random, board)
    _add_harmless_marks(random, board)
    coverage = np.ones((FACE_PIXELS, FACE_PIXELS))
    damage = scene.damage
    if damage is None:
        return board, coverage
    if damage.kind == "crushed_corner":
        coverage = _cut_corner(random, board, face, scene)
    elif damage.place == face:
        _PAINTERS[damage.kind](random, board, damage)
    return board, coverage


def _board(random: np.random.Generator, scene: Scene) -> Pixels:
    flutes = 0.018 * np.sin(_V * (2.0 * np.pi * 19.0) + random.uniform(0.0, 6.0))
    mottle = 0.035 * soft_noise(random, 6, FACE_PIXELS) + 0.02 * soft_noise(random, 19, FACE_PIXELS)
    edge = np.minimum(np.minimum(_U, 1.0 - _U), np.minimum(_V, 1.0 - _V))
    worn = -0.10 * np.exp(-edge / 0.025)
    colour: Pixels = np.array(scene.colour)
    return (1.0 + flutes + mottle + worn)[:, :, None] * colour


def _add_tape(random: np.random.Generator, board: Pixels, face: int, scene: Scene) -> None:
    """Tape runs along the top and folds down over the two ends."""
    middle, half = 0.5 + random.uniform(-0.03, 0.03), random.uniform(0.05, 0.09)
    if face == TOP_FACE:
        board[np.abs(_V - middle) < 0.008] *= 0.62  # the slit between the flaps
        area = np.abs(_V - middle) < half
    elif face in {1, 3}:
        area = (np.abs(_U - middle) < half) & (random.uniform(0.2, 0.45) > _V)
    else:
        return
    tint = np.array([196.0, 160.0, 112.0]) if scene.is_white else np.array(scene.colour) * 1.2
    board[area] = 0.35 * board[area] + 0.65 * tint


def _rectangle(left: float, top: float, width: float, height: float) -> tuple[slice, slice]:
    rows = slice(int(top * FACE_PIXELS), int((top + height) * FACE_PIXELS))
    return rows, slice(int(left * FACE_PIXELS), int((left + width) * FACE_PIXELS))


def _add_print(random: np.random.Generator, board: Pixels) -> None:
    """Sometimes a dark printed mark: a hand hole or a round stamp."""
    if random.random() > 0.5 * CONFUSERS:
        return
    u, v = random.uniform(0.15, 0.85, 2)
    width, height = random.uniform(0.04, 0.10), random.uniform(0.03, 0.06)
    inside = ((_U - u) / width) ** 2 + ((_V - v) / height) ** 2 < 1.0
    board[inside] *= np.array([0.42, 0.40, 0.45])


def _add_label(random: np.random.Generator, board: Pixels) -> None:
    width, height = random.uniform(0.26, 0.36), random.uniform(0.18, 0.28)
    left, top = random.uniform(0.08, 0.62), random.uniform(0.10, 0.66)
    board[_rectangle(left, top, width, height)] = np.array([236.0, 235.0, 230.0])
    column = left + 0.04
    while column < left + width - 0.05:
        bar = random.uniform(0.018, 0.04)
        board[_rectangle(column, top + 0.05, bar, height * 0.55)] = np.array([38.0, 38.0, 42.0])
        column += bar + random.uniform(0.02, 0.04)


def _add_harmless_marks(random: np.random.Generator, board: Pixels) -> None:
    """Scuffs and soft shades, which a reviewer passes and a model must learn to pass."""
    for _ in range(int(random.integers(3))):
        u, v = random.uniform(0.05, 0.95, 2)
        slope, length = random.uniform(-1.2, 1.2), random.uniform(0.05, 0.16)
        thickness = random.uniform(0.006, 0.016)
        on_line = (np.abs(_V - v - slope * (_U - u)) < thickness) & (np.abs(_U - u) < length)
        board[on_line] *= 1.0 + CONFUSERS * random.uniform(-0.45, 0.30)
    for _ in range(int(random.integers(3))):
        u, v = random.uniform(0.0, 1.0, 2)
        radius = random.uniform(0.10, 0.26)
        shade = np.exp(-((_U - u) ** 2 + (_V - v) ** 2) / (2.0 * radius * radius))
        board *= (1.0 + CONFUSERS * random.uniform(-0.32, 0.16) * shade)[:, :, None]


def _centre(random: np.random.Generator) -> tuple[float, float]:
    u, v = random.uniform(0.24, 0.76, 2)
    return float(u), float(v)


def _paint_dent(random: np.random.Generator, board: Pixels, damage: Damage) -> None:
    """Shade a hollow: dark on the side that turns from the light, bright on the other."""
    u, v = _centre(random)
    radius = DAMAGE_SIZE * (0.06 + 0.10 * damage.severity)
    stretch = random.uniform(0.75, 1.35)
    across, downward = (_U - u) / (radius * stretch), (_V - v) * stretch / radius
    bowl = np.exp(-0.5 * (across * across + downward * downward))
    angle = random.uniform(0.0, 2.0 * np.pi)
    tilt = across * np.cos(angle) + downward * np.sin(angle)
    depth = DENT_SHADING * (0.45 + 0.55 * damage.severity)
    shading = 1.0 - depth * bowl * (0.62 + 0.55 * np.tanh(1.6 * tilt))
    board *= np.clip(shading, 0.12, 1.5)[:, :, None]


def _polygon_coverage(corners: Pixels) -> Pixels:
    """Return the coverage of a polygon given in shares of the face, with soft edges."""
    canvas = Image.new("L", (2 * FACE_PIXELS, 2 * FACE_PIXELS))
    points = [(float(u), float(v)) for u, v in corners * (2 * FACE_PIXELS)]
    ImageDraw.Draw(canvas).polygon(points, fill=255)
    return np.asarray(canvas.reduce(2), dtype=np.float64) / 255.0


def _blend(board: Pixels, cover: Pixels, colour: Pixels) -> None:
    board += cover[:, :, None] * (colour - board)


def _paint_tear(random: np.random.Generator, board: Pixels, damage: Damage) -> None:
    """Tear a ragged hole with a pale fringe."""
    u, v = _centre(random)
    radius = DAMAGE_SIZE * (0.06 + 0.10 * damage.severity)
    count = int(random.integers(9, 15))
    angles = (np.arange(count) + random.uniform(-0.3, 0.3, count)) * (2.0 * np.pi / count)
    reach = radius * random.uniform(0.45, 1.45, count)
    turn, flatness = random.uniform(0.0, np.pi), random.uniform(0.5, 0.9)
    x, y = np.cos(angles) * reach, np.sin(angles) * reach * flatness
    shape = np.stack([x * np.cos(turn) - y * np.sin(turn), x * np.sin(turn) + y * np.cos(turn)], 1)
    place = np.array([u, v])
    _blend(board, 0.55 * _polygon_coverage(place + 1.22 * shape), np.array([214.0, 184.0, 146.0]))
    _blend(board, 0.95 * _polygon_coverage(place + shape), _TORN_BOARD)


def _paint_wet(random: np.random.Generator, board: Pixels, damage: Damage) -> None:
    """Soak a dark patch of ragged outline, darkest along its rim."""
    u, v = _centre(random)
    radius = DAMAGE_SIZE * (0.12 + 0.16 * damage.severity)
    distance = np.sqrt((_U - u) ** 2 + (_V - v) ** 2) / radius
    level = 1.0 - distance + 0.28 * soft_noise(random, 6, FACE_PIXELS)
    soaked = np.clip(level * 6.0, 0.0, 1.0)
    rim = np.exp(-((level - 0.08) ** 2) / 0.006)
    strength = WET_SHADING * (0.55 + 0.45 * damage.severity)
    tint = np.array([0.92, 1.0, 1.06])
    board *= 1.0 - (strength * (0.85 * soaked + 0.18 * rim))[:, :, None] * tint


def _paint_open_seam(random: np.random.Generator, board: Pixels, damage: Damage) -> None:
    """Open a long gap between two flaps, one of them lifted into the light."""
    u, v = _centre(random)
    length = DAMAGE_SIZE * (0.16 + 0.16 * damage.severity)
    width = DAMAGE_SIZE * (0.018 + 0.050 * damage.severity)
    turn = random.normal(0.0, 0.18)
    bend = random.uniform(-0.25, 0.25)
    x = np.linspace(-1.0, 1.0, 13)
    profile = width * np.sqrt(1.0 - x * x) * random.uniform(0.75, 1.15, 13)
    spine = bend * length * (x * x - 0.5) * 0.4

    def lens(scale: float, shift: float) -> Pixels:
        upper = np.stack([x * length, spine - profile * scale + shift], 1)
        lower = np.stack([x * length, spine + profile * scale + shift], 1)[::-1]
        shape = np.concatenate([upper, lower])
        a, b = shape[:, 0], shape[:, 1]
        turned = [a * np.cos(turn) - b * np.sin(turn), a * np.sin(turn) + b * np.cos(turn)]
        return _polygon_coverage(np.array([u, v]) + np.stack(turned, 1))

    _blend(board, 0.45 * lens(1.7, -0.4 * width), np.array([222.0, 190.0, 150.0]))
    _blend(board, 0.95 * lens(1.0, 0.0), 0.75 * _TORN_BOARD)


def _cut_corner(random: np.random.Generator, board: Pixels, face: int, scene: Scene) -> Pixels:
    """Crease the board beside the crushed corner and return what is left of the face."""
    assert scene.damage is not None
    corner = scene.damage.place
    before, after, down = cut_shares(scene)
    if face == TOP_FACE:
        on_right, on_bottom = corner in {1, 2}, corner in {0, 1}
        cut_u, cut_v = (after, before) if corner % 2 == 0 else (before, after)
    elif face == corner:
        on_right, on_bottom, cut_u, cut_v = False, False, after, down
    elif face == (corner - 1) % CORNER_COUNT:
        on_right, on_bottom, cut_u, cut_v = True, False, before, down
    else:
        return np.ones((FACE_PIXELS, FACE_PIXELS))
    from_u = 1.0 - _U if on_right else _U
    from_v = 1.0 - _V if on_bottom else _V
    reach = from_u / cut_u + from_v / cut_v + 0.05 * soft_noise(random, 9, FACE_PIXELS)
    dark = np.exp(-(((reach - 1.16) / 0.10) ** 2))
    bright = np.exp(-(((reach - 1.42) / 0.12) ** 2))
    board *= 1.0 + CREASE * (0.07 * bright - 0.13 * dark)[:, :, None]
    return np.clip((reach - 1.0) * min(cut_u, cut_v) * FACE_PIXELS, 0.0, 1.0)


_PAINTERS: dict[str, Callable[[np.random.Generator, Pixels, Damage], None]] = {
    "dent": _paint_dent,
    "tear": _paint_tear,
    "wet": _paint_wet,
    "open_seam": _paint_open_seam,
}
