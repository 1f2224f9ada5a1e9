"""The final evaluation: one opening, one look, one result, whatever crashes and whoever asks."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.core.errors import AdmissionError, DecisionError, HoldoutError, LedgerError
from parcel_assets.core.evidence import FinalBody
from parcel_assets.core.gate_rules import model_identity
from parcel_assets.core.ledger import Event, Kind, Lease
from parcel_assets.core.stage import Stage
from parcel_assets.steps import selection
from parcel_assets.steps.admission import leased, load_chain
from parcel_assets.steps.decision import record_decision
from parcel_assets.steps.evaluation import evaluate_final
from parcel_assets.steps.selection import report_slices, rerun_selected
from parcel_assets.steps.table import validate_table
from parcel_assets_tests.fakes import FakeLedger
from parcel_assets_tests.steps.desk import REVISION, Desk, FakeVault, desk_plan, make_desk

WHO: dict[str, Any] = {"name": "Ada", "role": "quality owner", "reason": "seen with the belt team"}
DAY_SECONDS = 86_400


@pytest.fixture
def seat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Desk]:
    """Return a maker of desks whose slice report is on record."""

    def make(**changes: Any) -> Desk:
        return reported(make_desk(tmp_path, **changes), monkeypatch)

    return make


def reported(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Bring a desk to its slice report."""
    monkeypatch.setattr(selection, "run_tasks", desk.run_tasks)
    for step in (validate_table, rerun_selected, report_slices):
        step(desk.revision, desk.ports)
    return desk


def vault_of(desk: Desk) -> FakeVault:
    vault = desk.ports.vault
    assert isinstance(vault, FakeVault)
    return vault


class TestOneLook:
    def test_it_judges_the_frozen_model_at_the_frozen_threshold(
        self, seat: Callable[..., Desk]
    ) -> None:
        desk = seat()
        body = FinalBody.model_validate(evaluate_final(REVISION, desk.ports).body)
        assert body.outcome == "PASS"
        assert "The target is met." in body.sentence
        assert body.disposition == "evaluate:final-holdout"
        assert (body.evidence_level, body.reused_shipments) == ("L1", 0)
        opened = desk.events(Kind.HOLDOUT_OPENED)[0]
        assert body.opened_event == opened.digest
        assert body.model == opened.body["model_digest"]
        assert body.result["shipments"] == 200

    def test_asked_again_it_returns_the_one_result(self, seat: Callable[..., Desk]) -> None:
        desk = seat()
        first = evaluate_final(REVISION, desk.ports)
        assert evaluate_final(REVISION, desk.ports) == first
        assert vault_of(desk).looks == 1

    @pytest.mark.parametrize(("target", "outcome"), [(900.0, "PASS"), (20.0, "FAIL")])
    def test_the_plan_s_target_decides(
        self, seat: Callable[..., Desk], target: float, outcome: str
    ) -> None:
        desk = seat(plan=desk_plan(final__target_cost_per_1000=target))
        assert evaluate_final(REVISION, desk.ports).body["outcome"] == outcome

    def test_below_the_plan_s_minimum_nothing_is_claimed(self, seat: Callable[..., Desk]) -> None:
        desk = seat(plan=desk_plan(final__minimum_shipments=201))
        body = evaluate_final(REVISION, desk.ports).body
        assert body["outcome"] == "INSUFFICIENT"
        assert "200 shipments, at least 201 planned" in body["sentence"]

    def test_nothing_may_be_chosen_or_decided_any_more(self, seat: Callable[..., Desk]) -> None:
        desk = seat()
        evaluate_final(REVISION, desk.ports)
        with pytest.raises(DecisionError, match="opened holdout"):
            record_decision(REVISION, desk.ports, outcome="close", **WHO)
        with leased(desk.ports, REVISION, "test") as lease, pytest.raises(LedgerError, match="aft"):
            desk.ports.ledger.append(lease, [(Kind.SELECTION_FROZEN, {})])

    @pytest.mark.parametrize(
        ("field", "value"),
        [("outcome", "PASS"), ("sentence", "The target is met."), ("evidence_level", "L3")],
    )
    def test_evidence_that_says_otherwise_than_the_look_on_record_stops_the_packet(
        self, seat: Callable[..., Desk], field: str, value: str
    ) -> None:
        desk = seat(plan=desk_plan(final__target_cost_per_1000=20.0))
        evaluate_final(REVISION, desk.ports)
        chain = load_chain(REVISION, desk.ports)
        assert model_identity(chain).passed
        final = chain.evidence[Stage.FINAL]
        edited = final.model_copy(update={"body": {**final.body, field: value}})
        verdict = model_identity(replace(chain, evidence={**chain.evidence, Stage.FINAL: edited}))
        assert not verdict.passed
        assert f"give another {field}" in verdict.sentence


