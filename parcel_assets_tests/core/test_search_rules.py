"""Batches, cut tables, verdicts, resumption, charges and the end of a search."""

import math

import pytest

from parcel_assets.core.errors import PlanError, ReportError
from parcel_assets.core.search_batches import (
    batch_seed,
    batches_to_close,
    cut_table,
    fresh_configurations,
    guard_from_pairs,
    next_batch,
    past_trials,
)
from parcel_assets.core.search_charges import (
    Room,
    final_charge,
    lost_charge,
    overdue,
    room_for,
    settled_charge,
)
from parcel_assets.core.search_rules import check_report, end_reason, resume_points, verdict_of
from parcel_assets.core.trial import Cut, Verdict
from parcel_assets_tests.core.search_story import Story, story_plan


def two_batches(story: Story) -> Story:
    story.batch(1, [1, 2])
    story.batch(2, [3, 4])
    return story


# ---- batches ------------------------------------------------------------------------------------


def test_a_batch_opens_once_all_batches_before_its_lookahead_are_closed() -> None:
    story = Story()
    assert next_batch(story.plan, story.state) == 1
    two_batches(story)
    assert next_batch(story.plan, story.state) is None
    story.complete(1, 3.0, 2.0, 1.0)
    assert batches_to_close(story.state) == []
    story.complete(2, 3.0, 2.0, 1.0)
    assert batches_to_close(story.state) == [1]
    story.close(1)
    assert next_batch(story.plan, story.state) == 3
    story.batch(3, [5, 6])
    assert next_batch(story.plan, story.state) is None, "the budget is proposed"


def test_the_sampler_learns_nothing_of_batches_within_the_lookahead() -> None:
    story = two_batches(Story())
    story.complete(1, 3.0, 2.0, 1.0)
    name = story.start(2)
    story.report(name, 2, 9.0)
    story.end(name, "pruned", step=2)
    story.complete(3, 3.0, 2.0, 1.0)  # of batch 2: real, and not to be seen by batch 3
    past = past_trials(story.plan, story.state, 3)
    assert [(one.number, one.state, one.cost) for one in past] == [
        (1, "completed", 1.0),
        (2, "pruned", 9.0),
        (3, "running", None),
        (4, "running", None),
    ]
    assert past[0].costs_by_step == {2: 3.0, 5: 2.0, 10: 1.0}
    assert past[2].costs_by_step == {}


def test_every_batch_has_a_seed_of_its_own() -> None:
    plan = story_plan()
    assert len({batch_seed(plan, batch) for batch in range(1, 20)}) == 19


def test_equal_configurations_are_left_out_only_where_the_plan_says_so() -> None:
    one = {"learning_rate": 0.01, "width": 8, "rare_oversampling": 1.0}
    assert len(fresh_configurations(story_plan(), [one, one], [])) == 2
    strict = story_plan(search__equal_configurations="redraw")
    assert len(fresh_configurations(strict, [one, one], [])) == 1
    assert fresh_configurations(strict, [one], [one]) == []


@pytest.mark.parametrize("change", [{"width": 5}, {"depth": 2}, {"learning_rate": math.inf}])
def test_a_proposal_outside_the_space_never_becomes_a_slot(change: dict[str, float]) -> None:
    one = {"learning_rate": 0.01, "width": 8, "rare_oversampling": 1.0} | change
    with pytest.raises(PlanError):
        fresh_configurations(story_plan(), [one], [])


# ---- cut tables ---------------------------------------------------------------------------------


def test_a_cut_is_the_quantile_of_all_values_exactly_at_the_milestone() -> None:
    story = two_batches(Story())
    story.complete(1, 30.0, 20.0, 10.0)
    name = story.start(2)
    story.report(name, 2, 40.0)
    story.end(name, "pruned", step=2)
    story.complete(3, 1.0, 1.0, 1.0)  # within the lookahead of batch 3: not seen
    first, second = cut_table(story.plan, story.state, 3)
    assert (first.step, first.cut_cost, first.values) == (2, 30.0, ((1, 30.0), (2, 40.0)))
    assert second.cut_cost is None
    assert "1 of 2" in second.reason


def test_a_value_at_a_later_step_never_fills_an_earlier_milestone() -> None:
    # O2: elsewhere a trial that first reported at step 82 was compared with step-39 reporters
    story = two_batches(Story())
    for trial in (1, 2):
        name = story.start(trial)
        story.report(name, 10, 1.0)
        story.end(name)
    assert cut_table(story.plan, story.state, 3)[0].values == ()


