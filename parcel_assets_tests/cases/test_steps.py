"""What may be compared with what: B11-B19, B41."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.core.codec import digest_bytes
from parcel_assets.core.ledger import Kind
from parcel_assets.core.replay import replay_decisions
from parcel_assets.core.selection import rank_trials
from parcel_assets.core.trial import AttemptState, TrialState, Verdict
from parcel_assets_tests.simulation.theatre import (
    BATCH_PHOTOS,
    BETWEEN,
    MILESTONE,
    WAYS,
    Actor,
    Case,
    CaseEngine,
    FadesLater,
    LosesOnce,
    Said,
    Script,
    false_alarms,
    of_82_steps,
    pruning,
)


def reason_of(case: Case, attempt: str) -> str:
    ended = case.attempt(attempt).ended
    assert ended is not None
    return ended.reason


# ---- B11: one peer is not enough -----------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_b11_peers_that_end_at_39_do_not_judge_a_longer_trial(tmp_path: Path, way: str) -> None:
    first = WAYS[way][1]  # the milestone that the peers reach

    class ShortPeers(Script):
        """All of the first four trials but one are over right after step 39."""

        def act(self, engine: CaseEngine, worker: Actor) -> Said:
            if worker.attempt and worker.number in {1, 3, 4} and worker.step == 40:
                worker.fail("a short schedule")
            return super().act(engine, worker)

        def say(self, worker: Actor, kind: str, facts: dict[str, Any]) -> None:
            worker.really_say(kind, **facts)
            if kind == "milestone" and worker.step == 27 and way == BETWEEN:
                worker.report(39)  # kept, and nobody's measure

    changes = of_82_steps(way, search__attempts_per_trial=1)
    changes |= pruning(minimum_comparable=3, keep_fractions=[1.0, 1.0, 0.5])
    changes["training"]["milestones"] = [9, first, 60, 82]
    case = Case(tmp_path, **changes)
    case.search(ShortPeers())
    found = case.verdicts()
    for later in ("parcel-05/1", "parcel-06/1"):
        assert found[later, 60] == (Verdict.NOT_COMPARABLE, "1 of 3 peers at step 60")
        assert case.attempt(later).state == AttemptState.COMPLETED
    if way == BETWEEN:
        assert found["parcel-05/1", 39][0] == Verdict.NOT_COMPARABLE
    assert case.state.trials_by_state == {"completed": 3, "failed": 3}


# ---- B12: one axis -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"step": 1, "photos_seen": 9 * BATCH_PHOTOS}, "72 photos seen"),
        ({"step": 9, "photos_seen": 1}, "1 photos seen"),
    ],
    ids=["epochs for steps", "epochs for photos"],
)
def test_b12_a_worker_that_counts_epochs_is_refused(
    tmp_path: Path, said: dict[str, int], reason: str
) -> None:
    class Epochs(Script):
        def say(self, worker: Actor, kind: str, facts: dict[str, Any]) -> None:
            changed = kind == "milestone" and worker.attempt == "parcel-02/1"
            worker.really_say(kind, **(facts | said if changed else facts))

    case = Case(tmp_path, **of_82_steps(search__budget_trials=2))
    case.search(Epochs())
    first, second = case.attempts(2)
    assert (first.state, second.state) == (AttemptState.FAILED, AttemptState.COMPLETED)
    assert reason in reason_of(case, "parcel-02/1")
    assert first.started.worker_id != second.started.worker_id, "its worker was stopped"
    assert not first.reports


# ---- B14, B15: which step a score is of ----------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_b14_the_best_number_of_all_belongs_to_a_trial_stopped_early(
    tmp_path: Path, way: str
) -> None:
    stop = WAYS[way][1]

    case = Case(tmp_path, **of_82_steps(way), **pruning(keep_fractions=[1.0, 0.5]))
    case.search(FadesLater(39))
    rows = {row.number: row for row in case.rows()}
    assert rows[5].state == rows[6].state == TrialState.PRUNED
    early = rows[5].costs[str(stop)]
    finals = [row.final_cost_per_1000 for row in rows.values() if row.final_cost_per_1000]
    assert early is not None
    assert early < min(finals), "else nothing is tried"
    assert rows[5].final_cost_per_1000 is None
    assert [one.number for one in rank_trials(case.rows())] == [1, 2, 3, 4]
    assert case.state.best_trial == "parcel-01"


@pytest.mark.parametrize("way", WAYS)
def test_b15_a_score_and_its_weights_are_of_one_step(tmp_path: Path, way: str) -> None:
    class KeepsTheBest(Script):
        """Its score is step 82's; the weights it hands in are step 39's, which was better."""

        def say(self, worker: Actor, kind: str, facts: dict[str, Any]) -> None:
            if worker.attempt == "parcel-01/1" and kind == "finished":
                best = worker.folder / "best.safetensors"
                best.write_bytes(b"what step 39 had learned")
                worker.step = 39
                facts = {"file": best.name, "model": digest_bytes(best.read_bytes())}
            worker.really_say(kind, **facts)

        def alarms(self, worker: Actor) -> int | None:
            return abs(worker.step - 39) // 4 + worker.number

    case = Case(tmp_path, **of_82_steps(way, search__budget_trials=2))
    case.search(KeepsTheBest())
    first, second = case.attempts(1)
    assert (first.state, second.state) == (AttemptState.FAILED, AttemptState.COMPLETED)
    assert "an end at step 39" in reason_of(case, "parcel-01/1")
    assert first.ended is not None
    assert first.ended.model is None


# ---- B17: an unbroken search and a broken one ----------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_b17_a_search_killed_after_its_twentieth_trial_prunes_alike(
    tmp_path: Path, way: str
) -> None:
    changes = of_82_steps(way, search__budget_trials=30, search__batch_trials=5) | pruning()
    unbroken, broken = Case(tmp_path / "one", **changes), Case(tmp_path / "two", **changes)
    unbroken.search(workers=5)

    settled: list[str] = []

    def at_twenty(kind: Kind, body: Mapping[str, Any]) -> bool:
        if kind == Kind.ATTEMPT_ENDED and body["state"] in {"completed", "pruned"}:
            settled.append(str(body["subject"]))
        return len(settled) == 20

    broken.search_until(at_twenty, workers=5)
    broken.search(workers=3)

    def decisions(case: Case) -> dict[tuple[str, int], tuple[str, str]]:
        found: dict[tuple[str, int], tuple[str, str]] = {}
        for body in case.bodies(Kind.MILESTONE_REPORTED):
            verdict = (body["verdict"], body["reason"])
            key = (str(body["subject"]), int(body["step"]))
            assert found.setdefault(key, verdict) == verdict
        return found

    assert decisions(broken) == decisions(unbroken)
    assert any(verdict == Verdict.STOP for verdict, _ in decisions(broken).values())
    assert broken.table == unbroken.table
    for case in (broken, unbroken):
        assert all(one.agrees for one in replay_decisions(case.world.plan(), case.events))


# ---- B18, B19: what a resumed trial says again ---------------------------------------------------


@pytest.mark.parametrize("offset", [0, 39], ids=["as it is", "added to its step"])
@pytest.mark.parametrize("way", WAYS)
def test_b18_a_trial_resumed_at_39_reports_40(tmp_path: Path, way: str, offset: int) -> None:
    class Reports40(LosesOnce):
        def act(self, engine: CaseEngine, worker: Actor) -> Said:
            if worker.attempt == "parcel-01/2" and worker.step == 40:
                worker.report(40 + offset, photos_seen=40 * BATCH_PHOTOS)
            return super().act(engine, worker)

    case = Case(tmp_path, **of_82_steps(way, search__budget_trials=2))
    case.search(Reports40(41), workers=1)
    resumed = case.attempt("parcel-01/2")
    assert resumed.started.resume_step == 39
    if offset:
        assert "320 photos seen" in reason_of(case, "parcel-01/2")
        assert 79 not in resumed.reports
        return
    assert 40 in resumed.reports
    assert resumed.reports[40].verdict == Verdict.NOT_COMPARABLE
    assert resumed.state == AttemptState.COMPLETED
    assert max(resumed.reports) == 82


@pytest.mark.parametrize("way", WAYS)
def test_b19_a_report_said_again_with_the_same_value_changes_nothing(
    tmp_path: Path, way: str
) -> None:
    class SaysTwice(Script):
        def act(self, engine: CaseEngine, worker: Actor) -> Said:
            if worker.attempt == "parcel-01/1" and worker.step == 40:
                worker.report(39) if way == BETWEEN else None
            said = super().act(engine, worker)
            return said + [one for one in said if one[1]["kind"] == "milestone"]

    case = Case(tmp_path, **of_82_steps(way, search__budget_trials=2))
    case.search(SaysTwice())
    reported = [(one["attempt"], one["step"]) for one in case.bodies(Kind.MILESTONE_REPORTED)]
    assert ("parcel-01/1", 39) in reported
    assert len(reported) == len(set(reported))
    assert case.state.trials_by_state == {"completed": 2}
    assert case.state.attempts_by_state == {"completed": 2}


@pytest.mark.parametrize("way", WAYS)
def test_b19_a_later_attempt_that_says_another_value_puts_both_in_doubt(
    tmp_path: Path, way: str
) -> None:
    class Differs(LosesOnce):
        """Lost after 39 was reported and before its checkpoint, it says 39 again, otherwise."""

        def say(self, worker: Actor, kind: str, facts: dict[str, Any]) -> None:
            if kind == "checkpoint" and worker.attempt == "parcel-01/1" and worker.step == 39:
                return
            worker.really_say(kind, **facts)

        def act(self, engine: CaseEngine, worker: Actor) -> Said:
            if worker.attempt == "parcel-01/1" and worker.step == 39 and way == BETWEEN:
                worker.report(39)
            if worker.attempt == "parcel-01/2" and worker.step == 39 and way == BETWEEN:
                worker.report(39, false_alarms(worker.flags, 7))
            return super().act(engine, worker)

        def alarms(self, worker: Actor) -> int | None:
            changed = way == MILESTONE and worker.attempt == "parcel-01/2" and worker.step == 39
            return 7 if changed else worker.number

    case = Case(tmp_path, **of_82_steps(way, search__budget_trials=2, search__attempts_per_trial=3))
    case.search(Differs(39 if way == MILESTONE else 40), workers=1)
    first, second, third = case.attempts(1)
    assert second.started.resume_step in {26, 27}
    assert case.quarantined == {"parcel-01/1", "parcel-01/2"}
    assert "other scores than parcel-01/1 reported" in str(second.quarantined)
    assert (third.state, third.started.resume_step) == (AttemptState.COMPLETED, 0)
    assert case.state.trials_by_state == {"completed": 2}
    assert first.reports[39].attempt == "parcel-01/1", "each value is kept under its attempt"


# ---- B41: reports in flight ----------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_b41_reports_of_40_to_42_are_in_flight_when_a_trial_is_pruned(
    tmp_path: Path, way: str
) -> None:
    stop = WAYS[way][1]
    flight = [40, 41, 42] if way == MILESTONE else [28, 39, 40]

    class RunsAhead(Script):
        """It does not wait for the verdict before it goes on to report."""

        def alarms(self, worker: Actor) -> int | None:
            return worker.number

        def say(self, worker: Actor, kind: str, facts: dict[str, Any]) -> None:
            worker.really_say(kind, **facts)
            if kind == "milestone" and worker.step == stop and worker.number >= 5:
                for step in flight:
                    worker.report(step)

    case = Case(tmp_path, **of_82_steps(way), **pruning(keep_fractions=[1.0, 0.5]))
    case.search(RunsAhead())
    for attempt in ("parcel-05/1", "parcel-06/1"):
        record = case.attempt(attempt)
        assert (record.state, record.last_step) == (AttemptState.PRUNED, stop)
        kept = [one for one in case.set_aside if attempt in one["message"]]
        assert [one["reason"] for one in kept] == ["its attempt is settled"] * 3
    rows = {row.number: row for row in case.rows()}
    assert {row.state for row in rows.values()} == {TrialState.COMPLETED, TrialState.PRUNED}
    assert set(rows[5].costs) == {str(step) for step in WAYS[way] if step <= stop}
    ranked = [row.number for row in rank_trials(case.rows())]
    assert ranked == [1, 2, 3, 4]
