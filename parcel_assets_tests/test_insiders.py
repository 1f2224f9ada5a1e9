"""A decision that somebody wrote into the ledger by hand must say what every decision says."""

from pathlib import Path
from typing import Any

import pytest

from parcel_assets.core.errors import AdmissionError, PacketError
from parcel_assets.core.ledger import Kind
from parcel_assets.core.stage import Stage
from parcel_assets.steps.admission import leased, load_chain
from parcel_assets.steps.decision import record_decision
from parcel_assets.steps.evaluation import evaluate_final
from parcel_assets.steps.release import build_packet
from parcel_assets.steps.selection import rerun_selected
from parcel_assets_tests.held import answer_of, held_desk
from parcel_assets_tests.steps.desk import REVISION, Desk

FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "nobody": ({"name": " "}, "no name"),
    "no role": ({"role": ""}, "no role"),
    "no reason": ({"reason": "ok"}, "at least 10 characters"),
    "hidden text": ({"reason": "as agreed \u202ewith nobody"}, r"reason with U\+202E"),
    "no scope": ({"scope": ""}, "no scope"),
    "no last day": ({"expires_on": ""}, "no expiry"),
    "no known day": ({"expires_on": "for ever"}, "expiry 'for ever'"),
    "no known outcome": ({"outcome": "ignore"}, "not the fields of a decision"),
    "a field more": ({"approved_by": "the board"}, "not the fields of a decision"),
    "a signature that no plan asked for": ({"signature": "AAAA"}, "a signature"),
}


def write_by_hand(desk: Desk, outcome: str = "accept", **changes: Any) -> None:
    """Append a decision as whoever may write to the database could."""
    body = {
        "scope": "",
        "expires_on": "",
        **answer_of(outcome),
        "slice_evidence": load_chain(REVISION, desk.ports).digests[Stage.SLICES],
        "numbers_seen": {"slices": []},
        "signature": "",
    }
    with leased(desk.ports, REVISION, "an insider") as lease:
        desk.ports.ledger.append(lease, [(Kind.DECISION_RECORDED, body | changes)])


@pytest.mark.parametrize("name", FIELDS)
def test_what_says_too_little_counts_for_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, (changes, words) = held_desk(tmp_path, monkeypatch), FIELDS[name]
    write_by_hand(desk, **changes)
    chain = load_chain(REVISION, desk.ports)
    assert (chain.accepted, chain.disposition()) == (False, "hold:slice-quality")
    with pytest.raises(AdmissionError, match=f"does not count: .*{words}"):
        evaluate_final(REVISION, desk.ports)
    assert not desk.events(Kind.HOLDOUT_OPENED)
    # it stands in nobody's way either
    record_decision(REVISION, desk.ports, **answer_of("accept"))
    assert load_chain(REVISION, desk.ports).accepted


@pytest.mark.parametrize(
    ("outcome", "step"), [("replace", rerun_selected), ("close", build_packet)]
)
def test_a_replacement_or_a_closing_by_nobody_is_not_carried_out(
    outcome: str, step: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = held_desk(tmp_path, monkeypatch)
    write_by_hand(desk, outcome, name="")
    with pytest.raises(AdmissionError, match="does not count: no name"):
        step(REVISION, desk.ports)


@pytest.mark.parametrize("name", ["nobody", "no reason", "a signature that no plan asked for"])
def test_a_packet_that_an_insider_built_on_it_does_not_verify(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, (changes, words) = held_desk(tmp_path, monkeypatch), FIELDS[name]
    write_by_hand(desk, **changes)
    with monkeypatch.context() as bent:  # the insider's own build asks nothing
        for place in ("core.chain.recorded_fault", "steps.admission.recorded_fault"):
            bent.setattr(f"parcel_assets.{place}", lambda _body: None)
        bent.setattr("parcel_assets.steps.admission.approval_fault", lambda *_, **__: None)
        evaluate_final(REVISION, desk.ports)
        with pytest.raises(PacketError, match=f"has a bad decision .*{words}"):
            build_packet(REVISION, desk.ports)