class TestAdmission:
    def test_a_held_candidate_leaves_the_holdout_shut(self, seat: Callable[..., Desk]) -> None:
        desk = seat(weak_corners=(2,), corner_share=0.15)
        with pytest.raises(AdmissionError) as refused:
            evaluate_final(REVISION, desk.ports)
        assert refused.value.facts["hold"] == "hold:slice-quality"
        assert not vault_of(desk).receipts
        assert not desk.events(Kind.HOLDOUT_OPENED)

    def test_an_accepted_candidate_is_evaluated_and_names_its_decision(
        self, seat: Callable[..., Desk]
    ) -> None:
        desk = seat(weak_corners=(2,), corner_share=0.15)
        decided = record_decision(
            REVISION, desk.ports, outcome="accept", scope="site A", expires_on="2030-01-01", **WHO
        )
        evidence = evaluate_final(REVISION, desk.ports)
        assert evidence.inputs["decision"] == decided.event.digest
        assert evidence.body["disposition"] == "evaluate:final-holdout"

    def test_an_acceptance_that_has_expired_opens_nothing(self, seat: Callable[..., Desk]) -> None:
        desk = seat(weak_corners=(2,), corner_share=0.15)
        record_decision(
            REVISION, desk.ports, outcome="accept", scope="site A", expires_on="1970-01-02", **WHO
        )
        ledger = desk.ports.ledger
        assert isinstance(ledger, FakeLedger)
        ledger.clock_seconds += 3 * DAY_SECONDS
        with pytest.raises(AdmissionError, match="expired on 1970-01-02"):
            evaluate_final(REVISION, desk.ports)
        assert not vault_of(desk).receipts

    @pytest.mark.parametrize("missing", [Stage.RERUN, Stage.SLICES])
    def test_directly_asked_without_the_stages_before_it_refuses(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: Stage
    ) -> None:
        desk = make_desk(tmp_path)
        monkeypatch.setattr(selection, "run_tasks", desk.run_tasks)
        validate_table(REVISION, desk.ports)
        if missing == Stage.SLICES:
            rerun_selected(REVISION, desk.ports)
        with pytest.raises(AdmissionError, match=f"no evidence of {missing}"):
            evaluate_final(REVISION, desk.ports)
        assert not vault_of(desk).receipts


class DyingLedger(FakeLedger):
    """Ends the process before or after one write, once."""

    def __init__(self) -> None:
        super().__init__()
        self.dies = ""

    def open_holdout(self, lease: Lease, body: Mapping[str, Any], keys: Sequence[str]) -> Event:
        self._die("before the opening")
        event = super().open_holdout(lease, body, keys)
        self._die("after the opening")
        return event

    def append(
        self, lease: Lease, entries: Sequence[tuple[Kind, Mapping[str, Any]]]
    ) -> tuple[Event, ...]:
        kinds = {kind for kind, _ in entries}
        final = any(body.get("stage") == str(Stage.FINAL) for _, body in entries)
        word = "result" if Kind.HOLDOUT_EVALUATED in kinds else "evidence" if final else "other"
        self._die(f"before the {word}")
        events = super().append(lease, entries)
        self._die(f"after the {word}")
        return events

    def _die(self, moment: str) -> None:
        if self.dies == moment:
            self.dies = ""
            raise KeyboardInterrupt(moment)


MOMENTS = [
    f"{side} the {what}"
    for what in ("receipt", "opening", "look", "result", "evidence")
    for side in ("before", "after")
]


