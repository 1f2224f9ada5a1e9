"""Workers that are not what the plan says: other data, other rules, another image.

What a worker is told at its start lies in a file. The file is exchanged while the first worker has
only just been started (both are stopped meanwhile), and put back for the second: one worker in two
has the wrong inputs, as on a machine with an old mount.
"""

import json
import os
import signal
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np

from parcel_assets.core.ledger import Kind
from parcel_assets.drills import judge, judge_attempts
from parcel_assets.drills.ground import SHIPMENTS, Ground
from parcel_assets.drills.records import Report
from parcel_assets.drills.told import tell_ledger
from parcel_assets.drills.watch import command_of, workers_of

MORE_SHIPMENTS = 6
PARTS = ("train", "validation")
IMAGE, OTHER_IMAGE = "sha256:" + "1" * 64, "sha256:" + "2" * 64

Fields = dict[str, Any]
Change = Callable[[Ground, Fields], None]


def _other_worker(
    ground: Ground, report: Report, words: str, change: Change, fields: Collection[str]
) -> None:
    undisturbed, watch = ground.base.undisturbed, ground.watch()
    run = ground.run(workers=2)
    stopped: list[int] = []

    def both_stopped() -> bool:
        for worker in workers_of(run.process_id):
            if worker not in stopped:
                os.kill(worker, signal.SIGSTOP)
                stopped.append(worker)
        return len(stopped) == 2

    run.until(both_stopped, "start of both workers")
    setup = Path(command_of(stopped[0])[-1])
    original = setup.read_bytes()
    told: Fields = json.loads(original)
    change(ground, told)
    report.injections.append(ground.inject(words, watch))
    _replace(setup, json.dumps(told).encode())
    os.kill(stopped[0], signal.SIGCONT)
    known = {Kind.WORKER_REFUSED, Kind.WORKER_ADMITTED}
    run.until(lambda: [one for one in watch.look() if one.kind in known], "word on the worker")
    _replace(setup, original)
    os.kill(stopped[1], signal.SIGCONT)
    code = run.wait()
    scene, after = ground.scene(), report.injections[0].sequence
    tell_ledger(report, scene)
    report.ask(
        judge_attempts.refused_at_the_door(scene, fields, after),
        judge_attempts.no_slot_spent(scene),
        judge.search_ended(scene),
        judge.same_table(scene, undisturbed),
        judge.ended_with("the run", 0, code),
    )


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(content)
    partial.replace(path)


def _take(name: str, **other: Any) -> Change:
    """Return the change that points a worker to the parts of another split or archive."""

    def change(ground: Ground, told: Fields) -> None:
        split = ground.base.other_parts(name, **other)
        for part in PARTS:
            for kind in ("pixels", "rows"):
                digest = getattr(split.parts[part], kind)
                told["files"][f"{part}_{kind}"] = str(ground.base.path_of(name, digest))

    return change


def newer_archive(ground: Ground, report: Report) -> None:
    """Give one worker the arrays of an archive that has grown since."""
    words = f"one worker reads an archive with {MORE_SHIPMENTS} newer shipments"
    change = _take(f".{ground.data.name}-other", shipments=SHIPMENTS + MORE_SHIPMENTS)
    _other_worker(ground, report, words, change, {"archive"})


def other_split(ground: Ground, report: Report) -> None:
    """Give one worker another grouped split of the same photos, as legal as the frozen one."""
    words = "one worker uses a grouped split under another key"
    change = _take(f".{ground.data.name}-other", key="drill parcels, dealt again")
    _other_worker(ground, report, words, change, {"split"})


def random_split(ground: Ground, report: Report) -> None:
    """Let one worker deal photos, not shipments: frames of one shipment in both parts."""

    def change(ground: Ground, told: Fields) -> None:
        files, rows, pixels = told["files"], [], []
        for part in PARTS:
            rows.append(json.loads(Path(files[f"{part}_rows"]).read_bytes()))
            pixels.append(np.load(files[f"{part}_pixels"], allow_pickle=False))
        photos, images = rows[0] + rows[1], np.concatenate(pixels)
        dealt = np.random.default_rng(SHIPMENTS).permutation(len(photos))
        for part, taken in zip(PARTS, np.split(dealt, [len(rows[0])]), strict=True):
            order = sorted(taken.tolist(), key=lambda row: str(photos[row]["photo_id"]))
            np.save(ground.outside / f"{part}.npy", images[order])
            named = [photos[row] for row in order]
            (ground.outside / f"{part}.json").write_text(json.dumps(named), "utf-8")
            files[f"{part}_pixels"] = str(ground.outside / f"{part}.npy")
            files[f"{part}_rows"] = str(ground.outside / f"{part}.json")

    words = "one worker splits at random: single photos, not shipments"
    _other_worker(ground, report, words, change, {"split"})


def other_preprocessing(ground: Ground, report: Report) -> None:
    """Let one worker normalise photos by other means."""

    def change(_ground: Ground, told: Fields) -> None:
        told["plan"]["preprocess"]["mean"] = [0.485, 0.456, 0.406]

    words = "one worker normalises photos by other channel means"
    _other_worker(ground, report, words, change, {"preprocessing"})


def other_metric(ground: Ground, report: Report) -> None:
    """Let one worker believe that a missed damage costs four times as much."""

    def change(_ground: Ground, told: Fields) -> None:
        told["plan"]["metric"]["missed_damage"] *= 4

    words = "one worker holds a missed damage for four times as costly"
    _other_worker(ground, report, words, change, {"metric"})


def other_milestones(ground: Ground, report: Report) -> None:
    """Let one worker report at step 39 where the plan says 27."""

    def change(_ground: Ground, told: Fields) -> None:
        told["plan"]["training"]["milestones"] = [9, 39, 82]

    words = "one worker would report at step 39, its peers at 9, 27 and 82"
    _other_worker(ground, report, words, change, {"metric", "training"})


def other_image(ground: Ground, report: Report) -> None:
    """Start all workers in another container image than the plan's, then in the right one."""
    undisturbed, revision = ground.base.undisturbed, "drill-image"
    last = "minimum_damaged_photos = 3\n"
    ground.register(revision, **{last: f'{last}\n[worker]\nimage = "{IMAGE}"\n'})
    watch = ground.watch(revision)
    words = f"PARCEL_ASSETS_IMAGE={OTHER_IMAGE[:10]}… where the plan asks for {IMAGE[:10]}…"
    report.injections.append(ground.inject(words, watch))
    wrong = ground.run(revision, PARCEL_ASSETS_IMAGE=OTHER_IMAGE)
    code = wrong.wait()
    turned_away = len(watch.look())
    report.ask(judge.refused_in_words("the run", code, wrong.output, "image"))
    right = ground.run(revision, PARCEL_ASSETS_IMAGE=IMAGE)
    report.ask(judge.ended_with("the run in the right image", 0, right.wait()))
    scene = ground.scene(revision)
    tell_ledger(report, scene)
    report.ask(
        judge_attempts.refused_at_the_door(scene, {"image"}, report.injections[0].sequence),
        judge_attempts.nothing_dispatched(scene, turned_away),
        judge_attempts.no_slot_spent(scene),
        judge.search_ended(scene),
        judge.same_table(scene, undisturbed),
    )
