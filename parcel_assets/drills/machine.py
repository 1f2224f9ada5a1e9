"""The machine under a search: its clock, its disk."""

import errno
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parcel_assets.drills import judge, judge_attempts
from parcel_assets.drills.ground import Ground
from parcel_assets.drills.records import Report
from parcel_assets.drills.told import tell_ledger
from parcel_assets.drills.watch import workers_of

BACK_SECONDS = 3600
DISK_BYTES = 48 << 20  # what the store needs, and some
FILE_BYTES = 4096  # less than any checkpoint
CHUNK = b"\0" * 65536


def clock_stepped_back(ground: Ground, report: Report) -> None:
    """Set the wall clock back an hour in mid-trial, and another hour across a kill."""
    undisturbed, watch = ground.base.undisturbed, ground.watch()
    ground.bring("clock_shim.py", "sitecustomize.py")
    offset = ground.outside / "clock-offset"
    _write(offset, 0)
    run = ground.run()
    run.until(watch.in_mid_trial, "a checkpoint of every open attempt")
    report.injections.append(ground.inject(f"wall clock {BACK_SECONDS} s back, at work", watch))
    _write(offset, -BACK_SECONDS)
    seen = len(watch.look())
    run.until(lambda: len(watch.look()) > seen + 10 and watch.in_mid_trial(), "a later mid-trial")
    lost = watch.in_mid_trial()
    words = f"SIGKILL to the run, wall clock back by another {BACK_SECONDS} s, then run again"
    report.injections.append(ground.inject(words, watch))
    run.kill()
    _write(offset, -2 * BACK_SECONDS)
    code = ground.run().wait()
    scene = ground.scene()
    tell_ledger(report, scene)
    report.ask(
        judge.clock_runs_forward(scene),
        judge.charged_within_the_cap(scene),
        judge_attempts.lost_not_failed(scene, lost),
        judge.search_ended(scene),
        judge.same_table(scene, undisturbed),
        judge.ended_with("the second run", 0, code),
    )


def _write(path: Path, offset_seconds: int) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(str(offset_seconds), "utf-8")
    partial.replace(path)


def disk_full(ground: Ground, report: Report) -> None:
    """Fill the store's disk in mid-trial; then make room and run again."""
    undisturbed, watch = ground.base.undisturbed, ground.watch()
    filler = ground.settings.store / "filler"
    with _small_disk(ground.settings.store) as small:
        run = ground.run()
        run.until(watch.in_mid_trial, "a checkpoint of every open attempt")
        if small:
            words = f"filled the store's disk, a tmpfs of {DISK_BYTES >> 20} MiB, to the last byte"
            report.injections.append(ground.inject(words, watch))
            _fill(filler)
        else:
            words = f"no right to mount: workers may write no file above {FILE_BYTES} bytes"
            report.injections.append(ground.inject(words, watch))
            for worker in workers_of(run.process_id):
                resource.prlimit(worker, resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
        code = run.wait()
        said = "space" if small else "File too large"
        report.ask(judge.refused_in_words("the run on the full disk", code, run.output, said))
        full = ground.scene()
        report.ask(judge_attempts.nothing_failed(full), judge_attempts.nothing_open(full))
        if small:
            report.injections.append(ground.inject("made room, then ran again", watch))
            filler.unlink()
        code = ground.run().wait()
        scene = ground.scene()
    tell_ledger(report, scene)
    report.ask(
        judge_attempts.no_slot_spent(scene),
        judge.search_ended(scene),
        judge.same_table(scene, undisturbed),
        judge.ended_with("the run after it", 0, code),
    )


@contextmanager
def _small_disk(folder: Path) -> Iterator[bool]:
    """Put a folder on a small disk of its own for the length of a block, where that is allowed.

    Yields whether it was. Afterwards the folder is where it was, with all that came to be in it.
    """
    before, after = (folder.with_name(f"{folder.name}-{word}") for word in ("before", "after"))
    folder.rename(before)
    folder.mkdir()
    size = f"size={DISK_BYTES}"
    try:
        mounted = _run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)])
    except FileNotFoundError:
        mounted = False
    if not mounted:
        folder.rmdir()
        before.rename(folder)
        yield False
        return
    try:
        shutil.copytree(before, folder, dirs_exist_ok=True)
        yield True
        shutil.copytree(folder, after)
    finally:
        _run(["umount", "--lazy", str(folder)])
    folder.rmdir()
    after.rename(folder)
    shutil.rmtree(before)


def _run(words: list[str]) -> bool:
    """Run a command of the system; return whether it did what it should."""
    return subprocess.run(words, capture_output=True, check=False).returncode == 0  # noqa: S603


def _fill(path: Path) -> None:
    """Write zeros until the disk takes no more."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(CHUNK)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
