"""Photos, parts and the holdout: B53-B59."""

import os
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from parcel_assets.core import gate_rules as rules
from parcel_assets.core import split
from parcel_assets.core.errors import (
    AdmissionError,
    ArchiveError,
    HoldoutError,
    LedgerError,
    SnapshotChangedError,
)
from parcel_assets.core.evidence import SplitBody
from parcel_assets.core.identity import Difference
from parcel_assets.core.ledger import Kind
from parcel_assets.core.ports import TrainingData
from parcel_assets.core.snapshot import SnapshotBody
from parcel_assets.core.stage import Stage
from parcel_assets.steps import selection
from parcel_assets.steps.admission import admit, leased, load_chain
from parcel_assets.steps.data import pin_snapshot, register_plan
from parcel_assets.steps.evaluation import evaluate_final
from parcel_assets.steps.selection import report_slices, rerun_selected
from parcel_assets.steps.table import validate_table
from parcel_assets.steps.worker import Setup
from parcel_assets_tests.adapters.archive_helpers import draw_smooth, row, usual_rows, write_table
from parcel_assets_tests.core import plans
from parcel_assets_tests.other_worker import CHANGES, Copy
from parcel_assets_tests.steps.desk import REVISION, FakeVault, make_desk
from parcel_assets_tests.steps.test_data import Bench
from parcel_assets_tests.steps.test_door import Visitors


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, usual_rows())


@pytest.fixture
def visitors(tmp_path: Path) -> Visitors:
    return Visitors(tmp_path)


def parts_of(bench: Bench, body: SplitBody) -> dict[str, list[str]]:
    found: dict[str, list[str]] = bench.ports.store.get_document(body.assignment_document)["parts"]
    return found


# ---- B53: one's own random split -----------------------------------------------------------------


def test_b53_a_worker_that_splits_rows_is_refused_and_the_torn_shipments_are_named(
    visitors: Visitors, tmp_path: Path
) -> None:
    found = visitors.come(tmp_path / "worker", "random_split")
    assert isinstance(found, Difference)
    assert found.field == "split"
    assert "it split the photos by itself, at random" in found.cause
    data = visitors.other.load()
    torn = sorted(set(data.train.shipments) & set(data.validation.shipments))
    assert torn, "else nothing is tried"
    assert f"{len(torn)} shipments in both parts" in found.cause
    assert ", ".join(torn[:5]) in found.cause


# ---- B54: a split is ids -------------------------------------------------------------------------


