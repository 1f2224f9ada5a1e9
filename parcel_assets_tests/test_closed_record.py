"""The record of a closed search verifies like a packet, and an insider's changes are found."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parcel_assets import cli_decide
from parcel_assets.adapters.packet_folder import verify_packet
from parcel_assets.core.errors import AdmissionError, LedgerError
from parcel_assets.core.ledger import Event, Kind, chain_event
from parcel_assets.core.packet import LEDGER_FILE, RECEIPTS_FILE, TRIALS_FILE, VERDICT_FILE
from parcel_assets.core.packet_files import digest_list, ledger_lines
from parcel_assets.core.packet_rows import event_of_row
from parcel_assets.core.standing import standing_of
from parcel_assets.steps.admission import load_chain
from parcel_assets.steps.decision import record_decision
from parcel_assets.steps.evaluation import evaluate_final
from parcel_assets.steps.release import build_packet, register_model
from parcel_assets.steps.search import close_search
from parcel_assets_tests.held import answer_of, command, held_desk
from parcel_assets_tests.steps.desk import REVISION, Desk

Change = Callable[[Path], None]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> tuple[Desk, Path]:
    folder = tmp_path_factory.mktemp("closed")
    with pytest.MonkeyPatch.context() as patch:
        desk = held_desk(folder, patch)
    record_decision(REVISION, desk.ports, **answer_of("close"))
    build_packet(REVISION, desk.ports)
    return desk, desk.ports.packets / REVISION


def edit(name: str, change: Callable[[Any], Any]) -> Change:
    def spoil(folder: Path) -> None:
        place = folder / name
        document = json.loads(place.read_bytes())
        place.write_text(json.dumps(change(document) or document))

    return spoil


def open_the_holdout(folder: Path) -> None:
    """Tell the chain anew with an opening in it: every digest of the ledger is right again."""
    lines = (folder / LEDGER_FILE).read_bytes().splitlines()
    events = [event_of_row(json.loads(line)) for line in lines]
    said = [(one.kind, dict(one.body), one.at_seconds) for one in events]
    said.insert(len(said) - 1, (Kind.HOLDOUT_OPENED, {"model_digest": "0" * 64}, 0.0))
    told: list[Event] = []
    for kind, body, at_seconds in said:
        before = told[-1] if told else None
        told.append(
            chain_event(before, revision=REVISION, at_seconds=at_seconds, kind=kind, body=body)
        )
    (folder / LEDGER_FILE).write_bytes(ledger_lines(told))


def drop_the_closing(folder: Path) -> None:
    lines = (folder / LEDGER_FILE).read_bytes().splitlines(keepends=True)
    (folder / LEDGER_FILE).write_bytes(b"".join(lines[:-1]))


def drop_the_trials(folder: Path) -> None:
    (folder / TRIALS_FILE).write_bytes(b"")


def add_a_model(folder: Path) -> None:
    (folder / "model").mkdir()
    (folder / "model" / "model.safetensors").write_bytes(b"weights of the held candidate")


CHANGES: dict[str, tuple[Change, str]] = {
    "an opening": (open_the_holdout, "opened the holdout"),
    "a receipt": (edit(RECEIPTS_FILE, lambda _: [{"revision": REVISION}]), "opened the holdout"),
    "no closing": (drop_the_closing, "holds no closing"),
    "a model": (add_a_model, "has no place in the record of a closed search"),
    "usable": (edit(VERDICT_FILE, lambda d: d.update(usable=True)), "`usable` is not what"),
    "released": (edit(VERDICT_FILE, lambda d: d.update(verdict="released")), "is absent"),
    "another reason": (
        edit("closing.json", lambda d: d.update(reason="no reason at all")),
        "closing.json: is not what ledger, plan and evidence say",
    ),
    "fewer trials": (drop_the_trials, "holds 0 rows"),
    "other slices": (
        edit("evidence/slice_report.json", lambda d: d["body"].update(protected_passed=True)),
        "is not the evidence that the ledger recorded last",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_insiders_change_is_found_although_list_and_signature_are_right(
    name: str, record: tuple[Desk, Path], tmp_path: Path
) -> None:
    desk, folder = record
    spoilt = Path(shutil.copytree(folder, tmp_path / "spoilt"))
    change, words = CHANGES[name]
    change(spoilt)
    files = {
        one.relative_to(spoilt).as_posix(): one.read_bytes()
        for one in spoilt.rglob("*")
        if one.is_file()
    }
    sums = digest_list(files)
    (spoilt / "SHA256SUMS").write_bytes(sums)
    (spoilt / "SHA256SUMS.sig").write_bytes(desk.ports.signer.sign(sums))
    found = verify_packet(spoilt)
    assert found["signature_ok"]
    assert any(words in fault for fault in found["faults"]), found["faults"]


def test_a_search_closed_at_the_command_line_leaves_its_record_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = held_desk(tmp_path, monkeypatch)
    monkeypatch.setattr(cli_decide, "open_ports", lambda _settings, **_: desk.ports)
    output = command("close", REVISION, "--reason", "the belt is rebuilt")
    assert f"parcel-assets packet show {REVISION}" in output
    found = verify_packet(desk.ports.packets / REVISION)
    assert (found["faults"], found["verdict"]) == ([], "closed")
    assert "the belt is rebuilt" in (desk.ports.packets / REVISION / "report.html").read_text()
    with pytest.raises(AdmissionError, match="closed for good by a person: the belt is rebuilt"):
        register_model(REVISION, desk.ports)
    standing = standing_of(load_chain(REVISION, desk.ports))
    assert standing.hold == "closed"
    command("close", REVISION, "--reason", "again")
    assert len(desk.events(Kind.PACKET_PUBLISHED)) == 1


def test_a_look_that_has_begun_is_finished_and_not_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = held_desk(tmp_path, monkeypatch)
    record_decision(REVISION, desk.ports, **answer_of("accept"))
    vault: Any = desk.ports.vault
    vault.dies = "after the receipt"
    with pytest.raises(KeyboardInterrupt):
        evaluate_final(REVISION, desk.ports)
    before = len(desk.ports.ledger.events(REVISION))
    with pytest.raises(LedgerError, match="begun to open"):
        close_search(REVISION, desk.ports, reason="the belt is rebuilt")
    assert len(desk.ports.ledger.events(REVISION)) == before
    evaluate_final(REVISION, desk.ports)
    assert build_packet(REVISION, desk.ports).body["verdict"] == "released-with-waiver"


def test_another_search_s_receipt_over_its_shipments_does_not_keep_the_record_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = held_desk(tmp_path, monkeypatch)
    keys = load_chain(REVISION, desk.ports).observed["holdout_keys"]
    desk.ports.vault.leave_receipt("ab" * 32, {"revision": "search-z", "keys": keys[:1]})
    close_search(REVISION, desk.ports, reason="the belt is rebuilt")
    build_packet(REVISION, desk.ports)
    assert verify_packet(desk.ports.packets / REVISION)["faults"] == []
