"""Were workers, attempts and reports treated rightly? Pure answers from a plan and its events.

The search as a whole, holdout, slices and processes are asked about in `judge`.
"""

from collections.abc import Collection

from parcel_assets.core.attempts import AttemptRecord
from parcel_assets.core.ledger import Kind
from parcel_assets.core.table import table_rows
from parcel_assets.core.trial import AttemptState, TrialState
from parcel_assets.drills.judge import Scene
from parcel_assets.drills.records import Check, listed

# ---- workers at the door ------------------------------------------------------------------------


def refused_at_the_door(scene: Scene, fields: Collection[str], after: int) -> Check:
    """Ask whether a worker was refused for the right field, and no refused one ever trained."""
    refusals = scene.of(Kind.WORKER_REFUSED, after)
    ordered = {str(one.body["worker_id"]) for one in scene.of(Kind.ATTEMPT_STARTED)}
    trained = [one for one in refusals if one.body["worker_id"] in ordered]
    named = {str(one.body["field"]) for one in refusals}
    return Check(
        "Was the worker refused before it trained, with the field named?",
        bool(named) and named <= set(fields) and not trained,
        f"refused for {listed(sorted(named))} (expected {' or '.join(fields)}); refused workers "
        f"that got an order: {len(trained)}",
    )


def no_slot_spent(scene: Scene) -> Check:
    """Ask whether the incident used up no trial's attempt."""
    used = [one.attempt for one in scene.state.attempts.values() if one.used_up]
    return Check(
        "Did it cost no trial an attempt?",
        not used,
        f"attempts used up: {listed(used)}; dispatched: {len(scene.state.attempts)}",
    )


def nothing_dispatched(scene: Scene, until: int) -> Check:
    """Ask whether, up to an event, no worker was given anything to train."""
    early = [one.sequence for one in scene.of(Kind.ATTEMPT_STARTED) if one.sequence <= until]
    return Check(
        "Was nothing trained until the inputs were right?",
        not early,
        f"attempts started up to event {until}: {len(early)}",
    )


def nothing_failed(scene: Scene) -> Check:
    """Ask whether no attempt was held against its trial."""
    wrong = [
        one.attempt
        for one in scene.state.attempts.values()
        if one.state in {AttemptState.FAILED, AttemptState.QUARANTINED}
    ]
    return Check("Was no trial blamed for the machine?", not wrong, f"blamed: {listed(wrong)}")


def nothing_open(scene: Scene) -> Check:
    """Ask whether a refused run settled all that it had dispatched."""
    left = [one.attempt for one in scene.state.open_attempts]
    return Check("Did the refused run settle what it had begun?", not left, f"open: {listed(left)}")


# ---- lost and woken -----------------------------------------------------------------------------


def lost_not_failed(scene: Scene, attempts: Collection[str]) -> Check:
    """Ask whether attempts ended as lost, cost their trials nothing, and the trials finished."""
    records = [scene.state.attempts[one] for one in attempts]
    good = [
        one.state == AttemptState.EXPIRED
        and not one.used_up
        and scene.state.subjects[one.subject].finished is not None
        for one in records
    ]
    return Check(
        "Did the interrupted attempts end as lost, not failed, and did their trials finish?",
        bool(good) and all(good),
        listed(f"{one.attempt} {one.state}" for one in records),
    )


def resumed(scene: Scene, attempts: Collection[str]) -> Check:
    """Ask whether the attempt after each of these went on from a checkpoint of its own trial."""
    found, good = [], []
    for name in attempts:
        record = scene.state.attempts[name]
        following = _following(scene, record)
        good.append(following is not None and following.started.resume_step > 0)
        if following is not None:
            found.append(f"{following.attempt} from step {following.started.resume_step}")
    return Check(
        "Did the trials go on from their own checkpoints?", bool(good) and all(good), listed(found)
    )


