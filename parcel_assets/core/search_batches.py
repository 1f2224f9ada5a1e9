"""Batches: when one may open, what its sampler may know, which slots it fills, which cuts judge it.

Every function gives the same answer for one worker and for many, undisturbed or resumed (S8).
Verdicts and dispatch are `search_rules`'s.
"""

import math
from collections.abc import Mapping, Sequence

from parcel_assets.core.codec import canonical_json, derive_seed
from parcel_assets.core.errors import PlanError
from parcel_assets.core.plan import Plan
from parcel_assets.core.ports import PastTrial, Sampler
from parcel_assets.core.ranks import rank_correlation
from parcel_assets.core.search import SearchState
from parcel_assets.core.space import Scalar
from parcel_assets.core.trial import Cut, ProposedTrial, TrialState, trial_id_of, trial_seed

REDRAWS_MAXIMUM = 8
PAIRS_MINIMUM = 3  # two pairs always agree or disagree whole
SETTLED = frozenset(
    {TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED, TrialState.QUARANTINED}
)


# ---- batches ------------------------------------------------------------------------------------


def next_batch(plan: Plan, state: SearchState) -> int | None:
    """Return the number of the batch that may open now, or None.

    Batch k may open once every batch up to k - lookahead is closed and slots are left. Where one of
    their trials runs again for a contamination found late, its clean values are waited for.
    """
    if state.proposed >= plan.search.budget_trials:
        return None
    number = len(state.batches) + 1
    seen = range(1, number - plan.search.lookahead_batches + 1)
    known = all(one in state.closed_batches and not unsettled(state, one) for one in seen)
    return number if known else None


def batch_seed(plan: Plan, batch: int, redraw: int = 0) -> int:
    """Return the sampler's seed for a batch; without it, batches would repeat each other."""
    return derive_seed("batch", plan.search.seed, batch, redraw)


def past_trials(plan: Plan, state: SearchState, batch: int) -> list[PastTrial]:
    """Return what the sampler of a batch may know, by trial number.

    Trials of batches within the lookahead enter as running whatever their real state, so that
    timing cannot leak in.
    """
    known = batch - plan.search.lookahead_batches
    past = []
    for number in sorted(state.trials):
        record = state.trials[number]
        assert record.trial is not None
        assert record.batch is not None
        configuration = record.trial.configuration
        if record.batch > known:
            past.append(PastTrial(number, configuration, "running", None))
            continue
        costs = {
            step: report.cost_per_1000
            for step, report in sorted(record.reports.items())
            if report.cost_per_1000 is not None and step in plan.training.milestones
        }
        status = state.trial_state(number)
        words = {TrialState.COMPLETED: "completed", TrialState.PRUNED: "pruned"}
        cost = costs[max(costs)] if status in words and costs else None
        past.append(PastTrial(number, configuration, words.get(status, "failed"), cost, costs))
    return past


def propose(
    plan: Plan, state: SearchState, sampler: Sampler, batch: int
) -> list[dict[str, Scalar]]:
    """Return the configurations of a batch: a function of plan, sampler and what it may know.

    Fewer than its slots, or none, where the space is exhausted. Raises PlanError as
    `fresh_configurations`. Trials of the batch itself and of later ones are not looked at.
    """
    first = min((n for n, one in state.trials.items() if (one.batch or 0) >= batch), default=None)
    first = state.proposed + 1 if first is None else first
    size = min(plan.search.batch_trials, plan.search.budget_trials - first + 1)
    past = [one for one in past_trials(plan, state, batch) if one.number < first]
    earlier = [one.configuration for one in past]
    taken: list[dict[str, Scalar]] = []
    for redraw in range(REDRAWS_MAXIMUM):
        seed = batch_seed(plan, batch, redraw)
        offered = sampler.propose(plan, seed=seed, past=past, count=size - len(taken))
        taken += fresh_configurations(plan, offered, [*earlier, *taken])
        if not offered or len(taken) >= size:
            break
    return taken[:size]


def fresh_configurations(
    plan: Plan,
    offered: Sequence[Mapping[str, Scalar]],
    earlier: Sequence[Mapping[str, Scalar]],
) -> list[dict[str, Scalar]]:
    """Return the offered configurations that the plan's rule on equal ones lets pass, in order.

    Raises PlanError for one outside the plan's space: it never becomes a slot.
    """
    for configuration in offered:
        _require_in_space(plan, configuration)
    if plan.search.equal_configurations == "allow":
        return [dict(one) for one in offered]
    seen = {canonical_json(dict(one)) for one in earlier}
    fresh = []
    for configuration in offered:
        key = canonical_json(dict(configuration))
        if key not in seen:
            seen.add(key)
            fresh.append(dict(configuration))
    return fresh


