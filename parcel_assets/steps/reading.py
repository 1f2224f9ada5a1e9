"""What an archive holds now: read whole, or looked at a second time without decoding.

Decides when a second look is enough (same table rows, same file digests, same labels) and how a
changed archive is told; what is then recorded or refused is left to `steps.data`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parcel_assets.core.codec import digest_value, short
from parcel_assets.core.errors import ArchiveError, SnapshotChangedError
from parcel_assets.core.plan import SnapshotPlan
from parcel_assets.core.ports import ListedPhoto, Pixels, Ports
from parcel_assets.core.snapshot import BadRow, Label, Photo, snapshot_digest
from parcel_assets.steps.custody import Custody

ROWS_IN_MESSAGE = 10

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Reading:
    """An archive's content under one digest; `pixels` is None where none are kept."""

    digest: str
    photos: tuple[Photo, ...]
    labels: tuple[Label, ...]
    bad_rows: tuple[BadRow, ...]
    decode_version: str
    photos_document: str  # store digest
    pixels: Pixels | None


def read_archive(
    section: SnapshotPlan, side_pixels: int, ports: Ports, progress: Progress | None = None
) -> Reading:
    """Read the archive whole, and keep with the custodian what the split will need.

    Raises ArchiveError with every refused row where the plan says that bad rows refuse, or where no
    photo is left.
    """
    source = ports.open_source(section, side_pixels)
    content = source.read(progress)
    if content.bad_rows and section.bad_rows == "refuse":
        raise refused_rows(section, content.bad_rows)
    if not content.photos:
        raise ArchiveError(
            f"no photo ({len(content.bad_rows)} rows refused)",
            expected="photos",
            where=f"archive {section.archive}",
            remedy="Mend the label table, or check snapshot.location in the plan.",
            rows=[row.document() for row in content.bad_rows],
        )
    digest = snapshot_digest(content.photos, section.labels.model_dump(mode="json"))
    custody = Custody(ports.custodian)
    listing = source.listing()
    _require_still(section, content.photos, listing)
    photos_document = ports.store.put_document([photo.document() for photo in content.photos])
    earlier = (custody.manifest(digest) or {"pixels": {}})["pixels"]
    manifest = {
        "photos_document": photos_document,
        "bad_rows": [row.document() for row in content.bad_rows],
        "decode_version": source.decode_version,
        "listing": _listing_digest(listing),
        "mark": custody.mark_of(source.read_labels()),
        "pixels": {**earlier, str(side_pixels): custody.keep_pixels(digest, content.pixels)},
    }
    custody.keep_manifest(digest, manifest)
    return Reading(
        digest,
        content.photos,
        content.labels,
        content.bad_rows,
        source.decode_version,
        photos_document,
        content.pixels,
    )


def look_again(
    section: SnapshotPlan, digest: str, side_pixels: int, ports: Ports
) -> Reading | None:
    """Return a known snapshot as the archive holds it now, without decoding; None where it differs.

    None as well where the custodian knows nothing of the snapshot, or the decoder has changed.
    """
    custody = Custody(ports.custodian)
    manifest = custody.manifest(digest)
    source = ports.open_source(section, side_pixels)
    if manifest is None or manifest["decode_version"] != source.decode_version:
        return None
    labels = source.read_labels()
    same_labels = custody.mark_of(labels) == manifest["mark"]
    if not same_labels or _listing_digest(source.listing()) != manifest["listing"]:
        return None
    photos = read_photos(ports, manifest["photos_document"])
    ids = {photo.photo_id for photo in photos}
    return Reading(
        digest,
        photos,
        tuple(label for label in labels if label.photo_id in ids),
        tuple(BadRow.model_validate(row) for row in manifest["bad_rows"]),
        source.decode_version,
        manifest["photos_document"],
        custody.pixels(digest, side_pixels, manifest["pixels"].get(str(side_pixels))),
    )


