"""The whole search with two workers against a plain sequential loop over the same trials.

Interleaved rounds, the side that goes first changing; each side runs in a fresh process, imports
included, and both end with the same scores to the last bit (checked). No trial is pruned, so that
both sides do all steps. Prints wall and CPU ratios with medians, and what governing cost.

The trials are a stratified subset: every width, depth and image size of the sample plans, in turn.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.plain_loop import train_all_plainly
from parcel_assets import wiring
from parcel_assets.core.ledger import Event, Kind
from parcel_assets.core.plan import Plan
from parcel_assets.core.plan_reader import plan_from_fields
from parcel_assets.core.ports import TrainingTask
from parcel_assets.core.split import milestone_rows
from parcel_assets.core.table import unpack_scores
from parcel_assets.settings import Settings
from parcel_assets.steps.data import pin_archive, pin_snapshot, register_plan, split_shipments
from parcel_assets.steps.search import run_trial_batches
from parcel_assets.steps.worker import Setup

REVISION = "bench"
WORKERS = 2
BUSY_LOAD = 1.0  # load average before a round above which the round says so


def bench_plan(trials: int, digest: str = "") -> Plan:
    """Return the sample plan without pruning, its shapes drawn evenly."""
    return plan_from_fields(
        {
            "purpose": "a benchmark: the same trials as a plain loop",
            "snapshot": {
                "archive": "bench",
                "location": "archives/bench",
                "digest": digest,
                "columns": {"damage_type": "damage_type", "camera_class": "camera_class"},
            },
            "split": {"key": "bench"},
            "metric": {"missed_damage": 5.0, "needless_review": 1.0},
            "search": {
                "sampler": "random",
                "seed": 4,
                "budget_trials": trials,
                "cap_accelerator_hours": 20.0,
                "batch_trials": 8,
            },
            "training": {"rare_slice": {"dimension": "damage_type", "value": "crushed_corner"}},
            "pruning": {"warm_up_trials": trials, "minimum_comparable": 2},
            "space": {
                "learning_rate": {"kind": "float", "low": 3e-4, "high": 1e-2, "log": True},
                "width": {"kind": "int", "low": 8, "high": 20, "step": 4},
                "depth": {"kind": "int", "low": 3, "high": 4},
                "image_size": {"kind": "choice", "values": [48, 64]},
                "augmentation": {"kind": "float", "low": 0.0, "high": 1.0},
                "rare_oversampling": {"kind": "choice", "values": [1.0, 2.0, 4.0]},
            },
            "reference": {"configuration": {"width": 8}},
            "final": {"target_cost_per_1000": 600.0},
        }
    )


@dataclass(frozen=True)
class Cost:
    """What one side of a round took."""

    wall_seconds: float
    cpu_seconds: float


def prepare(folder: Path, trials: int, shipments: int) -> None:
    """Draw, register, pin and split once; every round searches on a copy."""
    settings = Settings.read({}, data=folder, workers=WORKERS)
    archive = folder / "archives" / "bench"
    wiring.draw_sample(archive, seed=82, shipments=shipments, processes=1, progress=None)
    ports = wiring.open_ports(settings)
    plan = bench_plan(trials)
    pinned = pin_archive(plan.snapshot, plan.preprocess.image_size_pixels, ports)
    register_plan(REVISION, bench_plan(trials, pinned.snapshot_digest), ports)
    pin_snapshot(REVISION, ports)
    split_shipments(REVISION, ports)


def copy_prepared(source: Path, target: Path) -> None:
    """Copy a prepared folder; stored objects never change, so links do."""
    shutil.copytree(source / "store", target / "store", copy_function=os.link)
    for path in source.iterdir():
        if path.name in {"store", "archives"}:
            continue
        if path.is_dir():
            shutil.copytree(path, target / path.name)
        else:
            shutil.copy(path, target / path.name)


def timed(*arguments: str) -> Cost:
    """Run one side in a fresh process; its CPU includes that of the workers it waited for."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "bench.search_wall", *arguments], check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, cpu)


# ---- the two sides ------------------------------------------------------------------------------


def search_once(folder: Path) -> None:
    """Run the search to its end, and leave the coordinator's own CPU beside it."""
    start = time.process_time()
    ports = wiring.open_ports(Settings.read({}, data=folder, workers=WORKERS))
    run_trial_batches(REVISION, ports)
    (folder / "coordinator.json").write_text(json.dumps(time.process_time() - start))