def _require_in_space(plan: Plan, configuration: Mapping[str, Scalar]) -> None:
    wrong = sorted(set(configuration) ^ set(plan.space)) + sorted(
        name
        for name, value in configuration.items()
        if name in plan.space and not plan.space[name].holds(value)
    )
    if wrong:
        raise PlanError(
            f"sampler {plan.search.sampler!r} proposing {wrong[0]} = "
            f"{configuration.get(wrong[0], 'nothing')!r}",
            expected=f"a value for each of {', '.join(sorted(plan.space))}, inside its domain",
            where=f"space.{wrong[0]}",
            remedy="Mend the sampler, or name another in search.sampler under a new revision.",
            faults=[{"path": f"space.{name}", "fault": "not held"} for name in wrong],
        )


def number_trials(
    plan: Plan, state: SearchState, configurations: Sequence[Mapping[str, Scalar]]
) -> tuple[ProposedTrial, ...]:
    """Return proposed configurations as the next slots of the budget."""
    first = state.proposed + 1
    return tuple(
        ProposedTrial(
            number=number,
            trial_id=trial_id_of(number),
            seed=trial_seed(plan.search.seed, number),
            configuration=dict(configuration),
        )
        for number, configuration in enumerate(configurations, first)
    )


def unsettled(state: SearchState, batch: int) -> list[int]:
    """Return the numbers of a batch's trials that are not settled."""
    trials = state.batches[batch].trials
    return [one.number for one in trials if state.trial_state(one.number) not in SETTLED]


def batches_to_close(state: SearchState) -> list[int]:
    """Return the open batches whose trials are all settled: their lineages are verified next."""
    return [
        batch
        for batch in sorted(state.batches)
        if batch not in state.closed_batches and not unsettled(state, batch)
    ]


# ---- cut tables ---------------------------------------------------------------------------------


def cut_table(plan: Plan, state: SearchState, batch: int) -> tuple[Cut, ...]:
    """Return the cuts that judge a batch, one for each milestone before the last.

    Made from all values reported exactly there by batches up to `batch - lookahead`, pruned trials
    included.
    """
    return tuple(
        _cut(plan, state, step, keep, batch - plan.search.lookahead_batches)
        for step, keep in zip(
            plan.training.milestones[:-1], plan.pruning.keep_fractions, strict=True
        )
    )


def _cut(plan: Plan, state: SearchState, step: int, keep: float, known: int) -> Cut:
    values = tuple(_values_at(state, step, known))
    return cut_from_values(plan, step, keep, values, guard=_guard(plan, state, step, known))


def cut_from_values(
    plan: Plan,
    step: int,
    keep: float,
    values: tuple[tuple[int, float], ...],
    *,
    guard: str | None,
) -> Cut:
    """Return the cut that the plan's rule makes of comparable values; `guard` says why none."""
    needed = plan.pruning.minimum_comparable
    if keep >= 1:
        guard = "the plan keeps every trial here"
    elif len(values) < needed:
        guard = f"{len(values)} of {needed} peers at step {step}"
    if guard is not None:
        return Cut(step=step, cut_cost=None, reason=guard, values=values)
    # the smallest number of trials that is at least the fraction to keep; ties go on
    place = max(1, math.ceil(keep * len(values) - 1e-9))
    cut = sorted(cost for _, cost in values)[place - 1]
    reason = f"the best {keep:.0%} of {len(values)} values at step {step}"
    return Cut(step=step, cut_cost=cut, reason=reason, values=values)


def _values_at(state: SearchState, step: int, known: int) -> list[tuple[int, float]]:
    found = []
    for number in sorted(state.trials):
        record = state.trials[number]
        report = record.reports.get(step)
        if record.batch is not None and record.batch <= known and report is not None:
            cost = report.cost_per_1000
            if cost is not None:
                found.append((number, cost))
    return found


def _guard(plan: Plan, state: SearchState, step: int, known: int) -> str | None:
    """Return why nothing is pruned at a milestone, judged on the warm-up; None where it may be."""
    warm_up = min(plan.pruning.warm_up_trials, plan.search.budget_trials)
    floor = plan.pruning.minimum_rank_correlation
    if warm_up == 0 or floor <= -1:  # no warm-up is declared, or no correlation is too low
        return None
    last_known = max(
        (n for n, one in state.trials.items() if one.batch is not None and one.batch <= known),
        default=0,
    )
    if last_known < warm_up:
        return f"the warm-up of {warm_up} trials is not over"
    pairs = []
    for number in range(1, warm_up + 1):
        reports = state.trials[number].reports
        if state.trial_state(number) == TrialState.COMPLETED and step in reports:
            early, final = reports[step].cost_per_1000, state.final_cost(state.trials[number])
            if early is not None and final is not None:
                pairs.append((early, final))
    return guard_from_pairs(plan, pairs)


def guard_from_pairs(plan: Plan, pairs: Sequence[tuple[float, float]]) -> str | None:
    """Return why the warm-up's (milestone, final) costs allow no pruning; None where they do."""
    floor = plan.pruning.minimum_rank_correlation
    enough = len(pairs) >= PAIRS_MINIMUM
    correlation = rank_correlation(*zip(*pairs, strict=True)) if enough else None
    if correlation is None:
        return f"no rank correlation in {len(pairs)} completed warm-up trials"
    if correlation < floor:
        return (
            f"rank correlation with the last milestone is {correlation:.2f} in the warm-up, "
            f"below {floor:.2f}"
        )
    return None
