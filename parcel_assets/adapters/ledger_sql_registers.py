"""The registers of an archive's shipments: in which part each lies, and in which tranche, for ever.

Every function works inside a transaction of its caller, who has proved a lease.
"""

from collections.abc import Mapping

import sqlalchemy as sa

from parcel_assets.adapters.ledger_sql_schema import assignments, tranches
from parcel_assets.core.errors import SplitError


def assigned(connection: sa.Connection, archive: str) -> dict[str, str]:
    """Return shipment id -> part of all shipments ever assigned in the archive."""
    query = sa.select(assignments.c.shipment_id, assignments.c.part)
    rows = connection.execute(query.where(assignments.c.archive == archive))
    return {str(shipment): str(part) for shipment, part in rows}


def dealt_tranches(connection: sa.Connection, archive: str) -> dict[str, int]:
    """Return shipment id -> tranche of all shipments ever dealt to one in the archive."""
    query = sa.select(tranches.c.shipment_id, tranches.c.tranche)
    rows = connection.execute(query.where(tranches.c.archive == archive))
    return {str(shipment): int(tranche) for shipment, tranche in rows}


def assign_parts(
    connection: sa.Connection, revision: str, archive: str, parts: Mapping[str, str]
) -> None:
    """Add shipments to the register; raises SplitError if one is there under another part."""
    known = assigned(connection, archive)
    moved = sorted(s for s, part in parts.items() if known.get(s, part) != part)
    if moved:
        raise SplitError(
            f"shipment {moved[0]} in part {parts[moved[0]]} ({len(moved)} such)",
            expected=f"part {known[moved[0]]}, as first assigned",
            where=f"assignment register of {archive}",
            remedy="A shipment never moves to another part (D3).",
            shipments=moved[:20],
        )
    fresh = [
        {"archive": archive, "shipment_id": s, "part": part, "revision": revision}
        for s, part in sorted(parts.items())  # one order for all: two writers never deadlock
        if s not in known
    ]
    if fresh:
        connection.execute(sa.insert(assignments), fresh)


def deal_tranches(
    connection: sa.Connection, revision: str, archive: str, dealt: Mapping[str, int]
) -> None:
    """Add shipments to their tranches; raises SplitError if one is in another already."""
    if not dealt:
        return
    known = dealt_tranches(connection, archive)
    moved = sorted(one for one, number in dealt.items() if known.get(one, number) != number)
    if moved:
        raise SplitError(
            f"shipment {moved[0]} in tranche {dealt[moved[0]]} ({len(moved)} such)",
            expected=f"tranche {known[moved[0]]}, as first dealt",
            where=f"tranche register of {archive}",
            remedy="Another search dealt them meanwhile: materialize the split again.",
            shipments=moved[:20],
        )
    fresh = [
        {"archive": archive, "shipment_id": one, "tranche": number, "revision": revision}
        for one, number in sorted(dealt.items())
        if one not in known
    ]
    if fresh:
        connection.execute(sa.insert(tranches), fresh)
