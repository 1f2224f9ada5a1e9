"""The custodian's stages: freeze the plan, pin the archive, split it and seal the holdout.

Everything after this file sees no holdout label. Labels leave it in three ways only: with the rows
of train and validation, as declared counts, and sealed to the vault's key-holder. Rules of the
split are in `core.split`, of rows and pixels in the source adapter.
"""

from parcel_assets.core.anchor import check_anchors
from parcel_assets.core.errors import PlanError
from parcel_assets.core.evidence import SplitBody
from parcel_assets.core.holdout import holdout_digest, holdout_keys
from parcel_assets.core.ledger import Kind, last_of
from parcel_assets.core.near_copies import LISTED_MAXIMUM, near_copies
from parcel_assets.core.plan import Plan, SnapshotPlan
from parcel_assets.core.plan_reader import check_revision_key, require_same_plan
from parcel_assets.core.ports import Ports
from parcel_assets.core.snapshot import SnapshotBody
from parcel_assets.core.split import (
    check_support,
    count_photos,
    duplicates_across_parts,
    split_digest,
)
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.core.standing import has_ended, standing_of
from parcel_assets.steps.admission import leased, load_chain, open_stage, read_anchors
from parcel_assets.steps.custody import Custody
from parcel_assets.steps.parts import (
    assign_shipments,
    committed_labels,
    dealing,
    pairs_by_part,
    photo_progress,
    pinned_pixels,
    seal_holdout,
    seal_reserved,
    snapshot_sheet,
    split_sheet,
    support_minimums,
    write_parts,
)
from parcel_assets.steps.reading import (
    Reading,
    archive_changed,
    labels_changed,
    look_again,
    read_archive,
    read_photos,
)


def register_plan(revision: str, plan: Plan, ports: Ports) -> str:
    """Freeze a plan under its search revision (S1), once; return the plan's digest.

    Raises PlanChangedError where the revision holds another plan, and PlanError for a bad name, a
    parent that cannot be followed or a plan without a pin: then with the line to add to it.
    """
    check_revision_key(revision)
    anchors = read_anchors(revision, ports)
    frozen = last_of(ports.ledger.events(revision), Kind.PLAN_FROZEN)
    if frozen is None:
        check_anchors(revision, (), anchors)  # a revision whose ledger was lost is not a fresh one
        require_usable(plan, ports)
        _require_pin(plan, ports)
        require_parent(revision, plan, ports)
        with leased(ports, revision, "register_plan") as lease:
            # another process may have been quicker
            frozen = last_of(ports.ledger.events(revision), Kind.PLAN_FROZEN)
            if frozen is None:
                body = {"plan": plan.document(), "plan_digest": plan.digest}
                ports.ledger.append(lease, [(Kind.PLAN_FROZEN, body)])
                return plan.digest
    require_same_plan(revision, frozen.body["plan"], plan)
    return str(frozen.body["plan_digest"])


def require_usable(plan: Plan, ports: Ports) -> None:
    """Raise PlanError where the plan names what no adapter here has, such as an unknown sampler.

    Once a plan is frozen it would be too late to say so.
    """
    ports.sampler(plan.search.sampler)
    ports.open_source(plan.snapshot, plan.preprocess.image_size_pixels)


def require_parent(revision: str, plan: Plan, ports: Ports) -> None:
    """Raise PlanError unless the plan's parent is an earlier search of the same archive that ended.

    Ended is what no further run of it would take on: released, rejected, closed, held for a person
    or for a new plan, stopped by a gate. A plan without a parent follows nobody.
    """
    if plan.parent is None:
        return
    parent, known = plan.parent.revision, ports.ledger.revisions()
    if parent not in known or parent == revision:
        raise _no_parent(
            revision,
            f"parent {parent!r}, which is {'the plan itself' if parent == revision else 'unknown'}",
            expected=f"an earlier search revision: {', '.join(known) or 'there is none yet'}",
            remedy="Name the revision that this search follows, or take [parent] out.",
        )
    chain = load_chain(parent, ports)
    theirs, archive = chain.plan.snapshot.archive, plan.snapshot.archive
    if theirs != archive:
        raise _no_parent(
            revision,
            f"parent {parent!r}, a search of the archive {theirs!r}",
            expected=f"an earlier search of {archive!r}, whose parts and holdouts this one shares",
            remedy="Tell of a search of another archive in `purpose`, and take [parent] out.",
        )
    standing = standing_of(chain)
    if not has_ended(standing):
        raise _no_parent(
            revision,
            f"parent {parent!r}, which has not ended: {standing.sentence}",
            expected="a search that is released, rejected, closed or held for good",
            remedy=f"Take it to its end with `parcel-assets run {parent}`, or end it for good with "
            f"`parcel-assets close {parent} --reason TEXT`; then register this plan again.",
        )


def _no_parent(revision: str, found: str, *, expected: str, remedy: str) -> PlanError:
    return PlanError(
        found,
        expected=expected,
        where=f"plan {revision}",
        remedy=remedy,
        faults=[{"path": "parent.revision", "fault": found}],
    )


def pin_archive(section: SnapshotPlan, side_pixels: int, ports: Ports) -> SnapshotBody:
    """Read an archive and return what a pin of it would say; nothing is recorded.

    Raises ArchiveError where the table cannot be read or bad rows refuse the snapshot.
    """
    reading = look_again(section, section.digest, side_pixels, ports)
    reading = reading or read_archive(section, side_pixels, ports, photo_progress(ports))
    return _snapshot_body(section, reading, commitment="", sheet="")


