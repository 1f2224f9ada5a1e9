"""`parcel-assets ledger`: verify, show and export, for people and for machines."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.cli import app
from parcel_assets.core.ledger import Kind

EVENT = (
    b'{"at_seconds":%b,"body":{},"digest":"","kind":"plan_frozen","previous":"",'
    b'"revision":"spring","sequence":%b}'
)
STORED = Path(__file__).parent / "data" / "ledgers" / "version-1.sqlite"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data folder with a searched revision and one that is only registered."""
    shutil.copyfile(STORED, tmp_path / "ledger.sqlite")
    return tmp_path


def call(data: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["--data", str(data), "ledger", *words])


def answer(data: Path, *words: str) -> tuple[int, dict[str, Any]]:
    result = call(data, *words, "--json")
    found: dict[str, Any] = json.loads(result.stdout)
    return result.exit_code, found


def test_a_sound_revision_verifies(data: Path) -> None:
    result = call(data, "verify", "autumn")
    assert result.exit_code == 0, result.output
    assert "ledger of autumn: sound" in result.output
    code, document = answer(data, "verify", "autumn")
    assert (code, document["sound"], document["first_fault"]) == (0, True, None)


def test_a_changed_event_is_named_and_the_exit_code_says_so(data: Path) -> None:
    call(data, "verify", "autumn")  # migrates
    with closing(sqlite3.connect(data / "ledger.sqlite")) as database:
        database.execute("DROP TRIGGER events_keeps_words")
        database.execute(
            "UPDATE events SET at_seconds = at_seconds + 1 WHERE sequence = 9 "
            "AND revision = 'spring'"
        )
        database.commit()
    code, document = answer(data, "verify", "spring")
    assert code == 1
    first = document["first_fault"]
    # evidence of events 2 and 3 is in no store here; the chain breaks at 9
    assert first["place"] == "evidence"
    chain = next(one for one in document["faults"] if one["place"] == "chain")
    assert chain["sequence"] == 9
    assert "first fault at event 2" in call(data, "verify", "spring").output


