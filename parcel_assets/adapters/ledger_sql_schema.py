"""The ledger's tables, version 3, and what each column may hold on SQLite and PostgreSQL alike.

What the database refuses beyond that (changed events, torn chains, older fences) is in
`ledger_sql_rules`; how older tables become these is in `ledger_sql_migrate`.
"""

import sqlalchemy as sa

from parcel_assets.core.ledger import GENESIS

SCHEMA_VERSION = 3
PARTS = ("train", "validation", "holdout")

metadata = sa.MetaData()


def _is_digest(column: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(
        f"length({column}) = 64 AND ltrim({column}, '0123456789abcdef') = ''",
        name=f"{column}_is_a_digest",
    )


schema_versions = sa.Table(
    "schema_versions", metadata, sa.Column("version", sa.Integer, primary_key=True)
)

# what an event can say: filled by every release that opens the ledger, so that a new kind of event
# needs no new schema and a mistyped one is refused
event_kinds = sa.Table("event_kinds", metadata, sa.Column("kind", sa.Text, primary_key=True))

events = sa.Table(
    "events",
    metadata,
    sa.Column("revision", sa.Text, primary_key=True),
    sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at_seconds", sa.Double, nullable=False),
    sa.Column("kind", sa.Text, sa.ForeignKey(event_kinds.c.kind), nullable=False),
    sa.Column("body", sa.Text, nullable=False),  # canonical JSON: what the digest covers
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    sa.Column("once_key", sa.Text),  # what may be said once in a revision: core.ledger.once_key
    sa.CheckConstraint("sequence >= 1", name="sequence_from_one"),
    sa.CheckConstraint(f"(sequence = 1) = (previous = '{GENESIS}')", name="first_has_no_previous"),
    sa.CheckConstraint("at_seconds >= 0", name="clock_after_its_start"),
    _is_digest("digest"),
    _is_digest("previous"),
    sa.UniqueConstraint("revision", "previous", name="one_successor"),
)
_keyed = events.c.once_key.is_not(None)
sa.Index(
    "said_once",
    events.c.revision,
    events.c.once_key,
    unique=True,
    sqlite_where=_keyed,
    postgresql_where=_keyed,
)
sa.Index("events_by_time", events.c.at_seconds)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("revision", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("fence", sa.Integer, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("process_id", sa.Integer, nullable=False),
    sa.Column("process_started", sa.Text, nullable=False),
    sa.Column("purpose", sa.Text, nullable=False),
    sa.Column("acquired_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Column("held", sa.Boolean, nullable=False),
    sa.CheckConstraint("fence >= 1", name="fence_from_one"),
    sa.CheckConstraint("process_id >= 1", name="process_is_one"),
    sa.CheckConstraint("owner <> ''", name="owner_is_named"),
)

assignments = sa.Table(
    "assignments",
    metadata,
    sa.Column("archive", sa.Text, primary_key=True),
    sa.Column("shipment_id", sa.Text, primary_key=True),
    sa.Column("part", sa.Text, nullable=False),
    sa.Column("revision", sa.Text, nullable=False),  # which revision assigned it first
    sa.CheckConstraint(f"part IN {PARTS}", name="part_is_one_of_three"),
)

# which tranche of its archive's holdout a shipment belongs to, for ever
tranches = sa.Table(
    "tranches",
    metadata,
    sa.Column("archive", sa.Text, primary_key=True),
    sa.Column("shipment_id", sa.Text, primary_key=True),
    sa.Column("tranche", sa.Integer, nullable=False),
    sa.Column("revision", sa.Text, nullable=False),  # which revision dealt it
    sa.CheckConstraint("tranche >= 1", name="tranche_from_one"),
)

holdout_openings = sa.Table(
    "holdout_openings",
    metadata,
    sa.Column("revision", sa.Text, primary_key=True),
    sa.Column("event_digest", sa.Text, sa.ForeignKey(events.c.digest), nullable=False, unique=True),
)

holdout_keys = sa.Table(
    "holdout_keys",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("revision", sa.Text, sa.ForeignKey(holdout_openings.c.revision), nullable=False),
)

archive_versions = sa.Table(
    "archive_versions",
    metadata,
    sa.Column("archive", sa.Text, primary_key=True),
    sa.Column("version", sa.Text, primary_key=True),
    sa.Column("facts", sa.Text, nullable=False),
    sa.Column("noted_at", sa.Double, nullable=False),
)

# SQLite only: what all processes of one boot add to its clock (see `ledger_sql_clock`)
host_clock = sa.Table(
    "host_clock",
    metadata,
    sa.Column("boot", sa.Text, primary_key=True),
    sa.Column("offset_seconds", sa.Double, nullable=False),
)