def test_b54_a_split_is_read_and_not_made_again_by_a_newer_library(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bench.split("r1")
    monkeypatch.setattr(split, "hashed_part", lambda _component, _plan: "train")
    bench.plan = plans.plan(**bench.changes, snapshot__digest=bench.plan.snapshot.digest)
    again, second = bench.split("r1"), bench.split("r2")
    assert again == first
    assert parts_of(bench, second) == parts_of(bench, first)
    assert second.split_digest == first.split_digest
    # what a library's order of groups would have shown: each part's balance, counted and stored
    for part, one in first.parts.items():
        labels = first.counts[part]["label"]
        assert sum(labels.values()) == one.photos
        assert 0.1 < labels["damaged"] / one.photos < 0.6


# ---- B55: copies across parts --------------------------------------------------------------------


def first_of(bench: Bench, body: SplitBody, part: str) -> str:
    """Return an intact shipment of a part: a copy of its photo contradicts no label."""
    return next(one for one in parts_of(bench, body)[part] if int(one) % 3)


def add_copy(bench: Bench, of: str, *, quality: int | None) -> str:
    """Add a copy of a holdout shipment's photo to the archive, under a new shipment's name."""
    source, target = bench.archive / f"images/{of}_0.jpg", bench.archive / "images/9000_0.jpg"
    if quality is None:
        shutil.copy(source, target)
    else:
        Image.open(source).save(target, "JPEG", quality=quality)
    write_table(bench.archive, [*usual_rows(), row("images/9000_0.jpg", "9000")])
    bench.pin()
    return "9000"


def test_b55_an_exact_copy_under_a_new_name_stays_on_its_side(bench: Bench) -> None:
    holdout = first_of(bench, bench.split("r1"), "holdout")
    new = add_copy(bench, holdout, quality=None)
    body = bench.split("r2")
    assert new in parts_of(bench, body)["holdout"], "it follows its twin"
    assert (holdout, new) in body.linked_components
    assert body.duplicate_pixels_across_parts == 0


def test_b55_a_copy_that_was_encoded_anew_is_reported_with_both_names(bench: Bench) -> None:
    first = bench.split("r1")
    assert (first.near_copies_across_parts, first.near_copies) == (0, ()), "nothing looks alike"
    holdout = first_of(bench, first, "holdout")
    draw_smooth(bench.archive / f"images/{holdout}_0.jpg")
    new = add_copy(bench, holdout, quality=60)
    body = bench.split("r2")
    assert new not in parts_of(bench, body)["holdout"], "its name alone deals it"
    (found,) = body.near_copies
    assert body.near_copies_across_parts == 1
    assert {found.photo, found.other} == {f"images/{holdout}_0.jpg", f"images/{new}_0.jpg"}
    assert "holdout" in {found.part, found.other_part}
    gate = rules.no_duplicate_across(load_chain("r2", bench.ports))
    assert gate.passed, "it is no proof"
    assert "1 pairs look like copies across parts or tranches" in gate.sentence


def test_b55_an_exact_copy_between_shipments_that_lie_in_two_parts_blocks_both(
    bench: Bench,
) -> None:
    body = bench.split("r1")
    holdout, train = (first_of(bench, body, part) for part in ("holdout", "train"))
    images = bench.archive / "images"
    shutil.copy(images / f"{holdout}_0.jpg", images / f"{train}_0.jpg")
    bench.pin()
    assert bench.split("r2").quarantined == tuple(sorted((holdout, train)))


# ---- B56: the same name, the same size -----------------------------------------------------------


def change_one_byte(path: Path) -> None:
    """Change a byte in the middle; name, size and times stay."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size


@pytest.mark.parametrize("when", ["before the pin is read", "after it"])
def test_b56_a_photo_of_the_same_name_and_size_is_another_archive(bench: Bench, when: str) -> None:
    register_plan("r1", bench.plan, bench.ports)
    if when == "after it":
        pin_snapshot("r1", bench.ports)
    change_one_byte(bench.archive / "images/0007_0.jpg")
    with pytest.raises((SnapshotChangedError, ArchiveError)):
        pin_snapshot("r1", bench.ports)


def test_b56_a_worker_whose_array_differs_in_a_byte_is_refused_on_its_digest(
    visitors: Visitors, tmp_path: Path
) -> None:
    found = visitors.come(tmp_path / "worker", "image_byte")
    assert isinstance(found, Difference)
    assert found.field == "train_pixels"


def test_b56_a_changed_preparation_is_another_worker(visitors: Visitors, tmp_path: Path) -> None:
    found = visitors.come(tmp_path / "worker", "normalisation")
    assert isinstance(found, Difference)
    assert found.field == "preprocessing"


# ---- B58: half a photo ---------------------------------------------------------------------------


def cut_in_half(bench: Bench) -> str:
    photo = "images/0004_0.jpg"
    data = (bench.archive / photo).read_bytes()
    (bench.archive / photo).write_bytes(data[: len(data) // 2])
    return photo


def test_b58_half_a_photo_is_found_at_the_pin_and_named(bench: Bench) -> None:
    register_plan("r1", bench.plan, bench.ports)
    photo = cut_in_half(bench)
    with pytest.raises(ArchiveError) as refused:
        pin_snapshot("r1", bench.ports)
    assert [one["file"] for one in refused.value.facts["rows"]] == [photo]
    assert photo in str(refused.value)


def test_b58_where_the_plan_leaves_it_out_no_trial_sees_it_and_the_count_is_published(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, usual_rows(), snapshot__bad_rows="leave_out")
    photo = cut_in_half(bench)
    bench.pin()
    snapshot, body = bench.run()
    pinned = SnapshotBody.model_validate(snapshot.body)
    assert (pinned.photos, [one.file for one in pinned.bad_rows]) == (119, [photo])
    parts = SplitBody.model_validate(body.body).parts
    rows = [
        one["photo_id"]
        for part in parts.values()
        for one in bench.ports.store.get_document(part.rows)
    ]
    assert len(rows) == 119
    assert photo not in rows
    admit(Stage.SPLIT, load_chain("r1", bench.ports))


# ---- B59: the holdout decides nothing ------------------------------------------------------------


def test_b59_what_a_trainer_is_given_holds_no_holdout_photo(visitors: Visitors) -> None:
    assert {one.name for one in fields(TrainingData)} == {"train", "validation"}
    setup = Setup.read(visitors.setup)
    assert {one.partition("_")[0] for one in setup.files} == {"train", "validation"}
    sealed = set(visitors.desk.photo_ids("holdout"))
    data = setup.load()
    assert sealed
    assert not sealed & {*data.train.photo_ids, *data.validation.photo_ids}


def test_b59_a_worker_that_reads_a_holdout_photo_is_refused_at_the_door(
    visitors: Visitors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed = visitors.desk.photo_ids("holdout")[0]

    def peek(copy: Copy) -> None:
        copy.rows["validation"].append({**copy.rows["validation"][0], "photo_id": sealed})
        more = copy.pixels["validation"][:1]
        copy.pixels["validation"] = np.concatenate([copy.pixels["validation"], more])

    monkeypatch.setitem(CHANGES, "peek", peek)
    found = visitors.come(tmp_path / "worker", "peek")
    assert isinstance(found, Difference)
    assert found.field == "split"
    assert "holdout" in found.cause


def test_b59_the_holdout_is_scored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = make_desk(tmp_path)
    monkeypatch.setattr(selection, "run_tasks", desk.run_tasks)
    for step in (validate_table, rerun_selected, report_slices, evaluate_final):
        step(REVISION, desk.ports)
    vault = cast("Any", desk.ports.vault)
    assert isinstance(vault, FakeVault)
    first = evaluate_final(REVISION, desk.ports)
    assert evaluate_final(REVISION, desk.ports) == first
    assert vault.looks == 1
    opened = desk.events(Kind.HOLDOUT_OPENED)[0].body
    with leased(desk.ports, REVISION, "again") as lease:
        with pytest.raises(HoldoutError):
            desk.ports.ledger.open_holdout(lease, opened, ["another key"])
        with pytest.raises(LedgerError, match="after the holdout was opened"):
            desk.ports.ledger.append(lease, [(Kind.SELECTION_FROZEN, {})])
    ports = desk.ports
    other = make_desk(tmp_path, revision="search-b", ledger=ports.ledger, vault=ports.vault)
    with pytest.raises(AdmissionError) as refused:
        validate_table("search-b", other.ports)
    assert refused.value.facts["gate"] == "holdout_unspent"