def pin_snapshot(revision: str, ports: Ports) -> Evidence:
    """Read the archive, compare it with the plan's pin, commit to the labels, leave the manifest.

    On evidence that is there already it is a second look: file digests, rows and labels are
    compared, and nothing is decoded unless they differ. Raises SnapshotChangedError where the
    archive is not what was pinned, ArchiveError where bad rows refuse it; neither records anything.
    """
    with open_stage(Stage.SNAPSHOT, revision, ports) as session:
        plan, custody = session.chain.plan, Custody(ports.custodian)
        _require_pin(plan, ports)
        section, side = plan.snapshot, plan.preprocess.image_size_pixels
        reading = look_again(section, section.digest, side, ports)
        if reading is None or (session.existing is None and reading.pixels is None):
            reading = read_archive(section, side, ports, photo_progress(ports, session))
        if reading.digest != section.digest:
            raise archive_changed(section, section.digest, reading, ports)
        if session.existing is not None:
            if custody.knows_other_labels(revision, reading.labels):
                raise labels_changed(section)
            # a lost salt is made anew while nothing is sealed by it
            has_salt = custody.commitment_of(revision, reading.labels) is not None
            if has_salt or Stage.SPLIT in session.chain.evidence:
                return session.existing
        return session.record(
            _snapshot_body(
                section,
                reading,
                commitment=custody.make_commitment(revision, reading.labels),
                sheet=snapshot_sheet(reading, ports),
            )
        )


def split_shipments(revision: str, ports: Ports) -> Evidence:
    """Deal components to the parts, write each part once, and seal the holdout's labels.

    A minimum of the plan that is missed is recorded, and the gate refuses what follows. Raises
    SnapshotChangedError where labels are not those of the pin, SplitError where the register or an
    earlier seal contradicts this split.
    """
    with open_stage(Stage.SPLIT, revision, ports) as session:
        plan, custody = session.chain.plan, Custody(ports.custodian)
        section, side = plan.snapshot, plan.preprocess.image_size_pixels
        if session.existing is None:
            snapshot = session.chain.snapshot
            photos = read_photos(ports, snapshot.photos_document)
            labels = committed_labels(session, photos, snapshot.label_commitment, custody)
            with dealing(session) as prove:
                assignment = assign_shipments(session, photos)
                pairs = pairs_by_part(photos, labels, assignment)
                pixels = pinned_pixels(session, snapshot.snapshot_digest, custody)
                parts = write_parts(photos, pairs, pixels, ports, custody)
                rows = ports.store.get_document(parts["holdout"].rows)
                digest = holdout_digest(holdout_keys(section.archive, rows))
                alike = near_copies(photos, pixels, assignment.place_of)
                reserved = seal_reserved(session, photos, labels, assignment)
                sealed = seal_holdout(
                    session,
                    digest,
                    [label for _, label in pairs["holdout"]],
                    tranche=assignment.tranche,
                    reserved=reserved,
                    prove=prove,
                )
            sheet = split_sheet(photos, pairs["train"], pixels, ports)
            evidence = session.record(
                SplitBody(
                    split_digest=split_digest(assignment.parts),
                    assignment_document=ports.store.put_document(assignment.document()),
                    parts=parts,
                    components=len(assignment.components),
                    linked_components=assignment.linked,
                    quarantined=assignment.quarantined_shipments,
                    counts=count_photos(pairs, plan.dimensions),
                    support=check_support(support_minimums(plan), pairs),
                    duplicate_pixels_across_parts=duplicates_across_parts(
                        {part: [photo for photo, _ in one] for part, one in pairs.items()}
                    ),
                    near_copies_across_parts=len(alike),
                    near_copies=alike[:LISTED_MAXIMUM],
                    holdout_digest=digest,
                    holdout_commitment=sealed.commitment,
                    holdout_ciphertext=sealed.ciphertext_digest,
                    contact_sheet=sheet,
                    tranche=assignment.tranche,
                    reserved=reserved,
                )
            )
        else:
            evidence = session.existing
        # sealed and recorded: what could tell a holdout label or show its photos goes now
        custody.forget_salt(revision)
        custody.forget_pixels(session.chain.snapshot.snapshot_digest, side)
        return evidence


# ---- registering and pinning ---------------------------------------------------------------------


def _require_pin(plan: Plan, ports: Ports) -> None:
    if plan.snapshot.digest:
        return
    body = pin_archive(plan.snapshot, plan.preprocess.image_size_pixels, ports)
    line = f'digest = "{body.snapshot_digest}"'
    raise PlanError(
        f"no pin; the archive holds {body.photos} photos of {body.shipments} shipments",
        expected="the digest of the archive that the search shall use",
        where="snapshot.digest",
        remedy=f"Add this line under [snapshot] in the plan: {line}",
        faults=[{"path": "snapshot.digest", "fault": f"empty; expected {line}"}],
        line=line,
    )


def _snapshot_body(
    section: SnapshotPlan,
    reading: Reading,
    *,
    commitment: str,
    sheet: str,
) -> SnapshotBody:
    pairs = list(zip(reading.photos, reading.labels, strict=True))
    return SnapshotBody(
        archive=section.archive,
        snapshot_digest=reading.digest,
        photos_document=reading.photos_document,
        label_commitment=commitment,
        photos=len(pairs),
        shipments=len({photo.shipment_id for photo in reading.photos}),
        damaged_photos=sum(label.damaged for label in reading.labels),
        bad_rows=reading.bad_rows,
        counts=count_photos({"all": pairs}, section.dimensions)["all"],
        contact_sheet=sheet,
        decode_version=reading.decode_version,
    )
