"""The custodian's stages: a pin that notices changes, a split that stays, a seal made once."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from parcel_assets.adapters.pictures_pillow import PillowPictures
from parcel_assets.adapters.source_folder import FolderSource
from parcel_assets.adapters.store_files import FileStore
from parcel_assets.core.codec import digest_value
from parcel_assets.core.errors import (
    AdmissionError,
    ArchiveError,
    HoldoutError,
    PlanChangedError,
    PlanError,
    SnapshotChangedError,
    SplitError,
)
from parcel_assets.core.evidence import SplitBody
from parcel_assets.core.holdout import holdout_digest, holdout_keys
from parcel_assets.core.ledger import Kind
from parcel_assets.core.plan import SnapshotPlan
from parcel_assets.core.ports import ArchiveSource, Ports, Sealed
from parcel_assets.core.snapshot import Label, SnapshotBody, label_rows
from parcel_assets.core.split import part_data
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.steps.admission import admit, load_chain
from parcel_assets.steps.data import pin_archive, pin_snapshot, register_plan, split_shipments
from parcel_assets_tests.adapters.archive_helpers import (
    draw,
    row,
    usual_rows,
    write_archive,
    write_table,
)
from parcel_assets_tests.core import plans
from parcel_assets_tests.fakes import FakeLedger

UNUSED = cast("Any", None)
SIDE = 32


def known_sampler(name: str) -> Any:
    if name != "tpe":
        raise PlanError(name, expected="tpe", where="search.sampler", remedy="Name tpe.", faults=[])


class FakeVault:
    """Remembers what was sealed; the same holdout keeps its seal."""

    evidence_level = "L1"

    def __init__(self) -> None:
        self.sealed: dict[str, list[list[Any]]] = {}

    def seal(self, holdout_digest: str, labels: Sequence[Label]) -> Sealed:
        rows = label_rows(labels)
        if self.sealed.setdefault(holdout_digest, rows) != rows:
            raise HoldoutError("other labels", expected="the same", where="vault", remedy="No.")
        return Sealed(digest_value(["commitment", holdout_digest]), digest_value(rows))

    def receipts_over(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        return []


class CountingSource(FolderSource):
    """A folder source that counts how often an archive was decoded."""

    readings = 0

    def read(self, progress: Any = None) -> Any:
        CountingSource.readings += 1
        return super().read(progress)


class Bench:
    """An archive, a plan for it, and ports in a temporary folder."""

    def __init__(self, folder: Path, rows: list[dict[str, str]], **changes: Any) -> None:
        self.folder = folder
        self.archive = write_archive(folder / "archive", rows)
        self.vault = FakeVault()
        self.ledger = FakeLedger()
        self.heard: list[tuple[str, Any]] = []
        self.ports = self._ports(folder)
        # the drawn rows hold no crushed corner, without which a protected slice stops the search
        self.changes = {"slices__crushed_corner__role": "monitored"} | changes
        self.plan = plans.plan(**self.changes)
        self.pin()

    def _ports(self, folder: Path) -> Ports:
        def open_source(section: SnapshotPlan, side_pixels: int) -> ArchiveSource:
            return CountingSource(section, self.archive, side_pixels)

        return Ports(
            ledger=self.ledger,
            store=FileStore(folder / "store"),
            open_source=open_source,
            open_engine=UNUSED,
            sampler=known_sampler,
            measure_identity=UNUSED,
            validator=UNUSED,
            vault=cast("Any", self.vault),
            signer=UNUSED,
            registry=UNUSED,
            serving=UNUSED,
            pictures=PillowPictures(),
            verify_packet=UNUSED,
            packets=folder / "packets",
            custodian=folder / "custodian",
            workers=1,
            notify=lambda kind, facts: self.heard.append((kind, facts)),
        )

    def pin(self) -> SnapshotBody:
        """Put the archive's present digest into the plan."""
        body = pin_archive(self.plan.snapshot, SIDE, self.ports)
        self.plan = plans.plan(**self.changes, snapshot__digest=body.snapshot_digest)
        return body

    def run(self, revision: str = "r1") -> tuple[Evidence, Evidence]:
        register_plan(revision, self.plan, self.ports)
        return pin_snapshot(revision, self.ports), split_shipments(revision, self.ports)

    def split(self, revision: str = "r1") -> SplitBody:
        return SplitBody.model_validate(self.run(revision)[1].body)

    def kinds(self, revision: str = "r1") -> list[str]:
        return [str(event.kind) for event in self.ledger.events(revision)]

    def private_files(self) -> set[str]:
        folder = self.ports.custodian
        return {str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, usual_rows())


