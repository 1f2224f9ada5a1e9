"""What every sampler must do; a test module inherits the suite and offers a `sampler`."""

from collections.abc import Sequence

import pytest

from parcel_assets.core.plan import Plan
from parcel_assets.core.ports import PastTrial, Sampler
from parcel_assets_tests.core.plans import plan as make_plan


def past_of(plan: Plan, sampler: Sampler, count: int) -> list[PastTrial]:
    """Return trials of every state, as a search remembers them."""
    drawn = sampler.propose(plan, seed=9, past=[], count=count)
    trials = []
    for number, configuration in enumerate(drawn, 1):
        state = ("completed", "pruned", "failed", "running")[number % 4]
        ranked = state in {"completed", "pruned"}
        curve = {9: 400.0 + number, 27: 300.0 + number} if state != "running" else {}
        trials.append(
            PastTrial(number, configuration, state, 300.0 + number if ranked else None, curve)
        )
    return trials


class SamplerContract:
    """The suite; a subclass defines a fixture `sampler`."""

    @pytest.fixture
    def plan(self) -> Plan:
        return make_plan()

    def test_proposals_lie_inside_the_space_and_have_its_types(
        self, sampler: Sampler, plan: Plan
    ) -> None:
        offered = sampler.propose(plan, seed=5, past=past_of(plan, sampler, 12), count=8)
        assert len(offered) == 8
        for configuration in offered:
            assert set(configuration) == set(plan.space)
            for name, domain in plan.space.items():
                assert domain.holds(configuration[name]), (name, configuration[name])
                assert type(configuration[name]) in {bool, int, float, str}

    def test_equal_arguments_give_equal_proposals(self, sampler: Sampler, plan: Plan) -> None:
        past = past_of(plan, sampler, 12)
        first = sampler.propose(plan, seed=5, past=past, count=4)
        sampler.propose(plan, seed=6, past=[], count=3)  # what was asked before leaves no trace
        assert sampler.propose(plan, seed=5, past=past, count=4) == first

    def test_another_seed_gives_other_proposals(self, sampler: Sampler, plan: Plan) -> None:
        past: Sequence[PastTrial] = past_of(plan, sampler, 12)
        first = sampler.propose(plan, seed=5, past=past, count=4)
        assert sampler.propose(plan, seed=6, past=past, count=4) != first

    def test_proposals_of_one_batch_differ(self, sampler: Sampler, plan: Plan) -> None:
        rates = [one["learning_rate"] for one in sampler.propose(plan, seed=5, past=[], count=8)]
        assert len(set(rates)) == 8

    def test_the_past_is_not_changed(self, sampler: Sampler, plan: Plan) -> None:
        past = past_of(plan, sampler, 12)
        before = [(one.number, dict(one.configuration), one.state, one.cost) for one in past]
        sampler.propose(plan, seed=5, past=past, count=4)
        after = [(one.number, dict(one.configuration), one.state, one.cost) for one in past]
        assert after == before
