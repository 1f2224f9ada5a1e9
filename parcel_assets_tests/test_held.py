"""A held candidate: three answers from two places, each told in plain words by packet or record."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parcel_assets import fetch_packet
from parcel_assets.core.errors import AdmissionError, PacketError, RegistryError
from parcel_assets.core.ledger import Kind
from parcel_assets.core.pending import pending_of
from parcel_assets.core.selection import day_of
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.core.standing import standing_of
from parcel_assets.defs.metadata_slices import slices_metadata
from parcel_assets.steps.admission import load_chain
from parcel_assets.steps.evaluation import evaluate_final
from parcel_assets.steps.release import build_packet, register_model
from parcel_assets.steps.selection import report_slices, rerun_selected
from parcel_assets_tests.held import (
    Decide,
    RefusedError,
    at_the_command_line,
    command,
    few_corners,
    held_desk,
    in_the_launchpad,
    packet_of,
    report_of,
)
from parcel_assets_tests.steps.desk import REVISION, Desk

PLACES = ("command line", "launchpad")
KINDS = ("FAIL", "INSUFFICIENT")
Open = Callable[[str, str], tuple[Desk, Decide]]


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Return how to get a held desk of a kind, and how one decides at a place."""

    def open_desk(kind: str, place: str) -> tuple[Desk, Decide]:
        drawn: dict[str, Any] = (
            {} if kind == "FAIL" else {"plan": few_corners(), "weak_corners": ()}
        )
        desk = held_desk(tmp_path, monkeypatch, **drawn)
        if place == "command line":
            return desk, at_the_command_line(desk, monkeypatch)
        return desk, in_the_launchpad(desk, tmp_path)

    return open_desk


def finish(desk: Desk) -> None:
    for step in (evaluate_final, build_packet, register_model):
        step(REVISION, desk.ports)


def is_shut(desk: Desk) -> bool:
    """Say whether nothing has touched the holdout: no opening, no receipt, no look."""
    vault: Any = desk.ports.vault
    return not (desk.events(Kind.HOLDOUT_OPENED) or vault.receipts or vault.looks)


