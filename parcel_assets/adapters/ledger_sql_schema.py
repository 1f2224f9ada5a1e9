"""The ledger's tables, and the rules that the database itself enforces.

Events are append-only (triggers on SQLite) and unique by place, digest and once-key; `ledger_sql`
decides how they are read and written.
"""

import sqlalchemy as sa

from parcel_assets.core.ledger import ONCE

SCHEMA_VERSION = 1

metadata = sa.MetaData()

schema_versions = sa.Table(
    "schema_versions", metadata, sa.Column("version", sa.Integer, primary_key=True)
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("revision", sa.Text, primary_key=True),
    sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at_seconds", sa.Double, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),  # canonical JSON: what the digest covers
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    sa.Column("once_key", sa.Text),  # what may be said once in a revision: core.ledger.once_key
    sa.CheckConstraint("sequence >= 1", name="sequence_from_one"),
    sa.CheckConstraint("length(digest) = 64 AND length(previous) = 64", name="digests_whole"),
    sa.UniqueConstraint("revision", "previous", name="one_successor"),
    sa.UniqueConstraint("revision", "once_key", name="said_once"),
)
_once = events.c.kind.in_(sorted(str(kind) for kind in ONCE))
sa.Index(
    "kind_once",
    events.c.revision,
    events.c.kind,
    unique=True,
    sqlite_where=_once,
    postgresql_where=_once,
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
)

assignments = sa.Table(
    "assignments",
    metadata,
    sa.Column("archive", sa.Text, primary_key=True),
    sa.Column("shipment_id", sa.Text, primary_key=True),
    sa.Column("part", sa.Text, nullable=False),
    sa.Column("revision", sa.Text, nullable=False),  # which revision assigned it first
)

holdout_openings = sa.Table(
    "holdout_openings",
    metadata,
    sa.Column("revision", sa.Text, primary_key=True),
    sa.Column("event_digest", sa.Text, nullable=False, unique=True),
)

holdout_keys = sa.Table(
    "holdout_keys",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("revision", sa.Text, nullable=False),
)

archive_versions = sa.Table(
    "archive_versions",
    metadata,
    sa.Column("archive", sa.Text, primary_key=True),
    sa.Column("version", sa.Text, primary_key=True),
    sa.Column("facts", sa.Text, nullable=False),
    sa.Column("noted_at", sa.Double, nullable=False),
)

for _table in (events, holdout_openings, holdout_keys, assignments):
    for _deed in ("UPDATE", "DELETE"):
        _trigger = sa.DDL(  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped
            f"CREATE TRIGGER IF NOT EXISTS {_table.name}_no_{_deed.lower()} "
            f"BEFORE {_deed} ON {_table.name} "
            f"BEGIN SELECT RAISE(ABORT, '{_table.name} is append-only'); END"
        )
        sa.event.listen(_table, "after_create", _trigger.execute_if(dialect="sqlite"))
