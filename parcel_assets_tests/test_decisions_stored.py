"""Decisions and the record of a closed search on a stored ledger: SQLite and PostgreSQL alike."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.adapters.packet_folder import verify_packet
from parcel_assets.core.errors import AdmissionError, DecisionError, LeaseHeldError
from parcel_assets.core.ledger import Kind
from parcel_assets.core.standing import standing_of, told_decision
from parcel_assets.steps.admission import load_chain
from parcel_assets.steps.decision import record_decision
from parcel_assets.steps.decision_numbers import pending_decision
from parcel_assets.steps.evaluation import evaluate_final
from parcel_assets.steps.release import build_packet, register_model
from parcel_assets.steps.selection import report_slices, rerun_selected
from parcel_assets_tests.held import answer_of, held_desk, packet_of
from parcel_assets_tests.steps.desk import REVISION, Desk, with_ports


@pytest.fixture
def desk(tmp_path: Path, ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    ledger = SqlLedger(ledger_url)
    yield held_desk(tmp_path, monkeypatch, ledger=ledger)
    ledger.close()


@pytest.fixture
def other(desk: Desk, ledger_url: str) -> Iterator[Desk]:
    """Return the desk as another process finds it."""
    ledger = SqlLedger(ledger_url)
    yield with_ports(desk, ledger=ledger)
    ledger.close()


def test_an_acceptance_is_found_again_and_released_with_a_waiver(desk: Desk, other: Desk) -> None:
    waiting = pending_decision(REVISION, desk.ports)
    assert waiting is not None
    recorded = record_decision(REVISION, desk.ports, **answer_of("accept"))
    assert recorded.consequence == waiting.if_accepted
    told = told_decision(load_chain(REVISION, other.ports))
    assert told is not None
    assert (told["outcome"], told["counts"], told["scope"]) == ("accept", True, "belt 9")
    assert pending_decision(REVISION, other.ports) is None
    for step in (evaluate_final, build_packet, register_model):
        step(REVISION, other.ports)
    assert packet_of(other)["verdict"] == "released-with-waiver"
    with pytest.raises(DecisionError, match="opened holdout"):
        record_decision(REVISION, desk.ports, **answer_of("close"))


def test_a_replacement_is_made_once_and_carried_out_by_whoever_comes_next(
    desk: Desk, other: Desk
) -> None:
    record_decision(REVISION, desk.ports, **answer_of("replace"))
    with pytest.raises(DecisionError, match="second replacement"):
        record_decision(REVISION, other.ports, **answer_of("replace"))
    rerun_selected(REVISION, other.ports)
    report_slices(REVISION, other.ports)
    assert load_chain(REVISION, desk.ports).rerun.slice_informed


def test_a_closed_search_leaves_a_record_that_verifies(desk: Desk, other: Desk) -> None:
    record_decision(REVISION, desk.ports, **answer_of("close"))
    build_packet(REVISION, other.ports)
    found = verify_packet(other.ports.packets / REVISION)
    assert (found["faults"], found["verdict"]) == ([], "closed")
    assert standing_of(load_chain(REVISION, desk.ports)).hold == "closed"
    with pytest.raises(AdmissionError, match="closed without a winner by Ada Example"):
        evaluate_final(REVISION, desk.ports)


def test_nobody_decides_while_a_run_holds_the_lease(desk: Desk, other: Desk) -> None:
    lease = other.ports.ledger.acquire(REVISION, "slice_report")
    with pytest.raises(LeaseHeldError, match="at work on slice_report"):
        record_decision(REVISION, desk.ports, **answer_of("accept"))
    other.ports.ledger.release(lease)
    record_decision(REVISION, desk.ports, **answer_of("accept"))
    assert len(desk.events(Kind.DECISION_RECORDED)) == 1
