"""The registers of an archive's shipments: in which part each lies, and in which tranche, for ever.

Every method works inside a transaction of its caller, who has proved a lease.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import sqlalchemy as sa

from parcel_assets.adapters.ledger_sql_schema import assignments, tranches
from parcel_assets.core.errors import SplitError

Place = TypeVar("Place", str, int)


@dataclass(frozen=True)
class Register(Generic[Place]):
    """A table in which a shipment keeps the place that it was first given, a part or a tranche."""

    name: str
    table: sa.Table
    column: str  # the word for its places as well
    type: type[Place]
    remedy: str

    def read(self, connection: sa.Connection, archive: str) -> dict[str, Place]:
        """Return shipment id -> place of all shipments that the archive's register holds."""
        columns = self.table.c
        query = sa.select(columns.shipment_id, columns[self.column])
        rows = connection.execute(query.where(columns.archive == archive))
        return {str(shipment): self.type(place) for shipment, place in rows}

    def add(
        self, connection: sa.Connection, revision: str, archive: str, places: Mapping[str, Place]
    ) -> None:
        """Add shipments with their places; raises SplitError if one is there in another."""
        if not places:
            return
        known = self.read(connection, archive)
        moved = sorted(one for one, place in places.items() if known.get(one, place) != place)
        if moved:
            first = moved[0]
            raise SplitError(
                f"shipment {first} in {self.column} {places[first]} ({len(moved)} such)",
                expected=f"{self.column} {known[first]}, as first recorded",
                where=f"{self.name} of {archive}",
                remedy=self.remedy,
                shipments=moved[:20],
            )
        fresh = [
            {"archive": archive, "shipment_id": one, self.column: place, "revision": revision}
            for one, place in sorted(places.items())  # in one order: two writers never deadlock
            if one not in known
        ]
        if fresh:
            connection.execute(sa.insert(self.table), fresh)


PARTS = Register(
    name="assignment register",
    table=assignments,
    column="part",
    type=str,
    remedy="A shipment never moves to another part (D3).",
)
TRANCHES = Register(
    name="tranche register",
    table=tranches,
    column="tranche",
    type=int,
    remedy="Another search dealt them meanwhile: materialize the split again.",
)