@pytest.mark.parametrize(("keep", "cut"), [(0.25, 1.0), (0.5, 2.0), (0.75, 3.0), (0.76, 4.0)])
def test_the_fraction_to_keep_is_never_undercut(keep: float, cut: float) -> None:
    changes = {"pruning__keep_fractions": [keep, 0.5], "search__batch_trials": 4}
    story = Story(story_plan(**changes))
    story.batch(1, [1, 2, 3, 4])
    for trial in (1, 2, 3, 4):
        story.complete(trial, float(trial), 1.0, 1.0)
    assert cut_table(story.plan, story.state, 3)[0].cut_cost == cut


def warm_up_story(finals: tuple[float, ...]) -> Story:
    changes = {"pruning__warm_up_trials": 4, "search__batch_trials": 4}
    story = Story(story_plan(**changes))
    story.batch(1, [1, 2, 3, 4])
    for trial, final in enumerate(finals, 1):
        story.complete(trial, float(trial), float(trial), final)
    return story


def test_a_milestone_that_predicts_the_end_may_prune() -> None:
    story = warm_up_story((1.0, 2.0, 3.0, 4.0))
    assert cut_table(story.plan, story.state, 3)[0].cut_cost == 2.0


def test_a_milestone_that_does_not_predict_the_end_prunes_nothing() -> None:
    story = warm_up_story((4.0, 3.0, 2.0, 1.0))
    cut = cut_table(story.plan, story.state, 3)[0]
    assert cut.cut_cost is None
    assert "rank correlation" in cut.reason
    assert len(cut.values) == 4


def test_nothing_is_pruned_before_the_warm_up_is_over() -> None:
    changes = {"pruning__warm_up_trials": 4}
    story = two_batches(Story(story_plan(**changes)))
    story.complete(1, 1.0, 1.0, 1.0)
    story.complete(2, 2.0, 2.0, 2.0)
    assert "warm-up" in cut_table(story.plan, story.state, 3)[0].reason


