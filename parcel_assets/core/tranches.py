"""Tranches: how one archive's holdout is shared out, so that each search has a final of its own.

Every holdout component belongs to one tranche for ever, as the archive's register says. The rule: a
component that the register does not know joins, by keyed hash, one of the tranches that nobody has
opened or claimed; where none is left, all such components form a fresh one. What was opened or is
claimed outside any tranche stays aside. A component that newly joins two tranches, or a free one
and something spent, is quarantined whole. A search's own tranche is the lowest that is free.

Reading claims and openings is left to steps.holdouts, sealing and opening to the vault.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from parcel_assets.core.codec import keyed_digest
from parcel_assets.core.errors import SplitError
from parcel_assets.core.plan import SplitPlan
from parcel_assets.core.split import Assignment, Component


@dataclass(frozen=True, slots=True)
class HoldoutClaim:
    """What one search revision has of an archive's holdout, as its ledger and evidence say.

    `reserved` are the tranches that it sealed for later searches. Times are the ledger's clock in
    seconds. `ended`: closed by a person, so that an unopened tranche is free again.
    """

    revision: str
    archive: str
    shipments: tuple[str, ...] = ()
    tranche: int | None = None
    reserved: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    sealed_at: float | None = None
    opened_at: float | None = None
    judged_at: float | None = None
    ended: bool = False
    fault: str | None = None  # why its split cannot be read, so that nobody knows its shipments

    @property
    def holds(self) -> bool:
        """Whether its shipments are not free: opened, or sealed for a search that may go on."""
        return self.opened_at is not None or (self.sealed_at is not None and not self.ended)

    @property
    def state(self) -> str:
        """Whether its holdout is unseen, sealed, opened (no result yet) or spent."""
        if self.opened_at is not None:
            return "opened" if self.judged_at is None else "spent"
        return "unseen" if self.sealed_at is None else "sealed"


def taken_shipments(
    revision: str, claims: Sequence[HoldoutClaim], spent: Mapping[str, str]
) -> dict[str, str]:
    """Return shipment -> other revision that opened it or holds it sealed for itself.

    Raises SplitError where what another search has cannot be read.
    """
    unknown = [one for one in claims if one.fault and one.revision != revision]
    if unknown:
        raise SplitError(
            f"a split of {unknown[0].revision} that cannot be read: {unknown[0].fault}",
            expected="to know which holdout shipments every other search has",
            where=f"split of {revision}",
            remedy="Restore the store from a copy.",
        )
    taken = {one: by for one, by in spent.items() if by != revision}
    for claim in claims:
        if claim.revision != revision and claim.holds:
            for shipment in claim.shipments:
                taken.setdefault(shipment, claim.revision)
    return taken


def deal_tranches(
    assignment: Assignment,
    split: SplitPlan,
    register: Mapping[str, int],
    taken: Mapping[str, str],
    own: int | None = None,
) -> Assignment:
    """Return the assignment with its holdout dealt to tranches, one of them the search's own.

    `register` is shipment -> tranche as the archive knows it, `taken` shipment -> other revision;
    `own` is the tranche that this search sealed before, if it did.
    """
    closed = {register[one] for one in taken if one in register}
    highest = max([*register.values(), split.holdout_tranches or 1])
    free = [number for number in range(1, highest + 1) if number not in closed] or [highest + 1]
    dealt: defaultdict[int, list[str]] = defaultdict(list)
    torn: list[Component] = []
    holdout = set(assignment.parts["holdout"])
    for component in assignment.components:
        if component[0] not in holdout:
            continue
        known = {register[one] for one in component if one in register}
        untold = any(one in taken and one not in register for one in component)
        if len(known) > 1 or (untold and known - closed):
            torn.append(component)
        elif known:
            dealt[known.pop()].extend(component)
        elif not untold:
            place = int(keyed_digest(split.key.encode(), ["tranche", component[0]]), 16)
            dealt[free[place % len(free)]].extend(component)
    apart = {one for component in torn for one in component}
    mine = own if own is not None else next((one for one in free if dealt.get(one)), free[0])
    return replace(
        assignment,
        parts={
            part: tuple(one for one in shipments if one not in apart)
            for part, shipments in assignment.parts.items()
        },
        components=tuple(one for one in assignment.components if one[0] not in apart),
        quarantined=tuple(sorted((*assignment.quarantined, *torn))),
        tranche=mine,
        tranches={number: tuple(sorted(dealt[number])) for number in sorted(dealt)},
        free_tranches=tuple(one for one in free if dealt.get(one) or one == mine),
    )


def require_own_tranche(assignment: Assignment, claims: Iterable[HoldoutClaim], where: str) -> None:
    """Raise SplitError where no shipment is left for the search's own tranche, saying who has them.

    A holdout without a shipment could judge nothing, and the search would be for nothing.
    """
    if assignment.tranche is None or assignment.tranches.get(assignment.tranche):
        return
    holders = [
        f"{one.revision} ({one.state} tranche {one.tranche or 'of all'})"
        for one in claims
        if one.holds
    ]
    raise SplitError(
        "no holdout shipment that is free",
        expected="a tranche that no other search has opened or claimed",
        where=where,
        remedy=f"Held by {', '.join(holders) or 'nobody'}. Pin a grown archive, or end a search "
        "that will not go on: `parcel-assets close REVISION --reason TEXT`.",
    )


# ---- what a person asks -------------------------------------------------------------------------


def holdout_rows(
    register: Mapping[str, str],
    tranches: Mapping[str, int],
    claims: Iterable[HoldoutClaim],
) -> list[dict[str, Any]]:
    """Return, for one archive, a row per tranche and state: shipments, revision and times.

    A shipment counts once, under the furthest state that any search took it to.
    """
    order = ("unseen", "sealed", "opened", "spent")
    best: dict[str, tuple[int, str, HoldoutClaim | None, bool]] = {
        one: (0, "", None, False) for one, part in register.items() if part == "holdout"
    }
    for claim in claims:
        # one that was closed unopened only keeps seals that later searches may use
        offers = [(claim.shipments, order.index(claim.state), claim.holds)]
        offers += [(members, order.index("sealed"), False) for members in claim.reserved.values()]
        for members, rank, own in offers:
            for shipment in members:
                before = best.get(shipment, (0, "", None, False))
                if (rank, own) > (before[0], before[3]):
                    best[shipment] = (rank, claim.revision if own else "", claim, own)
    groups: defaultdict[tuple[int, int, str], list[str]] = defaultdict(list)
    opened: dict[tuple[int, int, str], float | None] = {}
    for shipment, (rank, revision, last, _) in best.items():
        key = (tranches.get(shipment, 0), rank, revision)
        groups[key].append(shipment)
        opened[key] = None if last is None or rank < order.index("opened") else last.opened_at
    return [
        {
            "tranche": number or None,
            "state": order[rank],
            "shipments": len(members),
            "revision": revision or None,
            "opened_at": opened[number, rank, revision],
            "first": sorted(members)[:5],
        }
        for (number, rank, revision), members in sorted(groups.items())
    ]
