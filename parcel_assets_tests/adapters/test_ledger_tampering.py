"""Tampering by an owner of the database, who removes its triggers first: each deed is named."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.adapters.ledger_sql_rules import BOTH, SQLITE
from parcel_assets.core.anchor import anchors_of
from parcel_assets.core.codec import canonical_json
from parcel_assets.core.errors import LedgerError
from parcel_assets.core.evidence import TableBody
from parcel_assets.core.ledger import Event, Kind, chain_event, once_key
from parcel_assets.core.ledger_audit import AuditFault
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.core.table import table_digest, table_rows
from parcel_assets.steps.admission import load_chain
from parcel_assets.steps.ledger import audit_ledger
from parcel_assets_tests.core.search_story import Story, story_plan
from parcel_assets_tests.search_world import REVISION, World

Sql = Callable[..., None]


@pytest.fixture
def world(ledger_url: str, tmp_path: Path) -> Iterator[World]:
    """Return a searched revision, its table frozen and anchored, with its triggers removed."""
    ledger = SqlLedger(ledger_url)
    world = World(tmp_path, ledger=ledger)
    story = Story(story_plan(search__budget_trials=2))
    world.freeze(story.plan)
    story.batch(1, [1, 2])
    story.complete(1, 400.0, 300.0, 200.0)
    story.complete(2, 410.0, 310.0, 210.0)
    story.close(1)
    story.tell(Kind.SEARCH_ENDED, reason="budget")
    lease = ledger.acquire(REVISION, "story")
    chain = load_chain(REVISION, world.ports())
    assignment = world.store.get_document(chain.split.assignment_document)["parts"]
    ledger.assign(
        lease, "test-parcels", {one: part for part, ids in assignment.items() for one in ids}
    )
    ledger.append(lease, [(event.kind, event.body) for event in story.events])
    for event in anchors_of(ledger.events(REVISION)):
        world.store.leave_anchor(REVISION, event.document())
    ledger.open_holdout(lease, {"holdout_digest": "h"}, chain.observed["holdout_keys"])
    ledger.release(lease)
    with ledger._engine.begin() as connection:
        sqlite = connection.dialect.name == "sqlite"
        for rule in (*BOTH, *SQLITE) if sqlite else BOTH:
            on = "" if sqlite else f" ON {rule.table.name}"
            connection.exec_driver_sql(f"DROP TRIGGER {rule.name}{on}")
        if not sqlite:
            connection.exec_driver_sql("DROP TRIGGER events_follows ON events")
            connection.exec_driver_sql("SET session_replication_role = replica")
    yield world
    ledger.close()


@pytest.fixture
def sql(world: World) -> Sql:
    """Return what runs statements as only an owner can: no trigger, no foreign key."""
    assert isinstance(world.ledger, SqlLedger)
    engine = world.ledger._engine

    def run(*statements: str, **values: Any) -> None:
        with engine.connect() as connection:
            sqlite = connection.dialect.name == "sqlite"
            if sqlite:
                connection.connection.execute("PRAGMA foreign_keys = OFF")
                connection.connection.execute("PRAGMA ignore_check_constraints = ON")
            with connection.begin():
                if not sqlite:
                    connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
                for statement in statements:
                    connection.execute(sa.text(statement), values)

    return run


def first_fault(world: World) -> AuditFault:
    """Return the first fault that is not the removed triggers themselves."""
    audit = audit_ledger(REVISION, world.ports())
    assert any(one.found.startswith("no trigger") for one in audit.faults)
    faults = [one for one in audit.faults if not one.found.startswith("no trigger")]
    assert faults, "nothing was found"
    return min(faults, key=lambda one: (one.sequence is None, one.sequence or 0))


def append(world: World, sql: Sql, kind: Kind, body: dict[str, Any]) -> Event:
    """Append an event with a rightly computed digest and no lease."""
    last = world.ledger.events(REVISION)[-1]
    event = chain_event(
        last, revision=REVISION, at_seconds=last.at_seconds + 1, kind=kind, body=body
    )
    said = {once_key(one.kind, one.body) for one in world.ledger.events(REVISION)}
    key = once_key(kind, body)
    sql(
        "INSERT INTO events (revision, sequence, at_seconds, kind, body, previous, digest, "
        "once_key) VALUES (:revision, :sequence, :at, :kind, :body, :previous, :digest, :key)",
        revision=REVISION,
        sequence=event.sequence,
        at=event.at_seconds,
        kind=str(kind),
        body=canonical_json(body).decode(),
        previous=event.previous,
        digest=event.digest,
        key=None if key in said else key,  # the index would refuse it a second time
    )
    return event


def number_of(world: World, kind: Kind, nth: int = 0) -> int:
    return [one.sequence for one in world.ledger.events(REVISION) if one.kind == kind][nth]


def test_an_untouched_ledger_lacks_nothing_but_the_triggers(world: World) -> None:
    audit = audit_ledger(REVISION, world.ports())
    assert {one.found.split()[1] for one in audit.faults} == {"trigger"}


def test_an_edited_body(world: World, sql: Sql) -> None:
    sequence = number_of(world, Kind.MILESTONE_REPORTED, 2)
    sql(
        "UPDATE events SET body = replace(body, '200.0', '100.0') WHERE sequence = :at",
        at=sequence,
    )
    fault = first_fault(world)
    assert (fault.place, fault.sequence, fault.kind) == ("chain", sequence, "milestone_reported")
    assert "its time, kind and body" in fault.expected
    with pytest.raises(LedgerError):
        load_chain(REVISION, world.ports())


def test_the_same_words_in_other_bytes(world: World, sql: Sql) -> None:
    sql("UPDATE events SET body = body || ' ' WHERE sequence = 5")
    assert first_fault(world) == AuditFault(
        "chain", "a body in other bytes", "its canonical JSON", 5, "attempt_started"
    )


@pytest.mark.parametrize("change", ["at_seconds + 0.001", "at_seconds - 0.001"])
def test_an_edited_time(world: World, sql: Sql, change: str) -> None:
    sql(f"UPDATE events SET at_seconds = {change} WHERE sequence = 6")
    fault = first_fault(world)
    assert (fault.place, fault.sequence) == ("chain", 6)


def test_an_edited_kind_and_an_unreadable_row(world: World, sql: Sql) -> None:
    sql("UPDATE events SET kind = 'checkpoint_saved' WHERE sequence = 6")
    assert first_fault(world).sequence == 6
    sql("UPDATE events SET kind = 'wish' WHERE sequence = 6")
    fault = first_fault(world)
    assert (fault.sequence, fault.kind) == (6, "wish")
    assert "does not read" in fault.found


def test_a_dropped_event(world: World, sql: Sql) -> None:
    sql("DELETE FROM events WHERE sequence = 7")
    fault = first_fault(world)
    assert (fault.sequence, fault.found, fault.expected) == (7, "event 8 in its place", "event 7")


def test_a_dropped_event_and_the_gap_closed(world: World, sql: Sql) -> None:
    sql(
        "DELETE FROM events WHERE sequence = 7",
        "UPDATE events SET sequence = 1000 + sequence WHERE sequence > 7",
        "UPDATE events SET sequence = sequence - 1001 WHERE sequence > 1000",
    )
    fault = first_fault(world)
    assert fault.sequence == 7
    assert "the event before it" in fault.expected


def test_two_events_in_each_others_place(world: World, sql: Sql) -> None:
    sql(
        "UPDATE events SET sequence = 1000 WHERE sequence = 6",
        "UPDATE events SET sequence = 6 WHERE sequence = 7",
        "UPDATE events SET sequence = 7 WHERE sequence = 1000",
    )
    assert first_fault(world).sequence == 6


def test_an_event_of_another_revision(world: World, sql: Sql, tmp_path: Path) -> None:
    sql("UPDATE events SET revision = 'autumn'")
    audit = audit_ledger("autumn", world.ports())
    assert audit.first is not None
    assert audit.first.sequence == 1
    assert audit.first.place == "chain"
    # and the revision that lost them is missed, by its anchors
    fault = first_fault(world)
    assert (fault.place, fault.sequence) == ("anchors", 1)


@pytest.mark.parametrize(
    ("kind", "change", "found"),
    [
        (Kind.MILESTONE_REPORTED, {"step": 3}, "after its end"),
        (Kind.ATTEMPT_STARTED, {"attempt": "parcel-01/9"}, "after the holdout was opened"),
        (Kind.ATTEMPT_ENDED, {}, "a second attempt_ended"),
        (Kind.SEARCH_ENDED, {}, "after the holdout was opened"),
    ],
)
def test_an_appended_event_that_no_coordinator_writes(
    world: World, sql: Sql, kind: Kind, change: dict[str, Any], found: str
) -> None:
    body = dict(world.ledger.events(REVISION)[number_of(world, kind) - 1].body) | change
    if kind == Kind.MILESTONE_REPORTED:
        forget_the_opening(sql)
    event = append(world, sql, kind, body)
    fault = first_fault(world)
    assert fault.sequence == event.sequence
    assert found in fault.found


def forget_the_opening(sql: Sql) -> None:
    sql(
        "DELETE FROM events WHERE kind = 'holdout_opened'",
        "DELETE FROM holdout_openings",
        "DELETE FROM holdout_keys",
    )


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"fence": 0}, "fence 0"),
        ({"prefix": "spring/parcel-01/1"}, "prefix spring/parcel-01/1 again"),
        ({"subject": "parcel-07", "prefix": "p"}, "an attempt at parcel-07"),
        ({"prefix": "p"}, "which has finished"),
        ({"purpose": "rerun", "subject": "rerun/x", "prefix": "p", "fence": 99}, "fence 99"),
    ],
)
def test_an_attempt_that_nobody_ordered(
    world: World, sql: Sql, change: dict[str, Any], found: str
) -> None:
    forget_the_opening(sql)
    started = world.ledger.events(REVISION)[number_of(world, Kind.ATTEMPT_STARTED) - 1]
    body = dict(started.body) | {"attempt": "parcel-01/9"} | change
    event = append(world, sql, Kind.ATTEMPT_STARTED, body)
    fault = first_fault(world)
    assert fault.sequence == event.sequence
    assert found in fault.found


def test_a_chain_cut_behind_an_anchor(world: World, sql: Sql) -> None:
    forget_the_opening(sql)
    sql("DELETE FROM events WHERE sequence >= 3")
    fault = first_fault(world)
    assert (fault.place, fault.sequence) == ("anchors", 3)
    assert "grouped_shipment_split" in fault.expected
    with pytest.raises(LedgerError, match="ends at event 2") as refused:
        load_chain(REVISION, world.ports())
    assert refused.value.facts["sequence"] == 3


def test_a_chain_told_anew_is_not_the_anchored_one(world: World, sql: Sql) -> None:
    forget_the_opening(sql)
    sql("DELETE FROM events", "DELETE FROM leases")
    shutil.copytree(world.folder / "store" / "anchors", world.folder / "kept")
    shutil.rmtree(world.folder / "store" / "anchors")
    world.freeze(world_plan(seed=8))
    shutil.copytree(world.folder / "kept", world.folder / "store" / "anchors")
    assert first_fault(world).place == "anchors"
    with pytest.raises(LedgerError, match="its anchor is in the store"):
        load_chain(REVISION, world.ports())


def world_plan(seed: int) -> Any:
    return story_plan(search__budget_trials=2, search__seed=seed)


def test_a_changed_once_key(world: World, sql: Sql) -> None:
    sql("UPDATE events SET once_key = NULL WHERE sequence = 6")
    fault = first_fault(world)
    assert (fault.place, fault.sequence, fault.found) == ("tables", 6, "once-key None")


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("DELETE FROM holdout_openings", "opening none"),
        ("DELETE FROM holdout_keys", "0 opened holdout keys"),
        ("INSERT INTO holdout_keys VALUES ('shipment:x/y', 'spring')", "1 of them wrong"),
        (f"UPDATE holdout_openings SET event_digest = '{'0' * 64}'", "opening 00000000"),
        ("DELETE FROM leases", "no lease"),
        ("UPDATE assignments SET part = 'train' WHERE part = 'holdout'", "in train in the"),
        ("DELETE FROM assignments WHERE part = 'train'", "in no part in the"),
    ],
)
def test_changed_tables(world: World, sql: Sql, statement: str, found: str) -> None:
    sql(statement)
    fault = first_fault(world)
    assert fault.place == "tables"
    assert found in fault.found


@pytest.mark.parametrize("honest", [True, False])
def test_a_frozen_table_that_the_chain_does_not_fold_to(
    world: World, sql: Sql, honest: bool
) -> None:
    chain = load_chain(REVISION, world.ports())
    folded = table_digest(table_rows(chain.plan, world.state()))
    inputs = {str(stage): digest for stage, digest in chain.digests.items()}
    search = {"stage": str(Stage.SEARCH), "inputs": inputs}
    inputs = inputs | {str(Stage.SEARCH): put_evidence(world, search, {})}
    append(world, sql, Kind.STAGE_RECORDED, search)
    frozen = TableBody(
        table_digest=folded if honest else "0" * 64,
        table_document="",
        rows=2,
        trials_by_state={},
        expectations=(),
        ledger_head="",
    )
    table = {"stage": str(Stage.TABLE), "inputs": inputs}
    put_evidence(world, table, frozen.document())
    event = append(world, sql, Kind.STAGE_RECORDED, table)
    faults = audit_ledger(REVISION, world.ports()).faults
    found = [(one.place, one.sequence, one.found) for one in faults if one.sequence]
    assert found == ([] if honest else [("tables", event.sequence, "the frozen table 00000000")])


def put_evidence(world: World, entry: dict[str, Any], body: dict[str, Any]) -> str:
    """Store a stage's evidence and name it in its record."""
    evidence = Evidence(
        stage=Stage(entry["stage"]),
        revision=REVISION,
        plan_digest="p" * 64,
        inputs=entry["inputs"],
        body=body,
    )
    entry["evidence"] = world.store.put_document(evidence.document())
    return str(entry["evidence"])


def test_evidence_that_is_not_in_the_store(world: World) -> None:
    digest = str(world.ledger.events(REVISION)[1].body["evidence"])
    world.store.path(digest).unlink()
    fault = first_fault(world)
    assert (fault.place, fault.sequence) == ("evidence", 2)
