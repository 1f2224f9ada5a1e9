"""Decisions replayed from events alone: they agree with themselves and with nothing bent."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from parcel_assets.core.ledger import Event, Kind
from parcel_assets.core.replay import ReplayedDecision, replay_decisions
from parcel_assets.core.search_batches import cut_table
from parcel_assets.core.search_rules import verdict_of
from parcel_assets.core.trial import Verdict, trial_id_of
from parcel_assets_tests.core.search_story import Story

COSTS = {1: (9.0, 8.0, 7.0), 2: (3.0, 2.0, 1.0), 3: (4.0, 3.0, 2.0), 4: (5.0, 5.0, 5.0)}


def judged(story: Story, trial: int, step: int, cost: float | None) -> str:
    """Tell a report with the verdict that the rules give it; return the verdict."""
    name = f"{trial_id_of(trial)}/1"
    verdict, reason = verdict_of(story.plan, story.state, trial_id_of(trial), step, cost)
    story.report(name, step, cost, verdict=(str(verdict), reason))
    return verdict


def searched() -> Story:
    """Return a search of three batches whose last one is judged by what the first reported."""
    story = Story()
    for batch, trials in ((1, [1, 2]), (2, [3, 4])):
        story.batch(batch, trials, cut_table(story.plan, story.state, batch))
    for trial, costs in COSTS.items():
        story.start(trial)
        for step, cost in zip((2, 5, 10), costs, strict=True):
            judged(story, trial, step, cost)
        story.end(f"{trial_id_of(trial)}/1")
    story.close(1)
    story.batch(3, [5, 6], cut_table(story.plan, story.state, 3))
    later: dict[int, tuple[float, ...]] = {5: (3.0, 2.5), 6: (3.5,)}
    for trial, reached in later.items():
        story.start(trial)
        for step, cost in zip((2, 5), reached, strict=False):
            judged(story, trial, step, cost)
    return story


def changed(story: Story, kind: Kind, pick: Callable[[Any], bool], **fields: Any) -> list[Event]:
    """Return the events with fields of the one picked event replaced."""
    found = [e for e in story.events if e.kind == kind and pick(e.body)]
    assert len(found) == 1
    return [
        replace(event, body={**event.body, **fields}) if event is found[0] else event
        for event in story.events
    ]


def disagreeing(story: Story, events: list[Event]) -> list[ReplayedDecision]:
    return [one for one in replay_decisions(story.plan, events) if not one.agrees]


def cuts_of_batch_3(story: Story) -> list[dict[str, Any]]:
    (opened,) = [e for e in story.events if e.kind == Kind.BATCH_OPENED and e.body["batch"] == 3]
    return [dict(cut) for cut in opened.body["cut_table"]]


def test_a_search_agrees_with_its_replay() -> None:
    story = searched()
    decisions = replay_decisions(story.plan, story.events)
    assert len(decisions) == 15
    assert disagreeing(story, story.events) == []
    by = {(one.subject, one.step): one for one in decisions}
    stop = by["parcel-05", 5]
    assert (stop.verdict, stop.cut, stop.values) == ("stop", 2.0, ((1, 8.0), (2, 2.0)))
    assert by["parcel-05", 2].verdict == "continue"
    assert by["parcel-06", 2].verdict == "stop"
    assert by["parcel-01", 2].verdict == Verdict.NOT_COMPARABLE
    assert by["parcel-01", 2].reason == "0 of 2 peers at step 2"


def test_a_verdict_that_the_rules_do_not_give_is_found() -> None:
    story = searched()
    events = changed(
        story,
        Kind.MILESTONE_REPORTED,
        lambda body: (body["subject"], body["step"]) == ("parcel-06", 2),
        verdict="continue",
    )
    (found,) = disagreeing(story, events)
    assert (found.subject, found.verdict, found.replayed_verdict) == (
        "parcel-06",
        "continue",
        "stop",
    )
    assert "recorded continue" in found.fault


def test_a_cut_that_its_own_values_do_not_give_is_found() -> None:
    story = searched()
    cuts = cuts_of_batch_3(story)
    cuts[0]["cut_cost"] = 3.4
    events = changed(story, Kind.BATCH_OPENED, lambda body: body["batch"] == 3, cut_table=cuts)
    found = disagreeing(story, events)
    assert {(one.subject, one.step) for one in found} == {("parcel-05", 2), ("parcel-06", 2)}
    assert "not what its own 2 values give: 3.0" in found[0].fault


def test_a_value_that_nobody_reported_is_found_though_the_cut_fits_it() -> None:
    story = searched()
    cuts = cuts_of_batch_3(story)
    cuts[0] |= {"values": [[1, 9.0], [2, 3.5]], "cut_cost": 3.5}
    events = changed(story, Kind.BATCH_OPENED, lambda body: body["batch"] == 3, cut_table=cuts)
    found = disagreeing(story, events)
    assert {one.step for one in found} == {2}
    assert "trial 2 at 3.0 differs" in found[0].fault


def test_a_value_of_a_batch_that_was_not_visible_yet_is_found() -> None:
    story = searched()
    cuts = cuts_of_batch_3(story)
    # trials 3 and 4 had reported by then, and batch 3 must not know of it
    cuts[0] |= {"values": [[1, 9.0], [2, 3.0], [3, 4.0]], "cut_cost": 4.0}
    cuts[0]["reason"] = "the best 50% of 3 values at step 2"
    events = changed(story, Kind.BATCH_OPENED, lambda body: body["batch"] == 3, cut_table=cuts)
    assert "trial 3 at 4.0 differs" in disagreeing(story, events)[0].fault


def test_a_cut_where_the_plan_allows_none_is_found() -> None:
    story = searched()
    (first,) = [
        dict(e.body) for e in story.events if e.kind == Kind.BATCH_OPENED and e.body["batch"] == 1
    ]
    cuts = [dict(cut) for cut in first["cut_table"]]
    cuts[0] |= {"cut_cost": 1.0}
    events = changed(story, Kind.BATCH_OPENED, lambda body: body["batch"] == 1, cut_table=cuts)
    found = disagreeing(story, events)
    assert {(one.subject, one.step) for one in found} == {("parcel-01", 2), ("parcel-02", 2)}


@pytest.mark.parametrize("kept", [0, 1])
def test_a_cut_that_is_missing_or_opened_too_early_is_found(kept: int) -> None:
    story = searched()
    if kept:
        cuts = cuts_of_batch_3(story)[:1]
        events = changed(story, Kind.BATCH_OPENED, lambda body: body["batch"] == 3, cut_table=cuts)
        expected = "no cut is stored at step 5"
    else:
        events = [event for event in story.events if event.kind != Kind.BATCH_CLOSED]
        expected = "batch 3 was opened before it might"
    assert {one.fault for one in disagreeing(story, events)} == {expected}


def test_a_value_quarantined_after_the_cut_was_made_leaves_the_replay_as_it_was() -> None:
    story = searched()
    story.quarantine("parcel-02/1")
    assert disagreeing(story, story.events) == []


def test_a_report_off_the_milestones_is_never_judged() -> None:
    story = searched()
    for cost in (1000.0, None):  # worse than every cut, and no number at all
        verdict, reason = verdict_of(story.plan, story.state, "parcel-05", 4, cost)
        assert (verdict, reason) == (Verdict.NOT_COMPARABLE, "step 4 is no milestone of the plan")
    judged(story, 6, 4, 1000.0)
    assert disagreeing(story, story.events) == []