# ---- registering ---------------------------------------------------------------------------------


def test_a_plan_is_frozen_once_and_the_same_again_changes_nothing(bench: Bench) -> None:
    first = register_plan("r1", bench.plan, bench.ports)
    assert first == bench.plan.digest == register_plan("r1", bench.plan, bench.ports)
    assert bench.kinds() == ["plan_frozen"]


def test_another_plan_under_a_used_revision_names_the_field(bench: Bench) -> None:
    register_plan("r1", bench.plan, bench.ports)
    other = bench.plan.model_copy(update={"purpose": "another"})
    with pytest.raises(PlanChangedError) as caught:
        register_plan("r1", other, bench.ports)
    assert caught.value.facts["field"] == "purpose"


def test_a_plan_without_a_pin_is_refused_with_the_line_to_add(bench: Bench) -> None:
    pinned = bench.plan.snapshot.digest
    with pytest.raises(PlanError) as caught:
        register_plan("r1", plans.plan(), bench.ports)
    assert caught.value.facts["line"] == f'digest = "{pinned}"'
    assert f'digest = "{pinned}"' in str(caught.value)
    assert bench.kinds() == []


@pytest.mark.parametrize(
    "change", [{"search__sampler": "tpa"}, {"snapshot__shipment_pattern": "("}]
)
def test_what_no_adapter_has_is_refused_while_the_plan_can_still_be_changed(
    bench: Bench, change: dict[str, str]
) -> None:
    digest = bench.plan.snapshot.digest
    with pytest.raises(PlanError):
        register_plan("r1", plans.plan(snapshot__digest=digest, **change), bench.ports)
    assert bench.ledger.revisions() == ()


def test_a_bad_name_and_an_unknown_parent_are_refused(bench: Bench) -> None:
    with pytest.raises(PlanError, match="search revision"):
        register_plan("Bad Name", bench.plan, bench.ports)
    follows = {"parent": {"revision": "r0", "reason": "more seeds"}}
    child = plans.plan(snapshot__digest=bench.plan.snapshot.digest, **follows)
    with pytest.raises(PlanError, match="parent 'r0'"):
        register_plan("r1", child, bench.ports)


# ---- pinning -------------------------------------------------------------------------------------


def test_a_pin_says_what_the_archive_holds_and_no_label(bench: Bench) -> None:
    body = SnapshotBody.model_validate(bench.run()[0].body)
    assert (body.photos, body.shipments, body.damaged_photos) == (120, 60, 40)
    assert body.counts["label"] == {"damaged": 40, "intact": 80}
    assert body.counts["camera_class"] == {"side": 60, "top": 60}
    assert "damaged" not in json.dumps(bench.ports.store.get_document(body.photos_document))
    assert bench.ports.store.get(body.contact_sheet).startswith(b"\x89PNG")


def test_a_pin_tells_its_progress(bench: Bench) -> None:
    facts = [facts for kind, facts in bench.heard if kind == "progress"]
    assert facts[-1] == {
        "stage": "pinned_snapshot",
        "done": 120,
        "total": 120,
        "unit": "photos",
    }


def test_two_machines_pin_the_same_digest(bench: Bench, tmp_path: Path) -> None:
    other = Bench(tmp_path / "other", usual_rows())
    assert other.plan.snapshot.digest == bench.plan.snapshot.digest
    one, two = bench.run()[0].body, other.run()[0].body
    assert one["photos_document"] == two["photos_document"]
    assert one["label_commitment"] != two["label_commitment"]


def test_the_photos_are_decoded_once_from_pin_to_split(tmp_path: Path) -> None:
    CountingSource.readings = 0
    bench = Bench(tmp_path, usual_rows(10))
    bench.run()
    bench.run()
    assert CountingSource.readings == 1


def test_materializing_again_gives_the_same_evidence(bench: Bench) -> None:
    first, before = bench.run(), bench.kinds()
    assert bench.run() == first
    assert bench.kinds() == before


def _edit(folder: Path, before: str, after: str) -> None:
    text = (folder / "labels.csv").read_text()
    assert text.count(before) == 1
    (folder / "labels.csv").write_text(text.replace(before, after))


def _add(folder: Path) -> None:
    draw(folder / "images/new.jpg", 777)
    write_table(folder, [*usual_rows(), row("images/new.jpg", "9999")])


