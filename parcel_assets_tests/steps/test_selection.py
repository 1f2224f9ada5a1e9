"""Choice, reruns and slice report: frozen before anything is looked at, judged on one artifact."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parcel_assets.core import rerun_report
from parcel_assets.core.errors import AdmissionError, CheckpointError, EvidenceError, HoldError
from parcel_assets.core.evidence import RerunBody, SliceBody
from parcel_assets.core.ledger import Kind
from parcel_assets.core.search import fold_search
from parcel_assets.core.selection import choose
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.core.table import table_rows, unpack_scores
from parcel_assets.steps import selection
from parcel_assets.steps.decision import record_decision
from parcel_assets.steps.dispatch import TaskResult
from parcel_assets.steps.evaluation import evaluate_final
from parcel_assets.steps.selection import report_slices, rerun_selected
from parcel_assets.steps.table import validate_table
from parcel_assets_tests.steps.desk import REVISION, SEEDS, Desk, desk_plan, make_desk

WHO: dict[str, Any] = {"name": "Ada", "role": "quality owner", "reason": "seen with the belt team"}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return seated(make_desk(tmp_path), monkeypatch)


def seated(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Let the desk stand in for the dispatcher, and freeze its table."""
    monkeypatch.setattr(selection, "run_tasks", desk.run_tasks)
    validate_table(desk.revision, desk.ports)
    return desk


def rerun_body(evidence: Evidence) -> RerunBody:
    return RerunBody.model_validate(evidence.body)


def slice_body(evidence: Evidence) -> SliceBody:
    return SliceBody.model_validate(evidence.body)


