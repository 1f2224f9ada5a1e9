"""Processes that die, sleep, meet or speak for each other."""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

from parcel_assets.core.ledger import Kind
from parcel_assets.core.trial import Batch
from parcel_assets.drills import judge, judge_attempts
from parcel_assets.drills.ground import Ground
from parcel_assets.drills.records import DrillError, Report
from parcel_assets.drills.told import tell_ledger
from parcel_assets.drills.watch import PROCESSES, Watch, command_of, workers_of

BOTH_OPEN = "two open attempts with a checkpoint each"
# what the copy of a worker is asked at its start; nobody compares its answer
CHALLENGE = {"kind": "challenge", "nonce": "0" * 32, "rows": {"train": [0], "validation": [0]}}


def worker_killed(ground: Ground, report: Report) -> None:
    """Kill every worker in mid-trial, without a word."""
    undisturbed, watch = ground.base.undisturbed, ground.watch()
    run = ground.run()
    run.until(lambda: watch.in_mid_trial(2), BOTH_OPEN)
    lost = watch.in_mid_trial()
    report.injections.append(ground.inject(f"SIGKILL to the workers of {', '.join(lost)}", watch))
    for worker in workers_of(run.process_id):
        os.kill(worker, signal.SIGKILL)
    code = run.wait()
    _ask_after_a_loss(ground, report, lost, undisturbed)
    report.ask(judge.ended_with("the run", 0, code))


def orchestrator_killed(ground: Ground, report: Report) -> None:
    """Kill the run itself in mid-trial; then run again."""
    undisturbed, watch = ground.base.undisturbed, ground.watch()
    run = ground.run()
    run.until(lambda: watch.in_mid_trial(2), BOTH_OPEN)
    lost = watch.in_mid_trial()
    words = f"SIGKILL to the run's own process while it trains {', '.join(lost)}"
    report.injections.append(ground.inject(words, watch))
    run.kill()
    report.ask(judge.nobody_left("the killed run", ground.left_running()))
    code = ground.run().wait()
    _ask_after_a_loss(ground, report, lost, undisturbed)
    report.ask(judge.ended_with("the second run", 0, code))


def _ask_after_a_loss(ground: Ground, report: Report, lost: list[str], undisturbed: str) -> None:
    scene = ground.scene()
    tell_ledger(report, scene)
    report.ask(
        judge_attempts.lost_not_failed(scene, lost),
        judge_attempts.resumed(scene, lost),
        judge.search_ended(scene),
        judge.charged_within_the_cap(scene),
        judge.same_table(scene, undisturbed),
        judge.nobody_left("the search", ground.left_running()),
    )


def worker_paused(ground: Ground, report: Report) -> None:
    """Stop one worker until its lease has run out, then wake it."""
    undisturbed, watch = ground.base.undisturbed, ground.watch()
    run = ground.run(workers=1)
    run.until(watch.in_mid_trial, "a checkpoint of the open attempt")
    (paused,) = watch.in_mid_trial()
    (worker,) = workers_of(run.process_id)
    report.injections.append(ground.inject(f"SIGSTOP to the worker of {paused}", watch))
    os.kill(worker, signal.SIGSTOP)
    run.until(lambda: paused in watch.names(Kind.ATTEMPT_ENDED), f"the end of {paused}")
    gone = _wake(worker)
    words = f"SIGCONT to that worker: {'it was gone already' if gone else 'it went on'}"
    report.injections.append(ground.inject(words, watch))
    code = run.wait()
    _ask_after_a_loss(ground, report, [paused], undisturbed)
    report.ask(
        judge_attempts.silent_after_its_end(ground.scene(), paused),
        judge.ended_with("the run", 0, code),
    )


def _wake(process: int) -> bool:
    """Continue a stopped process; return whether there is none any more."""
    try:
        os.kill(process, signal.SIGCONT)
    except ProcessLookupError:
        return True
    return False


