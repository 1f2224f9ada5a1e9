"""What the database itself refuses, on SQLite and PostgreSQL, to anybody who writes by hand."""

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.adapters.ledger_sql_schema import (
    archive_versions,
    assignments,
    event_kinds,
    events,
    holdout_keys,
    holdout_openings,
    leases,
    tranches,
)
from parcel_assets.core.codec import canonical_json
from parcel_assets.core.ledger import Event, Kind, Lease, chain_event, once_key
from parcel_assets_tests.contracts.ledger_contract import FROZEN, NOTE

APPEND_ONLY = (
    event_kinds,
    events,
    assignments,
    holdout_openings,
    holdout_keys,
    archive_versions,
    tranches,
)


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[SqlLedger]:
    """Return a ledger with a row in each of its tables."""
    ledger = SqlLedger(ledger_url)
    lease = ledger.acquire("spring", "test")
    ledger.append(lease, [FROZEN, NOTE])
    ledger.assign(lease, "depot", {"0001": "holdout"}, {"0001": 1})
    ledger.open_holdout(lease, {"holdout_digest": "h"}, ["k1"])
    ledger.note_archive_version("depot", "v1", {})
    yield ledger
    ledger.close()


def write(ledger: SqlLedger, statement: Any, rows: Any = None) -> None:
    with ledger._engine.begin() as connection:
        connection.execute(statement, rows)


def row_of(event: Event, **changes: Any) -> dict[str, Any]:
    row = {
        "revision": event.revision,
        "sequence": event.sequence,
        "at_seconds": event.at_seconds,
        "kind": str(event.kind),
        "body": canonical_json(dict(event.body)).decode(),
        "previous": event.previous,
        "digest": event.digest,
        "once_key": once_key(event.kind, event.body),
    }
    return row | changes


def next_event(ledger: SqlLedger, kind: Kind = Kind.MESSAGE_SET_ASIDE, **body: Any) -> Event:
    last = ledger.events("spring")[-1]
    return chain_event(last, revision="spring", at_seconds=0.0, kind=kind, body=body)


@pytest.mark.parametrize("table", APPEND_ONLY, ids=lambda table: table.name)
def test_registers_are_append_only(ledger: SqlLedger, table: sa.Table) -> None:
    text = next(one for one in table.columns if isinstance(one.type, sa.Text))
    for statement in (sa.update(table).values({text: "other"}), sa.delete(table)):
        with pytest.raises(IntegrityError, match="append-only"):
            write(ledger, statement)
    if ledger._engine.dialect.name == "postgresql":
        with pytest.raises(IntegrityError, match="append-only"):
            write(ledger, sa.text(f"TRUNCATE {table.name} CASCADE"))


@pytest.mark.parametrize("table", [*APPEND_ONLY, leases], ids=lambda table: table.name)
def test_nothing_replaces_a_row(ledger: SqlLedger, table: sa.Table) -> None:
    with ledger._engine.connect() as connection:
        row = dict(connection.execute(sa.select(table)).mappings().first() or {})
    statement = sa.insert(table)
    if ledger._engine.dialect.name == "sqlite":
        statement = statement.prefix_with("OR REPLACE")
    with pytest.raises(IntegrityError):
        write(ledger, statement, row)


def test_an_event_cannot_replace_another_by_its_digest(ledger: SqlLedger) -> None:
    first = ledger.events("spring")[1]
    statement = sa.insert(events)
    if ledger._engine.dialect.name == "sqlite":
        statement = statement.prefix_with("OR REPLACE")
    row = row_of(next_event(ledger), digest=first.digest)
    with pytest.raises(IntegrityError):
        write(ledger, statement, row)
    assert len(ledger.events("spring")) == 3


def test_a_right_event_by_hand_is_taken(ledger: SqlLedger) -> None:
    # else the refusals below would prove nothing
    write(ledger, sa.insert(events), row_of(next_event(ledger)))
    assert len(ledger.events("spring")) == 4


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("sequence", 0),
        ("sequence", 5),  # one is left out
        ("sequence", 3),  # taken
        ("previous", "0" * 64),  # a second first event
        ("previous", "a" * 64),  # follows nothing
        ("digest", "A" * 64),
        ("digest", "g" * 64),
        ("digest", "a" * 63),
        ("at_seconds", -1.0),
        ("at_seconds", 1.0),  # before the event it follows
        ("kind", "wish"),
        ("revision", "autumn"),
        ("once_key", "plan_frozen"),  # said before
        ("body", None),
        ("kind", None),
    ],
)
def test_an_event_that_does_not_follow_is_refused(
    ledger: SqlLedger, column: str, value: Any
) -> None:
    with pytest.raises(IntegrityError):
        write(ledger, sa.insert(events), row_of(next_event(ledger), **{column: value}))
    assert len(ledger.events("spring")) == 3


def test_two_events_cannot_follow_one(ledger: SqlLedger) -> None:
    second = ledger.events("spring")[1]
    rival = chain_event(
        ledger.events("spring")[0],
        revision="spring",
        at_seconds=second.at_seconds,
        kind=Kind.MESSAGE_SET_ASIDE,
        body={"text": "instead"},
    )
    for sequence in (2, 4):
        with pytest.raises(IntegrityError):
            write(ledger, sa.insert(events), row_of(rival, sequence=sequence))


@pytest.mark.parametrize(
    "values",
    [
        {"fence": 0},
        {"fence": 3},  # one is left out
        {"owner": "somebody else"},  # under the fence of another
        {"fence": 2, "owner": ""},
        {"process_id": 0},
    ],
)
def test_a_fence_never_falls_and_names_one_owner(ledger: SqlLedger, values: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError):
        write(ledger, sa.update(leases).values(values))


def test_a_lease_is_never_forgotten_nor_taken_back(ledger: SqlLedger) -> None:
    with pytest.raises(IntegrityError, match="keeps every lease"):
        write(ledger, sa.delete(leases))
    ledger.release(Lease("spring", held_by(ledger), 1))
    with pytest.raises(IntegrityError, match="next fence"):
        write(ledger, sa.update(leases).values(held=True))


def held_by(ledger: SqlLedger) -> str:
    with ledger._engine.connect() as connection:
        return str(connection.execute(sa.select(leases.c.owner)).scalar_one())


def test_a_part_is_one_of_three(ledger: SqlLedger) -> None:
    row = {"archive": "depot", "shipment_id": "0002", "part": "test", "revision": "spring"}
    with pytest.raises(IntegrityError):
        write(ledger, sa.insert(assignments), row)


def test_an_opening_names_its_event_and_keys_their_opening(ledger: SqlLedger) -> None:
    with pytest.raises(IntegrityError):
        write(ledger, sa.insert(holdout_openings), {"revision": "x", "event_digest": "a" * 64})
    with pytest.raises(IntegrityError):
        write(ledger, sa.insert(holdout_keys), {"key": "k2", "revision": "autumn"})


def test_a_new_kind_of_event_needs_no_new_schema(ledger_url: str) -> None:
    ledger = SqlLedger(ledger_url)
    with ledger._engine.begin() as connection:  # as an older release would have left it
        for table in ("event_kinds",):
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql(f"DROP TRIGGER {table}_keeps_rows")
            else:
                connection.exec_driver_sql(f"DROP TRIGGER {table}_keeps_rows ON {table}")
        connection.execute(sa.delete(event_kinds).where(event_kinds.c.kind == "search_ended"))
    ledger.close()
    newer = SqlLedger(ledger_url)
    lease = newer.acquire("spring", "test")
    newer.append(lease, [FROZEN, (Kind.SEARCH_ENDED, {"reason": "budget"})])
    newer.close()
