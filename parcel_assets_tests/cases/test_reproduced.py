"""What we made happen in other tools' current releases, tried on ourselves: O1-O10."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parcel_assets.core.errors import LeaseHeldError, PlanChangedError, PlanError
from parcel_assets.core.identity import Difference, first_difference_of
from parcel_assets.core.identity_data import measure_data
from parcel_assets.core.ledger import Kind
from parcel_assets.core.plan_reader import require_same_plan
from parcel_assets.core.ports import PartData, Scores, TrainingData
from parcel_assets.core.selection import rank_trials
from parcel_assets.core.snapshot import Label
from parcel_assets.core.trial import AttemptState, TrialState, Verdict
from parcel_assets.steps.custody import Custody
from parcel_assets_tests.cases.test_storage import require_torn_write_is_forgotten
from parcel_assets_tests.core.plans import plan as make_plan
from parcel_assets_tests.search_world import small_plan
from parcel_assets_tests.simulation.theatre import (
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
    Sleeper,
    of_82_steps,
    pruning,
)
from parcel_assets_tests.steps.test_door import Visitors

QUICK: dict[str, Any] = {
    "training": {"steps": 1, "milestones": [1], "batch_photos": 8, "checkpoint_every_steps": 3},
    "pruning": {"keep_fractions": [], "warm_up_trials": 0},
}


def killed_thrice(case: Case, workers: int, at: tuple[int, ...]) -> None:
    """Search to the end through three deaths of the coordinator, at these numbers of ends."""
    for number in at:
        ends = 0

        def dies(kind: Kind, _body: Mapping[str, Any], number: int = number) -> bool:
            nonlocal ends
            ends += kind == Kind.ATTEMPT_ENDED
            return ends >= number

        case.search_until(dies, workers=workers)
    case.search(workers=workers)


def require_slots(case: Case, budget: int) -> None:
    state = case.state
    assert (state.started, state.unstarted, state.proposed) == (budget, 0, budget)
    started = {str(one["subject"]) for one in case.bodies(Kind.ATTEMPT_STARTED)}
    proposed = {
        one["trial_id"] for body in case.bodies(Kind.BATCH_OPENED) for one in body["trials"]
    }
    assert started == proposed
    assert len(started) == budget


def test_o1_a_cap_of_82_with_eight_workers_and_restarts(tmp_path: Path) -> None:
    case = Case(tmp_path, **QUICK, search__budget_trials=82, search__batch_trials=8)
    killed_thrice(case, 8, (20, 20, 30))
    require_slots(case, 82)
    before = case.events
    case.search(workers=8)
    assert case.events == before


@pytest.mark.parametrize("way", WAYS)
def test_o2_a_value_first_reported_at_82_fills_no_milestone_before_it(
    tmp_path: Path, way: str
) -> None:
    first = WAYS[way][0]

    class Leaps(Script):
        """The first two trials have nothing to say before the end, and then shine."""

        def say(self, worker: Actor, kind: str, facts: dict[str, Any]) -> None:
            if worker.attempt.endswith("/1") and worker.number <= 2 and kind == "milestone":
                worker.step = 82
                facts = facts | {"photos_seen": 82 * 8, "subset": worker.subsets[82]}
            worker.really_say(kind, **facts)

        def alarms(self, worker: Actor) -> int | None:
            return 0 if worker.attempt in {"parcel-01/1", "parcel-02/1"} else 5

    case = Case(tmp_path, **of_82_steps(way), **pruning())
    case.search(Leaps())
    for name in ("parcel-01/1", "parcel-02/1"):
        record = case.attempt(name)
        assert record.state == AttemptState.FAILED
        assert record.ended is not None
        assert f"milestone {first} skipped" in record.ended.reason
        assert record.reports == {}
    assert 0.0 not in case.compared()
    assert {row.state for row in case.rows()} == {TrialState.COMPLETED}, "equal ones go on"


def test_o2_a_third_record_is_compared_by_its_step_and_not_by_its_place(tmp_path: Path) -> None:
    class Chatters(Script):
        """From the fifth trial on it reports steps 1, 2 and 3 as well, where nobody is good yet."""

        def act(self, engine: CaseEngine, worker: Actor) -> Said:
            if worker.attempt and worker.number >= 5 and worker.step in {1, 2, 3}:
                worker.report(worker.step, np.zeros(len(worker.flags), dtype=np.float32))
            return super().act(engine, worker)

        def alarms(self, worker: Actor) -> int | None:
            return 3

    case = Case(tmp_path, **of_82_steps(), **pruning())
    case.search(Chatters())
    found = case.verdicts()
    for attempt in ("parcel-05/1", "parcel-06/1"):
        for step in (1, 2, 3):
            assert found[attempt, step] == (
                Verdict.NOT_COMPARABLE,
                f"step {step} is no milestone of the plan",
            )
        assert case.attempt(attempt).state == AttemptState.COMPLETED
    assert not [one for one in found.values() if one[0] == Verdict.STOP]


def test_o3_infinity_is_nobody_s_best_value(tmp_path: Path) -> None:
    class Infinite(Script):
        def scores(self, worker: Actor) -> Scores | None:
            found = super().scores(worker)
            assert found is not None
            return np.where(found > 0.5, np.inf, -np.inf).astype(np.float32)

        def alarms(self, worker: Actor) -> int | None:
            return 0

    case = Case(tmp_path, search__budget_trials=2)
    assert case.search(Infinite())["ended"] == "failed"
    assert case.state.best_trial is None
    assert rank_trials(case.rows()) == ()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"snapshot__digest": "b" * 64}, "snapshot.digest"),
        ({"metric__missed_damage": 1.0, "metric__needless_review": 5.0}, "metric.missed_damage"),
    ],
    ids=["another snapshot", "what is worse turned round"],
)
def test_o3_one_search_is_of_one_snapshot_and_one_direction(
    tmp_path: Path, change: dict[str, Any], field: str
) -> None:
    case = Case(tmp_path)
    frozen: Mapping[str, Any] = case.bodies(Kind.PLAN_FROZEN)[0]["plan"]
    with pytest.raises(PlanChangedError) as refused:
        require_same_plan(case.revision, frozen, small_plan(**change))
    assert refused.value.facts["field"] == field
    with pytest.raises(PlanError, match=r"metric\.direction"):
        make_plan(metric__direction="maximize")
    found = Visitors(tmp_path / "door").come(tmp_path / "worker", "newer_archive")
    assert isinstance(found, Difference)
    assert found.field == "archive"


def test_o4_twenty_bytes_cut_off_and_every_later_opening_goes_well(tmp_path: Path) -> None:
    require_torn_write_is_forgotten(tmp_path)


def test_o5_a_paused_worker_wakes_and_writes_its_checkpoint(tmp_path: Path) -> None:
    calm, case = (Case(tmp_path / one, **of_82_steps(BETWEEN)) for one in ("calm", "torn"))
    calm.search()
    assert case.search(Sleeper())["ended"] == "budget", "nobody dies of it"
    first, second = case.attempts(1)
    late = {path.name for path in case.prefix("parcel-01/1").iterdir()}
    assert "checkpoint-52.safetensors" in late, "it wrote"
    assert [one.step for one in first.checkpoints] == [9, 13, 26, 27, 39]
    assert second.started.parent_checkpoint == first.checkpoints[-1].checkpoint
    assert not [
        one for one in case.bodies(Kind.CHECKPOINT_SAVED) if one["attempt"] == "parcel-01/1"
    ][5:]
    assert case.quarantined == set()
    assert case.state.lineage_faults == ()
    assert case.table == calm.table


@pytest.mark.parametrize("way", WAYS)
def test_o6_two_workers_speak_under_one_id(tmp_path: Path, way: str) -> None:
    class Twin(Script):
        """Beside the first trial's worker another one speaks under its id, with a better value."""

        said = 0

        def alarms(self, worker: Actor) -> int | None:
            return 5

        def act(self, engine: CaseEngine, worker: Actor) -> Said:
            said = super().act(engine, worker)
            if worker.attempt != "parcel-01/1" or worker.step != 39:
                return said
            before = len(worker.outbox)
            if way == MILESTONE:
                return [*said, *self.twin_of(said)]
            worker.report(39)
            reported, worker.outbox = worker.outbox[before:], worker.outbox[:before]
            mine = [(worker.worker_id, one) for one in reported]
            return [*said, *mine, *self.twin_of(mine)]

        def twin_of(self, said: Said) -> Said:
            found = [
                (name, one | {"token": "0" * 64, "scores": "0" * 64})
                for name, one in said
                if one["kind"] == "milestone"
            ]
            self.said += len(found)
            return found

    case, script = Case(tmp_path, **of_82_steps(way, search__budget_trials=2)), Twin()
    case.search(script)
    assert script.said > 0
    started = [one["subject"] for one in case.bodies(Kind.ATTEMPT_STARTED)]
    assert started == ["parcel-01", "parcel-02"], "no trial was given to two"
    values = [
        one["scores"]
        for one in case.bodies(Kind.MILESTONE_REPORTED)
        if (one["attempt"], one["step"]) == ("parcel-01/1", 39)
    ]
    assert len(values) == 1
    assert "0" * 64 not in values
    assert len(case.set_aside) == script.said
    assert case.state.trials_by_state == {"completed": 2}