def read_photos(ports: Ports, document: str) -> tuple[Photo, ...]:
    """Return the photos of a stored manifest."""
    return tuple(Photo.model_validate(one) for one in ports.store.get_document(document))


def labels_changed(section: SnapshotPlan) -> SnapshotChangedError:
    """Return the refusal of labels that are not those which were committed to."""
    return SnapshotChangedError(
        "the pinned photos with other labels",
        expected="the labels that were there when the snapshot was pinned",
        where=f"archive {section.archive}",
        remedy="Restore the label table, or plan a new search revision for the new labels.",
        rows=[],
    )


def archive_changed(
    section: SnapshotPlan, pinned: str, now: Reading, ports: Ports
) -> SnapshotChangedError:
    """Return the refusal of an archive that is not what was pinned, with counts where known."""
    manifest = Custody(ports.custodian).manifest(pinned)
    facts: dict[str, Any] = {"pinned": pinned, "found_digest": now.digest}
    if manifest is None:
        words = "what changed is not known, since this machine never read the pinned archive"
    else:
        facts |= _differences(read_photos(ports, manifest["photos_document"]), now.photos)
        words = ", ".join(f"{facts[kind]} {kind}" for kind in ("added", "removed", "changed"))
    return SnapshotChangedError(
        f"digest {short(now.digest)} ({words})",
        expected=f"the pinned digest {short(pinned)}",
        where=f"archive {section.archive}",
        remedy="Restore the pinned archive, or pin the new one under a new search revision with: "
        f'digest = "{now.digest}"',
        rows=[],
        **facts,
    )


def refused_rows(section: SnapshotPlan, rows: Sequence[BadRow]) -> ArchiveError:
    """Return the refusal of an archive with bad rows: the first in words, all of them as facts."""
    files = len({row.file for row in rows})
    listed = [
        f"{row.file}, row {row.row}, {row.column}: found {row.found}; expected {row.expected}. "
        f"{row.remedy}"
        for row in rows[:ROWS_IN_MESSAGE]
    ]
    if len(rows) > ROWS_IN_MESSAGE:
        listed.append(f"and {len(rows) - ROWS_IN_MESSAGE} more")
    kinds = Counter(row.column for row in rows)
    return ArchiveError(
        f"{len(rows)} faults in {files} photos:\n  " + "\n  ".join(listed) + "\n",
        expected="no bad row (snapshot.bad_rows is refuse)",
        where=f"archive {section.archive}",
        remedy='Mend these rows, or set bad_rows = "leave_out" in the plan to count them out.',
        rows=[row.document() for row in rows],
        by_column=dict(sorted(kinds.items())),
    )


def _differences(before: Sequence[Photo], after: Sequence[Photo]) -> Mapping[str, int]:
    old = {photo.photo_id: photo for photo in before}
    new = {photo.photo_id: photo for photo in after}
    return {
        "added": len(new.keys() - old.keys()),
        "removed": len(old.keys() - new.keys()),
        "changed": sum(old[one] != new[one] for one in old.keys() & new.keys()),
    }


def _require_still(
    section: SnapshotPlan, photos: Sequence[Photo], listing: Sequence[ListedPhoto]
) -> None:
    """Raise SnapshotChangedError where files changed while they were read."""
    now = {one.photo_id: one.file_digest for one in listing}
    moved = [one.photo_id for one in photos if now.get(one.photo_id) != one.file_digest]
    if moved:
        raise SnapshotChangedError(
            f"{len(moved)} photos that changed while they were read, {moved[0]} among them",
            expected="an archive that stands still",
            where=f"archive {section.archive}",
            remedy="Wait until the copying has ended, and run again.",
            rows=[],
        )


def _listing_digest(listing: Sequence[ListedPhoto]) -> str:
    return digest_value(
        [[one.photo_id, one.shipment_id, dict(one.attributes), one.file_digest] for one in listing]
    )