def _following(scene: Scene, record: AttemptRecord) -> AttemptRecord | None:
    attempts = scene.state.subjects[record.subject].attempts
    number = attempts.index(record) + 1
    return attempts[number] if number < len(attempts) else None


def silent_after_its_end(scene: Scene, attempt: str) -> Check:
    """Ask whether the ledger took no word from an attempt after it was settled."""
    ends = [one.sequence for one in scene.of(Kind.ATTEMPT_ENDED) if one.body["attempt"] == attempt]
    words = {Kind.MILESTONE_REPORTED, Kind.CHECKPOINT_SAVED}
    late = [
        one.sequence
        for one in scene.events
        if one.kind in words and one.body["attempt"] == attempt and ends and one.sequence > ends[0]
    ]
    return Check(
        "Did the woken worker change nothing?",
        bool(ends) and not late,
        f"{attempt} settled at event {listed(ends)}; taken from it afterwards: {len(late)}",
    )


# ---- lineage ------------------------------------------------------------------------------------


def quarantined_and_rerun(scene: Scene, subjects: Collection[str]) -> Check:
    """Ask whether each trial had an attempt quarantined in time, and finished by a clean one."""
    found, good = [], []
    for subject in subjects:
        record = scene.state.subjects[subject]
        bad = [one for one in record.attempts if not one.clean]
        clean = record.finished
        prefixes = {one.started.prefix for one in bad}
        good.append(
            bool(bad)
            and not any(one.quarantined_late for one in bad)
            and clean is not None
            and clean.started.prefix not in prefixes
            and clean.started.resume_step == 0
        )
        found.append(
            f"{listed(one.attempt for one in bad)} quarantined, "
            f"{clean.attempt if clean else 'nothing'} counts"
        )
    return Check(
        "Are all trials involved quarantined and run again cleanly, before the batch closed?",
        bool(good) and all(good),
        "; ".join(found),
    )


def nothing_else_quarantined(scene: Scene, subjects: Collection[str]) -> Check:
    """Ask whether no other trial was drawn in."""
    others = {one.subject for one in scene.state.attempts.values() if not one.clean}
    return Check(
        "Was no other trial drawn in?",
        others <= set(subjects),
        f"trials with a quarantined attempt: {listed(sorted(others))}",
    )


def metric_nowhere(scene: Scene, attempt: str) -> Check:
    """Ask whether what a contaminated attempt reported stands in no cut, row or choice."""
    record, state = scene.state.attempts[attempt], scene.state
    subject = state.subjects[record.subject]
    number = subject.trial.number if subject.trial else 0
    clean = {step: report.scores for step, report in subject.reports.items()}
    foreign = {
        step: report for step, report in record.reports.items() if clean.get(step) != report.scores
    }
    cuts = [
        f"cut of batch {batch.batch} at step {cut.step}"
        for batch in state.batches.values()
        for cut in batch.cut_table
        if cut.step in foreign and (number, foreign[cut.step].cost_per_1000) in cut.values
    ]
    rows = [
        f"table row of {row.trial_id}"
        for row in table_rows(scene.plan, state)
        if row.scores in {one.scores for one in foreign.values()}
    ]
    told = listed(
        f"{one.cost_per_1000:.1f} at step {step}"
        for step, one in sorted(foreign.items())
        if one.cost_per_1000 is not None
    )
    return Check(
        "Did the plausible metric reach no cut and no row of the table?",
        bool(foreign) and not cuts and not rows,
        f"{attempt} reported {told}; found in: {listed(cuts + rows)}",
    )


def kept_aside(
    attempts: Collection[str], in_place: Collection[str], marked: Collection[str]
) -> Check:
    """Ask whether the files of these attempts lie nowhere but aside, with a note that says why."""
    return Check(
        "Are their files kept aside, marked, and out of every prefix?",
        bool(attempts) and not in_place and set(marked) == set(attempts),
        f"aside with a note: {listed(sorted(marked))}; still below a prefix: {listed(in_place)}",
    )


