"""The parts that `steps.data` deals: their labels checked, written once, the holdout's sealed.

Decides what leaves the custodian: labelled rows of train and validation, the holdout's rows without
labels, and pictures whose captions tell no label that could be a holdout's.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from parcel_assets.core.errors import SplitError
from parcel_assets.core.evidence import ArrayPart
from parcel_assets.core.holdout import holdout_digest, holdout_keys
from parcel_assets.core.ledger import Kind, last_of
from parcel_assets.core.plan import Plan
from parcel_assets.core.ports import Pixels, Ports, Sealed
from parcel_assets.core.slice_plan import MinimumSupport
from parcel_assets.core.snapshot import Label, Photo
from parcel_assets.core.split import (
    PARTS,
    Assignment,
    assign_components,
    find_components,
    photo_row,
)
from parcel_assets.core.stage import Stage
from parcel_assets.core.tranches import deal_tranches, require_own_tranche, taken_shipments
from parcel_assets.steps.admission import StageSession, leased
from parcel_assets.steps.custody import Custody, write_pixels
from parcel_assets.steps.holdouts import UNKNOWN, holdout_claims, spent_before
from parcel_assets.steps.reading import Reading, archive_changed, labels_changed, read_archive

SHEET_PHOTOS = 24
SHEET_COLUMNS = 8
SHEET_TYPES = 10  # kinds of damage on a split's sheet, one row of photos each

Pairs = dict[str, list[tuple[Photo, Label]]]


def photo_progress(ports: Ports, session: StageSession | None = None) -> Callable[[int, int], None]:
    """Return a listener that tells of photos read, and keeps the stage's lease alive."""

    def tell(done: int, total: int) -> None:
        if session is not None:
            ports.ledger.renew(session.lease)
        facts = {"stage": str(Stage.SNAPSHOT), "done": done, "total": total, "unit": "photos"}
        ports.notify("progress", facts)

    return tell


def committed_labels(
    session: StageSession, photos: Sequence[Photo], commitment: str, custody: Custody
) -> list[Label]:
    """Return the labels as the table has them now, if they are those that the pin committed to.

    Raises SnapshotChangedError where they are not, SplitError where the salt is gone.
    """
    plan, ports = session.chain.plan, session.ports
    source = ports.open_source(plan.snapshot, plan.preprocess.image_size_pixels)
    now = {label.photo_id: label for label in source.read_labels()}
    labels = [now[photo.photo_id] for photo in photos if photo.photo_id in now]
    found = custody.commitment_of(session.chain.revision, labels)
    if found is None:
        raise SplitError(
            "no salt for the label commitment",
            expected="the salt that the pin left in the custodian's folder",
            where=f"custodian's folder, {session.chain.revision}",
            remedy="Materialize pinned_snapshot again: it commits to the labels anew.",
        )
    if found != commitment:
        raise labels_changed(plan.snapshot)
    return labels


@contextmanager
def dealing(session: StageSession) -> Iterator[Callable[[], None]]:
    """Keep an archive's tranches to one split at a time, from the look at claims to the seal.

    Yields what proves, just before the seal goes on record, that nobody has taken over. Raises
    LeaseHeldError while another split is at it: two searches must not get the same tranche.
    """
    plan, ports = session.chain.plan, session.ports
    if plan.split.holdout_tranches is None:
        yield lambda: None
        return
    name = f"tranches of {plan.snapshot.archive}"
    with leased(ports, name, f"split of {session.chain.revision}") as lease:
        yield lambda: ports.ledger.renew(lease)


def assign_shipments(session: StageSession, photos: Sequence[Photo]) -> Assignment:
    """Deal components to parts, and enter them in the archive's register (D3)."""
    plan, ledger = session.chain.plan, session.ports.ledger
    archive = plan.snapshot.archive
    components = find_components(photos)
    assignment = assign_components(components, plan.split, ledger.assignments(archive))
    if plan.split.holdout_tranches is not None:
        assignment = _deal(session, assignment, photos)
    ledger.assign(session.lease, archive, assignment.part_of, assignment.tranche_of)
    return assignment


