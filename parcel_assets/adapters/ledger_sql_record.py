"""Reading all that the database holds of one revision, as it is: for an audit, which trusts none.

What a row means, and whether it is right, is decided in `core.ledger_audit`.
"""

import sqlalchemy as sa

from parcel_assets.adapters.ledger_sql_rules import missing_rules
from parcel_assets.adapters.ledger_sql_schema import events, holdout_keys, holdout_openings, leases
from parcel_assets.core.ledger_audit import LedgerRecord


def read_record(connection: sa.Connection, revision: str) -> LedgerRecord:
    """Return rows, fence, opening and keys of a revision, inside one transaction."""
    chain = sa.select(events).where(events.c.revision == revision).order_by(events.c.sequence)
    fence = sa.select(leases.c.fence).where(leases.c.revision == revision)
    opening = sa.select(holdout_openings.c.event_digest).where(
        holdout_openings.c.revision == revision
    )
    keys = sa.select(holdout_keys.c.key).where(holdout_keys.c.revision == revision)
    return LedgerRecord(
        rows=tuple(dict(row) for row in connection.execute(chain).mappings()),
        fence=connection.execute(fence).scalar(),
        opening=connection.execute(opening).scalar(),
        opened_keys=tuple(sorted(connection.execute(keys).scalars())),
        missing_rules=missing_rules(connection),
    )
