"""What became of every holdout: who sealed, opened and spent which shipments, over all searches.

Reads ledgers, evidence and receipts and writes nothing. What follows for a split is decided in
core.tranches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parcel_assets.core.errors import ParcelAssetsError, StorageError
from parcel_assets.core.holdout import first_openers, spent_shipments
from parcel_assets.core.ledger import Event, Kind, evidence_digests, last_of
from parcel_assets.core.plan import ParentPlan, Plan
from parcel_assets.core.plan_reader import plan_from_fields
from parcel_assets.core.ports import Ports
from parcel_assets.core.snapshot import Photo
from parcel_assets.core.stage import Stage
from parcel_assets.core.tranches import HoldoutClaim, holdout_rows

UNKNOWN = "?"  # the archive of a search whose plan cannot be read


@dataclass(frozen=True, slots=True)
class RevisionLine:
    """One search revision in a list of all: what it follows, why, and its claim on a holdout."""

    revision: str
    archive: str
    began_at: float | None  # None where its plan cannot be read
    parent: ParentPlan | None
    claim: HoldoutClaim
    packet_digest: str | None


def holdout_claims(ports: Ports) -> tuple[HoldoutClaim, ...]:
    """Return the claim of every search revision, in order of their first event."""
    return tuple(one.claim for one in revision_lines(ports))


def revision_lines(ports: Ports) -> tuple[RevisionLine, ...]:
    """Return every search revision, abandoned ones too, in order of their first event.

    One whose plan cannot be read hides no other: what it claims is unknown, in any archive.
    """
    lines = []
    for revision in ports.ledger.revisions():
        try:
            line = _line(revision, ports)
        except ParcelAssetsError as error:
            claim = HoldoutClaim(revision, UNKNOWN, fault=str(error))
            line = RevisionLine(revision, UNKNOWN, None, None, claim, None)
        if line is not None:
            lines.append(line)
    return tuple(lines)


def _line(revision: str, ports: Ports) -> RevisionLine | None:
    events = ports.ledger.events(revision)
    frozen = last_of(events, Kind.PLAN_FROZEN)
    if frozen is None:
        return None  # no chain begins otherwise; `ledger verify` tells of one that does
    plan = plan_from_fields(frozen.body["plan"], where=f"frozen plan of {revision}")
    published = last_of(events, Kind.PACKET_PUBLISHED)
    return RevisionLine(
        revision=revision,
        archive=plan.snapshot.archive,
        began_at=frozen.at_seconds,
        parent=plan.parent,
        claim=_claim(revision, plan, events, ports),
        packet_digest=None if published is None else str(published.body["packet_digest"]),
    )


def spent_before(
    revision: str, archive: str, photos: Sequence[Photo], ports: Ports
) -> dict[str, str]:
    """Return shipment -> other revision that opened it, or a photo of it, after all records."""
    rows = [
        {"shipment_id": photo.shipment_id, "pixel_digest": photo.pixel_digest} for photo in photos
    ]
    keys = [f"shipment:{archive}/{photo.shipment_id}" for photo in photos]
    keys += [f"image:{photo.pixel_digest}" for photo in photos]
    openers = first_openers(keys, ports.ledger.opened_by(keys), ports.vault.receipts_over(keys))
    spent = spent_shipments(archive, rows, openers)
    return {one: by for one, by in spent.items() if by != revision}


def holdout_status(ports: Ports, archive: str | None = None) -> list[dict[str, Any]]:
    """Return, by archive, the rows that tell of unseen, sealed, opened and spent shipments."""
    claims = holdout_claims(ports)
    # with nothing else to show, what cannot be read is shown alone
    names = sorted({one.archive for one in claims} - {UNKNOWN}) or sorted(
        {one.archive for one in claims}
    )
    return [
        {
            "archive": name,
            "rows": holdout_rows(
                ports.ledger.assignments(name),
                ports.ledger.tranches(name),
                [one for one in claims if one.archive == name],
            ),
            "faults": [
                {"revision": one.revision, "fault": one.fault}
                for one in claims
                if one.archive in {name, UNKNOWN} and one.fault
            ],
        }
        for name in names
        if archive in {None, name}
    ]


def _claim(revision: str, plan: Plan, events: Sequence[Event], ports: Ports) -> HoldoutClaim:
    archive = plan.snapshot.archive
    sealed = last_of(events, Kind.HOLDOUT_SEALED)
    split = evidence_digests(events).get(str(Stage.SPLIT))
    decided = last_of(events, Kind.DECISION_RECORDED)
    ended = last_of(events, Kind.SEARCH_CLOSED) is not None
    ended |= decided is not None and decided.body["outcome"] == "close"
    if split is None and sealed is None:
        return HoldoutClaim(revision, archive, ended=ended)
    opened, judged = (last_of(events, k) for k in (Kind.HOLDOUT_OPENED, Kind.HOLDOUT_EVALUATED))
    try:
        shipments, tranche, reserved = (
            _sealed_shares(archive, sealed, ports) if split is None else _shares(split, ports)
        )
    except StorageError as error:  # one that cannot be read must not hide the others
        return HoldoutClaim(revision, archive, fault=str(error))
    return HoldoutClaim(
        revision,
        archive,
        shipments=shipments,
        tranche=tranche,
        reserved=reserved,
        # a split on record is a sealed one
        sealed_at=events[0].at_seconds if sealed is None else sealed.at_seconds,
        opened_at=None if opened is None else opened.at_seconds,
        judged_at=None if judged is None else judged.at_seconds,
        ended=ended,
    )


def _sealed_shares(
    archive: str, sealed: Event | None, ports: Ports
) -> tuple[tuple[str, ...], int | None, dict[int, tuple[str, ...]]]:
    """Return what a split that died between seal and record has claimed, by the register.

    Without a tranche it is all of the holdout that was never dealt to one.
    """
    tranche = None if sealed is None else sealed.body.get("tranche")
    dealt = ports.ledger.tranches(archive)
    holdout = [one for one, part in ports.ledger.assignments(archive).items() if part == "holdout"]
    return tuple(sorted(one for one in holdout if dealt.get(one) == tranche)), tranche, {}


def _shares(
    evidence: str, ports: Ports
) -> tuple[tuple[str, ...], int | None, dict[int, tuple[str, ...]]]:
    """Return a split's own holdout shipments, its tranche, and those reserved for later."""
    body = ports.store.get_document(evidence)["body"]
    assignment = ports.store.get_document(body["assignment_document"])
    own = assignment.get("tranche")
    if own is None:
        return tuple(assignment["parts"]["holdout"]), None, {}
    tranches = {int(one): tuple(members) for one, members in assignment["tranches"].items()}
    kept = {number: tranches[number] for number in assignment["reserved"]}
    return tranches.get(own, ()), int(own), kept