class TestChoice:
    def test_the_completed_trial_of_lowest_cost_is_chosen_with_its_threshold(
        self, desk: Desk
    ) -> None:
        body = rerun_body(rerun_selected(REVISION, desk.ports))
        assert body.selected_trial == body.ranking[0] == "parcel-02"
        assert set(body.ranking) == {f"parcel-0{number}" for number in (1, 2, 3, 4)}
        assert body.tie_set[0] == "parcel-02"
        assert body.threshold == body.own.threshold
        assert not body.slice_informed

    def test_it_is_frozen_before_the_first_training(self, desk: Desk) -> None:
        rerun_selected(REVISION, desk.ports)
        kinds = [event.kind for event in desk.ports.ledger.events(REVISION)]
        after_search = kinds[kinds.index(Kind.SEARCH_ENDED) :]
        assert after_search.index(Kind.SELECTION_FROZEN) < after_search.index(Kind.ATTEMPT_STARTED)

    def test_a_crash_after_the_freeze_keeps_the_first_choice(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def die(*_tasks: Any, **_given: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(selection, "run_tasks", die)
        with pytest.raises(KeyboardInterrupt):
            rerun_selected(REVISION, desk.ports)
        monkeypatch.setattr(selection, "run_tasks", desk.run_tasks)
        rerun_selected(REVISION, desk.ports)
        assert len(desk.events(Kind.SELECTION_FROZEN)) == 1

    def test_without_a_completed_trial_the_search_holds(self, desk: Desk) -> None:
        with pytest.raises(HoldError) as held:
            choose((), "00" * 32, REVISION)
        assert held.value.facts["hold"] == "hold:invalid-winner"


class TestReruns:
    def test_own_seed_comes_first_then_the_declared_seeds_then_the_reference(
        self, desk: Desk
    ) -> None:
        body = rerun_body(rerun_selected(REVISION, desk.ports))
        subjects = [one.removesuffix("#1") for one in desk.trained]
        seeds = [f"rerun/parcel-02/{seed}" for seed in SEEDS]
        assert subjects == ["rerun/parcel-02/own", *seeds, "reference"]
        assert body.own.parent_checkpoint is None
        assert [one.seed for one in body.extra] == list(SEEDS)

    def test_the_released_model_is_the_own_seed_rerun_which_gives_the_search_scores(
        self, desk: Desk
    ) -> None:
        body = rerun_body(rerun_selected(REVISION, desk.ports))
        assert body.model == body.own.model
        assert body.scores_equal
        assert body.largest_score_difference == 0
        assert body.validation["cost_per_1000"] == body.selected_cost_per_1000
        steady = body.validation["threshold_interval"]
        assert steady["low"] <= body.threshold <= steady["high"]
        assert body.validation["missed_per_1000"] <= body.validation["reviewed_per_1000"] + 1000

    def test_a_rerun_that_differs_is_recorded_and_stops_the_slice_report(self, desk: Desk) -> None:
        desk.own_shift = 0.01
        body = rerun_body(rerun_selected(REVISION, desk.ports))
        assert not body.scores_equal
        assert body.largest_score_difference == pytest.approx(0.01, abs=1e-6)
        with pytest.raises(AdmissionError) as refused:
            report_slices(REVISION, desk.ports)
        assert refused.value.facts["gate"] == "reproduced"

    def test_the_winner_stands_beside_its_corrected_cost_and_the_plain_policies(
        self, desk: Desk
    ) -> None:
        body = rerun_body(rerun_selected(REVISION, desk.ports))
        assert body.corrected_cost is not None
        assert body.corrected_cost["low"] <= body.corrected_cost["mean"]
        assert body.corrected_cost["mean"] <= body.corrected_cost["high"]
        assert body.selected_cost_per_1000 < min(body.trivial_cost_per_1000.values())
        assert body.validation["area_under_curve"] > 0.85
        assert body.judgement["extra_seeds"] == len(SEEDS)

    def test_the_correction_chooses_by_the_plan_s_order_not_by_the_ranking(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[Any] = []
        correct = vars(rerun_report)["selection_corrected_cost"]

        def hear(scores: Any, *columns: Any, **settings: Any) -> Any:
            asked.extend([scores, settings["behind"]])
            return correct(scores, *columns, **settings)

        monkeypatch.setattr(rerun_report, "selection_corrected_cost", hear)
        body = rerun_body(rerun_selected(REVISION, desk.ports))
        assert list(body.ranking) != sorted(body.ranking)
        state = fold_search(desk.plan, desk.ports.ledger.events(REVISION))
        rows = {row.trial_id: row for row in table_rows(desk.plan, state)}
        by_number = [
            unpack_scores(desk.ports.store.get(str(rows[one].scores)), asked[0].shape[1])
            for one in sorted(body.ranking)
        ]
        assert np.array_equal(asked[0], np.stack(by_number))
        assert asked[1] == 0

    def test_it_runs_once_however_often_it_is_asked(self, desk: Desk) -> None:
        first = rerun_selected(REVISION, desk.ports)
        count = len(desk.ports.ledger.events(REVISION))
        assert rerun_selected(REVISION, desk.ports) == first
        assert len(desk.ports.ledger.events(REVISION)) == count

    def test_a_resumed_rerun_is_refused(self, desk: Desk) -> None:
        rerun_selected(REVISION, desk.ports)
        started = desk.events(Kind.ATTEMPT_STARTED)[-1]
        bent = type(started)(
            revision=started.revision,
            sequence=started.sequence,
            at_seconds=started.at_seconds,
            kind=started.kind,
            body={**started.body, "parent_checkpoint": "00" * 32, "resume_step": 9},
            previous=started.previous,
            digest=started.digest,
        )
        result = TaskResult(
            subject="reference",
            attempt=started.body["attempt"],
            model="",
            scores="",
            cost_per_1000=1.0,
            threshold=0.5,
        )
        with pytest.raises(CheckpointError, match="resumed at step 9"):
            selection._require_no_parent((bent,), {"reference": result})


class TestSlices:
    def test_every_slice_of_the_plan_is_judged_and_open_ones_once_for_each_value(
        self, desk: Desk
    ) -> None:
        rerun_selected(REVISION, desk.ports)
        body = slice_body(report_slices(REVISION, desk.ports))
        named = {one["name"]: one for one in body.slices}
        assert list(named) == ["crushed_corner", "cameras:side", "cameras:top"]
        assert named["crushed_corner"]["measure"] == "miss_rate"
        assert named["cameras:top"]["measure"] == "cost"
        assert body.protected_passed
        assert body.disposition == "evaluate:final-holdout"

    def test_a_winner_that_loses_the_protected_slice_is_held(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = seated(weak_desk(tmp_path), monkeypatch)
        rerun_selected(REVISION, desk.ports)
        body = slice_body(report_slices(REVISION, desk.ports))
        corner = body.slices[0]
        assert corner["outcome"] == "fail"
        assert not corner["passed"]
        assert "Held." in corner["sentence"]
        assert body.disposition == "hold:slice-quality"

    def test_too_few_parcels_are_insufficient_in_words_and_hold(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = seated(make_desk(tmp_path, corner_share=0.05), monkeypatch)
        rerun_selected(REVISION, desk.ports)
        body = slice_body(report_slices(REVISION, desk.ports))
        assert body.slices[0]["outcome"] == "insufficient"
        assert "Not enough evidence to say it is no worse" in body.slices[0]["sentence"]
        assert body.disposition == "hold:slice-quality"

    def test_a_protected_slice_without_damage_is_an_error_not_a_number(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = seated(make_desk(tmp_path, corner_share=0.0), monkeypatch)
        rerun_selected(REVISION, desk.ports)
        with pytest.raises(EvidenceError, match="no damaged photo"):
            report_slices(REVISION, desk.ports)

    def test_the_photos_behind_a_slice_are_named_worst_missed_first_and_bounded(
        self, desk: Desk
    ) -> None:
        rerun_selected(REVISION, desk.ports)
        body = slice_body(report_slices(REVISION, desk.ports))
        corner = body.members["crushed_corner"]
        photos = corner["photos"]
        missed = [one["missed"] for one in photos]
        assert missed == sorted(missed, reverse=True)
        assert sum(missed) == min(corner["missed_total"], len(photos))
        assert len(photos) <= 50 < body.members["cameras:top"]["photos_total"]
        assert body.worst_sheet is not None
        assert desk.ports.store.get(body.worst_sheet).startswith(b"PNG")


class TestReplacement:
    def test_it_takes_the_next_of_the_frozen_ranking_and_is_marked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = held_desk(tmp_path, monkeypatch)
        first = desk.events(Kind.SELECTION_FROZEN)[0].body
        record_decision(REVISION, desk.ports, outcome="replace", **WHO)
        body = rerun_body(rerun_selected(REVISION, desk.ports))
        assert body.selected_trial == first["ranking"][1]
        assert body.slice_informed
        # the correction passes over as many as the decision did
        assert body.corrected_cost is not None
        assert body.corrected_cost["mean"] > body.selected_cost_per_1000
        assert list(body.ranking) == first["ranking"]
        report = slice_body(report_slices(REVISION, desk.ports))
        assert report.disposition == "evaluate:final-holdout"
        # the reference was trained already and is not trained again
        assert desk.trained.count("reference#1") == 1

    def test_it_is_done_once_however_often_it_is_asked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = held_desk(tmp_path, monkeypatch)
        record_decision(REVISION, desk.ports, outcome="replace", **WHO)
        first = rerun_selected(REVISION, desk.ports)
        assert rerun_selected(REVISION, desk.ports) == first
        assert len(desk.events(Kind.SELECTION_FROZEN)) == 2

    def test_slices_wait_for_the_next_candidate(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = held_desk(tmp_path, monkeypatch)
        before = report_slices(REVISION, desk.ports)
        record_decision(REVISION, desk.ports, outcome="replace", **WHO)
        assert report_slices(REVISION, desk.ports) == before  # nothing new to say yet
        rerun_selected(REVISION, desk.ports)
        assert report_slices(REVISION, desk.ports) != before

    def test_a_closed_search_goes_no_further(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = held_desk(tmp_path, monkeypatch)
        record_decision(REVISION, desk.ports, outcome="close", **WHO)
        with pytest.raises(AdmissionError, match="closed without a winner by Ada") as refused:
            evaluate_final(REVISION, desk.ports)
        assert refused.value.facts["hold"] == "closed"


def weak_desk(folder: Path) -> Desk:
    """A search whose best trial misses crushed corners, so that the corners hold it."""
    return make_desk(folder, weak_corners=(2,), corner_share=0.15, plan=desk_plan())


def held_desk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    desk = seated(weak_desk(folder), monkeypatch)
    rerun_selected(REVISION, desk.ports)
    report = slice_body(report_slices(REVISION, desk.ports))
    assert report.disposition == "hold:slice-quality"
    assert Stage.SLICES in {event.body["stage"] for event in desk.events(Kind.STAGE_RECORDED)}
    return desk
