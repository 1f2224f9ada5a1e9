"""What the database itself refuses, whoever writes: triggers on SQLite and PostgreSQL.

Registers are append-only; an event follows the newest one of its chain, in time as well; a lease is
never forgotten and its fence never falls. An owner of the database can remove triggers: then
`parcel-assets ledger verify` misses them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from parcel_assets.adapters.ledger_sql_schema import (
    archive_versions,
    assignments,
    event_kinds,
    events,
    holdout_keys,
    holdout_openings,
    leases,
    metadata,
    tranches,
)

APPEND_ONLY = (
    event_kinds,
    events,
    assignments,
    holdout_openings,
    holdout_keys,
    archive_versions,
    tranches,
)
_FOLLOWS = "takes only what follows its newest event, not before it in time"

_NOT_FOLLOWED = (
    "NEW.sequence > 1 AND NOT EXISTS (SELECT 1 FROM events AS last WHERE last.revision = "
    "NEW.revision AND last.sequence = NEW.sequence - 1 AND last.digest = NEW.previous "
    "AND last.at_seconds <= NEW.at_seconds)"
)
_FENCED = (
    "NEW.fence <> OLD.fence + 1 AND (NEW.fence <> OLD.fence OR NEW.owner <> OLD.owner "
    "OR (NEW.held AND NOT OLD.held))"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One trigger: what it refuses to do with rows of a table, in which words, and when."""

    table: sa.Table
    rule: str
    deed: str  # INSERT, UPDATE or DELETE
    words: str
    condition: str = ""

    @property
    def name(self) -> str:
        """The trigger's name."""
        return f"{self.table.name}_{self.rule}"

    def on_sqlite(self) -> str:
        """Return the trigger's statement for SQLite."""
        when = f"WHEN {self.condition} " if self.condition else ""
        head = f"CREATE TRIGGER {self.name} BEFORE {self.deed} ON {self.table.name} {when}"
        return f"{head}BEGIN SELECT RAISE(ABORT, '{self.table.name} {self.words}'); END"

    def on_postgresql(self) -> str:
        """Return the trigger's statement for PostgreSQL."""
        deed = "DELETE OR TRUNCATE" if self.deed == "DELETE" else self.deed
        each = f"ROW WHEN ({self.condition})" if self.condition else "STATEMENT"
        head = f"CREATE TRIGGER {self.name} BEFORE {deed} ON {self.table.name} FOR EACH {each} "
        return f"{head}EXECUTE FUNCTION parcel_assets_refuse('{self.words}')"


BOTH = (
    *(Rule(table, "keeps_rows", "DELETE", "is append-only") for table in APPEND_ONLY),
    *(Rule(table, "keeps_words", "UPDATE", "is append-only") for table in APPEND_ONLY),
    Rule(leases, "keeps_rows", "DELETE", "keeps every lease: a fence must not start again"),
    Rule(leases, "raises_fence", "UPDATE", "takes a new owner only under the next fence", _FENCED),
)


def _present(table: sa.Table, columns: Iterable[str]) -> str:
    """Return the condition that a row with the new one's columns is there."""
    same = " AND ".join(f"old.{name} = NEW.{name}" for name in columns)
    return f"EXISTS (SELECT 1 FROM {table.name} AS old WHERE {same})"  # noqa: S608 - our own names


# INSERT OR REPLACE, which only SQLite has, removes the row in its way and asks no trigger of BOTH
SQLITE = (
    *(
        Rule(
            table,
            "replaces_nothing",
            "INSERT",
            "has a row in this place",
            _present(table, (key.name for key in table.primary_key)),
        )
        for table in (*APPEND_ONLY, leases)
    ),
    Rule(events, "repeats_nothing", "INSERT", "has this digest", _present(events, ["digest"])),
    Rule(events, "follows", "INSERT", _FOLLOWS, _NOT_FOLLOWED),
)
# a trigger's condition takes no subquery on PostgreSQL: this one is a function
FOLLOWS = (
    "CREATE TRIGGER events_follows BEFORE INSERT ON events FOR EACH ROW "
    "EXECUTE FUNCTION parcel_assets_follows()"
)

_REFUSE = """
CREATE OR REPLACE FUNCTION parcel_assets_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation',
        MESSAGE = TG_TABLE_NAME || ' ' || TG_ARGV[0];
END $$"""
_CHECK_FOLLOWED = f"""
CREATE OR REPLACE FUNCTION parcel_assets_follows() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF {_NOT_FOLLOWED} THEN
        RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation',
            MESSAGE = 'events {_FOLLOWS}';
    END IF;
    RETURN NEW;
END $$"""


def _listen(target: Any, when: str, statement: str, dialect: str) -> None:
    ddl = sa.DDL(statement)  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped
    sa.event.listen(target, when, ddl.execute_if(dialect=dialect))


for _statement in (_REFUSE, _CHECK_FOLLOWED):
    _listen(metadata, "before_create", _statement, "postgresql")
for _rule in (*BOTH, *SQLITE):
    _listen(_rule.table, "after_create", _rule.on_sqlite(), "sqlite")
for _rule in BOTH:
    _listen(_rule.table, "after_create", _rule.on_postgresql(), "postgresql")
_listen(events, "after_create", FOLLOWS, "postgresql")


def missing_rules(connection: sa.Connection) -> tuple[str, ...]:
    """Return the triggers that this database should have and has not."""
    expected = {rule.name for rule in BOTH} | {"events_follows"}
    if connection.dialect.name == "sqlite":
        query = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        expected |= {rule.name for rule in SQLITE}
    else:
        query = (
            "SELECT t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
            "WHERE NOT t.tgisinternal AND t.tgenabled = 'O' AND pg_table_is_visible(c.oid)"
        )
    found = {str(row[0]) for row in connection.exec_driver_sql(query)}
    return tuple(sorted(expected - found))
