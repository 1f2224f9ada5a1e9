"""`parcel-assets holdout` and `revisions`: what is left of a holdout, and what follows what."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pyrage  # type: ignore[import-untyped]  # ships no types
import pytest
from typer.testing import CliRunner, Result

from parcel_assets.cli import app
from parcel_assets.core.errors import SplitError
from parcel_assets.steps.data import pin_archive, pin_snapshot, register_plan, split_shipments
from parcel_assets.steps.search import close_search
from parcel_assets.wiring import Settings, open_ports
from parcel_assets_tests.adapters.archive_helpers import usual_rows, write_archive
from parcel_assets_tests.core.plans import plan

ARCHIVE = "test-parcels"


def split(data: Path, revision: str, **changes: object) -> None:
    ports = open_ports(Settings.read({}, data=data))
    changes = {"slices__crushed_corner__role": "monitored", "split__holdout_tranches": 2} | changes
    section = plan(**changes).snapshot
    pinned = pin_archive(section, 32, ports).snapshot_digest
    register_plan(revision, plan(**changes, snapshot__digest=pinned), ports)
    pin_snapshot(revision, ports)
    split_shipments(revision, ports)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two searches, the first of them closed unopened."""
    folder = tmp_path_factory.mktemp("data")
    write_archive(folder / "archives" / "test", usual_rows())
    split(folder, "spring")
    close_search("spring", open_ports(Settings.read({}, data=folder)), reason="a better idea")
    parent = {"revision": "spring", "reason": "other knobs"}
    split(folder, "summer", parent=parent, purpose="another")
    return folder


def run(data: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["--data", str(data), *words])


def test_the_holdout_s_status_counts_every_shipment_once(data: Path) -> None:
    (told,) = json.loads(run(data, "holdout", "status", "--json").stdout)["archives"]
    assert told["archive"] == ARCHIVE
    rows = [(row["tranche"], row["state"], row["revision"]) for row in told["rows"]]
    assert rows == [(1, "sealed", "summer"), (2, "sealed", None)]
    ledger = open_ports(Settings.read({}, data=data)).ledger
    holdout = [one for one, part in ledger.assignments(ARCHIVE).items() if part == "holdout"]
    assert sum(row["shipments"] for row in told["rows"]) == len(holdout)
    words = run(data, "holdout", "status", "--archive", ARCHIVE)
    assert words.exit_code == 0
    assert "summer" in words.stdout


def test_an_unknown_archive_is_named_with_the_known_ones(data: Path) -> None:
    refused = run(data, "holdout", "status", "--archive", "other", "--json")
    assert refused.exit_code == 1
    assert ARCHIVE in json.loads(refused.stdout)["remedy"]


def test_revisions_lists_abandoned_ones_too_with_parent_and_reason(data: Path) -> None:
    rows = json.loads(run(data, "revisions", "--json").stdout)["revisions"]
    told = [(row["revision"], row["parent"], row["reason"], row["state"]) for row in rows]
    assert told == [
        ("spring", None, None, "closed"),
        ("summer", "spring", "other knobs", "open"),
    ]
    assert [row["tranche"] for row in rows] == [1, 1]
    assert [row["packet_digest"] for row in rows] == [None, None]
    assert "a better idea" not in rows[0].values()  # `status` tells why
    words = run(data, "revisions")
    assert "other knobs" in words.stdout


def test_opening_and_releasing_are_refused_in_words(data: Path, tmp_path: Path) -> None:
    absent = run(data, "holdout", "open", "summer", "--key", str(tmp_path / "no-key"))
    assert absent.exit_code == 1
    assert "Nothing was opened" in absent.stderr
    key = tmp_path / "key"
    key.write_text("AGE-SECRET-KEY-1")
    early = run(data, "holdout", "open", "summer", "--key", str(key))
    assert early.exit_code == 1
    assert "evidence" in early.stderr
    refused = run(
        data, "holdout", "release", "summer", "--to", str(tmp_path / "out"), "--reason", "audit"
    )
    assert refused.exit_code == 1
    assert "no final result" in refused.stderr


def test_a_key_holder_s_key_is_made_once_and_its_recipient_is_a_setting(tmp_path: Path) -> None:
    key = tmp_path / "holder.key"
    made = run(tmp_path, "holdout", "key", "--out", str(key))
    assert made.exit_code == 0, made.stderr
    name, _, recipient = made.stdout.strip().partition("=")
    assert Settings.read({name: recipient}, data=tmp_path).holdout_recipient == recipient
    private = pyrage.x25519.Identity.from_str(key.read_text().strip())
    assert str(private.to_public()) == recipient
    assert key.stat().st_mode & 0o777 == 0o600
    again = run(tmp_path, "holdout", "key", "--out", str(key))
    assert again.exit_code == 1
    assert "never overwritten" in " ".join(again.stderr.split())
    assert str(private) == key.read_text().strip()


def test_a_plan_shows_its_tranches(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    assert run(data, "plan", "new", str(data / "archives" / "test"), "-o", str(path)).exit_code == 0
    text = path.read_text()
    assert "# holdout_tranches = 3" in text
    assert "opened whole and once" in run(data, "plan", "show", str(path)).stdout
    path.write_text(text.replace("# holdout_tranches = 3", "holdout_tranches = 3"))
    shown = run(data, "plan", "show", str(path)).stdout
    assert "dealt to 3 tranches" in shown


def test_a_search_whose_plan_was_changed_in_the_ledger_hides_no_other(tmp_path: Path) -> None:
    write_archive(tmp_path / "archives" / "test", usual_rows())
    for one in ("spring", "summer"):
        split(tmp_path, one, purpose=one)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as connection:
        names = connection.execute("select name from sqlite_master where type = 'trigger'")
        for (name,) in names.fetchall():
            connection.execute(f'drop trigger "{name}"')
        connection.execute(
            "update events set body = replace(body, 'purpose', 'purpoze') "
            "where revision = 'spring' and kind = 'plan_frozen'"
        )
        connection.commit()
    rows = json.loads(run(tmp_path, "revisions", "--json").stdout)["revisions"]
    assert [(row["revision"], row["began_on"] is None) for row in rows] == [
        ("spring", True),
        ("summer", False),
    ]
    assert rows[0]["state"] == "damaged"
    (told,) = json.loads(run(tmp_path, "holdout", "status", "--json").stdout)["archives"]
    assert [fault["revision"] for fault in told["faults"]] == ["spring"]
    with pytest.raises(SplitError, match="split of spring that cannot be read"):
        split(tmp_path, "autumn", purpose="autumn")  # what it may have is not given away
