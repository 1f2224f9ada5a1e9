"""A box in front of a camera: which faces and corners are seen, and where they fall in the photo.

Decides projection and visibility in plain float arithmetic (no linear algebra library, whose last
bits differ between processors). What is painted on a face is left to `sample_carton`.

Axes: x and y lie on the floor, z points up. Corners of the top are numbered 0 to 3 anticlockwise,
seen from above; side face i reaches from corner i to corner i + 1; face 4 is the top.
"""

import math
from dataclasses import dataclass

Vector = tuple[float, float, float]
Point = tuple[float, float]
Size = tuple[float, float, float]

IMAGE_PIXELS = 64
CORNER_COUNT = 4
TOP_FACE = 4
ALL_FACES = (0, 1, 2, 3, TOP_FACE)
VISIBLE_COSINE = 0.15  # a face seen flatter than this shows nothing a reviewer could judge
DISTANCE = 4.5  # in half diagonals of the box: a mild perspective
CORNER_SIGNS = ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0))
SIDE_NORMALS: tuple[Vector, ...] = ((0, -1, 0), (1, 0, 0), (0, 1, 0), (-1, 0, 0))


@dataclass(frozen=True)
class Pose:
    """A camera: where it stands, its three axes, and its lens in pixels."""

    position: Vector
    right: Vector
    down: Vector
    forward: Vector
    focal_pixels: float
    centre: Point


def dot(a: Vector, b: Vector) -> float:
    """Return the scalar product."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def along(start: Vector, end: Vector, share: float) -> Vector:
    """Return the point that lies at this share of the way."""
    return (
        start[0] + (end[0] - start[0]) * share,
        start[1] + (end[1] - start[1]) * share,
        start[2] + (end[2] - start[2]) * share,
    )


def _plus(a: Vector, b: Vector) -> Vector:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def _minus(a: Vector, b: Vector) -> Vector:
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


def _cross(a: Vector, b: Vector) -> Vector:
    return (
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    )


def _scaled(a: Vector, factor: float) -> Vector:
    return a[0] * factor, a[1] * factor, a[2] * factor


def pose_camera(
    size: Size, *, yaw: float, pitch: float, roll: float, fill: float, offset: Point
) -> Pose:
    """Aim a camera at the middle of the box; its diagonal spans `fill` of the photo's diagonal."""
    outward = (
        math.cos(pitch) * math.cos(yaw),
        math.cos(pitch) * math.sin(yaw),
        math.sin(pitch),
    )
    forward = _scaled(outward, -1.0)
    right = (-math.sin(yaw), math.cos(yaw), 0.0)
    down = _cross(forward, right)
    sine, cosine = math.sin(roll), math.cos(roll)
    radius = 0.5 * math.sqrt(dot(size, size))
    half = IMAGE_PIXELS / 2
    return Pose(
        position=_scaled(outward, DISTANCE * radius),
        right=_plus(_scaled(right, cosine), _scaled(down, sine)),
        down=_plus(_scaled(down, cosine), _scaled(right, -sine)),
        forward=forward,
        focal_pixels=fill * half * math.sqrt(2.0) * DISTANCE,
        centre=(half + offset[0], half + offset[1]),
    )


def project(pose: Pose, point: Vector) -> Point:
    """Return where a point falls in the photo, in pixels."""
    ray = _minus(point, pose.position)
    scale = pose.focal_pixels / dot(ray, pose.forward)
    return (
        pose.centre[0] + scale * dot(ray, pose.right),
        pose.centre[1] + scale * dot(ray, pose.down),
    )


def top_corner(size: Size, corner: int) -> Vector:
    """Return a corner of the top."""
    sign_x, sign_y = CORNER_SIGNS[corner % CORNER_COUNT]
    return 0.5 * size[0] * sign_x, 0.5 * size[1] * sign_y, 0.5 * size[2]


def bottom_corner(size: Size, corner: int) -> Vector:
    """Return a corner of the bottom."""
    x, y, z = top_corner(size, corner)
    return x, y, -z


def face_frame(size: Size, face: int) -> tuple[Vector, Vector, Vector]:
    """Return a face's upper left corner and its two edges, as seen from outside."""
    if face == TOP_FACE:
        start = top_corner(size, 3)
        return start, _minus(top_corner(size, 2), start), _minus(top_corner(size, 0), start)
    start = top_corner(size, face)
    return (
        start,
        _minus(top_corner(size, face + 1), start),
        _minus(bottom_corner(size, face), start),
    )


def face_normal(face: int) -> Vector:
    """Return the direction a face looks to."""
    return (0.0, 0.0, 1.0) if face == TOP_FACE else SIDE_NORMALS[face]


def _facing_cosine(size: Size, pose: Pose, face: int) -> float:
    start, across, downward = face_frame(size, face)
    middle = _plus(start, _scaled(_plus(across, downward), 0.5))
    ray = _minus(pose.position, middle)
    return dot(ray, face_normal(face)) / math.sqrt(dot(ray, ray))


def drawn_faces(size: Size, pose: Pose) -> list[int]:
    """Return the faces turned towards the camera at all; on a box they never overlap."""
    return [face for face in ALL_FACES if _facing_cosine(size, pose, face) > 0.0]


def face_is_visible(size: Size, pose: Pose, face: int) -> bool:
    """Return whether damage on this face can be judged from here."""
    return _facing_cosine(size, pose, face) > VISIBLE_COSINE


def corner_is_visible(size: Size, pose: Pose, corner: int) -> bool:
    """Return whether the cut across this corner is turned towards the camera."""
    sign_x, sign_y = CORNER_SIGNS[corner]
    third = 1.0 / math.sqrt(3.0)
    ray = _minus(pose.position, top_corner(size, corner))
    cosine = dot(ray, (sign_x * third, sign_y * third, third)) / math.sqrt(dot(ray, ray))
    return cosine > VISIBLE_COSINE


def texture_coefficients(size: Size, pose: Pose, face: int, pixels: int) -> tuple[float, ...]:
    """Return the eight numbers that take a photo's pixel to a pixel of this face's texture.

    A face is flat, so this is the inverse of a 3 x 3 matrix, written out by cofactors.
    """
    start, across, downward = face_frame(size, face)

    def column(vector: Vector) -> Vector:
        depth = dot(vector, pose.forward)
        return (
            pose.focal_pixels * dot(vector, pose.right) + pose.centre[0] * depth,
            pose.focal_pixels * dot(vector, pose.down) + pose.centre[1] * depth,
            depth,
        )

    u, v, origin = column(across), column(downward), column(_minus(start, pose.position))
    row_u, row_v, row_w = _cross(v, origin), _cross(origin, u), _cross(u, v)
    scale = 1.0 / row_w[2]
    margin = 1.0  # the texture has one transparent pixel around it, which softens the edge
    mapped_u = tuple((pixels * a + margin * w) * scale for a, w in zip(row_u, row_w, strict=True))
    mapped_v = tuple((pixels * a + margin * w) * scale for a, w in zip(row_v, row_w, strict=True))
    return (*mapped_u, *mapped_v, row_w[0] * scale, row_w[1] * scale)
