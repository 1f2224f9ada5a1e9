"""Photos, labels and the snapshot's digest; reading and decoding files is left to a source adapter.

A digest that leaves the custodian covers every image byte, every manifest field in use and the
label map, never a label: labels of few values could be guessed back from a digest.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from parcel_assets.core.codec import digest_value
from parcel_assets.core.stage import Record


class Photo(Record):
    """One photo of a snapshot, without its label."""

    photo_id: str  # the path as the table names it, which is unique
    shipment_id: str
    file_digest: str  # SHA-256 of the file's bytes
    pixel_digest: str  # SHA-256 of side lengths and full-size 8-bit RGB pixels after the EXIF turn
    width_pixels: int
    height_pixels: int
    attributes: dict[str, str]  # camera_class and the further columns, as text
    notes: tuple[str, ...] = ()  # what normalising the pixels did: "turned", "palette", …


class Label(Record):
    """One photo's label. Of a holdout photo only the custodian and the vault ever hold one."""

    photo_id: str
    damaged: bool
    damage_type: str | None = None


class BadRow(Record):
    """One refused row of an archive."""

    file: str
    row: int  # line number in the table, the header being line 1; 0 where no row is to blame
    column: str
    found: str
    expected: str
    remedy: str


class SnapshotBody(Record):
    """Evidence of `pinned_snapshot`: labels appear as counts and as a salted commitment only."""

    archive: str
    snapshot_digest: str
    photos_document: str  # store digest of the JSON list of photos, sorted by photo id
    label_commitment: str  # HMAC of all labels under the custodian's salt
    photos: int
    shipments: int
    damaged_photos: int
    bad_rows: tuple[BadRow, ...]  # left out under the plan's rule; a refusing plan leaves none
    counts: dict[str, dict[str, int]]  # dimension -> value -> photos
    contact_sheet: str  # store digest of a PNG
    decode_version: str


def snapshot_digest(photos: Iterable[Photo], label_map: Mapping[str, Any]) -> str:
    """Return the digest of photos (in any order) and of the label map, labels left out (D2)."""
    ordered = sorted(photos, key=lambda photo: photo.photo_id)
    rows = [photo.document() for photo in ordered]
    return digest_value({"photos": rows, "label_map": dict(label_map)})


def label_rows(labels: Sequence[Label]) -> list[list[Any]]:
    """Return labels as canonical rows, sorted by photo id: what a commitment covers."""
    rows = [[one.photo_id, one.damaged, one.damage_type] for one in labels]
    return sorted(rows, key=lambda row: str(row[0]))
