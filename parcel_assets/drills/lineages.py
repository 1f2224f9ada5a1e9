"""Two trainings that share checkpoints: the second goes on from what the first one left."""

import os
import shutil
import signal
from pathlib import Path

from parcel_assets.core.ledger import Kind
from parcel_assets.core.trial import Batch
from parcel_assets.drills import judge, judge_attempts
from parcel_assets.drills.ground import Ground
from parcel_assets.drills.judge import Scene
from parcel_assets.drills.records import Check, Report
from parcel_assets.drills.told import tell_ledger
from parcel_assets.drills.watch import Watch, workers_of

REVISION = "drill-shared"
NETWORK = "sharing_network:SharingNetwork"
FIRST, SECOND = "parcel-01/1", "parcel-02/1"
COPIED = "checkpoint-50.safetensors"


def shared_prefix(ground: Ground, report: Report) -> None:
    """Let the second trial resume the first one's checkpoint, and find that file in its prefix."""
    undisturbed = ground.base.undisturbed
    ground.bring("sharing_network.py")
    shared = ground.outside / "shared"
    shared.mkdir()
    line = "checkpoint_every_steps = 10\n"
    ground.register(REVISION, **{line: f'{line}network = "{NETWORK}"\n'})
    watch = ground.watch(REVISION)
    run = ground.run(REVISION, workers=2)
    run.until(lambda: SECOND in watch.names(Kind.CHECKPOINT_SAVED), "checkpoint of the second")
    held = workers_of(run.process_id)[watch.place_of(watch.worker_of(SECOND))]
    os.kill(held, signal.SIGSTOP)
    run.until(lambda: _saved(watch, FIRST, COPIED), f"{COPIED} of {FIRST}")
    words = (
        f"copied {COPIED} of {FIRST} into the prefix of {SECOND}, as last.safetensors, and to "
        f"where the user's network {NETWORK} of {SECOND} resumes"
    )
    report.injections.append(ground.inject(words, watch))
    source = _prefix(ground, watch, FIRST) / COPIED
    target = _prefix(ground, watch, SECOND) / "last.safetensors"
    shutil.copyfile(source, target)
    shutil.copyfile(source, shared / f"last-{_learning_rate(watch, SECOND)!r}.safetensors")
    os.kill(held, signal.SIGCONT)
    code = run.wait()
    scene = ground.scene(REVISION)
    tell_ledger(report, scene)
    subjects = [one.rpartition("/")[0] for one in (FIRST, SECOND)]
    report.ask(_kept_aside(ground, scene, report))
    report.ask(
        judge_attempts.was_resumed([one.name for one in shared.iterdir()]),
        judge_attempts.quarantined_and_rerun(scene, subjects),
        judge_attempts.nothing_else_quarantined(scene, subjects),
        judge_attempts.metric_nowhere(scene, SECOND),
        judge.search_ended(scene),
        judge.same_table(scene, undisturbed),
        judge.ended_with("the run", 0, code),
    )


def _kept_aside(ground: Ground, scene: Scene, report: Report) -> Check:
    """Look for the files of both attempts, and name the place as evidence."""
    in_place, marked = [], []
    for name in (FIRST, SECOND):
        prefix = scene.state.attempts[name].started.prefix
        if ground.ports.store.prefix_path(prefix).exists():
            in_place.append(name)
        aside = ground.settings.store / "quarantine" / prefix
        note = aside.with_name(f"{aside.name}.json")
        if aside.is_dir() and note.is_file():
            marked.append(name)
            report.evidence.append(f"files of {name}: {aside}, and why: {note.name}")
    return judge_attempts.kept_aside((FIRST, SECOND), in_place, marked)


def _saved(watch: Watch, attempt: str, file: str) -> bool:
    saved = watch.of(Kind.CHECKPOINT_SAVED)
    return any((one.body["attempt"], one.body["file"]) == (attempt, file) for one in saved)


def _prefix(ground: Ground, watch: Watch, attempt: str) -> Path:
    started = watch.of(Kind.ATTEMPT_STARTED)
    prefix = next(one.body["prefix"] for one in started if one.body["attempt"] == attempt)
    return ground.ports.store.prefix_path(str(prefix))


def _learning_rate(watch: Watch, attempt: str) -> float:
    subject = attempt.rpartition("/")[0]
    batches = [Batch.model_validate(one.body) for one in watch.of(Kind.BATCH_OPENED)]
    trials = {trial.trial_id: trial for batch in batches for trial in batch.trials}
    return float(trials[subject].configuration["learning_rate"])
