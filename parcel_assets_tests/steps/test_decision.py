"""A quality decision lifts a slice hold and nothing else, once it says who, why and how far."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.core.errors import AdmissionError, DecisionError, LeaseHeldError
from parcel_assets.core.ledger import Kind
from parcel_assets.core.stage import Stage
from parcel_assets.core.standing import standing_of
from parcel_assets.steps import selection
from parcel_assets.steps.admission import load_chain
from parcel_assets.steps.decision import RecordedDecision, record_decision
from parcel_assets.steps.evaluation import evaluate_final
from parcel_assets.steps.search import close_search
from parcel_assets.steps.selection import report_slices, rerun_selected
from parcel_assets.steps.table import validate_table
from parcel_assets_tests.fakes import FakeLedger
from parcel_assets_tests.steps.desk import REVISION, Desk, desk_plan, make_desk

ACCEPT: dict[str, Any] = {
    "outcome": "accept",
    "name": "Ada",
    "role": "quality owner",
    "reason": "seen with the belt team",
    "scope": "site A, until new corner photos are in",
    "expires_on": "2030-01-01",
}
NO_BOUNDS = {"scope": "", "expires_on": ""}
DAY_SECONDS = 86_400


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    desk = make_desk(tmp_path, weak_corners=(2,), corner_share=0.15)
    return report(desk, monkeypatch)


@pytest.fixture(params=["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
def zone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the machine stand where it is the day after, or the day before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", str(request.param))
        time.tzset()
        yield
    time.tzset()


def report(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(selection, "run_tasks", desk.run_tasks)
    for step in (validate_table, rerun_selected, report_slices):
        step(REVISION, desk.ports)
    return desk


def decide(desk: Desk, **changes: Any) -> RecordedDecision:
    bounds = {} if changes.get("outcome", "accept") == "accept" else NO_BOUNDS
    return record_decision(REVISION, desk.ports, **ACCEPT | bounds | changes)


class TestAccept:
    def test_it_lifts_the_hold_and_keeps_both_facts(self, held: Desk) -> None:
        decide(held)
        chain = load_chain(REVISION, held.ports)
        assert chain.disposition() == "evaluate:final-holdout"
        assert chain.slices.disposition == "hold:slice-quality"
        assert not chain.slices.protected_passed

    def test_it_says_what_it_means_in_missed_parcels(self, held: Desk) -> None:
        decided = decide(held)
        assert "Of 1,000 parcels " in decided.consequence
        assert (
            "Of 1,000 parcels damaged in crushed_corner, 314 would leave so " in decided.consequence
        )
        assert decided.decision.numbers_seen["consequence"] == decided.consequence
        assert "Worse than the reference" in decided.decision.numbers_seen["slices"][0]

    def test_a_newer_decision_takes_its_place_while_the_holdout_is_shut(self, held: Desk) -> None:
        decide(held)
        decide(held, outcome="close")
        with pytest.raises(AdmissionError, match="closed"):
            evaluate_final(REVISION, held.ports)


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"outcome": "ignore"}, "one of accept, replace, close"),
            ({"name": " "}, "no name"),
            ({"role": ""}, "no role"),
            ({"reason": "ok"}, "at least 10 characters"),
            ({"scope": ""}, "no scope"),
            ({"expires_on": "next year"}, "expiry 'next year'"),
            ({"expires_on": "1969-12-31"}, "expired on 1969-12-31"),
            ({"expires_on": "20300101"}, "expected 2030-01-01"),
            ({"expires_on": "2030-W01-1"}, "expected 2029-12-31"),
            ({"name": "Ada\nApproved by the board"}, r"name with U\+000A as character 4"),
            ({"role": "owner\x1b[2K"}, r"role with U\+001B"),
            ({"scope": "belt \u202e9"}, r"scope with U\+202E"),
            ({"reason": "bytes that are no text: \udcff"}, r"reason with U\+DCFF"),
            ({"outcome": "close", "scope": "belt 9"}, "a scope for close"),
            ({"outcome": "replace", "expires_on": "2030-01-01"}, "a last day for replace"),
            ({"expires_on": ""}, "no expiry; expected a date"),
            ({"slice_evidence": "00" * 32}, "The evidence has changed since"),
        ],
    )
    def test_what_is_missing_or_wrong_is_named(
        self, held: Desk, changes: dict[str, Any], words: str
    ) -> None:
        with pytest.raises(DecisionError, match=words):
            decide(held, **changes)
        assert not held.events(Kind.DECISION_RECORDED)

    @pytest.mark.parametrize("second", [0, DAY_SECONDS - 1])
    @pytest.mark.usefixtures("zone")
    def test_days_are_counted_in_utc_wherever_the_machine_stands(
        self, held: Desk, second: int
    ) -> None:
        ledger = held.ports.ledger
        assert isinstance(ledger, FakeLedger)
        ledger.clock_seconds = 30 * DAY_SECONDS + second
        with pytest.raises(DecisionError, match=r"from 1970-01-31 on \(days are counted in UTC\)"):
            decide(held, expires_on="1970-01-30")
        decide(held, expires_on="1970-01-31")  # today is not expired
        assert load_chain(REVISION, held.ports).accepted

    def test_evidence_that_was_replaced_is_refused(self, held: Desk) -> None:
        seen = load_chain(REVISION, held.ports).digests[Stage.SLICES]
        decide(held, outcome="replace")
        rerun_selected(REVISION, held.ports)
        with pytest.raises(DecisionError, match="not carried out yet"):
            decide(held)  # the report of the next candidate is not there yet
        report_slices(REVISION, held.ports)
        with pytest.raises(DecisionError, match="evidence has changed since"):
            decide(held, slice_evidence=seen)

    def test_nothing_held_is_nothing_to_decide(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = report(make_desk(tmp_path), monkeypatch)
        with pytest.raises(DecisionError, match="no held slice gate"):
            decide(desk)

    def test_without_a_slice_report_there_is_nothing_to_decide(self, tmp_path: Path) -> None:
        with pytest.raises(DecisionError, match="no slice report"):
            decide(make_desk(tmp_path))

    def test_before_it_the_gate_that_stops_the_chain_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = make_desk(tmp_path)
        monkeypatch.setattr(selection, "run_tasks", desk.run_tasks)
        validator: Any = desk.ports.validator
        validator.fails = True
        validate_table(REVISION, desk.ports)
        with pytest.raises(DecisionError, match="gate expectations not passed"):
            decide(desk)

    @pytest.mark.parametrize("outcome", ["accept", "replace", "close"])
    def test_another_gate_is_not_lifted_and_what_ends_the_search_is_named(
        self, held: Desk, outcome: str
    ) -> None:
        spent_by_another(held)
        with pytest.raises(DecisionError, match="gate holdout_unspent not passed") as refused:
            decide(held, outcome=outcome)
        assert f"`parcel-assets close {REVISION} --reason TEXT`" in refused.value.remedy

    @pytest.mark.parametrize("outcome", ["accept", "replace", "close"])
    def test_after_another_search_s_look_the_way_out_is_named(
        self, held: Desk, outcome: str
    ) -> None:
        keys = load_chain(REVISION, held.ports).observed["holdout_keys"]
        held.ports.vault.leave_receipt("ab" * 32, {"revision": "search-z", "keys": keys[:1]})
        with pytest.raises(DecisionError, match="a holdout that search-z has opened") as refused:
            decide(held, outcome=outcome)
        assert f"`parcel-assets close {REVISION} --reason TEXT`" in refused.value.remedy
        close_search(REVISION, held.ports, reason="another search has looked")
        assert standing_of(load_chain(REVISION, held.ports)).hold == "closed"

    def test_a_monitored_slice_holds_nothing_and_is_not_for_a_decision(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plan = desk_plan(slices__crushed_corner__role="monitored")
        desk = report(
            make_desk(tmp_path, plan=plan, weak_corners=(2,), corner_share=0.15), monkeypatch
        )
        (corners,) = [
            one
            for one in load_chain(REVISION, desk.ports).slices.slices
            if one["name"] == "crushed_corner"
        ]
        assert corners["outcome"] == "fail"
        with pytest.raises(DecisionError, match="no held slice gate"):
            decide(desk)

    def test_while_somebody_is_at_work_on_the_revision_nobody_decides(self, held: Desk) -> None:
        other = FakeLedger(owner="a run of slice_report", shared=held.ports.ledger)  # type: ignore[arg-type]
        lease = other.acquire(REVISION, "slice_report")
        with pytest.raises(LeaseHeldError, match="a run of slice_report at work"):
            decide(held)
        other.release(lease)
        decide(held)

    def test_a_second_replacement_is_refused(self, held: Desk) -> None:
        decide(held, outcome="replace")
        with pytest.raises(DecisionError, match="second replacement"):
            decide(held, outcome="replace")

    def test_a_replacement_is_carried_out_before_anything_else_is_decided(self, held: Desk) -> None:
        decide(held, outcome="replace")
        with pytest.raises(DecisionError, match="not carried out yet"):
            decide(held)

    @pytest.mark.parametrize("outcome", ["accept", "replace", "close"])
    def test_a_closed_search_stays_closed(self, held: Desk, outcome: str) -> None:
        decide(held, outcome="close")
        with pytest.raises(DecisionError, match="closed search"):
            decide(held, outcome=outcome)

    def test_after_a_receipt_it_is_too_late(self, held: Desk) -> None:
        decide(held)
        evaluate_final(REVISION, held.ports)
        with pytest.raises(DecisionError, match="opened holdout"):
            decide(held)


class TestExpiry:
    def test_an_expired_acceptance_may_be_given_again(self, held: Desk) -> None:
        decide(held, expires_on="1970-01-02")
        ledger = held.ports.ledger
        assert isinstance(ledger, FakeLedger)
        ledger.clock_seconds += 3 * DAY_SECONDS
        with pytest.raises(AdmissionError, match=r"gate protected_slices .* expired on 1970-01-02"):
            evaluate_final(REVISION, held.ports)
        decide(held)
        assert evaluate_final(REVISION, held.ports).body["outcome"] == "PASS"


def spent_by_another(desk: Desk) -> None:
    """Let another revision have opened one of the desk's holdout shipments."""
    ledger = desk.ports.ledger
    lease = ledger.acquire("search-z", "test")
    plan = desk.plan
    ledger.append(
        lease, [(Kind.PLAN_FROZEN, {"plan": plan.document(), "plan_digest": plan.digest})]
    )
    keys = load_chain(REVISION, desk.ports).observed["holdout_keys"]
    ledger.open_holdout(lease, {}, keys[:1])
    ledger.release(lease)