@pytest.mark.parametrize("kind", KINDS)
def test_the_chain_holds_and_nothing_touches_the_holdout(kind: str, held: Open) -> None:
    desk, _ = held(kind, "command line")
    chain = load_chain(REVISION, desk.ports)
    if kind == "FAIL":  # cheaper in all, and worse where it counts
        paired = chain.rerun.validation["against_reference"]
        assert paired["upper"] < 0
    (corners,) = [row for row in chain.slices.slices if row["name"] == "crushed_corner"]
    assert corners["outcome"] == kind.lower()
    standing = standing_of(chain)
    assert (standing.state, standing.hold) == ("hold", "hold:slice-quality")
    for step in (evaluate_final, build_packet, register_model):
        with pytest.raises(AdmissionError, match="crushed_corner"):
            step(REVISION, desk.ports)
    assert is_shut(desk)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_accepted_it_is_released_with_a_waiver_that_the_packet_prints(
    kind: str, place: str, held: Open
) -> None:
    desk, decide = held(kind, place)
    words = decide("accept")
    assert "Of 1,000 parcels " in words
    assert "the name is self-declared" in words
    assert is_shut(desk)
    finish(desk)
    assert packet_of(desk)["verdict"] == "released-with-waiver"
    report = report_of(desk)
    for told in ("Waiver: a held slice was accepted", "Ada Example", "belt 9", "2030-01-01"):
        assert told in report
    assert "Of 1,000 parcels damaged in crushed_corner" in report
    assert not desk.ports.verify_packet(desk.ports.packets / REVISION, None, None)["faults"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_replaced_the_next_trial_is_rerun_reported_and_marked(
    kind: str, place: str, held: Open
) -> None:
    desk, decide = held(kind, place)
    first = load_chain(REVISION, desk.ports).rerun.selected_trial
    assert "the next in the frozen ranking" in decide("replace")
    standing = standing_of(load_chain(REVISION, desk.ports))
    assert (standing.state, standing.next_stage) == ("open", "selected_rerun")
    assert pending_of(load_chain(REVISION, desk.ports)) is None
    rerun_selected(REVISION, desk.ports)
    report_slices(REVISION, desk.ports)
    body = load_chain(REVISION, desk.ports).rerun
    assert body.selected_trial == body.ranking[1] != first
    assert body.slice_informed
    assert is_shut(desk)
    with pytest.raises(RefusedError, match=r"second replacement|Nothing is held"):
        decide("replace")
    if kind == "INSUFFICIENT":  # no trial can have more corners than there are
        decide("accept")
    finish(desk)
    assert packet_of(desk)["first_page"]["winner"]["slice_informed"]["value"] is True
    report = report_of(desk)
    assert f"Slice-informed: {body.selected_trial} took the place of {first}" in report
    assert not desk.ports.verify_packet(desk.ports.packets / REVISION, None, None)["faults"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_closed_it_leaves_a_record_without_a_model(
    kind: str, place: str, held: Open, tmp_path: Path
) -> None:
    desk, decide = held(kind, place)
    decide("close")
    folder = desk.ports.packets / REVISION
    verdict = packet_of(desk)
    assert (verdict["verdict"], verdict["usable"]) == ("closed", False)
    assert verdict["selected_trial"] is None
    assert not (folder / "model").exists()
    for name in ("search/trials.jsonl", "slices/slices.json", "rerun/rerun.json", "decision.json"):
        assert (folder / name).is_file()
    report = report_of(desk)
    for told in ("Closed without a winner", "Ada Example", "Belt 9 sees few", "crushed_corner"):
        assert told in report
    assert is_shut(desk)
    found = desk.ports.verify_packet(folder, None, None)
    assert (found["faults"], found["verdict"], found["signature_ok"]) == ([], "closed", True)
    with pytest.raises(PacketError, match="verdict closed"):
        fetch_packet(folder, tmp_path / "fetched", usable_only=True)
    with pytest.raises(AdmissionError, match="closed without a winner by Ada Example"):
        register_model(REVISION, desk.ports)
    for outcome in ("accept", "replace", "close"):
        with pytest.raises(RefusedError, match="closed search"):
            decide(outcome)
    before = build_packet(REVISION, desk.ports)
    assert before.body["verdict"] == "closed"
    assert len(desk.events(Kind.PACKET_PUBLISHED)) == 1


@pytest.mark.parametrize("place", PLACES)
def test_a_missing_answer_an_old_report_and_an_open_holdout_are_refused(
    place: str, held: Open
) -> None:
    desk, decide = held("FAIL", place)
    for changes, words in (
        ({"scope": " "}, "no scope"),
        ({"expires_on": " "}, "expiry"),
        ({"reason": "ok"}, "at least 10 characters"),
        ({"slice_evidence": "0" * 64}, "The evidence has changed since"),
    ):
        with pytest.raises(RefusedError, match=words):
            decide("accept", **changes)
    decide("accept")
    finish(desk)
    with pytest.raises(RefusedError, match="opened holdout"):
        decide("close")


def test_what_waits_is_listed_for_whom_and_how(held: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    desk, decide = held("FAIL", "command line")
    listed = json.loads(command("decide", "--pending", "--json"))
    (only,) = listed["pending"]
    assert (only["revision"], only["hold"]) == (REVISION, "hold:slice-quality")
    assert only["since"].startswith("1970-01-01T")
    assert "crushed_corner" in only["slices"][0]
    assert "self-declared" in only["may_decide"][0]
    assert set(only["commands"]) == {"accept", "replace", "close"}
    output = command("decide", "--pending")
    assert f"parcel-assets decide {REVISION} --outcome accept" in output
    decide("accept")
    assert "Nothing waits" in command("decide", "--pending")
    standing = standing_of(load_chain(REVISION, desk.ports)).document()
    assert standing["decision"]["outcome"] == "accept"
    assert standing["decision"]["counts"] is True
    with pytest.raises(RefusedError, match="--outcome"):
        command("decide", REVISION)


def test_every_decision_is_told_and_what_people_typed_is_only_text(held: Open) -> None:
    desk, decide = held("INSUFFICIENT", "command line")
    typed = "<img src=x onerror=alert(1)> [a](javascript:alert(1)) | `rm` & *more*"
    decide("replace", reason=typed)
    rerun_selected(REVISION, desk.ports)
    report_slices(REVISION, desk.ports)
    listed = command("decide", "--pending")
    assert "(slice-informed: in the place of a held one)" in listed
    assert "  if accepted: Of 1,000 parcels " in listed
    decide("accept", scope="every belt")
    decide("accept", name="Ada <b>Example</b>", scope="=1+1")
    finish(desk)
    report = report_of(desk)
    for title in (
        "The first choice was replaced",
        "An earlier acceptance, which counts no more: a later decision took its place",
        "Waiver: a held slice was accepted",
    ):
        assert report.count(title) == 1
    card = (desk.ports.packets / REVISION / "model_card.md").read_text()
    assert card.count("(the name is self-declared)") == 3
    for told in ("Scope: every belt.", "Scope: =1+1.", "Of 1,000 parcels damaged in"):
        assert told in card
    for page in (report, card.replace("\\<", "")):
        assert "<img src=x" not in page
        assert "<b>Example" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in report
    assert r"\[a\](javascript:alert(1)) \| \`rm\` \& \*more\*" in card
    assert not desk.ports.verify_packet(desk.ports.packets / REVISION, None, None)["faults"]


def test_midnight_between_receipt_and_opening_loses_no_result(held: Open) -> None:
    desk, decide = held("FAIL", "command line")
    decide("accept", expires_on=day_of(desk.ports.ledger.now()).isoformat())
    vault: Any = desk.ports.vault
    vault.dies = "after the receipt"
    with pytest.raises(KeyboardInterrupt):
        evaluate_final(REVISION, desk.ports)
    ledger: Any = desk.ports.ledger
    ledger.clock_seconds += 86_400
    for step in (evaluate_final, build_packet):
        step(REVISION, desk.ports)
    assert packet_of(desk)["verdict"] == "released-with-waiver"
    with pytest.raises(RegistryError, match="expired"):  # the waiver itself has run out
        register_model(REVISION, desk.ports)


def page_of(desk: Desk) -> dict[str, Any]:
    """Return what Dagster's page of the slice report shows."""
    digest = load_chain(REVISION, desk.ports).digests[Stage.SLICES]
    return slices_metadata(
        Evidence.model_validate(desk.ports.store.get_document(digest)), desk.ports
    )


def test_the_report_s_page_asks_for_an_answer_until_there_is_one(held: Open) -> None:
    desk, decide = held("FAIL", "command line")
    waiting = page_of(desk)
    assert "--outcome accept" in waiting["next_command"]
    assert "decided" not in waiting
    decide("accept")
    finish(desk)
    answered = page_of(desk)
    assert answered["decided"].startswith("accept, by Ada Example")
    assert not {"next_step", "next_command", "who_may_decide"} & set(answered)
    assert answered["held/crushed_corner"] == waiting["held/crushed_corner"]