def loop_once(folder: Path) -> None:
    """Train the trials that a search recorded, one after the other, and check their scores."""
    settings = Settings.read({}, data=folder, workers=WORKERS)
    ports = wiring.open_ports(settings)
    events = ports.ledger.events(REVISION)
    plan, trials = plan_of(events), trials_of(events)
    parts = split_parts(ports, events)
    setup = Setup(REVISION, plan, {
        f"{part}_{kind}": str(ports.store.path(parts[part][kind]))
        for part in ("train", "validation") for kind in ("pixels", "rows")
    })  # fmt: skip
    data = setup.load()
    rows = milestone_rows(plan, data.validation.shipments)
    tasks = [
        TrainingTask(one["configuration"], one["seed"], plan.training, plan.preprocess, rows)
        for one in trials
    ]
    runs = train_all_plainly(tasks, data)
    recorded = final_scores(events, plan)
    for trial, run in zip(trials, runs, strict=True):
        mine = run.scores[plan.training.steps]
        searched = unpack_scores(ports.store.get(recorded[trial["trial_id"]]), len(mine))
        if not np.array_equal(mine, searched):
            raise SystemExit(f"{trial['trial_id']}: the two sides trained differently")


def plan_of(events: tuple[Event, ...]) -> Plan:
    """Return the frozen plan."""
    frozen = next(event for event in events if event.kind == Kind.PLAN_FROZEN)
    return plan_from_fields(frozen.body["plan"])


def trials_of(events: tuple[Event, ...]) -> list[dict[str, Any]]:
    """Return the proposed trials by number."""
    batches = [event.body for event in events if event.kind == Kind.BATCH_OPENED]
    return sorted(
        (one for body in batches for one in body["trials"]), key=lambda one: one["number"]
    )


def split_parts(ports: Any, events: tuple[Event, ...]) -> dict[str, Any]:
    """Return the store digests of each part's arrays."""
    recorded = [
        event.body["evidence"]
        for event in events
        if event.kind == Kind.STAGE_RECORDED and event.body["stage"] == "grouped_shipment_split"
    ]
    parts: dict[str, Any] = ports.store.get_document(recorded[-1])["body"]["parts"]
    return parts


def final_scores(events: tuple[Event, ...], plan: Plan) -> dict[str, str]:
    """Return the store digest of each trial's scores at the last milestone."""
    return {
        str(event.body["subject"]): str(event.body["scores"])
        for event in events
        if event.kind == Kind.MILESTONE_REPORTED and event.body["step"] == plan.training.steps
    }


# ---- rounds -------------------------------------------------------------------------------------


def compare(rounds: int, trials: int, shipments: int) -> None:
    """Run interleaved rounds and print their ratios."""
    walls, cpus, governed = [], [], []
    with tempfile.TemporaryDirectory() as name:
        prepared, latest = Path(name) / "prepared", Path(name) / "round-0"
        prepare(prepared, trials, shipments)
        copy_prepared(prepared, latest)
        timed("search", str(latest))  # the trials that the loop must repeat; warms the disk
        for turn in range(1, rounds + 1):
            load = os.getloadavg()[0]
            folder = Path(name) / f"round-{turn}"
            copy_prepared(prepared, folder)
            if turn % 2:
                searched, looped = timed("search", str(folder)), timed("loop", str(latest))
            else:
                looped, searched = timed("loop", str(latest)), timed("search", str(folder))
            latest = folder
            coordinator = float(json.loads((folder / "coordinator.json").read_text()))
            walls.append(searched.wall_seconds / looped.wall_seconds)
            cpus.append(searched.cpu_seconds / looped.cpu_seconds)
            governed.append(coordinator / looped.cpu_seconds)
            busy = f", load {load:.1f} before it: not a quiet round" if load > BUSY_LOAD else ""
            print(
                f"round {turn}: search {searched.wall_seconds:.1f} s wall, "
                f"{searched.cpu_seconds:.1f} s CPU; loop {looped.wall_seconds:.1f} s wall, "
                f"{looped.cpu_seconds:.1f} s CPU; wall ratio {walls[-1]:.2f}, CPU ratio "
                f"{cpus[-1]:.2f}, coordinator {governed[-1]:.1%}{busy}",
                flush=True,
            )
    print(
        f"medians over {rounds} rounds of {trials} trials: wall {statistics.median(walls):.2f}, "
        f"CPU {statistics.median(cpus):.2f}, coordinator {statistics.median(governed):.1%}"
    )


def main() -> None:
    """Compare, or run one side where a round asks for it."""
    if sys.argv[1:2] == ["search"]:
        search_once(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["loop"]:
        loop_once(Path(sys.argv[2]))
    else:
        parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
        parser.add_argument("--rounds", type=int, default=5)
        parser.add_argument("--trials", type=int, default=24)
        parser.add_argument("--shipments", type=int, default=2000)
        chosen = parser.parse_args()
        compare(chosen.rounds, chosen.trials, chosen.shipments)


if __name__ == "__main__":
    main()