def test_o7_a_second_run_of_one_name_touches_nothing_and_two_steps_win_over_no_twenty(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, search__batch_trials=2, search__budget_trials=6, **pruning())

    class Again(FadesLater):
        refused = False

        def beside(self, engine: CaseEngine) -> Said:
            if not self.refused and engine.turn == 8:
                with pytest.raises(LeaseHeldError):
                    case.ledger.acquire(case.revision, "a second run")
                self.refused = True
            return []

    script = Again(2)
    case.search(script)
    assert script.refused
    rows = {row.number: row for row in case.rows()}
    early = rows[5].costs["2"]
    assert rows[5].state == TrialState.PRUNED
    assert early is not None
    assert case.state.best_trial == "parcel-01"
    best = rows[1].final_cost_per_1000
    assert best is not None
    assert early < best


@pytest.mark.parametrize("failing", [0, 5])
def test_o8_a_cap_of_20_is_20_whether_they_complete_or_not(tmp_path: Path, failing: int) -> None:
    class Fails(Script):
        def act(self, engine: CaseEngine, worker: Actor) -> Said:
            if worker.attempt and worker.number <= failing:
                worker.fail()
            return super().act(engine, worker)

    case = Case(tmp_path, **QUICK, search__budget_trials=20, search__batch_trials=4)
    case.search_until(lambda kind, _body: kind == Kind.BATCH_CLOSED, Fails(), workers=4)
    case.search(Fails(), workers=4)
    require_slots(case, 20)
    assert case.state.trials_by_state.get("completed", 0) == 20 - failing
    before = case.events
    case.search(workers=4)
    assert case.events == before