def _remove(folder: Path) -> None:
    write_table(folder, usual_rows()[:-1])


CHANGES = {
    "a photo more": ("added", _add),
    "a photo less": ("removed", _remove),
    "a photo redrawn": ("changed", lambda folder: draw(folder / "images/0001_0.jpg", 999)),
    "a shipment renamed": ("changed", lambda folder: _edit(folder, "1.jpg,0005", "1.jpg,0006")),
    "an attribute edited": (
        "changed",
        lambda folder: _edit(folder, "_1.jpg,0005,intact,,side", "_1.jpg,0005,intact,,top"),
    ),
}


@pytest.mark.parametrize("when", ["before the pin", "after the pin", "after the split"])
@pytest.mark.parametrize(("kind", "change"), CHANGES.values(), ids=list(CHANGES))
def test_a_changed_archive_is_refused_with_counts(
    kind: str, change: Any, when: str, bench: Bench
) -> None:
    register_plan("r1", bench.plan, bench.ports)
    if when != "before the pin":
        pin_snapshot("r1", bench.ports)
    if when == "after the split":
        split_shipments("r1", bench.ports)
    before = bench.kinds()
    change(bench.archive)
    with pytest.raises(SnapshotChangedError) as caught:
        pin_snapshot("r1", bench.ports)
    counts = {one: caught.value.facts[one] for one in ("added", "removed", "changed")}
    assert counts == {"added": 0, "removed": 0, "changed": 0} | {kind: 1}
    assert f"1 {kind}" in str(caught.value)
    assert bench.kinds() == before


def test_a_changed_archive_is_refused_on_a_machine_that_never_read_the_pinned_one(
    bench: Bench,
) -> None:
    shutil.rmtree(bench.ports.custodian)
    _remove(bench.archive)
    register_plan("r1", bench.plan, bench.ports)
    with pytest.raises(SnapshotChangedError, match="never read the pinned archive"):
        pin_snapshot("r1", bench.ports)


@pytest.mark.parametrize("split_first", [False, True])
def test_changed_labels_are_noticed_though_no_digest_covers_them(
    split_first: bool, bench: Bench
) -> None:
    register_plan("r1", bench.plan, bench.ports)
    pin_snapshot("r1", bench.ports)
    if split_first:
        split_shipments("r1", bench.ports)
    _edit(bench.archive, "0003_0.jpg,0003,damaged,dent", "0003_0.jpg,0003,intact,")
    with pytest.raises(SnapshotChangedError, match="other labels"):
        pin_snapshot("r1", bench.ports)
    if not split_first:
        with pytest.raises(SnapshotChangedError, match="other labels"):
            split_shipments("r1", bench.ports)


def test_rows_in_another_order_are_the_same_archive(bench: Bench) -> None:
    first = bench.run()
    write_table(bench.archive, usual_rows()[::-1])
    assert bench.run() == first


# ---- bad rows ------------------------------------------------------------------------------------


def spoil(bench: Bench, count: int = 30) -> None:
    for shipment in range(count):
        (bench.archive / f"images/{shipment:04}_0.jpg").write_bytes(b"<html>")


def test_bad_rows_refuse_the_snapshot_all_at_once(bench: Bench) -> None:
    spoil(bench)
    register_plan("r1", bench.plan, bench.ports)
    with pytest.raises(ArchiveError) as caught:
        pin_snapshot("r1", bench.ports)
    assert len(caught.value.facts["rows"]) == 30
    assert "30 faults in 30 photos" in str(caught.value)
    assert "images/0000_0.jpg, row 2, photo: found an HTML page" in str(caught.value)
    assert "and 20 more" in str(caught.value)
    assert bench.kinds() == ["plan_frozen"]


def test_bad_rows_are_left_out_and_counted_where_the_plan_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path, usual_rows(), snapshot__bad_rows="leave_out")
    spoil(bench)
    bench.pin()
    pinned, split = bench.run()
    body = SnapshotBody.model_validate(pinned.body)
    assert (body.photos, len(body.bad_rows)) == (90, 30)
    parts = SplitBody.model_validate(split.body).parts
    assert sum(part.photos for part in parts.values()) == 90
    admit(Stage.SPLIT, load_chain("r1", bench.ports))


