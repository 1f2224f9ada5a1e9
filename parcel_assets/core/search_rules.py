"""Reports, dispatch and end: what a search may do next, from its state and its plan alone.

Batches and cut tables are made in `search_batches`, money is counted in `search_charges`; doing
what was decided is left to the steps.
"""

from collections.abc import Sequence

from parcel_assets.core.attempts import AttemptRecord
from parcel_assets.core.errors import ReportError
from parcel_assets.core.plan import Plan
from parcel_assets.core.search import SearchState
from parcel_assets.core.search_batches import batches_to_close
from parcel_assets.core.trial import (
    AttemptState,
    CheckpointSaved,
    Cut,
    MilestoneReported,
    ProposedTrial,
    TrialState,
    Verdict,
)

HOLD_NO_WORKER = "hold:no-worker"

# ---- reports ------------------------------------------------------------------------------------


def check_step(plan: Plan, step: int, where: str) -> None:
    """Raise ReportError for a step past the end, whatever is said of it."""
    if step > plan.training.steps:
        raise ReportError(
            f"step {step} of {plan.training.steps}",
            expected=f"a training that ends at step {plan.training.steps}",
            where=where,
            remedy="The attempt is stopped; its worker does not keep the protocol.",
        )


def check_report(
    plan: Plan,
    state: SearchState,
    record: AttemptRecord,
    *,
    step: int,
    photos_seen: int,
    scores: str,
) -> MilestoneReported | None:
    """Return the earlier report that this one repeats, or None for a new one.

    Raises ReportError: for another value at a step that was reported, with `facts["attempts"]`
    naming those in doubt; for a skipped milestone, a step past the end or backwards, another axis.
    """
    where = f"report of {record.attempt} at step {step}"
    check_step(plan, step, where)
    earlier = record.reports.get(step)
    if earlier is not None and earlier.scores == scores:
        return earlier
    contradicted = [
        one.attempt
        for one in state.subjects[record.subject].clean_attempts
        if step in one.reports and one.reports[step].scores != scores
    ]
    if contradicted:
        raise ReportError(
            f"other scores than {contradicted[0]} reported",
            expected="the same scores: a training is a function of its seed and step",
            where=where,
            remedy="All attempts involved are quarantined, and the trial runs again.",
            attempts=sorted({*contradicted, record.attempt}),
        )
    start = record.started.resume_step
    due = [one for one in plan.training.milestones if one > start and one not in record.reports]
    newest = max([start, *record.reports])
    faults = {
        f"step {step} of {plan.training.steps}": step < 1,
        f"a step not after {newest}": step <= newest,
        f"milestone {due[0] if due else 0} skipped": bool(due) and step > due[0],
        f"{photos_seen} photos seen": photos_seen != step * plan.training.batch_photos,
    }
    for fault, found in faults.items():
        if found:
            raise ReportError(
                fault,
                expected=f"each of the milestones {list(plan.training.milestones)} once, in order, "
                f"after step times {plan.training.batch_photos} photos",
                where=where,
                remedy="The attempt is stopped; its worker does not keep the protocol.",
            )
    return None


def verdict_of(
    plan: Plan, state: SearchState, subject: str, step: int, cost: float | None
) -> tuple[Verdict, str]:
    """Return the verdict on a report and its reason.

    A value is only ever compared at its own step with the frozen cut of its batch (S7).
    """
    trial = state.subjects[subject].trial
    return judge_by(plan, trial, state.cut_table(subject), step, cost)


def judge_by(
    plan: Plan, trial: ProposedTrial | None, cuts: Sequence[Cut], step: int, cost: float | None
) -> tuple[Verdict, str]:
    """Return the verdict that cuts give on a trial's value at a step, and its reason."""
    if step not in plan.training.milestones:
        return Verdict.NOT_COMPARABLE, f"step {step} is no milestone of the plan"
    if cost is None:
        return Verdict.STOP, "the scores give no finite cost"
    cut = next((one for one in cuts if one.step == step), None)
    reason = None
    if trial is None:
        reason = "no trial of the search: nothing is compared"
    elif step == plan.training.steps:
        return Verdict.CONTINUE, "the last milestone"
    elif cut is None:
        reason = f"the batch has no cut at step {step}"
    elif trial.number <= plan.pruning.warm_up_trials:
        reason = "a warm-up trial is never pruned"
    elif cut.cut_cost is None:
        reason = cut.reason
    if reason is not None or cut is None or cut.cut_cost is None:
        return Verdict.NOT_COMPARABLE, reason or "nothing to compare with"
    if cost <= cut.cut_cost:
        return Verdict.CONTINUE, f"{cost:.6g} reaches the cut {cut.cut_cost:.6g}: {cut.reason}"
    return Verdict.STOP, f"{cost:.6g} misses the cut {cut.cut_cost:.6g}: {cut.reason}"


# ---- dispatch and end ---------------------------------------------------------------------------


def next_trial(state: SearchState) -> ProposedTrial | None:
    """Return the waiting trial of the lowest number, or None."""
    number = min(state.waiting, default=None)
    return None if number is None else state.trials[number].trial


def resume_points(
    plan: Plan, state: SearchState, subject: str
) -> list[tuple[AttemptRecord, CheckpointSaved]]:
    """Return the checkpoints that a trial's next attempt may resume, best first.

    Only those of its own lost attempts: after a failure of its own a trial starts afresh, as its
    checkpoint may be the cause, and so do reruns (H3).
    """
    record = state.subjects[subject]
    if record.trial is None:
        return []
    reported = record.reports
    found = [
        (attempt, saved)
        for attempt in record.clean_attempts
        if attempt.state == AttemptState.EXPIRED
        for saved in attempt.checkpoints
        if saved.step < plan.training.steps
        and all(step in reported for step in plan.training.milestones if step <= saved.step)
    ]
    return sorted(found, key=lambda pair: pair[1].step, reverse=True)


def end_reason(
    plan: Plan, state: SearchState, *, space_exhausted: bool, cap_reached: bool
) -> str | None:
    """Return why the search is over, or None while it is not.

    The caller asks when no attempt is open and every settled batch is closed.
    """
    if state.open_attempts or batches_to_close(state):
        return None
    if state.waiting:
        return "cap" if cap_reached else None
    if state.proposed < plan.search.budget_trials:
        return "space" if space_exhausted else None
    if state.best_number is not None:
        return "budget"
    return "pruned" if set(state.trials_by_state) == {str(TrialState.PRUNED)} else "failed"
