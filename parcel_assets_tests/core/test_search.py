"""What a search's events add up to: states, counts, charges, best so far, the table."""

import pytest

from parcel_assets.core.errors import LedgerError
from parcel_assets.core.search import fold_search
from parcel_assets.core.table import pack_scores, table_digest, table_rows, unpack_scores
from parcel_assets.core.trial import TrialState
from parcel_assets_tests.core.search_story import Story, story_plan


@pytest.fixture
def story() -> Story:
    story = Story()
    story.batch(1, [1, 2])
    story.batch(2, [3, 4])
    return story


def test_before_anything_every_slot_waits() -> None:
    state = Story().state
    assert state.trials_by_state == {"waiting": 6}
    assert (state.started, state.unstarted, state.ended) == (0, 6, None)
    assert state.best_trial is None


def test_folding_at_once_and_event_by_event_agree(story: Story) -> None:
    story.complete(1, 300.0, 200.0, 100.0)
    story.start(2)
    whole = fold_search(story.plan, story.events)
    assert whole.trials_by_state == story.state.trials_by_state
    assert whole.head == story.state.head == story.events[-1].digest


def test_a_trial_goes_from_waiting_to_running_to_completed(story: Story) -> None:
    assert story.state.waiting == {1, 2, 3, 4}
    name = story.start(1)
    assert story.state.trial_state(1) == TrialState.RUNNING
    assert [one.attempt for one in story.state.open_attempts] == [name]
    story.report(name, 10, 90.0)
    story.end(name)
    assert story.state.trial_state(1) == TrialState.COMPLETED
    assert story.state.open_attempts == ()
    assert (story.state.best_trial, story.state.best_cost_per_1000) == ("parcel-01", 90.0)


def test_lost_attempts_do_not_use_up_a_trial_and_own_failures_do(story: Story) -> None:
    for attempt in range(1, 5):
        story.end(story.start(1, attempt), "expired", step=3)
        assert story.state.trial_state(1) == TrialState.WAITING
    story.end(story.start(1, 5), "failed", own=True)
    assert story.state.trial_state(1) == TrialState.WAITING
    story.end(story.start(1, 6), "failed", own=True)
    assert story.state.trial_state(1) == TrialState.FAILED
    assert story.state.attempts_by_state == {"expired": 4, "failed": 2}


def test_quarantine_lies_over_a_completed_attempt_and_takes_its_cost_away(story: Story) -> None:
    story.complete(1, 3.0, 2.0, 1.0)
    story.complete(2, 3.0, 2.0, 1.5)
    story.quarantine("parcel-01/1")
    assert story.state.trial_state(1) == TrialState.WAITING
    assert story.state.best_trial == "parcel-02"
    story.end(story.start(1, 2), "quarantined")
    story.quarantine("parcel-01/2")
    assert story.state.trial_state(1) == TrialState.QUARANTINED


def test_equal_costs_go_to_the_lower_number(story: Story) -> None:
    story.complete(2, 3.0, 2.0, 1.0)
    story.complete(1, 3.0, 2.0, 1.0)
    assert story.state.best_trial == "parcel-01"


def test_a_pruned_trial_is_never_the_best_however_low_its_value(story: Story) -> None:
    story.complete(1, 3.0, 2.0, 90.0)
    name = story.start(2)
    story.report(name, 5, 0.1)
    story.end(name, "pruned", step=5)
    assert story.state.best_trial == "parcel-01"
    assert story.state.steps_saved_by_pruning == 5


def test_charges_add_up_by_purpose_and_reruns_are_not_counted_as_trials(story: Story) -> None:
    story.complete(1, 3.0, 2.0, 1.0)
    story.end(story.start("reference", purpose="reference"), charged=7.5)
    assert story.state.charged_seconds_by_purpose == {"search": 5.0, "reference": 7.5}
    assert story.state.attempts_by_state == {"completed": 1}
    assert story.state.started == 1


def test_steps_of_a_resumed_attempt_count_from_its_checkpoint(story: Story) -> None:
    name = story.start(1)
    story.report(name, 2, 3.0)
    story.checkpoint(name, 3, "c3")
    story.end(name, "expired", step=3)
    story.end(story.start(1, 2, resume=(3, "c3")))
    assert story.state.steps_trained == 3 + 7


def test_an_event_of_an_unknown_attempt_is_refused(story: Story) -> None:
    with pytest.raises(LedgerError):
        story.report("parcel-01/9", 2, 1.0)


def test_the_table_has_a_row_for_every_slot_and_a_digest_of_what_was_found(story: Story) -> None:
    story.complete(1, 300.0, 200.0, 100.0)
    rows = table_rows(story.plan, story.state)
    assert [row.number for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[0].costs == {"2": 300.0, "5": 200.0, "10": 100.0}
    assert rows[0].final_cost_per_1000 == 100.0
    assert rows[5].state == TrialState.WAITING
    assert rows[5].configuration == {}
    changed = [rows[0].model_copy(update={"scores": "x"}), *rows[1:]]
    assert table_digest(changed) != table_digest(rows)


def test_the_digest_does_not_see_how_it_went(story: Story) -> None:
    other = Story()
    other.batch(1, [1, 2])
    other.batch(2, [3, 4])
    story.complete(1, 3.0, 2.0, 1.0)
    name = other.start(1)
    other.report(name, 2, 3.0, "parcel-01/1@2")
    other.end(name, "expired", step=2, charged=20.0)
    second = other.start(1, 2)
    for step, cost in ((2, 3.0), (5, 2.0), (10, 1.0)):
        other.report(second, step, cost, f"parcel-01/1@{step}")
    other.end(second)
    assert table_digest(table_rows(story.plan, story.state)) == table_digest(
        table_rows(other.plan, other.state)
    )


def test_a_late_quarantine_marks_the_lineage_of_a_trial(story: Story) -> None:
    story.complete(1, 3.0, 2.0, 1.0)
    story.complete(2, 3.0, 2.0, 1.0)
    story.close(1)
    story.quarantine("parcel-01/1")
    story.complete(1, 3.0, 2.0, 1.0, attempt=2)
    rows = table_rows(story.plan, story.state)
    assert (rows[0].lineage_ok, rows[1].lineage_ok) == (False, True)
    assert len(story.state.lineage_faults) == 1


def test_scores_survive_their_bytes() -> None:
    import numpy as np

    scores = np.array([0.25, 0.5], dtype=np.float32)
    assert unpack_scores(pack_scores(scores), 2).tolist() == [0.25, 0.5]


def test_a_plan_of_other_size_has_another_table() -> None:
    assert len(table_rows(story_plan(search__budget_trials=3), Story().state)) == 3