def two_runs(ground: Ground, report: Report) -> None:
    """Start a second run of the same revision while the first one trains."""
    undisturbed, watch = ground.base.undisturbed, ground.watch()
    first = ground.run()
    first.until(lambda: watch.in_mid_trial(2), BOTH_OPEN)
    workers = workers_of(first.process_id)
    for worker in workers:  # so that the first cannot end before the second asks for the lease
        os.kill(worker, signal.SIGSTOP)
    report.injections.append(ground.inject("a second run of the same revision", watch))
    second = ground.run()
    try:
        refused = second.wait()
    finally:
        for worker in workers:
            _wake(worker)
    code = first.wait()
    scene = ground.scene()
    tell_ledger(report, scene)
    report.detected.append(f"the second run ended with exit code {refused}, in words: see below")
    report.ask(
        judge.refused_in_words("the second run", refused, second.output, "at work on"),
        judge_attempts.one_writer(scene),
        judge_attempts.no_slot_spent(scene),
        judge.search_ended(scene),
        judge.same_table(scene, undisturbed),
        judge.ended_with("the first run", 0, code),
    )


def two_workers_with_one_id(ground: Ground, report: Report) -> None:
    """Start a copy of a worker that speaks on the worker's own line, with a copy of its order."""
    undisturbed, watch = ground.base.undisturbed, ground.watch()
    run = ground.run()
    run.until(lambda: watch.in_mid_trial(2), BOTH_OPEN)
    attempt = watch.in_mid_trial()[0]
    worker_id = watch.worker_of(attempt)
    worker = workers_of(run.process_id)[watch.place_of(worker_id)]
    os.kill(worker, signal.SIGSTOP)  # its line is the copy's alone for a while, and no end is near
    words = f"a copy of {worker_id} on its line, with its order of {attempt} but not its secret"
    report.injections.append(ground.inject(words, watch))
    with _line_of(worker) as line:
        copy = ground.start(command_of(worker), out=line)
    for message in (CHALLENGE, _order_of(ground, watch, attempt)):
        copy.say(message)
    try:
        run.until(lambda: watch.set_aside_from(worker_id), "word of the copy")
    finally:
        copy.kill()
        _wake(worker)
    code = run.wait()
    scene = ground.scene()
    tell_ledger(report, scene)
    report.ask(
        judge_attempts.set_aside(scene, worker_id, report.injections[0].sequence),
        judge_attempts.no_slot_spent(scene),
        judge.search_ended(scene),
        judge.same_table(scene, undisturbed),
        judge.ended_with("the run", 0, code),
    )


@contextmanager
def _line_of(worker: int) -> Iterator[BinaryIO]:
    """Open the pipe on which a worker speaks to its coordinator, for another writer."""
    folder = PROCESSES / str(worker)
    printed = (folder / "fd" / "2").readlink()
    for descriptor in sorted((folder / "fd").iterdir(), key=lambda one: int(one.name)):
        target = descriptor.readlink()
        flags = (folder / "fdinfo" / descriptor.name).read_text().split("flags:")[1].split()[0]
        writes = int(flags, 8) & os.O_ACCMODE == os.O_WRONLY
        if str(target).startswith("pipe:") and target != printed and writes:
            with descriptor.open("wb") as line:
                yield line
            return
    raise DrillError(
        "no pipe that the worker writes to",
        expected="a worker that speaks over a pipe",
        where=f"process {worker}",
        remedy="The engine speaks in another way; this drill must follow it.",
    )


def _order_of(ground: Ground, watch: Watch, attempt: str) -> Mapping[str, Any]:
    """Return the order of an attempt as far as the ledger tells it: all but the secret."""
    started = next(
        one.body for one in watch.of(Kind.ATTEMPT_STARTED) if one.body["attempt"] == attempt
    )
    batches = [Batch.model_validate(one.body) for one in watch.of(Kind.BATCH_OPENED)]
    trials = {trial.trial_id: trial for batch in batches for trial in batch.trials}
    trial = trials[str(started["subject"])]
    return {
        "kind": "order",
        "attempt": attempt,
        "subject": trial.trial_id,
        "token": "0" * 64,
        "configuration": trial.configuration,
        "seed": trial.seed,
        "prefix": str(ground.ports.store.prefix_path(str(started["prefix"]))),
        "reserved_seconds": started["reserved_seconds"],
        "resume": None,
    }
