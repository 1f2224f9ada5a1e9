"""The drills, each with what it injects and what the right outcome is; and how one is run."""

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from parcel_assets.drills import (
    at_the_door,
    holdout,
    judge,
    lineages,
    machine,
    processes,
    reports,
    slices,
)
from parcel_assets.drills.ground import REVISION, Base, Ground, Tell
from parcel_assets.drills.records import Report

Play = Callable[[Ground, Report], None]


@dataclass(frozen=True, slots=True)
class Drill:
    """One incident; `right` is the outcome that the exit code asks for."""

    name: str
    incident: str
    right: str
    play: Play
    revision: str = REVISION
    empty: bool = False  # it prepares an archive of its own


_REFUSED = "refused before it trains, field named, no slot spent, same table"

DRILLS = (
    Drill(
        "shared-prefix",
        "a second worker resumes the first one's checkpoint and reports a plausible metric",
        "both trials quarantined and run again, the metric nowhere, same table",
        lineages.shared_prefix,
        lineages.REVISION,
    ),
    Drill("newer-archive", "one worker reads a newer archive", _REFUSED, at_the_door.newer_archive),
    Drill("random-split", "one worker splits single photos", _REFUSED, at_the_door.random_split),
    Drill("other-split", "one worker splits under another key", _REFUSED, at_the_door.other_split),
    Drill(
        "other-preprocessing",
        "one worker normalises otherwise",
        _REFUSED,
        at_the_door.other_preprocessing,
    ),
    Drill("other-metric", "one worker has other costs", _REFUSED, at_the_door.other_metric),
    Drill(
        "other-milestones",
        "one worker reports at step 39 instead of 27",
        _REFUSED,
        at_the_door.other_milestones,
    ),
    Drill(
        "other-image",
        "all workers run in another image",
        "the run refuses, nothing is dispatched; in the right image it goes on",
        at_the_door.other_image,
        "drill-image",
    ),
    Drill(
        "early-reporter",
        "workers report at step 39 among peers at step 82",
        "kept, called not comparable, nobody pruned by it, same table",
        reports.early_reporter,
    ),
    Drill(
        "nan-metric",
        "a user's network scores NaN",
        "the trial fails in words and never ranks; the others go on",
        reports.nan_metric,
        reports.NAN_REVISION,
    ),
    Drill(
        "worker-killed",
        "workers are killed in mid-trial",
        "lost, not failed; resumed from their own checkpoints; same table",
        processes.worker_killed,
    ),
    Drill(
        "worker-paused",
        "a worker sleeps past its lease and is woken",
        "given up, its trial resumed elsewhere, the woken one changes nothing; same table",
        processes.worker_paused,
    ),
    Drill(
        "orchestrator-killed",
        "the run itself is killed",
        "nothing left running; the next run resumes; same table",
        processes.orchestrator_killed,
    ),
    Drill(
        "two-runs",
        "two runs of one revision at once",
        "the second is refused in words, the first is not disturbed",
        processes.two_runs,
    ),
    Drill(
        "two-workers-one-id",
        "a copied worker speaks under another one's id",
        "its reports are set aside: it lacks the attempt's secret; same table",
        processes.two_workers_with_one_id,
    ),
    Drill(
        "clock-back",
        "the wall clock steps back, twice",
        "the ledger's clock runs forward, charges stay within bounds, same table",
        machine.clock_stepped_back,
    ),
    Drill(
        "disk-full",
        "the store's disk fills in mid-trial",
        "the run refuses in words, no trial is blamed; with room it goes on; same table",
        machine.disk_full,
    ),
    Drill(
        "holdout-peek",
        "a look at the holdout before anything is chosen",
        "refused by admission and by the vault; no opening, no decryption",
        holdout.peek,
    ),
    Drill(
        "corners-lost",
        "the winner is cheaper overall and loses crushed corners",
        "held for a person, the holdout stays closed",
        slices.corners_lost,
        slices.REVISION,
        empty=True,
    ),
)


def run_drill(drill: Drill, base: Base, tell: Tell) -> Report:
    """Bring an incident about and return what was found; nothing is left running."""
    began = time.monotonic()
    report = Report(drill.name)
    with base.ground(drill.name, empty=drill.empty) as ground:
        drill.play(ground, report)
        report.ask(judge.chain_whole(ground.ports.ledger.events(drill.revision)))
    report.evidence += evidence_of(drill, base.root)
    report.seconds = time.monotonic() - began
    tell("right outcome" if report.passed else "WRONG OUTCOME")
    return report


def evidence_of(drill: Drill, root: Path) -> list[str]:
    """Return the commands that show what a kept drill left behind."""
    data = root / drill.name
    prepared = f"({REVISION}, listed too, is what every folder is prepared with; it is not run)"
    return [
        f"parcel-assets --data {shlex.quote(str(data))} status {drill.revision}",
        f"parcel-assets --data {shlex.quote(str(data))} ledger show {drill.revision}",
        f"parcel-assets --data {shlex.quote(str(data))} ui",
        *([prepared] if drill.revision != REVISION and not drill.empty else []),
    ]