def test_too_few_or_equal_warm_up_trials_allow_no_pruning() -> None:
    plan = story_plan()
    for pairs in ([], [(1.0, 1.0), (2.0, 2.0)], [(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]):
        reason = f"no rank correlation in {len(pairs)} completed warm-up trials"
        assert guard_from_pairs(plan, pairs) == reason
    assert guard_from_pairs(plan, [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]) is None


# ---- verdicts and reports -----------------------------------------------------------------------

CUTS = (
    Cut(step=2, cut_cost=10.0, reason="half", values=((1, 10.0),)),
    Cut(step=5, cut_cost=None, reason="too few"),
)


@pytest.fixture
def judged() -> Story:
    story = Story()
    story.batch(1, [1, 2], CUTS)
    return story


@pytest.mark.parametrize(
    ("step", "cost", "verdict"),
    [
        (2, 10.0, Verdict.CONTINUE),
        (2, 10.1, Verdict.STOP),
        (5, 99.0, Verdict.NOT_COMPARABLE),
        (4, 99.0, Verdict.NOT_COMPARABLE),
        (10, 99.0, Verdict.CONTINUE),
        (2, None, Verdict.STOP),
    ],
)
def test_a_value_is_compared_only_with_the_frozen_cut_of_its_step(
    judged: Story, step: int, cost: float | None, verdict: Verdict
) -> None:
    found, reason = verdict_of(judged.plan, judged.state, "parcel-01", step, cost)
    assert found == verdict
    assert reason


def test_a_warm_up_trial_and_a_rerun_are_never_pruned() -> None:
    story = Story(story_plan(pruning__warm_up_trials=1))
    story.batch(1, [1, 2], CUTS)
    story.start("reference", purpose="reference")
    for subject in ("parcel-01", "reference"):
        found, _ = verdict_of(story.plan, story.state, subject, 2, 99.0)
        assert found == Verdict.NOT_COMPARABLE
    assert verdict_of(story.plan, story.state, "parcel-02", 2, 99.0)[0] == Verdict.STOP


def check(story: Story, attempt: str, step: int, scores: str, photos: int | None = None) -> object:
    return check_report(
        story.plan,
        story.state,
        story.state.attempts[attempt],
        step=step,
        photos_seen=step * 8 if photos is None else photos,
        scores=scores,
    )


def test_a_repeated_report_with_the_same_scores_changes_nothing(judged: Story) -> None:
    name = judged.start(1)
    judged.report(name, 2, 5.0, "same")
    assert check(judged, name, 2, "same") is judged.state.attempts[name].reports[2]
    assert check(judged, name, 5, "new") is None


def test_other_scores_at_a_reported_step_put_both_attempts_in_doubt(judged: Story) -> None:
    first = judged.start(1)
    judged.report(first, 2, 5.0, "one")
    judged.end(first, "expired", step=2)
    second = judged.start(1, 2)
    with pytest.raises(ReportError) as refused:
        check(judged, second, 2, "other")
    assert refused.value.facts["attempts"] == [first, second]
    assert check(judged, second, 2, "one") is None, "an equal one is a report of its own"


@pytest.mark.parametrize(
    ("step", "photos"),
    [(5, None), (83, None), (0, None), (2, 3)],
    ids=["a skipped milestone", "past the end", "before the start", "another axis"],
)
def test_a_report_that_breaks_the_protocol_is_refused(
    judged: Story, step: int, photos: int | None
) -> None:
    name = judged.start(1)
    with pytest.raises(ReportError):
        check(judged, name, step, "x", photos)


def test_a_resumed_attempt_need_not_repeat_milestones_before_its_checkpoint(judged: Story) -> None:
    first = judged.start(1)
    judged.report(first, 2, 5.0)
    judged.checkpoint(first, 3, "c3")
    judged.end(first, "expired", step=3)
    second = judged.start(1, 2, resume=(3, "c3"))
    assert check(judged, second, 5, "x") is None
    with pytest.raises(ReportError):
        check(judged, second, 2, f"{first}@2")


# ---- resumption ----------------------------------------------------------------------------------


def test_a_lost_attempt_is_resumed_at_its_last_checkpoint_with_all_reports(judged: Story) -> None:
    name = judged.start(1)
    judged.report(name, 2, 5.0)
    judged.checkpoint(name, 3, "c3")
    judged.checkpoint(name, 6, "c6", "c3")  # beyond milestone 5, whose report was lost
    judged.end(name, "expired", step=6)
    points = resume_points(judged.plan, judged.state, "parcel-01")
    assert [saved.step for _, saved in points] == [3]


def test_after_its_own_failure_or_a_quarantine_a_trial_starts_afresh(judged: Story) -> None:
    for trial, state in ((1, "failed"), (2, "expired")):
        name = judged.start(trial)
        judged.report(name, 2, 5.0)
        judged.checkpoint(name, 3, f"c{trial}")
        judged.end(name, state, step=3, own=state == "failed")
    judged.quarantine("parcel-02/1")
    for subject in ("parcel-01", "parcel-02"):
        assert resume_points(judged.plan, judged.state, subject) == []


def test_a_rerun_resumes_nothing(judged: Story) -> None:
    name = judged.start("rerun/parcel-01/own", purpose="rerun")
    judged.report(name, 2, 5.0)
    judged.checkpoint(name, 3, "c3")
    judged.end(name, "expired", step=3)
    assert resume_points(judged.plan, judged.state, "rerun/parcel-01/own") == []


# ---- charges ----------------------------------------------------------------------------------


def test_a_dispatch_reserves_its_maximum_and_waits_while_reservations_may_return() -> None:
    plan = story_plan()
    seconds = plan.after_search_seconds + 65.0
    story = two_batches(Story(story_plan(search__cap_accelerator_hours=seconds / 3600)))
    assert room_for(story.plan, story.state, "search") == Room.YES
    first, second = story.start(1), story.start(2)
    assert room_for(story.plan, story.state, "search") == Room.LATER
    story.end(first, charged=10.0)
    assert room_for(story.plan, story.state, "search") == Room.LATER
    story.end(second, charged=25.1)
    assert room_for(story.plan, story.state, "search") == Room.NO
    assert room_for(story.plan, story.state, "rerun") == Room.YES, "its share was kept"


def test_reruns_leave_the_final_evaluation_its_share_and_it_is_charged_no_more() -> None:
    story = two_batches(Story(story_plan()))
    one = story.plan.search.trial_seconds_maximum
    left_for_one = story.plan.cap_seconds - one
    story.state.charged_seconds_by_purpose["rerun"] = left_for_one - one
    assert room_for(story.plan, story.state, "rerun") == Room.YES
    story.state.charged_seconds_by_purpose["rerun"] += 0.001
    assert room_for(story.plan, story.state, "rerun") != Room.YES
    assert [final_charge(story.plan, s) for s in (-1.0, one / 2, one * 9)] == [0.0, one / 2, one]


def test_an_attempt_is_charged_its_time_at_most_its_reservation() -> None:
    story = two_batches(Story())
    record = story.state.attempts[story.start(1)]
    started = record.started_at
    assert settled_charge(record, started + 12.5) == 12.5
    assert settled_charge(record, started + 99.0) == 30.0
    assert settled_charge(record, started - 5.0) == 0.0
    assert not overdue(record, started + 29.9)
    assert overdue(record, started + 30.0)


def test_a_lost_attempt_is_charged_to_its_last_message_and_a_lease_but_no_downtime() -> None:
    story = two_batches(Story())
    record = story.state.attempts[story.start(1)]
    at = record.started_at
    a_day_later = {"now_seconds": at + 86400, "lease_seconds": 20.0}
    assert lost_charge(record, last_message_at=at + 4, **a_day_later) == 24.0
    assert lost_charge(record, last_message_at=at + 15, **a_day_later) == 30.0
    at_once = {"now_seconds": at + 5, "lease_seconds": 20.0}
    assert lost_charge(record, last_message_at=at + 4, **at_once) == 5.0


# ---- the end ----------------------------------------------------------------------------------


def ended(story: Story, *, space: bool = False, cap: bool = False) -> str | None:
    return end_reason(story.plan, story.state, space_exhausted=space, cap_reached=cap)


def finished_story() -> Story:
    story = two_batches(Story())
    story.batch(3, [5, 6])
    for trial in range(1, 7):
        story.complete(trial, 3.0, 2.0, 1.0)
    for batch in (1, 2):
        story.close(batch)
    return story


def test_a_search_ends_at_its_budget_once_every_batch_is_verified() -> None:
    story = finished_story()
    assert ended(story) is None
    story.close(3)
    assert ended(story) == "budget"


def test_a_search_in_which_nothing_completes_has_failed() -> None:
    story = Story(story_plan(search__budget_trials=2, search__attempts_per_trial=1))
    story.batch(1, [1, 2])
    for trial in (1, 2):
        story.end(story.start(trial), "failed", own=True)
    story.close(1)
    assert ended(story) == "failed"


def test_a_search_in_which_all_are_pruned_ends_at_its_budget_in_a_state_of_its_own() -> None:
    story = Story(story_plan(search__budget_trials=2, search__attempts_per_trial=1))
    story.batch(1, [1, 2])
    story.end(story.start(1), "pruned", step=2)
    assert ended(story) is None
    story.end(story.start(2), "pruned", step=5)
    assert ended(story) is None, "its lineages are not verified"
    story.close(1)
    assert ended(story) == "pruned"


def test_with_one_failed_among_the_pruned_the_search_has_failed() -> None:
    story = Story(story_plan(search__budget_trials=2, search__attempts_per_trial=1))
    story.batch(1, [1, 2])
    story.end(story.start(1), "pruned", step=2)
    story.end(story.start(2), "failed", own=True)
    story.close(1)
    assert ended(story) == "failed"


def test_where_the_last_trial_fails_at_the_cap_the_search_ends_there() -> None:
    story = Story(story_plan(search__budget_trials=1, search__attempts_per_trial=2))
    story.batch(1, [1])
    name = story.start(1)
    assert ended(story, cap=True) is None, "its reservation may return"
    story.end(name, "failed", own=True)
    assert ended(story, cap=True) == "cap", "an attempt is left, and no room for it"
    story.end(story.start(1, 2), "failed", own=True)
    story.close(1)
    assert ended(story, cap=True) == "failed", "none is left: the cap changed nothing"


def test_cap_and_space_end_a_search_only_when_nothing_is_open() -> None:
    story = two_batches(Story())
    name = story.start(1)
    assert ended(story, cap=True) is None
    story.end(name, "expired")
    assert ended(story) is None
    assert ended(story, cap=True) == "cap"
    for trial in (2, 3, 4):
        story.complete(trial, 3.0, 2.0, 1.0)
    story.complete(1, 3.0, 2.0, 1.0, attempt=2)
    for batch in (1, 2):
        story.close(batch)
    assert ended(story) is None
    assert ended(story, space=True) == "space"