def _deal(session: StageSession, assignment: Assignment, photos: Sequence[Photo]) -> Assignment:
    """Deal the holdout to tranches; a split that died after its seal keeps the tranche it had."""
    chain, ports = session.chain, session.ports
    archive, revision = chain.plan.snapshot.archive, chain.revision
    claims = [one for one in holdout_claims(ports) if one.archive in {archive, UNKNOWN}]
    holdout = set(assignment.parts["holdout"])
    inside = [photo for photo in photos if photo.shipment_id in holdout]
    taken = taken_shipments(revision, claims, spent_before(revision, archive, inside, ports))
    sealed = last_of(chain.events, Kind.HOLDOUT_SEALED)
    dealt = deal_tranches(
        assignment,
        chain.plan.split,
        ports.ledger.tranches(archive),
        taken,
        own=None if sealed is None else sealed.body.get("tranche"),
    )
    require_own_tranche(dealt, claims, f"split of {revision}")
    return dealt


def pairs_by_part(
    photos: Sequence[Photo], labels: Sequence[Label], assignment: Assignment
) -> Pairs:
    """Return each part's photos with their labels, in photo order.

    Quarantined ones are in none; where there are tranches, the holdout is the search's own.
    """
    part_of = assignment.part_of
    if assignment.tranche is not None:
        own = set(assignment.tranches[assignment.tranche])
        part_of = {s: part for s, part in part_of.items() if part != "holdout" or s in own}
    pairs: Pairs = {part: [] for part in PARTS}
    for photo, label in zip(photos, labels, strict=True):
        if photo.shipment_id in part_of:
            pairs[part_of[photo.shipment_id]].append((photo, label))
    return pairs


def pinned_pixels(session: StageSession, digest: str, custody: Custody) -> Pixels:
    """Return the small pixels that the pin kept, or decode the archive again."""
    plan, ports = session.chain.plan, session.ports
    side = plan.preprocess.image_size_pixels
    manifest = custody.manifest(digest) or {"pixels": {}}
    kept = custody.pixels(digest, side, manifest["pixels"].get(str(side)))
    if kept is not None:
        return kept
    reading = read_archive(plan.snapshot, side, ports, photo_progress(ports, session))
    if reading.digest != digest:
        raise archive_changed(plan.snapshot, digest, reading, ports)
    assert reading.pixels is not None  # it was read whole
    return reading.pixels


def write_parts(
    photos: Sequence[Photo], pairs: Pairs, pixels: Pixels, ports: Ports, custody: Custody
) -> dict[str, ArrayPart]:
    """Put each part's pixels and rows into the store; the holdout's rows go without labels."""
    place = {photo.photo_id: number for number, photo in enumerate(photos)}
    parts = {}
    with custody.scratch() as folder:
        for part, members in pairs.items():
            rows = np.array([place[photo.photo_id] for photo, _ in members], dtype=np.int64)
            path = folder / f"{part}.npy"
            write_pixels(path, pixels, rows)
            secret = part == "holdout"
            parts[part] = ArrayPart(
                photos=len(members),
                shipments=len({photo.shipment_id for photo, _ in members}),
                pixels=ports.store.put_file(path, ".npy"),
                rows=ports.store.put_document(
                    [photo_row(photo, None if secret else label) for photo, label in members]
                ),
            )
    return parts


def seal_reserved(
    session: StageSession, photos: Sequence[Photo], labels: Sequence[Label], assignment: Assignment
) -> tuple[dict[str, Any], ...]:
    """Seal the tranches that are kept for later searches; return what may be told of each.

    A later search that finds the same shipments there finds this very seal, so that labels changed
    in between are noticed; nothing else of these tranches is kept, no row and no pixel.
    """
    archive, told = session.chain.plan.snapshot.archive, []
    for number, shipments in assignment.reserved.items():
        inside = set(shipments)
        pairs = [
            (photo, label)
            for photo, label in zip(photos, labels, strict=True)
            if photo.shipment_id in inside
        ]
        digest = holdout_digest(holdout_keys(archive, [photo_row(one, None) for one, _ in pairs]))
        sealed = session.ports.vault.seal(digest, [label for _, label in pairs])
        told.append(
            {
                "tranche": number,
                "shipments": len(inside),
                "photos": len(pairs),
                "holdout_digest": digest,
                "commitment": sealed.commitment,
                "ciphertext_digest": sealed.ciphertext_digest,
            }
        )
    return tuple(told)


