"""Reports that must not count: at a step that is no milestone, or of no finite value."""

from parcel_assets.core.table import table_rows
from parcel_assets.drills import judge, judge_attempts
from parcel_assets.drills.ground import Ground
from parcel_assets.drills.records import Report
from parcel_assets.drills.told import tell_ledger

STEP = 39
NAN_REVISION, NAN_NUMBER = "drill-nan", 3  # of the second batch: proposed before anything is known


def early_reporter(ground: Ground, report: Report) -> None:
    """Let every worker report at step 39 too, with scores that would lose any comparison."""
    undisturbed, watch = ground.base.undisturbed, ground.watch()
    ground.bring("early_reporter_shim.py", "sitecustomize.py")
    words = f"every worker reports the worst scores at step {STEP}, among peers at 9, 27 and 82"
    report.injections.append(ground.inject(words, watch))
    code = ground.run().wait()
    scene = ground.scene()
    tell_ledger(report, scene)
    report.ask(
        judge_attempts.kept_not_comparable(scene, STEP),
        judge_attempts.never_judged_at(scene, STEP),
        judge_attempts.no_slot_spent(scene),
        judge.search_ended(scene),
        judge.same_table(scene, undisturbed),
        judge.ended_with("the run", 0, code),
    )


def nan_metric(ground: Ground, report: Report) -> None:
    """Let a user's network give scores that are no numbers, for one trial."""
    calm = ground.base.undisturbed_scene()
    row = table_rows(calm.plan, calm.state)[NAN_NUMBER - 1]
    rate = repr(row.configuration["learning_rate"])
    ground.bring("nan_network.py", THE_LEARNING_RATE=rate)
    line = "checkpoint_every_steps = 10\n"
    ground.register(NAN_REVISION, **{line: f'{line}network = "nan_network:NanNetwork"\n'})
    words = f"the user's network of {row.trial_id} scores NaN (learning rate {rate})"
    report.injections.append(ground.inject(words, ground.watch(NAN_REVISION)))
    code = ground.run(NAN_REVISION).wait()
    scene = ground.scene(NAN_REVISION)
    tell_ledger(report, scene)
    report.ask(
        judge_attempts.never_ranks(scene, [row.trial_id]),
        judge_attempts.others_completed(scene, [row.trial_id]),
        judge.search_ended(scene),
        judge.charged_within_the_cap(scene),
        judge.ended_with("the run", 0, code),
    )