def test_an_export_verifies_without_a_database(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "spring.jsonl"
    code, exported = answer(data, "export", "spring", "-o", str(file))
    assert (code, exported["events"]) == (0, 107)
    head = exported["head"]["digest"]
    empty = tmp_path / "elsewhere"
    code, document = answer(empty, "verify", "--file", str(file), "--head", head)
    assert (code, document["head"]["digest"], document["head_as_given"]) == (0, head, True)
    assert not (empty / "ledger.sqlite").exists()
    assert call(data, "export", "spring").stdout == file.read_text()


@pytest.mark.parametrize(
    ("edit", "sequence", "found"),
    [
        (lambda lines: [*lines[:8], lines[8].replace('"at_seconds":1', '"at_seconds":2')], 9, ""),
        (lambda lines: [*lines[:8], *lines[9:]], 9, "event 10 in its place"),
        (lambda lines: [*lines[:8], lines[9], lines[8], *lines[10:]], 9, "event 10 in its place"),
        (lambda lines: [*lines, lines[-1]], 107, "a second 107"),
        (lambda lines: [*lines[:8], "no json", *lines[9:]], 9, "does not read"),
    ],
)
def test_a_changed_export_is_found(
    data: Path, tmp_path: Path, edit: Any, sequence: int, found: str
) -> None:
    lines = call(data, "export", "spring").stdout.splitlines()
    file = tmp_path / "spring.jsonl"
    file.write_text("\n".join(edit(lines)))
    code, document = answer(data, "verify", "--file", str(file))
    assert code == 1
    assert document["first_fault"]["sequence"] == sequence
    assert found in document["first_fault"]["found"]


def test_an_export_cut_short_is_found_by_its_head(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "spring.jsonl"
    _, exported = answer(data, "export", "spring", "-o", str(file))
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    head = exported["head"]["digest"]
    assert call(data, "verify", "--file", str(file)).exit_code == 0  # a chain alone cannot tell
    result = call(data, "verify", "--file", str(file), "--head", head)
    assert result.exit_code == 1
    assert "not at the head" in result.output
    assert "sound" not in result.output
    assert head in result.output


def test_a_file_verified_without_a_head_says_what_it_cannot_say(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "spring.jsonl"
    _, exported = answer(data, "export", "spring", "-o", str(file))
    alone = call(data, "verify", "--file", str(file)).output
    assert "end was cut off" in alone
    assert "anchors" not in alone  # a file has none
    known = call(data, "verify", "--file", str(file), "--head", exported["head"]["digest"]).output
    assert "sound" in known
    assert "end was cut off" not in known
    gone = call(data, "verify", "--file", str(tmp_path / "gone.jsonl"))
    assert gone.exit_code == 1
    assert "ledger export" in gone.output


def test_a_changed_chain_is_not_shown_or_exported_as_if_it_were_sound(
    data: Path, tmp_path: Path
) -> None:
    shown = ("show", "spring"), ("show", "spring", "--prunes"), ("export", "spring", "-o")
    file = str(tmp_path / "spring.jsonl")
    words = [(*one, file) if one[-1] == "-o" else one for one in shown]
    assert not any("warning" in call(data, *one).output for one in words)
    with closing(sqlite3.connect(data / "ledger.sqlite")) as owner, owner:
        owner.execute("DROP TRIGGER events_keeps_words")
        owner.execute(
            "UPDATE events SET body = '{}' WHERE revision = 'spring' AND sequence = "
            "(SELECT max(sequence) FROM events WHERE revision = 'spring')"
        )
    Path(file).unlink()
    for one in words:
        said = call(data, *one)
        assert said.exit_code == 1, one
        replayed = "--prunes" in one  # which is refused: a broken chain replays nothing
        word = "ledger refused: ledger of spring" if replayed else "warning: ledger of spring"
        assert word in said.output
        code, document = answer(data, *one)
        assert code == 1
        assert "found" in (document if replayed else document["chain_fault"])
    assert call(data, "export", "spring").exit_code == 1
    assert Path(file).read_text().count("\n") == 107  # all the same


def test_a_kind_may_be_named_as_it_is_shown(data: Path) -> None:
    asked = ("show", "spring", "--trial", "parcel-02", "--kind")
    assert call(data, *asked, "attempt ended").output == call(data, *asked, "attempt_ended").output


def test_show_prints_what_was_asked_for(data: Path) -> None:
    result = call(data, "show", "spring", "--trial", "parcel-02", "--kind", "attempt_ended")
    assert result.exit_code == 0
    assert "SIGKILL" in result.output
    assert "parcel-03" not in result.output
    code, document = answer(data, "show", "spring", "--attempt", "parcel-01/1", "--limit", "2")
    assert (code, [one["kind"] for one in document["events"]]) == (
        0,
        ["milestone_reported", "attempt_ended"],
    )
    assert call(data, "show", "spring", "--kind", "wish").exit_code == 2
    assert call(data, "show", "winter").exit_code == 1


def test_prune_decisions_are_replayed(data: Path) -> None:
    code, document = answer(data, "show", "spring", "--prunes")
    assert (code, document["all_agree"]) == (0, True)
    assert {one["verdict"] for one in document["decisions"]} >= {"continue", "stop"}
    assert call(data, "show", "spring", "--prunes").exit_code == 0


def test_a_decision_on_a_quarantined_attempt_is_marked(data: Path) -> None:
    assert "QUARANTINED" not in call(data, "show", "spring", "--prunes").output
    ledger = SqlLedger(f"sqlite:///{data / 'ledger.sqlite'}")
    lease = ledger.acquire("spring", "test")
    body = {"attempt": "parcel-02/1", "reason": "a shared prefix", "found_by": "test"}
    ledger.append(lease, [(Kind.ATTEMPT_QUARANTINED, body)])
    ledger.release(lease)
    ledger.close()
    shown = call(data, "show", "spring", "--prunes").output
    marked = [line for line in shown.splitlines() if "QUARANTINED: a shared prefix" in line]
    assert marked
    assert all("parcel-02/1" in line for line in marked)
    _, document = answer(data, "show", "spring", "--prunes")
    told = {one["attempt"]: one["quarantined"] for one in document["decisions"]}
    assert {one: why for one, why in told.items() if why} == {"parcel-02/1": "a shared prefix"}


def test_one_of_revision_and_file_is_asked_for(data: Path) -> None:
    assert call(data, "verify").exit_code == 2
    assert call(data, "verify", "spring", "--file", "x").exit_code == 2
    assert call(data, "verify", "winter").exit_code == 1


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe no text",
        b"[" * 100_000,
        b'{"at_seconds":1,"body":{"a":NaN},"kind":"plan_frozen"}',
        EVENT % (b"1e999", b"1"),
        EVENT % (b"1", b"1e999"),
        b'{"at_seconds":1,"body":{"a":"\\ud800"},"kind":"\\ud800"}',
        b'{"at_seconds":1,"body":{},"kind":' + b"9" * 5000 + b"}",
    ],
)
@pytest.mark.parametrize("before", [0, 8])
def test_whatever_stands_in_a_line_is_told_in_words(
    data: Path, tmp_path: Path, line: bytes, before: int
) -> None:
    lines = call(data, "export", "spring").stdout.encode().split(b"\n")
    file = tmp_path / "spring.jsonl"
    file.write_bytes(b"\n".join([*lines[:before], line, *lines[before + 1 :]]))
    code, document = answer(data, "verify", "--file", str(file))
    assert code == 1
    assert document["first_fault"]["sequence"] == before + 1
    assert "does not read" in document["first_fault"]["found"]
    assert call(data, "verify", "--file", str(file)).exit_code == 1


def test_a_time_that_no_clock_shows_is_told_in_words(data: Path) -> None:
    call(data, "verify", "autumn")  # migrates
    with closing(sqlite3.connect(data / "ledger.sqlite")) as database:
        database.execute("DROP TRIGGER events_keeps_words")
        database.execute("UPDATE events SET at_seconds = 9e999 WHERE sequence = 9")
        database.commit()
    code, document = answer(data, "verify", "spring")
    assert code == 1
    assert any(one["place"] == "chain" and one["sequence"] == 9 for one in document["faults"])


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\x85", "\x0b", "\x1c", "\r"])
def test_an_export_is_read_by_the_line_ends_that_it_was_written_with(
    data: Path, tmp_path: Path, odd: str
) -> None:
    ledger = SqlLedger(f"sqlite:///{data / 'ledger.sqlite'}")
    lease = ledger.acquire("autumn", "test")
    ledger.append(lease, [(Kind.SEARCH_CLOSED, {"words": f"belt 7{odd}is out"})])
    ledger.release(lease)
    file = tmp_path / "autumn.jsonl"
    assert call(data, "export", "autumn", "-o", str(file)).exit_code == 0
    code, document = answer(data, "verify", "--file", str(file))
    assert "does not read" not in json.dumps(document)
    assert document["events"] == document["rows"], (code, document)
    shown = call(data, "export", "autumn").stdout_bytes
    assert shown == file.read_bytes()


def test_an_argument_that_is_no_text_is_refused_in_words(data: Path) -> None:
    words = ["--data", str(data), "close", "autumn", "--reason", "belt \udcff"]
    result = CliRunner().invoke(app, [*words, "--json"])
    assert (result.exit_code, "U+" in result.stdout or "UTF-8" in result.stdout) == (1, True)
