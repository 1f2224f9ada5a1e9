"""Columns of photos that statistics read: a row for each photo, checked, in double precision.

What the numbers say is left to the modules that use them.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parcel_assets.core.errors import EvidenceError

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
Codes = NDArray[np.intp]


def refusal(found: str, expected: str, where: str, remedy: str) -> EvidenceError:
    """Return the error for arrays that cannot carry a statement."""
    return EvidenceError(found, expected=expected, where=where, remedy=remedy)


def shipment_codes(shipments: ArrayLike) -> Codes:
    """Return codes 0…G-1 for shipments named by text or whole numbers."""
    names = np.asarray(shipments)
    if names.dtype.kind == "O" and all(isinstance(name, str) for name in names.flat):
        names = names.astype(str)
    if names.ndim != 1 or names.dtype.kind not in "iuUT":
        raise refusal(
            f"an array of {names.dtype} with {names.ndim} dimensions",
            "one shipment (text or whole number) for each photo",
            "shipments",
            "Pass the shipment column without missing values.",
        )
    if names.dtype.kind in "iu" and len(names) and names.min() >= 0 and names.max() < len(names):
        present = np.zeros(int(names.max()) + 1, dtype=np.bool_)  # codes already: no sorting
        present[names] = True
        numbers: Codes = np.cumsum(present, dtype=np.intp) - 1
        codes: Codes = numbers[names]
        return codes
    _, places = np.unique(names, return_inverse=True)
    return places.astype(np.intp, copy=False)


def codes_of(shipments: ArrayLike, photos: int) -> Codes:
    """Return shipment codes (photos,); raises EvidenceError for another length."""
    codes = shipment_codes(shipments)
    if len(codes) != photos:
        raise refusal(
            f"{len(codes)} shipments",
            f"one for each of {photos} photos",
            "shipments",
            "Pass the columns of the same photos in the same order.",
        )
    return codes


def flags(values: ArrayLike, name: str, photos: int | None = None) -> Booleans:
    """Return one boolean for each photo, refusing any other type or length."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind != "b" or photos not in (None, len(array)):
        raise refusal(
            f"{array.dtype} of shape {array.shape}",
            f"booleans, one for each of {'the' if photos is None else photos} photos",
            name,
            "Pass decisions and labels as booleans in the order of the photos.",
        )
    return array


def finite(values: ArrayLike, name: str) -> Floats:
    """Return finite numbers as double precision, refusing NaN, infinity and an empty array."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu" or array.size == 0 or not np.isfinite(array).all():
        raise refusal(
            f"{array.dtype} of shape {array.shape}, or a value that is not finite",
            "at least one finite number and nothing else",
            name,
            "A trial with such values does not rank; leave it out.",
        )
    return array.astype(np.float64)


def scores_of(scores: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Return finite scores of the given shape; raises EvidenceError otherwise."""
    values = finite(scores, "scores")
    if values.ndim != len(shape) or values.shape[-1] != shape[-1]:
        raise refusal(
            f"scores of shape {values.shape}",
            f"{shape[-1]} photos in {len(shape)} dimension(s)",
            "scores",
            "Pass the columns of the same photos in the same order.",
        )
    return values


def require_damage(damaged: Booleans, where: str) -> None:
    """Refuse labels without a single damaged photo: no miss could show."""
    if not damaged.any():
        raise refusal(
            f"no damaged photo among {len(damaged)} photos",
            "at least one damaged photo",
            where,
            "Nothing can be said about missed damage here; add damaged shipments.",
        )
