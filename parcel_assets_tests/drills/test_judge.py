"""Each question of a drill, asked of a search that handled the incident and of one that did not."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from parcel_assets.core.ledger import Kind
from parcel_assets.core.trial import Cut
from parcel_assets.drills import judge, judge_attempts
from parcel_assets.drills.judge import Scene
from parcel_assets.drills.records import Check, Report
from parcel_assets_tests.core.search_story import Story, story_plan

COSTS = (30.0, 20.0, 10.0)


def story(**changes: object) -> Story:
    return Story(story_plan(search__budget_trials=2, **changes))


def scene(told: Story) -> Scene:
    return Scene(told.plan, tuple(told.events))


def ended(told: Story, reason: str = "budget") -> Story:
    told.close(1)
    told.tell(Kind.SEARCH_ENDED, reason=reason)
    return told


def calm() -> Story:
    told = story()
    told.batch(1, [1, 2])
    told.complete(1, *COSTS)
    told.complete(2, *COSTS)
    return ended(told)


def refusal(told: Story, field: str, worker: str = "w2") -> None:
    told.tell(
        Kind.WORKER_REFUSED, worker_id=worker, field=field, found="a", expected="b", cause="c"
    )


# ---- the search as a whole ----------------------------------------------------------------------


def test_a_search_with_every_slot_settled_has_ended() -> None:
    assert judge.search_ended(scene(calm())).passed


def test_a_search_that_waits_or_ended_for_another_reason_has_not() -> None:
    told = story()
    told.batch(1, [1, 2])
    told.complete(1, *COSTS)
    assert not judge.search_ended(scene(told)).passed
    told.start(2)
    assert not judge.search_ended(scene(told)).passed
    told.end("parcel-02/1", "failed", own=True)
    assert not judge.search_ended(scene(ended(told, "failed"))).passed


def test_a_shared_prefix_that_nobody_noticed_is_no_proper_end() -> None:
    told = story()
    told.batch(1, [1, 2])
    for number in (1, 2):
        name = told.start(number, prefix="spring/shared")
        for step, cost in zip((2, 5, 10), COSTS, strict=True):
            told.report(name, step, cost)
        told.end(name)
    check = judge.search_ended(scene(ended(told)))
    assert not check.passed
    assert "share the prefix" in check.answer


def test_the_table_is_compared_by_its_digest() -> None:
    undisturbed = scene(calm()).table
    assert judge.same_table(scene(calm()), undisturbed).passed
    told = story()
    told.batch(1, [1, 2])
    told.complete(1, *COSTS)
    told.complete(2, 30.0, 20.0, 9.0)
    assert not judge.same_table(scene(ended(told)), undisturbed).passed


@pytest.mark.parametrize("charged", [-1.0, 31.0])
def test_a_charge_out_of_bounds_is_wrong(charged: float) -> None:
    told = story()
    told.batch(1, [1, 2])
    told.start(1)
    told.end("parcel-01/1", charged=charged)
    assert not judge.charged_within_the_cap(scene(told)).passed
    assert judge.charged_within_the_cap(scene(calm())).passed


# ---- the door -----------------------------------------------------------------------------------


def test_a_worker_refused_for_its_field_is_right() -> None:
    told = story()
    refusal(told, "metric")
    assert judge_attempts.refused_at_the_door(scene(told), {"metric"}, 0).passed


def test_nobody_refused_another_field_or_a_refused_worker_that_trains_is_wrong() -> None:
    told = story()
    assert not judge_attempts.refused_at_the_door(scene(told), {"metric"}, 0).passed
    refusal(told, "hardware")
    assert not judge_attempts.refused_at_the_door(scene(told), {"metric"}, 0).passed
    told = story()
    refusal(told, "metric", worker="w")
    told.batch(1, [1, 2])
    told.start(1)  # by worker `w`
    assert not judge_attempts.refused_at_the_door(scene(told), {"metric"}, 0).passed


def test_an_own_failure_spends_a_slot() -> None:
    told = story()
    told.batch(1, [1, 2])
    told.start(1)
    told.end("parcel-01/1", "failed", own=True)
    assert not judge_attempts.no_slot_spent(scene(told)).passed
    assert judge_attempts.no_slot_spent(scene(calm())).passed


def test_training_before_the_inputs_are_right_is_wrong() -> None:
    told = calm()
    first = next(one.sequence for one in told.events if one.kind == Kind.ATTEMPT_STARTED)
    assert judge_attempts.nothing_dispatched(scene(told), first - 1).passed
    assert not judge_attempts.nothing_dispatched(scene(told), first).passed


# ---- lost and woken -----------------------------------------------------------------------------


def lost(*, resumes: bool, state: str = "expired", own: bool = False) -> Story:
    told = story()
    told.batch(1, [1, 2])
    told.complete(2, *COSTS)
    name = told.start(1)
    told.report(name, 2, 30.0)
    told.checkpoint(name, 3, "c3")
    told.end(name, state, step=3, own=own)
    again = told.start(1, 2, resume=(3, "c3") if resumes else None)
    for step, cost in ((2, 30.0), (5, 20.0), (10, 10.0)):
        if not resumes or step > 3:
            told.report(again, step, cost)
    told.end(again)
    return ended(told)


def test_a_lost_attempt_that_is_resumed_is_right() -> None:
    found = scene(lost(resumes=True))
    assert judge_attempts.lost_not_failed(found, ["parcel-01/1"]).passed
    assert judge_attempts.resumed(found, ["parcel-01/1"]).passed
    assert judge_attempts.nothing_failed(found).passed
    assert judge_attempts.nothing_open(found).passed


def test_a_lost_attempt_held_against_its_trial_is_wrong() -> None:
    found = scene(lost(resumes=True, state="failed", own=True))
    assert not judge_attempts.lost_not_failed(found, ["parcel-01/1"]).passed
    assert not judge_attempts.nothing_failed(found).passed


def test_a_trial_that_starts_afresh_was_not_resumed() -> None:
    assert not judge_attempts.resumed(scene(lost(resumes=False)), ["parcel-01/1"]).passed
    assert not judge_attempts.resumed(scene(calm()), ["parcel-01/1"]).passed  # nothing followed


def test_an_attempt_left_open_is_wrong() -> None:
    told = story()
    told.batch(1, [1, 2])
    told.start(1)
    assert not judge_attempts.nothing_open(scene(told)).passed


def test_a_woken_worker_that_is_still_heard_is_wrong() -> None:
    told = lost(resumes=True)
    assert judge_attempts.silent_after_its_end(scene(told), "parcel-01/1").passed
    told.checkpoint("parcel-01/1", 6, "late", parent="c3")
    assert not judge_attempts.silent_after_its_end(scene(told), "parcel-01/1").passed


# ---- lineage ------------------------------------------------------------------------------------


def contaminated(
    *, quarantine: tuple[int, ...] = (1, 2), late: bool = False, rerun: bool = True
) -> Story:
    """Tell of parcel-02 that reports 5.0 after it resumed what parcel-01 had left."""
    told = story()
    told.batch(1, [1, 2])
    told.complete(1, *COSTS)
    told.complete(2, 30.0, 20.0, 5.0)
    if late:
        told.close(1)
    for number in quarantine:
        told.quarantine(f"parcel-0{number}/1")
        if rerun:
            told.complete(number, *COSTS, attempt=2)
    if not late:
        told.close(1)
    return told


BOTH = ["parcel-01", "parcel-02"]


def test_both_trials_quarantined_and_run_again_is_right() -> None:
    found = scene(contaminated())
    assert judge_attempts.quarantined_and_rerun(found, BOTH).passed
    assert judge_attempts.nothing_else_quarantined(found, BOTH).passed
    assert judge_attempts.metric_nowhere(found, "parcel-02/1").passed


@pytest.mark.parametrize(
    "told",
    [
        contaminated(quarantine=()),
        contaminated(quarantine=(2,)),
        contaminated(late=True),
        contaminated(rerun=False),
    ],
    ids=["unnoticed", "only the second", "after the batch closed", "not run again"],
)
def test_less_than_that_is_wrong(told: Story) -> None:
    assert not judge_attempts.quarantined_and_rerun(scene(told), BOTH).passed


def test_a_third_trial_drawn_in_is_wrong() -> None:
    assert not judge_attempts.nothing_else_quarantined(scene(contaminated()), BOTH[:1]).passed


def test_a_metric_that_counts_is_found_in_the_table() -> None:
    check = judge_attempts.metric_nowhere(scene(contaminated(quarantine=())), "parcel-02/1")
    assert not check.passed


def test_a_metric_in_a_cut_is_found_there() -> None:
    told = contaminated()
    cut = Cut(step=10, cut_cost=5.0, reason="best of two", values=((1, 10.0), (2, 5.0)))
    told.batch(2, [3, 4], cuts=(cut,))
    check = judge_attempts.metric_nowhere(scene(told), "parcel-02/1")
    assert not check.passed
    assert "cut of batch 2 at step 10" in check.answer


def test_without_a_foreign_metric_nothing_was_tried() -> None:
    assert not judge_attempts.metric_nowhere(scene(calm()), "parcel-02/1").passed
    assert not judge_attempts.was_resumed(["last-0.1.safetensors"]).passed
    assert judge_attempts.was_resumed(["last-0.1.taken"]).passed


# ---- reports ------------------------------------------------------------------------------------


def aside(told: Story, worker: str, said: str) -> Story:
    told.tell(Kind.MESSAGE_SET_ASIDE, worker_id=worker, message=said, reason="not its own")
    return told


def test_what_a_copy_reports_must_be_set_aside() -> None:
    assert judge_attempts.set_aside(scene(aside(story(), "w", "milestone: 9")), "w", 0).passed
    assert not judge_attempts.set_aside(scene(aside(story(), "w", "hello: 9")), "w", 0).passed
    assert not judge_attempts.set_aside(scene(aside(story(), "v", "milestone: 9")), "w", 0).passed
    assert not judge_attempts.set_aside(scene(story()), "w", 0).passed


def at_step_three(verdict: str) -> Story:
    told = story()
    told.batch(1, [1, 2])
    name = told.start(1)
    told.report(name, 3, 40.0)
    event = told.events[-1]
    told.events[-1] = replace(event, body={**event.body, "verdict": verdict})
    return told


def test_a_report_off_the_milestones_is_kept_and_never_judged() -> None:
    good, judged = scene(at_step_three("not comparable")), scene(at_step_three("stop"))
    assert judge_attempts.kept_not_comparable(good, 3).passed
    assert judge_attempts.never_judged_at(good, 3).passed
    assert not judge_attempts.kept_not_comparable(judged, 3).passed
    assert not judge_attempts.never_judged_at(judged, 3).passed


def test_a_cut_off_the_milestones_is_wrong() -> None:
    told = story()
    told.batch(1, [1, 2], cuts=(Cut(step=3, cut_cost=1.0, reason=""),))
    assert not judge_attempts.never_judged_at(scene(told), 3).passed


def failed(reason: str, *, state: str = "failed") -> Story:
    told = story(search__attempts_per_trial=1)
    told.batch(1, [1, 2])
    told.complete(2, *COSTS)
    told.start(1)
    told.end("parcel-01/1", state, own=state == "failed")
    event = told.events[-1]
    told.events[-1] = replace(event, body={**event.body, "reason": reason})
    return told


def test_a_trial_of_no_finite_value_fails_in_words() -> None:
    found = scene(failed("a score that is not finite"))
    assert judge_attempts.never_ranks(found, ["parcel-01"]).passed
    assert judge_attempts.others_completed(found, ["parcel-01"]).passed
    assert not judge_attempts.never_ranks(scene(failed("boom")), ["parcel-01"]).passed
    assert not judge_attempts.never_ranks(
        found, ["parcel-02"]
    ).passed  # it completed, and is the best
    assert not judge_attempts.others_completed(found, ["parcel-02"]).passed


def test_two_leases_that_dispatch_are_two_writers() -> None:
    told = calm()
    assert judge_attempts.one_writer(scene(told)).passed
    started = [one for one in told.events if one.kind == Kind.ATTEMPT_STARTED][-1]
    other = replace(started, body={**started.body, "fence": 2})
    events = tuple(other if one is started else one for one in told.events)
    assert not judge_attempts.one_writer(Scene(told.plan, events)).passed


def test_a_clock_that_runs_back_is_seen() -> None:
    told = calm()
    assert judge.clock_runs_forward(scene(told)).passed
    last = told.events[-1]
    events = (*told.events[:-1], replace(last, at_seconds=0.5))
    assert not judge.clock_runs_forward(Scene(told.plan, events)).passed


def test_an_edited_or_absent_chain_does_not_verify() -> None:
    events = calm().events
    assert judge.chain_whole(events).passed
    edited = [*events[:-1], replace(events[-1], body={"reason": "cap"})]
    assert not judge.chain_whole(edited).passed
    assert not judge.chain_whole([]).passed


# ---- holdout, slices, processes -----------------------------------------------------------------


def test_any_trace_of_an_opening_is_wrong() -> None:
    told = story()
    assert judge.holdout_closed(scene(told), []).passed
    assert not judge.holdout_closed(scene(told), ["decryptions.log"]).passed
    told.tell(Kind.HOLDOUT_OPENED, model_digest="m")
    assert not judge.holdout_closed(scene(told), []).passed


RIGHT: tuple[Callable[[], Check], ...] = (
    lambda: judge.held("hold:slice-quality", "hold:slice-quality", "corners"),
    lambda: judge.cheaper_but_worse((430.0, 530.0), {"outcome": "fail"}),
    lambda: judge.ended_with("the run", 3, 3),
    lambda: judge.refused_in_words("the run", 1, "x\nno space left\n", "space"),
    lambda: judge.nobody_left("the run", []),
    lambda: judge_attempts.kept_aside(["a", "b"], [], ["a", "b"]),
)
WRONG: tuple[Callable[[], Check], ...] = (
    lambda: judge.held("hold:slice-quality", None, "finished"),
    lambda: judge.cheaper_but_worse((530.0, 430.0), {"outcome": "fail"}),
    lambda: judge.cheaper_but_worse((430.0, 530.0), {"outcome": "insufficient"}),
    lambda: judge.ended_with("the run", 3, 0),
    lambda: judge.refused_in_words("the run", 0, "no space left", "space"),
    lambda: judge.refused_in_words("the run", 1, "Traceback", "space"),
    lambda: judge.refused_in_words("the run", 2, "no space left", "space"),
    lambda: judge.nobody_left("the run", [4711]),
    lambda: judge_attempts.kept_aside(["a", "b"], ["b"], ["a", "b"]),
    lambda: judge_attempts.kept_aside(["a", "b"], [], ["a"]),
    lambda: judge_attempts.kept_aside([], [], []),
)


@pytest.mark.parametrize("ask", RIGHT)
def test_right_answers(ask: Callable[[], Check]) -> None:
    assert ask().passed


@pytest.mark.parametrize("ask", WRONG)
def test_wrong_answers(ask: Callable[[], Check]) -> None:
    assert not ask().passed


def test_a_report_without_an_answer_does_not_pass() -> None:
    good, bad = Check("good?", True, "yes"), Check("good?", False, "no")
    assert [Report("drill", checks=one).passed for one in ([], [good], [good, bad])] == [
        False,
        True,
        False,
    ]
