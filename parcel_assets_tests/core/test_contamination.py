"""Contamination found after a batch closed: which decisions a replay without it would change."""

from collections.abc import Sequence

import pytest

from parcel_assets.core.contamination import replay_without, unreplayed
from parcel_assets.core.ledger import Kind
from parcel_assets.core.plan import Plan
from parcel_assets.core.ports import PastTrial
from parcel_assets.core.search_batches import cut_table, next_batch
from parcel_assets.core.space import Scalar
from parcel_assets.core.table import table_rows
from parcel_assets.core.trial import TrialState
from parcel_assets_tests.core.search_story import Story


class Steadfast:
    """Proposes what the story's batches hold, whatever it knows; notes what it was told."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self.told: list[list[float | None]] = []

    def propose(
        self, plan: Plan, *, seed: int, past: Sequence[PastTrial], count: int
    ) -> list[dict[str, Scalar]]:
        self.told.append([one.cost for one in past])
        first = len(past) + 1
        trials = self._story.state.trials
        return [
            dict(trial.configuration)
            for number in range(first, first + count)
            if (trial := trials[number].trial) is not None
        ]


class Wavering(Steadfast):
    """Proposes another configuration where the best value it knows is another."""

    def propose(
        self, plan: Plan, *, seed: int, past: Sequence[PastTrial], count: int
    ) -> list[dict[str, Scalar]]:
        offered = super().propose(plan, seed=seed, past=past, count=count)
        best = min((one.cost for one in past if one.cost is not None), default=0.0)
        return offered if best == 0.5 else [one | {"learning_rate": 0.0075} for one in offered]


@pytest.fixture
def story() -> Story:
    """Three batches; trial 1's values are contaminated, and batch 3 was cut knowing them."""
    story = Story()
    for batch in (1, 2):
        first = 2 * batch - 1
        story.batch(batch, [first, first + 1])
        story.complete(first, 100.0 if batch == 1 else 300.0, 90.0, 0.5 if batch == 1 else 80.0)
        story.complete(first + 1, 300.0, 200.0, 100.0)
        story.close(batch)
    story.batch(3, [5, 6], cut_table(story.plan, story.state, 3))
    return story


def run_again(story: Story, cost: float) -> None:
    """Quarantine trial 1 late; its clean rerun has another value at the first milestone."""
    story.quarantine("parcel-01/1")
    name = story.start(1, 2)
    for step, value in zip((2, 5, 10), (cost, 90.0, 0.5), strict=True):
        story.report(name, step, value)
    story.end(name)


def replayed(story: Story, sampler: Steadfast) -> tuple[str, ...]:
    body = replay_without(story.plan, story.state, sampler, unreplayed(story.state))
    story.tell(Kind.CONTAMINATION_REPLAYED, **body.document())
    assert unreplayed(story.state) == ()
    return body.changed


def test_equal_values_change_nothing_and_clear_the_hold(story: Story) -> None:
    assert story.state.batches[3].cut_table[0].cut_cost == 100.0
    run_again(story, 100.0)
    assert story.state.lineage_faults != ()
    assert replayed(story, Steadfast(story)) == ()
    assert story.state.lineage_faults == ()
    assert table_rows(story.plan, story.state)[0].lineage_ok


def test_a_trial_that_a_contaminated_cut_stopped_would_go_on(story: Story) -> None:
    name = story.start(5)
    story.report(name, 2, 200.0, verdict=("stop", "misses the cut"))
    story.end(name, "pruned", step=2)
    story.complete(6, 90.0, 80.0, 70.0)
    run_again(story, 250.0)
    (sentence,) = replayed(story, Steadfast(story))
    assert sentence.startswith("parcel-05/1 would go on at step 2")
    assert "would go on" in story.state.lineage_faults[0]
    assert not table_rows(story.plan, story.state)[0].lineage_ok


def test_a_trial_that_a_contaminated_cut_let_go_on_would_stop(story: Story) -> None:
    story.complete(5, 100.0, 80.0, 70.0)
    run_again(story, 50.0)
    (sentence,) = replayed(story, Steadfast(story))
    assert sentence.startswith("parcel-05/1 would stop at step 2")


def test_a_proposal_made_from_a_contaminated_value_would_be_another(story: Story) -> None:
    story.quarantine("parcel-01/1")
    assert replayed(story, Wavering(story)) == ("batch 3 would hold other configurations",)


def test_a_proposal_is_replayed_from_what_was_known_then_and_no_more(story: Story) -> None:
    story.complete(5, 100.0, 80.0, 70.0)
    run_again(story, 100.0)
    sampler = Steadfast(story)
    replayed(story, sampler)
    # batch 3 knew batch 1 in full, batch 2 as running, and nothing of itself
    assert sampler.told == [[0.5, 100.0, None, None]]


def test_what_reached_no_later_batch_needs_no_decision_replayed(story: Story) -> None:
    story.quarantine("parcel-03/1")
    body = replay_without(story.plan, story.state, Steadfast(story), unreplayed(story.state))
    assert (body.attempts, body.batches, body.changed) == (("parcel-03/1",), (), ())


def test_a_contaminated_winner_is_an_invalid_winner_even_once_cleared(story: Story) -> None:
    story.tell(Kind.SEARCH_ENDED, reason="budget")
    choice = {"threshold": 0.5, "ranking": ["parcel-01"], "informed_by": None, "table_digest": ""}
    story.tell(Kind.SELECTION_FROZEN, trial="parcel-01", **choice)
    run_again(story, 100.0)
    assert replayed(story, Steadfast(story)) == ()
    first, second, *_ = table_rows(story.plan, story.state)
    assert (first.lineage_ok, second.lineage_ok) == (False, True)


def test_no_batch_opens_while_a_trial_it_would_know_runs_again(story: Story) -> None:
    story.close(3)
    story.state.batches.pop(3)
    for number in (5, 6):
        story.state.trials.pop(number)
    assert next_batch(story.plan, story.state) == 3
    story.quarantine("parcel-01/1")
    assert next_batch(story.plan, story.state) is None


def test_a_trial_without_a_clean_rerun_ends_quarantined(story: Story) -> None:
    story.quarantine("parcel-01/1")
    assert story.state.trial_state(1) == TrialState.WAITING
    story.tell(Kind.SEARCH_ENDED, reason="cap")
    assert story.state.trial_state(1) == TrialState.QUARANTINED
    assert not table_rows(story.plan, story.state)[0].lineage_ok