class TestCrashes:
    @pytest.mark.parametrize("moment", MOMENTS)
    def test_a_crash_anywhere_ends_in_one_opening_and_one_result(
        self, seat: Callable[..., Desk], moment: str
    ) -> None:
        ledger = DyingLedger()
        desk = seat(ledger=ledger)
        vault = vault_of(desk)
        ledger.dies = vault.dies = moment
        with pytest.raises(KeyboardInterrupt):
            evaluate_final(REVISION, desk.ports)
        ledger.dies = vault.dies = ""
        body = FinalBody.model_validate(evaluate_final(REVISION, desk.ports).body)
        assert body.outcome == "PASS"
        for kind in (Kind.HOLDOUT_OPENED, Kind.HOLDOUT_EVALUATED):
            assert len(desk.events(kind)) == 1
        assert len(vault.receipts) == 1
        # only a crash inside the look itself makes the vault look again (the real one keeps its
        # result beside the labels, and does not)
        unheard = {"after the look", "before the result"}
        assert vault.looks == 1 + (moment in unheard)

    @pytest.mark.parametrize(
        "moment", ["after the receipt", "after the opening", "before the look"]
    )
    def test_another_evaluator_may_not_go_on(self, seat: Callable[..., Desk], moment: str) -> None:
        ledger = DyingLedger()
        desk = seat(ledger=ledger)
        vault = vault_of(desk)
        ledger.dies = vault.dies = moment
        with pytest.raises(KeyboardInterrupt):
            evaluate_final(REVISION, desk.ports)
        ledger.dies = vault.dies = ""
        vault.evaluator_digest = "00" * 32
        with pytest.raises(HoldoutError) as refused:
            evaluate_final(REVISION, desk.ports)
        assert refused.value.facts["field"] == "evaluator_digest"
        assert vault.looks == 0


class TestSecondLooks:
    def test_a_new_ledger_meets_the_receipt(
        self, seat: Callable[..., Desk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = seat()
        evaluate_final(REVISION, desk.ports)
        empty = FakeLedger()
        empty.clock_seconds += 7
        with pytest.raises(LedgerError, match="its anchor is in the store"):
            validate_table(REVISION, replace(desk.ports, ledger=empty))
        for anchors in tmp_path.rglob("anchors"):  # somebody with the store as well
            shutil.rmtree(anchors)
        again = make_desk(tmp_path, ledger=empty, vault=desk.ports.vault)
        monkeypatch.setattr(selection, "run_tasks", again.run_tasks)
        for step in (validate_table, rerun_selected, report_slices):
            step(REVISION, again.ports)
        with pytest.raises(HoldoutError) as refused:
            evaluate_final(REVISION, again.ports)
        assert refused.value.facts["field"] == "freeze_event"
        assert vault_of(desk).looks == 1

    @pytest.mark.parametrize("new_ledger", [False, True])
    @pytest.mark.parametrize("further_shipment", [False, True])
    def test_another_revision_meets_the_spent_shipments(
        self, seat: Callable[..., Desk], new_ledger: bool, further_shipment: bool
    ) -> None:
        desk = seat()
        evaluate_final(REVISION, desk.ports)
        ledger = FakeLedger() if new_ledger else desk.ports.ledger
        with pytest.raises(AdmissionError) as refused:
            seat(
                revision="search-b",
                ledger=ledger,
                vault=desk.ports.vault,
                further_shipment=further_shipment,
            )
        assert refused.value.facts["gate"] == "holdout_unspent"
        assert REVISION in refused.value.facts["sentence"]
        assert vault_of(desk).looks == 1

    def test_a_swapped_threshold_is_refused(self, seat: Callable[..., Desk]) -> None:
        ledger = DyingLedger()
        desk = seat(ledger=ledger)
        ledger.dies = "after the opening"
        with pytest.raises(KeyboardInterrupt):
            evaluate_final(REVISION, desk.ports)
        self._swap(desk, "threshold", 0.1)
        with pytest.raises((HoldoutError, AdmissionError)):
            evaluate_final(REVISION, desk.ports)
        assert vault_of(desk).looks == 0

    def _swap(self, desk: Desk, name: str, value: Any) -> None:
        """Record rerun and slice evidence again with one field bent, as a forger would."""
        store, ledger = desk.ports.store, desk.ports.ledger
        entries = {one.body["stage"]: one.body for one in desk.events(Kind.STAGE_RECORDED)}
        bent: dict[str, str] = {}
        with leased(desk.ports, REVISION, "forger") as lease:
            for stage in (Stage.RERUN, Stage.SLICES):
                document = store.get_document(entries[str(stage)]["evidence"])
                document["inputs"] |= bent
                if stage == Stage.RERUN:
                    document["body"][name] = value
                bent[str(stage)] = store.put_document(document)
                entry = {"stage": str(stage), "evidence": bent[str(stage)], "inputs": {}}
                ledger.append(lease, [(Kind.STAGE_RECORDED, entry)])

    def test_a_damaged_ledger_without_its_receipt_is_refused_by_the_vault(
        self, seat: Callable[..., Desk]
    ) -> None:
        desk = seat()
        evaluate_final(REVISION, desk.ports)
        replaced = replace(desk.ports, vault=FakeVault(desk.ports.store))  # type: ignore[arg-type]
        # the result is in the ledger: it is read there, and nothing is decrypted
        assert evaluate_final(REVISION, replaced) == evaluate_final(REVISION, desk.ports)