def seal_holdout(
    session: StageSession,
    digest: str,
    labels: Sequence[Label],
    *,
    tranche: int | None = None,
    reserved: Sequence[Mapping[str, Any]] = (),
    prove: Callable[[], None] = lambda: None,
) -> Sealed:
    """Seal the holdout's labels and say so in the ledger, once; the same again changes nothing."""
    sealed = session.ports.vault.seal(digest, labels)
    body: dict[str, Any] = {
        "holdout_digest": digest,
        "commitment": sealed.commitment,
        "ciphertext_digest": sealed.ciphertext_digest,
    }
    if tranche is not None:
        body["tranche"] = tranche
    before = last_of(session.chain.events, Kind.HOLDOUT_SEALED)
    if before is None:
        further = {"reserved": [dict(one) for one in reserved]} if tranche is not None else {}
        prove()
        session.ports.ledger.append(session.lease, [(Kind.HOLDOUT_SEALED, body | further)])
    elif {name: before.body.get(name) for name in body} != body:
        raise SplitError(
            f"holdout {digest[:8]} under commitment {sealed.commitment[:8]}",
            expected=f"holdout {before.body['holdout_digest'][:8]} under commitment "
            f"{before.body['commitment'][:8]}, as sealed before",
            where=f"ledger of {session.chain.revision}",
            remedy="A sealed holdout does not change. Plan a new search revision.",
        )
    return sealed


def support_minimums(plan: Plan) -> tuple[MinimumSupport, ...]:
    """Return the plan's minimums, and that no part or protected slice may be without damage.

    Without damage in it a protected slice could never pass, and the search would be for nothing. A
    plan's own minimum takes the place of that only where it asks for damage too.
    """
    own = [one for one in plan.split.minimum if one.damaged_photos]
    asked = {one.part for one in own if one.dimension is None}
    usual = [MinimumSupport(part=part, damaged_photos=1) for part in PARTS if part not in asked]
    stated = [(one.part, one.dimension, one.value, one.crossed_with) for one in own]
    protected = [
        MinimumSupport(
            part="validation",
            dimension=one.dimension,
            value=one.value,
            crossed_with=one.crossed_with,
            damaged_photos=1,
        )
        for _, one in sorted(plan.slices.items())
        if one.role == "protected"
        and ("validation", one.dimension, one.value, one.crossed_with) not in stated
    ]
    return (*usual, *protected, *plan.split.minimum)


def split_sheet(
    photos: Sequence[Photo], train: Sequence[tuple[Photo, Label]], pixels: Pixels, ports: Ports
) -> str:
    """Draw training photos, a row for each kind of damage, the commonest first."""
    place = {photo.photo_id: number for number, photo in enumerate(photos)}
    kinds = Counter(_kind(label) for _, label in train)
    chosen: list[tuple[Photo, str]] = []
    for kind, _ in kinds.most_common(SHEET_TYPES):
        of_kind = [photo for photo, label in train if _kind(label) == kind]
        chosen += [(photo, kind) for photo in of_kind[:SHEET_COLUMNS]]
    captions = [f"{kind}\n{photo.attributes.get('camera_class', '')}" for photo, kind in chosen]
    rows = np.array([place[photo.photo_id] for photo, _ in chosen], dtype=np.int64)
    sheet = ports.pictures.contact_sheet(pixels[rows], captions, SHEET_COLUMNS)
    return ports.store.put(sheet, ".png")


def _kind(label: Label) -> str:
    return label.damage_type or ("damaged" if label.damaged else "intact")


def snapshot_sheet(reading: Reading, ports: Ports) -> str:
    """Draw photos from all over the archive; a caption tells no label, it may be a holdout's."""
    assert reading.pixels is not None  # a new pin always has them
    count = min(SHEET_PHOTOS, len(reading.photos))
    chosen = np.linspace(0, len(reading.photos) - 1, count).astype(int)
    photos = [reading.photos[number] for number in chosen]
    captions = [f"{one.shipment_id}\n{one.attributes.get('camera_class', '')}" for one in photos]
    sheet = ports.pictures.contact_sheet(reading.pixels[chosen], captions, SHEET_COLUMNS)
    return ports.store.put(sheet, ".png")