ROWS = 12_000


def part_of(flipped: int | None) -> TrainingData:
    """Return two parts of small photos, one label of the longer flipped."""

    def part(name: str, photos: int) -> PartData:
        damaged = np.arange(photos) % 3 == 0
        if flipped is not None and flipped < photos:
            damaged[flipped] = ~damaged[flipped]
        return PartData(
            photo_ids=tuple(f"{name}-{number:05d}" for number in range(photos)),
            shipments=tuple(f"{name}-{number // 2:05d}" for number in range(photos)),
            pixels=np.zeros((photos, 4, 4, 3), dtype=np.uint8),
            damaged=damaged,
            attributes={"damage_type": ("",) * photos},
        )

    return TrainingData(train=part("train", ROWS), validation=part("validation", 100))


def test_o9_a_label_flipped_after_row_ten_thousand_is_seen(tmp_path: Path) -> None:
    plan = small_plan()
    expected, found = (measure_data(plan, part_of(flipped)) for flipped in (None, ROWS - 1))
    difference = first_difference_of(expected, found)
    assert difference is not None
    assert difference.field == "train_rows"
    labels = [Label(photo_id=f"{number:05d}", damaged=False) for number in range(ROWS)]
    custody = Custody(tmp_path)
    custody.make_commitment("r1", labels)
    assert not custody.knows_other_labels("r1", labels)
    labels[-1] = Label(photo_id=labels[-1].photo_id, damaged=True)
    assert custody.knows_other_labels("r1", labels)


def test_o10_eight_slots_make_82_of_82_and_a_cap_on_time_ends_them(tmp_path: Path) -> None:
    whole = Case(tmp_path / "whole", **QUICK, search__budget_trials=82, search__batch_trials=8)
    assert whole.search(workers=8)["ended"] == "budget"
    require_slots(whole, 82)
    plan = small_plan(search__trial_seconds_maximum=30.0)
    hours = (plan.after_search_seconds + 241.0) / 3600
    capped = Case(
        tmp_path / "capped",
        **QUICK,
        search__budget_trials=82,
        search__batch_trials=8,
        search__cap_accelerator_hours=hours,
    )
    script = Script()
    script.turn_seconds = 2.0
    body = capped.search(script, workers=8)
    assert body["ended"] == "cap"
    assert 0 < body["started_trials"] < 82
    assert body["started_trials"] + body["unstarted_trials"] == 82
    assert body["charged_seconds_by_purpose"]["search"] <= 241.0


def test_further_a_resumed_trial_keeps_the_curve_of_its_first_attempt(tmp_path: Path) -> None:
    """Where only the last attempt's reports count, what was judged before it is judged again."""
    case = Case(tmp_path, **of_82_steps(search__budget_trials=2))
    case.search(LosesOnce(41), workers=1)
    first, second = case.attempts(1)
    assert (sorted(first.reports), sorted(second.reports)) == ([9, 39], [82])
    assert set(case.rows()[0].costs) == {"9", "39", "82"}
