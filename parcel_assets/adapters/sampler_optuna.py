"""Propose configurations with Optuna, in a study rebuilt from the record for every batch.

Decides how the plan's space and earlier trials look to Optuna. Which trials a batch may know of,
its seed and its size are left to the search. Nothing lives between two calls: equal arguments give
equal proposals, in any process.
"""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from parcel_assets.core.errors import PlanError
from parcel_assets.core.plan import Plan
from parcel_assets.core.ports import PastTrial
from parcel_assets.core.space import Domain, FloatDomain, IntDomain, Scalar, nearest_hint

SAMPLERS = ("tpe", "random")
REDRAWS_MAXIMUM = 30
LISTED_POINTS_MAXIMUM = 100_000
_SEED_LIMIT = 2**32  # Optuna seeds numpy's older generator

_STATES = {
    "completed": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "running": TrialState.RUNNING,
}

Space = Mapping[str, Domain]
Configuration = dict[str, Scalar]


class OptunaSampler:
    """The Sampler port on Optuna: `tpe` learns from earlier trials, `random` does not.

    Raises PlanError for another name.
    """

    def __init__(self, name: str) -> None:
        if name not in SAMPLERS:
            raise PlanError(
                repr(name),
                expected=f"one of {', '.join(SAMPLERS)}",
                where="search.sampler",
                remedy="Name a known sampler in the plan.",
                faults=[
                    {
                        "path": "search.sampler",
                        "fault": f"unknown sampler{nearest_hint(name, SAMPLERS)}",
                    }
                ],
            )
        self._name = name
        optuna.logging.set_verbosity(optuna.logging.ERROR)

    def propose(
        self, plan: Plan, *, seed: int, past: Sequence[PastTrial], count: int
    ) -> list[Configuration]:
        """Return up to `count` configurations inside the plan's space.

        Under the rule `redraw` no configuration repeats another, and an exhausted space gives
        fewer. Trials that count as running, and those proposed here, enter as unfinished: the next
        proposal keeps away from them.
        """
        # the order of knobs in the plan's file must not change what is drawn
        space = dict(sorted(plan.space.items()))
        distributions = {name: _distribution(domain) for name, domain in space.items()}
        study = optuna.create_study(direction="minimize", sampler=self._sampler(seed))
        for trial in sorted(past, key=lambda one: one.number):
            study.add_trial(_frozen(trial, space, distributions))
        taken = {_key(trial.configuration) for trial in past}
        distinct = plan.search.equal_configurations == "redraw"
        draws = np.random.Generator(np.random.Philox(key=[seed % 2**63, 1]))
        proposals: list[Configuration] = []
        while len(proposals) < count:
            proposal = _ask(study, space, distributions)
            if distinct:
                redraws = 0
                while _key(proposal) in taken and redraws < REDRAWS_MAXIMUM:
                    proposal = _ask(study, space, distributions)
                    redraws += 1
                if _key(proposal) in taken:
                    left = _points_left(space, taken)
                    if not left:
                        break
                    proposal = left[int(draws.integers(len(left)))]
                    study.add_trial(
                        _frozen(PastTrial(0, proposal, "running", None), space, distributions)
                    )
            taken.add(_key(proposal))
            proposals.append(proposal)
        return proposals

    def _sampler(self, seed: int) -> BaseSampler:
        if self._name == "random":
            return RandomSampler(seed=seed % _SEED_LIMIT)
        return TPESampler(
            seed=seed % _SEED_LIMIT, multivariate=True, constant_liar=True, n_startup_trials=10
        )


def _ask(
    study: optuna.Study, space: Space, distributions: Mapping[str, BaseDistribution]
) -> Configuration:
    """Return one proposal, which stays in the study as running."""
    asked = study.ask(dict(distributions)).params
    return {name: _to_scalar(domain, asked[name]) for name, domain in space.items()}


def _frozen(
    trial: PastTrial, space: Space, distributions: Mapping[str, BaseDistribution]
) -> FrozenTrial:
    """Return an earlier trial as Optuna keeps it; one without a finite cost counts as failed."""
    state = _STATES.get(trial.state, TrialState.FAIL)
    finite = trial.cost is not None and math.isfinite(trial.cost)
    if state == TrialState.COMPLETE and not finite:
        state = TrialState.FAIL
    values = {step: cost for step, cost in trial.costs_by_step.items() if math.isfinite(cost)}
    return create_trial(
        state=state,
        value=trial.cost if state == TrialState.COMPLETE else None,
        params={
            name: _from_scalar(domain, trial.configuration[name]) for name, domain in space.items()
        },
        distributions=dict(distributions),
        intermediate_values={} if state == TrialState.RUNNING else values,
    )


def _distribution(domain: Domain) -> BaseDistribution:
    if isinstance(domain, FloatDomain):
        return FloatDistribution(domain.low, domain.high, log=domain.log)
    if isinstance(domain, IntDomain):
        # Optuna shortens a range whose step does not divide it, with a warning; say it outright
        high = domain.high - (domain.high - domain.low) % domain.step
        return IntDistribution(domain.low, high, log=domain.log, step=domain.step)
    # places instead of values: to Optuna 1, 1.0 and True are one choice
    return CategoricalDistribution(range(len(domain.values)))


def _from_scalar(domain: Domain, value: Scalar) -> float | int:
    if isinstance(domain, FloatDomain):
        return float(value)
    if isinstance(domain, IntDomain):
        return int(value)
    same = [(type(one), one) for one in domain.values]
    return same.index((type(value), value))


def _to_scalar(domain: Domain, asked: float) -> Scalar:
    if isinstance(domain, FloatDomain):
        return min(max(float(asked), domain.low), domain.high)
    if isinstance(domain, IntDomain):
        return int(asked)
    return domain.values[int(asked)]


def _key(configuration: Mapping[str, Scalar]) -> tuple[tuple[str, str, Scalar], ...]:
    """Return what makes two configurations equal: names, types and values."""
    return tuple(
        (name, type(value).__name__, value) for name, value in sorted(configuration.items())
    )


def _points_left(
    space: Space, taken: set[tuple[tuple[str, str, Scalar], ...]]
) -> list[Configuration]:
    """Return the points of a finite space that are not taken; of an endless space, none."""
    values: list[Sequence[Scalar]] = []
    for domain in space.values():
        if isinstance(domain, FloatDomain):
            return []
        values.append(
            range(domain.low, domain.high + 1, domain.step)
            if isinstance(domain, IntDomain)
            else domain.values
        )
    points = itertools.islice(itertools.product(*values), LISTED_POINTS_MAXIMUM)
    configurations = (dict(zip(space, point, strict=True)) for point in points)
    return [one for one in configurations if _key(one) not in taken]
