"""Photos that look like copies of each other and lie in two parts: reported, never judged.

So are copies in two tranches of a holdout, or in one that an earlier search has spent.

An identical image links its shipments, whatever its name (see `split`). One that was encoded or
scaled anew has other pixels and links nothing: whether it is a copy is for a person to say. Of
noisy photos copies may be missed, and two photos of one still scene may be named.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from parcel_assets.core.ports import Pixels
from parcel_assets.core.snapshot import Photo
from parcel_assets.core.stage import Record

GRID_CELLS = 8  # a side; the mean of a cell forgets what encoding does to single pixels
# of 255: how far each cell of a copy may be from its original's. Of 250 real photos of one belt,
# copies at two thirds of the size and JPEG quality 60 differed by up to 5.1, any two others by 7.4
ALIKE_LEVELS = 5.5
CHUNK_PHOTOS = 1024
LISTED_MAXIMUM = 100

Looks = npt.NDArray[np.float32]


class NearCopy(Record):
    """Two photos that look alike, in two parts or two tranches of the holdout."""

    photo: str
    part: str
    other: str
    other_part: str


def looks_of(pixels: Pixels) -> Looks:
    """Return the mean colours of a grid over each photo, (photos, cells * cells * 3)."""
    side = pixels.shape[1]
    edges = np.linspace(0, side, GRID_CELLS, endpoint=False).astype(np.int64)
    sizes = np.diff([*edges, side]).astype(np.float32)
    looks = []
    for start in range(0, len(pixels), CHUNK_PHOTOS):
        chunk = pixels[start : start + CHUNK_PHOTOS].astype(np.float32)
        sums = np.add.reduceat(np.add.reduceat(chunk, edges, axis=1), edges, axis=2)
        means = sums / (sizes[:, None, None] * sizes[None, :, None])
        looks.append(means.reshape(len(chunk), -1))
    return np.concatenate(looks) if looks else np.zeros((0, GRID_CELLS**2 * 3), dtype=np.float32)


def near_copies(
    photos: Sequence[Photo], pixels: Pixels, place_of: Mapping[str, str]
) -> tuple[NearCopy, ...]:
    """Return pairs of photos that look alike across parts; `place_of` is by shipment."""
    looks = looks_of(pixels)
    members: defaultdict[str, list[int]] = defaultdict(list)
    for number, photo in enumerate(photos):
        if photo.shipment_id in place_of:
            members[place_of[photo.shipment_id]].append(number)
    trees = {part: cKDTree(looks[numbers]) for part, numbers in members.items()}
    found = []
    for one, other in combinations(sorted(members), 2):
        pairs = trees[one].query_ball_tree(trees[other], ALIKE_LEVELS, p=np.inf)
        found += [
            NearCopy(
                photo=photos[members[one][mine]].photo_id,
                part=one,
                other=photos[members[other][theirs]].photo_id,
                other_part=other,
            )
            for mine, alike in enumerate(pairs)
            for theirs in sorted(alike)
        ]
    return tuple(found)
