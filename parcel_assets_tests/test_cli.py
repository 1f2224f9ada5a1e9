"""The command line: what it prints, where it stops, and with which exit code."""

import errno
import json
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from sqlalchemy.exc import OperationalError
from typer.testing import CliRunner

from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.cli import app
from parcel_assets.cli_dagster import storage_refusals
from parcel_assets.core.errors import SettingError
from parcel_assets.core.ledger import Kind
from parcel_assets.core.stage import Stage
from parcel_assets.wiring import Settings
from parcel_assets_tests.defs.told import bend
from parcel_assets_tests.release_story import REVISION, tell

HOLD, ERROR, USAGE = 3, 1, 2


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [one for one in os.environ if one.startswith("PARCEL_ASSETS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PARCEL_ASSETS_DATA", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    (tmp_path / "plans").mkdir()
    return tmp_path


def call(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def call_json(*words: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == code, (result.output, result.exception)
    return json.loads(result.stdout)


def draw_archive(folder: Path, *, broken: bool = False) -> Path:
    """Make a dozen small photos of six parcels with a table of its own words."""
    (folder / "images").mkdir(parents=True)
    lines = ["path,parcel_id,camera,label,damage"]
    for number in range(12):
        name = f"images/{number:02d}.png"
        photo = Image.new("RGB", (32, 24), (20 * number, 90, 200))
        photo.paste((10, 10, 10), (4, 4, 12 + number, 20))
        photo.save(folder / name)
        damaged = number % 2 == 0
        words = ("damaged", "dent") if damaged else ("intact", "")
        lines.append(f"{name},{number // 2:013d},side,{','.join(words)}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    if broken:
        (folder / "images" / "03.png").write_bytes(b"not a picture")
    return folder


def hold_in_ledger(data: Path) -> None:
    """Put a search that a lost slice holds into the real ledger and store of the data folder."""
    story = tell(data, corners="lost", decided=True)
    held = bend(story, Stage.SLICES)
    ledger = SqlLedger(Settings.read().ledger_url)
    lease = ledger.acquire(REVISION, "test")
    entries = [
        (event.kind, event.body)
        for event in held.ledger.events(REVISION)
        if event.kind != Kind.DECISION_RECORDED
    ]
    ledger.append(lease, entries)
    ledger.release(lease)
    ledger.close()  # nothing of it is left beside the file


def test_every_command_explains_itself() -> None:
    for words in ([], ["plan"], ["snapshot"], ["packet"]):
        assert "Usage" in CliRunner().invoke(app, [*words, "--help"]).output
    for name in ("sample", "run", "status", "decide", "demo", "ui", "simulate-gates"):
        assert name in call("--help")


def test_wrong_usage_has_its_own_exit_code(data: Path) -> None:
    assert data.is_dir()
    call("run", code=USAGE)
    call("plan", "chekc", "x", code=USAGE)
    call("decide", "a", "--outcome", "perhaps", code=USAGE)
    call("demo", "--held", "--quick", code=USAGE)


def test_a_plan_s_gates_are_simulated_before_anything_is_pinned(data: Path, tmp_path: Path) -> None:
    archive = draw_archive(tmp_path / "photos")
    path = tmp_path / "photos-a.toml"
    call("plan", "new", str(archive), "--output", str(path), "--trials", "6")
    assert f"simulate-gates {path}" in call("plan", "check", str(path))
    words = call("simulate-gates", str(path), "--draws", "20")
    assert "sizes from the label table labels.csv" in words
    assert "before this plan is registered" in words
    told = call_json("simulate-gates", str(path), "--draws", "20", "--shipments", "900")
    assert told["sizes"]["source"] == "900 shipments, as given"
    assert told["draws"] == 20
    assert told["remarks"]
    assert {"slices", "pruning", "selection", "final", "assumed", "seed"} <= told.keys()
    assert told["final"]["draws"] == 20
    assert "share of searches" in words
    assert "per 1,000 photos" in words  # every table says what it counts
    missing = tmp_path / "nowhere.toml"
    missing.write_text(re.sub(r'location = ".*?"', 'location = "gone"', path.read_text()))
    told = call_json("simulate-gates", str(missing), "--draws", "20")
    assert told["sizes"]["source"].startswith("the least that the plan's")
    assert not list(data.rglob("*.db"))


def test_a_target_that_asks_nothing_is_warned_of(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "photos-a.toml"
    call("plan", "new", str(draw_archive(tmp_path / "photos")), "--output", str(path))
    assert call_json("plan", "check", str(path))["warnings"] == []
    text = re.sub(r"target_cost_per_1000 = .*", "target_cost_per_1000 = 5000.0", path.read_text())
    path.write_text(text)
    assert data.is_dir()
    (warning,) = call_json("plan", "check", str(path))["warnings"]
    assert "5000" in warning
    assert "asks nothing of a model" in warning
    assert warning.split()[0] == "the"
    assert "Look here: the target of 5000" in call("plan", "check", str(path))


def test_a_plan_s_gates_are_simulated_without_a_data_folder_and_make_none(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, fresh = tmp_path / "photos-a.toml", data / "fresh"
    call("plan", "new", str(draw_archive(tmp_path / "photos")), "--output", str(path))
    monkeypatch.setenv("PARCEL_ASSETS_DATA", str(fresh))
    told = call_json("simulate-gates", str(path), "--draws", "20")
    assert told["sizes"]["source"] == "the least that the plan's split asks for"
    assert not fresh.exists()
    fresh.touch()  # a file in the folder's place is still a fault
    call("simulate-gates", str(path), "--draws", "20", code=ERROR)


def test_a_simulation_that_is_stopped_ends_cleanly_and_claims_nothing(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "photos-a.toml"
    call("plan", "new", str(draw_archive(tmp_path / "photos")), "--output", str(path))

    def stopped(*_words: Any, **_more: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("parcel_assets.cli_simulate.simulate", stopped)
    words = call("simulate-gates", str(path), "--draws", "20", code=130)
    assert "Stopped. A simulation records nothing." in words
    assert "goes on from here" not in words
    assert not list(data.rglob("*.db"))


def test_a_plan_for_an_archive_of_ones_own(data: Path, tmp_path: Path) -> None:
    archive = draw_archive(tmp_path / "photos")
    path = tmp_path / "elsewhere" / "photos-a.toml"
    output = call("plan", "new", str(archive), "--output", str(path), "--trials", "8")
    assert "snapshot pin" in output
    assert "0000000000003" in (archive / "labels.csv").read_text()
    checked = call_json("plan", "check", str(path))
    assert (checked["revision"], checked["pinned"]) == ("photos-a", False)
    assert "plan is never overwritten" in call(
        "plan", "new", str(archive), "--output", str(path), code=ERROR
    )
    assert data.is_dir()


def test_pinning_writes_the_digest_and_nothing_else(data: Path, tmp_path: Path) -> None:
    path = data / "plans" / "photos.toml"
    call("plan", "new", str(draw_archive(tmp_path / "photos")))
    before = path.read_text()
    pinned = call_json("snapshot", "pin", "photos")
    assert (pinned["photos"], pinned["shipments"], pinned["damaged_photos"]) == (12, 6, 6)
    after = path.read_text()
    assert after == before.replace('digest = ""', f'digest = "{pinned["snapshot_digest"]}"')
    call("snapshot", "pin", "photos")
    assert path.read_text() == after


def test_a_snapshot_that_no_run_has_kept_yet_is_told_with_what_comes_next(
    data: Path, tmp_path: Path
) -> None:
    call("plan", "new", str(draw_archive(tmp_path / "photos")))
    assert "snapshot pin photos" in call("snapshot", "show", "photos", code=ERROR)
    digest = call_json("snapshot", "pin", "photos")["snapshot_digest"]
    refused = call_json("snapshot", "show", "photos", code=ERROR)
    assert digest[:8] in refused["found"]
    assert "run photos" in refused["remedy"]


def test_a_printed_command_repeats_the_data_folder_that_was_given(data: Path) -> None:
    refused = call("--data", str(data), "status", "sumer", code=ERROR)
    assert f"--data {data} " in refused, refused
    document = call_json("--data", str(data), "status", "sumer", code=ERROR)
    assert f"`parcel-assets --data {data} plan register PLAN`" in document["remedy"]
    hold_in_ledger(data)
    for told in (
        call_json("--data", str(data), "status", REVISION),
        call_json("--data", str(data), "status")["revisions"][0],
    ):
        assert told["next_command"].startswith(f"parcel-assets --data {data} decide {REVISION} ")
    listed = call("--data", str(data), "status")
    (line,) = (one for one in listed.splitlines() if one.startswith("next:"))
    assert line.split("next:  ")[1] == told["next_command"]


def test_a_printed_command_takes_a_path_with_blanks(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "my plans" / "photos.toml"
    said = call("plan", "new", str(draw_archive(tmp_path / "photos")), "-o", str(path))
    assert f"snapshot pin '{path}'" in said
    assert f"simulate-gates '{path}'" in call("plan", "check", str(path))
    assert f"snapshot pin '{path}'" in call("plan", "register", str(path), code=ERROR)
    assert f"plan register '{path}'" in call("snapshot", "pin", str(path))
    assert f"run '{path}'" in call("snapshot", "show", str(path), code=ERROR)


def test_a_broken_photo_is_named_with_its_row(data: Path, tmp_path: Path) -> None:
    call("plan", "new", str(draw_archive(tmp_path / "photos", broken=True)))
    output = call("snapshot", "pin", "photos", code=ERROR)
    assert "images/03.png" in output
    assert 'digest = ""' in (data / "plans" / "photos.toml").read_text()


def test_an_unpinned_plan_is_not_registered(data: Path, tmp_path: Path) -> None:
    call("plan", "new", str(draw_archive(tmp_path / "photos")))
    assert "snapshot pin photos" in call("plan", "register", "photos", code=ERROR)
    assert "snapshot pin photos" in call("run", "photos", code=ERROR)
    assert (data / "plans").is_dir()


def test_the_bill_comes_before_anything_runs(data: Path, tmp_path: Path) -> None:
    call("plan", "new", str(draw_archive(tmp_path / "photos")))
    output = call("plan", "show", "photos")
    assert output.startswith("At most")
    assert "one accelerator-hour is one worker slot for one hour" in output
    bill = call_json("plan", "show", "photos")["bill"]
    assert bill["hours"] <= bill["cap_hours"]
    assert bill["disk_bytes"]["decoded pixels"] == 12 * 64 * 64 * 3
    assert not (data / "ledger.sqlite").exists()


def test_all_faults_of_a_plan_come_at_once(data: Path) -> None:
    path = data / "plans" / "bad.toml"
    path.write_text('purpose = ""\n[snapshot]\narchive = "a"\nlocatoin = "b"\n')
    refusal = call_json("plan", "check", "bad", code=ERROR)
    paths = {one["path"] for one in refusal["faults"]}
    assert {"purpose", "snapshot.locatoin", "snapshot.location", "search"} <= paths
    output = call("plan", "check", "bad", code=ERROR)
    assert "did you mean 'location'" in output
    assert "Traceback" not in output


def test_an_unknown_revision_is_refused_in_words(data: Path) -> None:
    assert "no plan file" in call("run", "nobody", code=ERROR)
    assert "nobody" in call("status", "nobody", code=ERROR)
    assert data.is_dir()


def test_a_hold_has_its_name_its_words_and_the_next_command(data: Path) -> None:
    hold_in_ledger(data)
    output = call("status", REVISION)
    assert "hold:slice-quality" in output
    assert "crushed_corner" in output
    assert f"parcel-assets decide {REVISION} --outcome accept" in output
    standing = call_json("status", REVISION)
    assert (standing["state"], standing["gate"]) == ("hold", "protected_slices")


def test_a_search_is_closed_for_good_with_a_reason_and_status_says_so(data: Path) -> None:
    hold_in_ledger(data)
    call("close", REVISION, code=2)
    assert "no reason" in call("close", REVISION, "--reason", " ", code=ERROR)
    for _ in range(2):
        closed = call_json("close", REVISION, "--reason", "its camera was moved")
        assert (closed["state"], closed["hold"]) == ("hold", "closed")
    output = call("status", REVISION)
    assert "by a person: its camera was moved" in output
    search = call_json("status", REVISION)["search"]
    assert search["closed"] == "its camera was moved"
    assert search["started_trials"] + search["unstarted_trials"] == 82


def test_a_decision_is_recorded_once_and_said_in_parcels(data: Path) -> None:
    hold_in_ledger(data)
    words = ["decide", REVISION, "--outcome", "accept", "--name", "Q. Owner", "--role", "quality"]
    words += ["--reason", "corners are seen again at the gate"]
    refusal = call_json(*words, code=ERROR)
    assert "scope" in refusal["found"]
    accepted = call_json(*words, "--scope", "belt cameras", "--expires", "2099-12-31")
    assert accepted["decision"]["name"] == "Q. Owner"
    assert "1,000" in accepted["consequence"]
    assert call_json("status", REVISION)["next_stage"] == "final_evaluation"


def test_the_list_of_revisions(data: Path) -> None:
    assert call_json("status") == {"revisions": []}
    hold_in_ledger(data)
    (only,) = call_json("status")["revisions"]
    assert only["hold"] == "hold:slice-quality"


def test_holds_are_listed_alone(data: Path) -> None:
    ledger = SqlLedger(Settings.read().ledger_url)
    assert "No plan is registered yet" in call("status", "--holds")
    story = tell(data / "other", corners="kept")
    (frozen,) = (one for one in story.events if one.kind == Kind.PLAN_FROZEN)
    lease = ledger.acquire("open-one", "test")
    ledger.append(lease, [(frozen.kind, frozen.body)])
    ledger.close()
    assert "None of the 1 search revisions is held" in call("status", "--holds")
    hold_in_ledger(data)
    assert [one["revision"] for one in call_json("status", "--holds")["revisions"]] == [REVISION]
    assert len(call_json("status")["revisions"]) == 2


def test_a_wrong_setting_is_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARCEL_ASSETS_WORKERS", "many")
    output = call("plan", "show", "x", code=ERROR)
    assert "PARCEL_ASSETS_WORKERS" in output
    assert data.is_dir()


def test_the_sample_is_drawn_once(data: Path) -> None:
    folder = data / "archives" / "tiny"
    first = call_json("sample", str(folder), "--shipments", "3")
    assert first["shipments"] == 3
    assert call_json("sample", str(folder), "--shipments", "3") == first
    refusal = call_json("sample", str(folder), "--shipments", "4", code=ERROR)
    assert "sample archive with other" in refusal["found"]


def test_what_the_system_refuses_is_told_in_words_and_not_as_a_stack(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_given: Any, **_named: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(data / "plans"))

    monkeypatch.setattr("parcel_assets.cli_plan.find_plan", refuse)
    told = call_json("plan", "check", "any", code=ERROR)
    assert told["found"] == "Permission denied"
    assert told["where"] == str(data / "plans")


def test_a_broken_dagster_storage_is_told_in_words(data: Path) -> None:
    settings = Settings.read()
    with pytest.raises(SettingError, match="disk is full"), storage_refusals(settings):
        raise OperationalError("INSERT", {}, sqlite3.OperationalError("disk is full"))


def test_a_damaged_revision_does_not_hide_the_others(data: Path) -> None:
    hold_in_ledger(data)
    with sqlite3.connect(data / "ledger.sqlite") as connection:
        connection.execute("DROP TRIGGER events_keeps_words")
        connection.execute("UPDATE events SET body = '{}' WHERE sequence = 2")
    (listed,) = call_json("status")["revisions"]
    assert (listed["revision"], listed["state"]) == (REVISION, "damaged")
    assert "changed from outside" in listed["facts"]["remedy"]
    call("status", REVISION, code=ERROR)
