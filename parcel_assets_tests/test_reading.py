"""A command that reads creates nothing, needs no right to write, and says where it looked."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.adapters.ledger_sql_find import find_ledger
from parcel_assets.cli import app
from parcel_assets.core.errors import SettingError, StorageError
from parcel_assets.core.ledger import Kind
from parcel_assets_tests.release_story import REVISION
from parcel_assets_tests.test_cli import hold_in_ledger

LISTS = ("status", "holdout status", "revisions", "decide --pending")
OF_ONE = (
    "status r1",
    "snapshot show r1",
    "ledger show r1",
    "ledger show r1 --prunes",
    "ledger verify r1",
    "ledger export r1",
    "decide --pending r1",
    "decide r1 --outcome close --name A --role B --reason C",
    "packet verify r1",
    "packet show r1",
    "packet fetch r1 out",
    "holdout release r1 --to out --reason why",
    "close r1 --reason why",
    "run r1",
)
PLAN = {Kind.PLAN_FROZEN: {"plan": {}, "plan_digest": ""}}


def call(data: Path, words: str) -> Result:
    return CliRunner().invoke(app, ["--data", str(data), *words.split()])


def below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [one for one in os.environ if one.startswith("PARCEL_ASSETS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("words", [*LISTS, *OF_ONE, "ui"])
def test_a_mistyped_data_folder_is_refused_and_not_made(words: str, here: Path) -> None:
    said = call(here / "typo", words)
    assert said.exit_code == 1, said.output
    assert str(here / "typo") in said.output
    assert "Nothing was created" in said.output
    assert below(here) == []


@pytest.mark.parametrize("words", [*LISTS, *OF_ONE])
def test_a_folder_without_a_ledger_gets_none_by_being_looked_at(words: str, here: Path) -> None:
    (here / "data").mkdir()
    said = call(here / "data", words)
    assert said.exit_code == (0 if words in LISTS else 1), said.output
    assert below(here) == [here / "data"]


def test_reading_leaves_a_ledger_s_folder_as_it_is(
    here: Path, no_write: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARCEL_ASSETS_DATA", str(here))
    hold_in_ledger(here)
    before = below(here)
    for words in (*LISTS, f"status {REVISION}", f"ledger show {REVISION}"):
        said = call(here, words)
        assert said.exit_code in {0, 3}, said.output
        assert below(here) == before
    refused = call(here, f"close {REVISION} --reason why")
    assert refused.exit_code == 1
    assert f"ledger sqlite:///{here / 'ledger.sqlite'}" in refused.output
    assert "readonly" in refused.output


@pytest.fixture
def no_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the right to write away, as the system tells it: a superuser of tests has every one."""
    really = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and really(path, mode))


def test_who_may_not_write_sees_what_a_writer_adds(here: Path, no_write: None) -> None:
    folder = here / "a 100% 'odd' #folder"
    folder.mkdir()
    url = f"sqlite:///{folder / 'ledger.sqlite'}"
    writer = SqlLedger(url)
    lease = writer.acquire("r1", "test")
    writer.append(lease, list(PLAN.items()))
    reader = find_ledger(url)
    assert [one.kind for one in reader.events("r1")] == [Kind.PLAN_FROZEN]
    writer.append(lease, [(Kind.SEARCH_CLOSED, {"words": "why"})])
    assert len(reader.events("r1")) == 2
    with pytest.raises(StorageError, match="readonly"):
        reader.acquire("r2", "test")
    reader.close()
    writer.release(lease)
    writer.close()
    assert [one.name for one in below(folder)] == ["ledger.sqlite"]
    alone = find_ledger(url)  # nobody has it open now
    assert len(alone.events("r1")) == 2
    alone.close()
    assert [one.name for one in below(folder)] == ["ledger.sqlite"]


def test_a_database_that_holds_no_ledger_gets_none(here: Path) -> None:
    (here / "ledger.sqlite").touch()
    with pytest.raises(SettingError, match="a database without a ledger"):
        find_ledger(f"sqlite:///{here / 'ledger.sqlite'}")
    with closing(sqlite3.connect(here / "ledger.sqlite")) as connection:
        assert connection.execute("SELECT * FROM sqlite_master").fetchall() == []
