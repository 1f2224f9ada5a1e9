"""The holdout's names: the unique keys under which it is opened once, and its digest.

A shipment's key carries the archive's name, since shipment ids mean something only there. The key
of an image does not: the same pixels are spent wherever they turn up again. Opening and receipts
are left to the ledger and the vault.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from parcel_assets.core.codec import digest_value


def holdout_keys(archive: str, rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the sorted keys of holdout rows: one for each shipment and each distinct image."""
    keys = set()
    for row in rows:
        keys.add(f"shipment:{archive}/{row['shipment_id']}")
        keys.add(f"image:{row['pixel_digest']}")
    return tuple(sorted(keys))


def holdout_digest(keys: Sequence[str]) -> str:
    """Return the digest that names a holdout: of its keys, in sorted order."""
    return digest_value(sorted(keys))