def test_a_mended_row_is_a_changed_archive(tmp_path: Path) -> None:
    bench = Bench(tmp_path, usual_rows(), snapshot__bad_rows="leave_out")
    spoil(bench, 1)
    bench.pin()
    bench.run()
    draw(bench.archive / "images/0000_0.jpg", 5000)
    with pytest.raises(SnapshotChangedError, match="1 added"):
        pin_snapshot("r1", bench.ports)


def test_an_archive_without_one_good_row_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path, usual_rows(4), snapshot__bad_rows="leave_out")
    spoil(bench, 4)
    write_table(bench.archive, [one for one in usual_rows(4) if "_0" in one["path"]])
    with pytest.raises(ArchiveError, match="no photo"):
        bench.pin()


# ---- splitting -----------------------------------------------------------------------------------


def test_every_photo_lies_in_one_part_with_its_pixels(bench: Bench) -> None:
    body = bench.split()
    read = FolderSource(bench.plan.snapshot, bench.archive, SIDE).read()
    pixels_of = {photo.photo_id: read.pixels[n] for n, photo in enumerate(read.photos)}
    seen: list[str] = []
    for part in body.parts.values():
        rows = bench.ports.store.get_document(part.rows)
        path = bench.ports.store.path(part.pixels)
        pixels = np.load(path, mmap_mode="r", allow_pickle=False)
        assert pixels.shape == (part.photos, SIDE, SIDE, 3)
        assert [one["photo_id"] for one in rows] == sorted(one["photo_id"] for one in rows)
        for number, one in enumerate(rows):
            assert (pixels[number] == pixels_of[one["photo_id"]]).all()
        seen += [one["photo_id"] for one in rows]
    assert sorted(seen) == list(pixels_of)


def test_train_and_validation_become_training_data(bench: Bench) -> None:
    body = bench.split()
    for name in ("train", "validation"):
        part = body.parts[name]
        pixels = np.load(bench.ports.store.path(part.pixels), allow_pickle=False)
        data = part_data(bench.ports.store.get_document(part.rows), pixels)
        assert data.damaged.sum() == body.counts[name]["label"]["damaged"]
        assert set(data.attributes) == {"camera_class", "damage_type"}


def test_no_holdout_label_is_anywhere_outside_the_vault(bench: Bench) -> None:
    body = bench.split()
    rows = bench.ports.store.get_document(body.parts["holdout"].rows)
    assert all(
        one.keys() == {"photo_id", "shipment_id", "pixel_digest", "attributes"} for one in rows
    )
    (sealed,) = bench.vault.sealed.values()
    assert [one[0] for one in sealed] == [one["photo_id"] for one in rows]
    assert bench.private_files() == {
        "marks.key",
        "labels/r1.json",
        f"snapshots/{bench.plan.snapshot.digest}/manifest.json",
    }
    kept = json.loads((bench.ports.custodian / "labels/r1.json").read_bytes())
    assert kept.keys() == {"mark"}


def test_the_seal_is_named_by_the_holdouts_keys_and_recorded_once(bench: Bench) -> None:
    body = bench.split()
    rows = bench.ports.store.get_document(body.parts["holdout"].rows)
    assert body.holdout_digest == holdout_digest(holdout_keys("test-parcels", rows))
    assert bench.kinds() == [
        "plan_frozen",
        "stage_recorded",
        "holdout_sealed",
        "stage_recorded",
    ]


