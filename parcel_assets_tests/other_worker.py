"""A real worker process that differs in one thing: `python -m …other_worker CHANGE SETUP.json`.

The coordinator, its order and its setup are untouched: what differs is what this process holds,
runs or does with it. `CHANGES` are those made to its own copy of the setup's files and plan.
"""

import json
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from parcel_assets.core.plan import PreprocessPlan, TrainingPlan
from parcel_assets.core.ports import Images, Pixels
from parcel_assets.worker import run
from parcel_assets_tests.fake_training import FakeTrainer

Setup = dict[str, Any]


class Copy:
    """A worker's own copy of a setup, to change."""

    def __init__(self, setup: Path, folder: Path) -> None:
        fields = json.loads(setup.read_bytes())
        self.fields = fields
        self.plan: Any = fields["plan"]
        self.folder = folder
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.pixels: dict[str, Pixels] = {}
        for part in ("train", "validation"):
            self.rows[part] = json.loads(Path(fields["files"][f"{part}_rows"]).read_bytes())
            self.pixels[part] = np.load(fields["files"][f"{part}_pixels"], allow_pickle=False)

    def write(self) -> Path:
        for part, rows in self.rows.items():
            place = self.folder / part
            np.save(f"{place}.npy", self.pixels[part], allow_pickle=False)
            place.with_suffix(".json").write_text(json.dumps(rows))
            self.fields["files"][f"{part}_pixels"] = f"{place}.npy"
            self.fields["files"][f"{part}_rows"] = f"{place}.json"
        path = self.folder / "setup.json"
        path.write_text(json.dumps(self.fields))
        return path


def nothing(_copy: Copy) -> None:
    """A worker with copies of everything is the same worker."""


def newer_archive(copy: Copy) -> None:
    extra = [
        {**copy.rows["train"][0], "photo_id": f"train-x{n}", "shipment_id": f"new-{n}"}
        for n in range(14)
    ]
    copy.rows["train"] += extra
    more = np.repeat(copy.pixels["train"][:1], 14, axis=0)
    copy.pixels["train"] = np.concatenate([copy.pixels["train"], more])


def image_byte(copy: Copy) -> None:
    copy.pixels["train"][-1, -1, -1, -1] ^= 1


def label(copy: Copy) -> None:
    row = copy.rows["validation"][-1]
    row["damaged"], row["damage_type"] = not row["damaged"], None


def random_split(copy: Copy) -> None:
    both = [(row, part, n) for part in copy.rows for n, row in enumerate(copy.rows[part])]
    order = np.random.default_rng(7).permutation(len(both))
    deal(copy, [both[n] for n in order])


def other_grouped_split(copy: Copy) -> None:
    """Whole shipments again, but other ones: the last of validation go to train."""
    both = [(row, part, n) for part in copy.rows for n, row in enumerate(copy.rows[part])]
    deal(copy, both[2:] + both[:2])


def deal(copy: Copy, dealt: list[tuple[dict[str, Any], str, int]]) -> None:
    old = dict(copy.pixels)
    size = len(copy.rows["train"])
    for part, members in {"train": dealt[:size], "validation": dealt[size:]}.items():
        copy.rows[part] = [row for row, _, _ in members]
        copy.pixels[part] = np.stack([old[source][n] for _, source, n in members])


def other_grouping(copy: Copy) -> None:
    for row in copy.rows["train"][:4]:
        row["shipment_id"] = "train-000"


def normalisation(copy: Copy) -> None:
    copy.plan["preprocess"]["mean"] = [0.4, 0.5, 0.5]


def metric(copy: Copy) -> None:
    copy.plan["metric"]["missed_damage"] += 1.0


def space(copy: Copy) -> None:
    name = sorted(copy.plan["space"])[0]
    copy.plan["space"] = {**copy.plan["space"], "depth": copy.plan["space"].pop(name)}


def training(copy: Copy) -> None:
    copy.plan["training"]["batch_photos"] += 1


def snapshot(copy: Copy) -> None:
    copy.plan["snapshot"]["digest"] = "b" * 64


CHANGES: dict[str, Callable[[Copy], None]] = {
    one.__name__: one
    for one in (
        nothing, newer_archive, image_byte, label, random_split, other_grouped_split,
        other_grouping, normalisation, metric, space, training, snapshot,
    )
}  # fmt: skip


class OtherTrainer(FakeTrainer):
    """Prepares photos in its own way, or computes with more threads than planned."""

    def __init__(self, change: str) -> None:
        super().__init__()
        self._change = change

    def rehearse(
        self, training: TrainingPlan, preprocess: PreprocessPlan, pixels: Pixels
    ) -> tuple[Images, int]:
        images, threads = super().rehearse(training, preprocess, pixels)
        if self._change == "own_preprocessing":
            images = images[:, ::-1]  # the colours in another order
        return images, threads + (self._change == "threads")


def main(change: str, setup: Path) -> None:
    if change == "machine":
        platform.machine = lambda: "s390x"
    with tempfile.TemporaryDirectory() as folder:
        if change in CHANGES:
            copy = Copy(setup, Path(folder))
            CHANGES[change](copy)
            setup = copy.write()
        run([str(setup)], lambda: OtherTrainer(change))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