# ---- reports ------------------------------------------------------------------------------------


def set_aside(scene: Scene, worker_id: str, after: int) -> Check:
    """Ask whether a worker's reports that must change nothing were kept, with the reason."""
    kept = [
        one
        for one in scene.of(Kind.MESSAGE_SET_ASIDE, after)
        if one.body["worker_id"] == worker_id and str(one.body["message"]).startswith("milestone")
    ]
    reasons = sorted({str(one.body["reason"]) for one in kept})
    return Check(
        "Was what the copy reported set aside, with the reason?",
        bool(kept),
        f"{len(kept)} reports: {listed(reasons)}",
    )


def one_writer(scene: Scene) -> Check:
    """Ask whether all attempts were dispatched under one lease."""
    fences = {int(one.body["fence"]) for one in scene.of(Kind.ATTEMPT_STARTED)}
    return Check(
        "Did only one run dispatch?", len(fences) == 1, f"leases that dispatched: {listed(fences)}"
    )


def kept_not_comparable(scene: Scene, step: int) -> Check:
    """Ask whether reports off the milestones were kept, and called not comparable."""
    reported = [
        one.sequence
        for one in scene.of(Kind.MILESTONE_REPORTED)
        if (one.body["step"], one.body["verdict"]) == (step, "not comparable")
    ]
    aside = [
        one.sequence
        for one in scene.of(Kind.MESSAGE_SET_ASIDE)
        if str(one.body["message"]).startswith("milestone")
    ]
    return Check(
        f"Were the reports at step {step} kept, and not compared?",
        bool(reported or aside),
        f"{len(reported)} called not comparable, {len(aside)} set aside",
    )


def was_resumed(names: Collection[str]) -> Check:
    """Ask whether the foreign checkpoint was in fact taken over: else nothing was tried."""
    return Check(
        "Did the second worker in fact resume the first one's checkpoint?",
        any(name.endswith(".taken") for name in names),
        listed(names),
    )


def never_judged_at(scene: Scene, step: int) -> Check:
    """Ask whether no cut and no verdict, but `not comparable`, exists at a step."""
    cuts = [
        batch.batch
        for batch in scene.state.batches.values()
        if any(cut.step == step for cut in batch.cut_table)
    ]
    judged = [
        one.sequence
        for one in scene.of(Kind.MILESTONE_REPORTED)
        if one.body["step"] == step and one.body["verdict"] != "not comparable"
    ]
    return Check(
        f"Was nothing compared at step {step}?",
        not cuts and not judged,
        f"cuts there: {len(cuts)}; verdicts there: {len(judged)}",
    )


def never_ranks(scene: Scene, subjects: Collection[str]) -> Check:
    """Ask whether trials failed in words, hold no value in the table, and are not the best."""
    rows = {one.trial_id: one for one in table_rows(scene.plan, scene.state)}
    good = [
        rows[one].state == TrialState.FAILED
        and rows[one].final_cost_per_1000 is None
        and scene.state.best_trial != one
        for one in subjects
    ]
    reasons = {
        one.ended.reason
        for name in subjects
        for one in scene.state.subjects[name].attempts
        if one.ended is not None
    }
    return Check(
        "Do the trials without a finite value fail in words and never rank?",
        bool(good) and all(good) and all("finite" in one for one in reasons),
        f"failed: {listed(subjects)} ({listed(sorted(reasons))}); best: {scene.state.best_trial}",
    )


def others_completed(scene: Scene, subjects: Collection[str]) -> Check:
    """Ask whether trials that the incident does not touch came to their end."""
    rows = table_rows(scene.plan, scene.state)
    ends = {TrialState.COMPLETED, TrialState.PRUNED}
    left = [one.trial_id for one in rows if one.trial_id not in subjects and one.state not in ends]
    return Check(
        "Did every other trial complete or be pruned?", not left, f"unfinished: {listed(left)}"
    )