def test_a_split_that_died_after_sealing_is_made_again_under_the_same_seal(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_plan("r1", bench.plan, bench.ports)
    pin_snapshot("r1", bench.ports)
    dying = replace(bench.ports, pictures=cast("Any", None))
    with pytest.raises(AttributeError):
        split_shipments("r1", dying)
    assert bench.kinds()[-1] == "holdout_sealed"
    body = SplitBody.model_validate(split_shipments("r1", bench.ports).body)
    assert bench.kinds().count("holdout_sealed") == 1
    assert body.holdout_digest in bench.vault.sealed


def test_a_second_search_gets_the_same_parts_and_the_same_seal(bench: Bench) -> None:
    first = bench.split("r1")
    bench.plan = plans.plan(snapshot__digest=bench.plan.snapshot.digest, split__key="another")
    second = bench.split("r2")
    assert second.split_digest == first.split_digest
    assert second.holdout_commitment == first.holdout_commitment
    assert second.parts == first.parts


def test_a_grown_archive_moves_no_shipment(bench: Bench) -> None:
    first = bench.ports.store.get_document(bench.split("r1").assignment_document)["parts"]
    write_archive(bench.archive, usual_rows(90))
    bench.pin()
    second = bench.ports.store.get_document(bench.split("r2").assignment_document)["parts"]
    for part, shipments in first.items():
        assert set(shipments) <= set(second[part])


def test_shipments_that_newly_share_a_photo_across_parts_stand_aside(bench: Bench) -> None:
    parts = bench.ports.store.get_document(bench.split("r1").assignment_document)["parts"]
    intact = [[one for one in parts[part] if int(one) % 3] for part in ("train", "holdout")]
    here, there = intact[0][0], intact[1][0]
    shutil.copy(bench.archive / f"images/{here}_0.jpg", bench.archive / f"images/{there}_0.jpg")
    bench.pin()
    body = bench.split("r2")
    assert body.quarantined == tuple(sorted((here, there)))
    everyone = bench.ports.store.get_document(body.assignment_document)["parts"]
    assert not {here, there} & {one for shipments in everyone.values() for one in shipments}
    assert body.duplicate_pixels_across_parts == 0
    admit(Stage.SEARCH, load_chain("r2", bench.ports))


def test_a_missed_minimum_is_recorded_and_stops_the_search(tmp_path: Path) -> None:
    minimum = [
        {"part": "train", "shipments": 5},
        {"part": "validation", "dimension": "damage_type", "value": "tear", "shipments": 3},
    ]
    bench = Bench(tmp_path, usual_rows(), split__minimum=minimum)
    body = bench.split()
    assert [one["met"] for one in body.support if one["dimension"]] == [False]
    with pytest.raises(
        AdmissionError, match="validation with damage_type = tear holds 0"
    ) as caught:
        admit(Stage.SEARCH, load_chain("r1", bench.ports))
    assert caught.value.facts["gate"] == "minimum_support"


def test_a_part_without_damage_stops_the_search_whatever_the_plan_asks(tmp_path: Path) -> None:
    rows = [one for one in usual_rows() if one["label"] == "intact"]
    bench = Bench(tmp_path, [*rows, row("images/x.jpg", "x", "damaged")])
    bench.run()
    with pytest.raises(AdmissionError, match="0 damaged photos"):
        admit(Stage.SEARCH, load_chain("r1", bench.ports))


def test_a_split_before_the_pin_is_refused(bench: Bench) -> None:
    register_plan("r1", bench.plan, bench.ports)
    with pytest.raises(AdmissionError, match="no evidence of pinned_snapshot"):
        split_shipments("r1", bench.ports)


def test_a_lost_custodians_folder_costs_one_more_reading(bench: Bench) -> None:
    register_plan("r1", bench.plan, bench.ports)
    pin_snapshot("r1", bench.ports)
    shutil.rmtree(bench.ports.custodian)
    with pytest.raises(SplitError, match="no salt"):
        split_shipments("r1", bench.ports)
    pin_snapshot("r1", bench.ports)
    assert split_shipments("r1", bench.ports).stage == Stage.SPLIT


def test_pixels_that_were_tampered_with_are_decoded_again(bench: Bench) -> None:
    register_plan("r1", bench.plan, bench.ports)
    pin_snapshot("r1", bench.ports)
    (kept,) = bench.ports.custodian.glob("snapshots/*/pixels-*.npy")
    data = bytearray(kept.read_bytes())
    data[-1] ^= 1
    kept.write_bytes(bytes(data))
    CountingSource.readings = 0
    body = SplitBody.model_validate(split_shipments("r1", bench.ports).body)
    assert CountingSource.readings == 1
    assert body.parts["train"].photos > 0


def test_an_archive_that_changes_between_pin_and_split_is_noticed(bench: Bench) -> None:
    register_plan("r1", bench.plan, bench.ports)
    pin_snapshot("r1", bench.ports)
    shutil.rmtree(bench.ports.custodian / "snapshots")
    draw(bench.archive / "images/0001_0.jpg", 999)
    with pytest.raises(SnapshotChangedError):
        split_shipments("r1", bench.ports)


def test_another_image_size_reads_the_archive_once_more_and_keeps_the_pin(bench: Bench) -> None:
    bench.run("r1")
    digest = bench.plan.snapshot.digest
    bench.plan = plans.plan(snapshot__digest=digest, preprocess__image_size_pixels=48)
    parts = bench.split("r2").parts
    assert np.load(bench.ports.store.path(parts["train"].pixels)).shape[1] == 48
    assert Kind.HOLDOUT_SEALED in {event.kind for event in bench.ledger.events("r2")}
