"""Older ledgers: a stored one of each released version opens, keeps every event, and verifies."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from parcel_assets.adapters import ledger_sql_migrate
from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.adapters.ledger_sql_schema import SCHEMA_VERSION, schema_versions
from parcel_assets.core.errors import SettingError
from parcel_assets.core.ledger import Kind, verify_chain
from parcel_assets.core.plan_reader import plan_from_fields
from parcel_assets.core.search import fold_search
from parcel_assets.core.table import table_digest, table_rows
from parcel_assets.steps.ledger import audit_ledger
from parcel_assets_tests.contracts.ledger_contract import FROZEN
from parcel_assets_tests.search_world import World

# a search of 9 trials with pruned, failed and lost attempts, a stop in between and an opened
# holdout, and a second revision that is only registered; written by the release of that version
STORED = Path(__file__).parents[1] / "data" / "ledgers"
HEADS = {
    "spring": (107, "32258213f00e616034f6c49fc3b5cca9989bea27d4de84f2e255203a035d35e0"),
    "autumn": (1, "2cc13e5d1ba8d7a09ff2b59cd989ca1c21033ba374553d1435f5427b9e553d88"),
}
TABLE = "bc4aec198b6b44120a6de1830d605a77e6ef9b18f6763990aebb6c73076b23cd"


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Return a copy of the ledger that version 1 wrote."""
    path = tmp_path / "ledger.db"
    shutil.copyfile(STORED / "version-1.sqlite", path)
    return path


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute("SELECT version FROM schema_versions").fetchone()[0])


def test_an_old_ledger_opens_and_keeps_every_event(stored: Path) -> None:
    assert version_of(stored) == 1
    ledger = SqlLedger(f"sqlite:///{stored}")
    assert version_of(stored) == SCHEMA_VERSION
    assert set(ledger.revisions()) == set(HEADS)
    for revision, head in HEADS.items():
        events = ledger.events(revision)
        verify_chain(events)
        assert (events[-1].sequence, events[-1].digest) == head
    events = ledger.events("spring")
    plan = plan_from_fields(events[0].body["plan"])
    assert table_digest(table_rows(plan, fold_search(plan, events))) == TABLE
    assert ledger.assignments("test-parcels")["train-000"] == "train"
    assert ledger.opened_by(["shipment:test-parcels/holdout-000"]) == {
        "shipment:test-parcels/holdout-000": "spring"
    }
    assert not ledger.note_archive_version("test-parcels", "v1", {})
    lease = ledger.acquire("autumn", "test")
    assert lease.fence == 2
    ledger.append(lease, [(Kind.SEARCH_OPENED, {"identity": {}})])
    ledger.close()


def test_an_old_ledger_verifies(stored: Path) -> None:
    world = World(stored.parent)
    audit = audit_ledger("spring", world.ports())
    # the store that held its evidence is not kept; nothing else may be amiss
    assert {(fault.place, fault.found[:9]) for fault in audit.faults} == {("evidence", "no object")}
    assert len(audit.events) == HEADS["spring"][0]
    assert audit_ledger("autumn", world.ports()).faults == ()


def test_a_migrated_ledger_has_every_rule(stored: Path, tmp_path: Path) -> None:
    SqlLedger(f"sqlite:///{stored}").close()
    SqlLedger(f"sqlite:///{tmp_path / 'fresh.db'}").close()
    query = "SELECT type, name, tbl_name FROM sqlite_master ORDER BY 1, 2"
    found = []
    for path in (stored, tmp_path / "fresh.db"):
        with closing(sqlite3.connect(path)) as database:
            found.append(database.execute(query).fetchall())
    assert found[0] == found[1]


def test_a_migration_that_dies_leaves_the_old_ledger_and_is_begun_again(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(3))

    def dying(kind: Kind, body: object) -> str | None:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return None

    with monkeypatch.context() as patched:
        patched.setattr(ledger_sql_migrate, "once_key", dying)
        with pytest.raises(KeyboardInterrupt):
            SqlLedger(f"sqlite:///{stored}")
    assert version_of(stored) == 1
    with closing(sqlite3.connect(stored)) as database:
        assert database.execute("SELECT count(*) FROM events").fetchone() == (108,)
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB '*_1'"
        assert database.execute(query).fetchall() == []
    SqlLedger(f"sqlite:///{stored}").close()
    assert version_of(stored) == SCHEMA_VERSION


def test_an_old_ledger_that_was_changed_is_refused_and_stays(stored: Path) -> None:
    with closing(sqlite3.connect(stored)) as database:
        database.execute("DROP TRIGGER events_no_delete")
        database.execute("DELETE FROM events WHERE revision = 'spring' AND sequence = 50")
        database.commit()
    with pytest.raises(SettingError, match="breaks a rule") as refused:
        SqlLedger(f"sqlite:///{stored}")
    assert "follows its newest event" in refused.value.found
    assert version_of(stored) == 1


def test_a_newer_ledger_is_refused(ledger_url: str) -> None:
    ledger = SqlLedger(ledger_url)
    ledger.append(ledger.acquire("spring", "test"), [FROZEN])
    with ledger._engine.begin() as connection:
        connection.execute(sa.update(schema_versions).values(version=SCHEMA_VERSION + 1))
    ledger.close()
    with pytest.raises(SettingError, match=f"schema version {SCHEMA_VERSION + 1}") as refused:
        SqlLedger(ledger_url)
    assert "the release that wrote it" in refused.value.remedy
