"""The sampler: proposals are a function of plan, seed and record, inside the space, type-exact."""

import logging
from typing import Any

import pytest

from parcel_assets.adapters.sampler_optuna import OptunaSampler
from parcel_assets.core.errors import PlanError
from parcel_assets.core.plan import Plan
from parcel_assets.core.ports import PastTrial
from parcel_assets.core.space import Scalar
from parcel_assets_tests.adapters.plan_helpers import plan_of

SPACE: dict[str, Any] = {
    "learning_rate": {"kind": "float", "low": 1e-4, "high": 1e-1, "log": True},
    "width": {"kind": "int", "low": 4, "high": 17, "step": 4},
    "positive_weight": {"kind": "choice", "values": [1, 1.0, 2.5]},
    "augmentation": {"kind": "choice", "values": ["none", "light"]},
}
FINITE: dict[str, Any] = {
    "depth": {"kind": "int", "low": 2, "high": 4},
    "augmentation": {"kind": "choice", "values": ["none", "light", "strong"]},
}


def past(plan: Plan, count: int, seed: int = 9) -> list[PastTrial]:
    """Return random trials whose cost grows with the distance of the rate from 0.01."""
    drawn = OptunaSampler("random").propose(plan, seed=seed, past=[], count=count)
    trials = []
    for number, one in enumerate(drawn, start=1):
        cost = 300 + 1000 * abs(float(one["learning_rate"]) - 0.01)
        state = ("completed", "completed", "pruned", "failed")[number % 4]
        final = cost if state == "completed" else None
        curve = {9: 2 * cost, 27: 1.5 * cost} if state != "failed" else {}
        trials.append(PastTrial(number, one, state, final, curve))
    return trials


@pytest.mark.parametrize("name", ["tpe", "random"])
def test_equal_arguments_give_equal_proposals(name: str) -> None:
    plan = plan_of(SPACE)
    record = past(plan, 30)
    first = OptunaSampler(name).propose(plan, seed=5, past=record, count=8)
    again = OptunaSampler(name).propose(plan, seed=5, past=list(reversed(record)), count=8)
    assert first == again
    assert first != OptunaSampler(name).propose(plan, seed=6, past=record, count=8)


def test_the_order_of_knobs_in_the_plan_changes_nothing() -> None:
    plan, turned = plan_of(SPACE), plan_of(dict(reversed(SPACE.items())))
    sampler = OptunaSampler("tpe")
    record = past(plan, 20)
    assert sampler.propose(plan, seed=5, past=record, count=4) == sampler.propose(
        turned, seed=5, past=record, count=4
    )


@pytest.mark.parametrize("name", ["tpe", "random"])
def test_proposals_lie_in_the_space_with_their_exact_types(name: str) -> None:
    plan = plan_of(SPACE)
    proposals = OptunaSampler(name).propose(plan, seed=2**62 + 1, past=past(plan, 24), count=60)
    assert len(proposals) == 60
    for proposal in proposals:
        assert list(proposal) == sorted(plan.space)
        for knob, domain in plan.space.items():
            assert domain.holds(proposal[knob]), (knob, proposal[knob])
    assert {type(one["width"]) for one in proposals} == {int}
    assert {one["width"] for one in proposals} <= {4, 8, 12, 16}
    assert {type(one["positive_weight"]) for one in proposals} == {int, float}


def test_tpe_learns_from_the_record_and_random_does_not() -> None:
    plan = plan_of(SPACE)
    record = past(plan, 60)

    def near(name: str) -> int:
        proposals = OptunaSampler(name).propose(plan, seed=3, past=record, count=20)
        return sum(0.003 < float(one["learning_rate"]) < 0.03 for one in proposals)

    assert near("tpe") >= 14
    assert near("random") <= 12


def test_running_trials_are_kept_away_from() -> None:
    plan = plan_of(SPACE)
    record = past(plan, 40)
    sampler = OptunaSampler("tpe")
    alone = sampler.propose(plan, seed=3, past=record, count=1)[0]
    crowd = [PastTrial(100 + one, alone, "running", None) for one in range(20)]
    beside = sampler.propose(plan, seed=3, past=[*record, *crowd], count=1)[0]
    assert beside != alone


def test_a_completed_trial_without_a_finite_cost_teaches_nothing() -> None:
    plan = plan_of(SPACE)
    record = past(plan, 30)
    odd = PastTrial(31, record[0].configuration, "completed", float("nan"), {9: float("inf")})
    proposals = OptunaSampler("tpe").propose(plan, seed=5, past=[*record, odd], count=3)
    failed = PastTrial(31, record[0].configuration, "failed", None)
    assert proposals == OptunaSampler("tpe").propose(plan, seed=5, past=[*record, failed], count=3)


def test_redrawing_never_repeats_and_an_exhausted_space_gives_fewer() -> None:
    plan = plan_of(FINITE, equal_configurations="redraw")
    sampler = OptunaSampler("tpe")
    first = sampler.propose(plan, seed=1, past=[], count=6)
    record = [PastTrial(n, one, "completed", 300.0 + n) for n, one in enumerate(first, start=1)]
    rest = sampler.propose(plan, seed=2, past=record, count=6)
    assert len(first) == 6
    assert len(rest) == 3
    assert len({tuple(one.items()) for one in [*first, *rest]}) == 9
    full = [*record, *(PastTrial(9, one, "running", None) for one in rest)]
    assert sampler.propose(plan, seed=3, past=full, count=6) == []


def test_allowing_equal_configurations_fills_every_slot() -> None:
    plan = plan_of(FINITE, equal_configurations="allow")
    assert len(OptunaSampler("random").propose(plan, seed=1, past=[], count=20)) == 20


def test_an_unknown_sampler_is_a_plan_error_naming_the_known() -> None:
    with pytest.raises(PlanError, match="tpe, random") as caught:
        OptunaSampler("tpee")
    assert caught.value.facts["faults"][0]["fault"].endswith("did you mean 'tpe'?")


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    plan = plan_of(SPACE)
    logging.getLogger("optuna").propagate = True
    OptunaSampler("tpe").propose(plan, seed=1, past=past(plan, 20), count=5)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_a_plan_is_not_changed_by_a_proposal() -> None:
    plan = plan_of(SPACE)
    before = plan.digest
    proposal: dict[str, Scalar] = OptunaSampler("tpe").propose(plan, seed=1, past=[], count=1)[0]
    proposal["width"] = 99
    assert plan.digest == before
