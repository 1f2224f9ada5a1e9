"""The sample archive: same bytes every time, whole or absent, and without contradictions."""

import csv
import io
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from parcel_assets.adapters.sample_archive import (
    COLUMNS,
    SampleSummary,
    draw_sample_archive,
)
from parcel_assets.adapters.sample_facts import (
    CAMERA_SHARES,
    DAMAGE_SHARES,
    Photo,
    photos_of_shipment,
    shows_damage,
)
from parcel_assets.core.errors import SettingError

SMALL = 40
# Another Pillow may bring another JPEG encoder and so other photo bytes; the table depends on
# NumPy's random streams only. Change a digest only together with GENERATOR_VERSION.
TABLE_DIGEST = "d673a904237705a78e7aed6aabd6a988d79b1550a570a2282873a7c0b3ef53ba"
PHOTOS_DIGEST = "9c3c59364673c852b0fcc726cd9a50c25add6b50ae2d18f9afeb686597be2544"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SampleSummary]:
    folder = tmp_path_factory.mktemp("sample") / "archive"
    return folder, draw_sample_archive(folder, shipments=SMALL)


@pytest.fixture(scope="module")
def rows(archive: tuple[Path, SampleSummary]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((archive[0] / "labels.csv").read_text())))


@pytest.fixture(scope="module")
def photos() -> list[Photo]:
    return [photo for number in range(4000) for photo in photos_of_shipment(82, number)]


def test_bytes_of_a_small_archive_are_pinned(archive: tuple[Path, SampleSummary]) -> None:
    _, summary = archive
    assert summary.table_digest == TABLE_DIGEST
    assert summary.photos_digest == PHOTOS_DIGEST


def test_two_processes_write_the_same_bytes_and_report_progress(
    archive: tuple[Path, SampleSummary], tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []
    summary = draw_sample_archive(
        tmp_path / "twice",
        shipments=SMALL,
        processes=2,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert summary == archive[1]
    assert contents(tmp_path / "twice") == contents(archive[0])
    assert seen == [(20, SMALL), (40, SMALL)]
    assert [path.name for path in tmp_path.iterdir()] == ["twice"]


def test_a_shipment_does_not_depend_on_how_many_there_are(
    archive: tuple[Path, SampleSummary], tmp_path: Path
) -> None:
    draw_sample_archive(tmp_path / "fewer", shipments=7)
    fewer, whole = contents(tmp_path / "fewer"), contents(archive[0])
    images = [name for name in fewer if name.startswith("images")]
    assert images
    assert all(whole[name] == fewer[name] for name in images)
    assert whole["labels.csv"].startswith(fewer["labels.csv"])


def test_another_seed_draws_another_archive(
    archive: tuple[Path, SampleSummary], tmp_path: Path
) -> None:
    other = draw_sample_archive(tmp_path / "other", seed=83, shipments=3)
    assert other.table_digest != archive[1].table_digest
    assert not set(contents(tmp_path / "other")) & {
        name for name in contents(archive[0]) if name.startswith("images")
    }


def test_photos_decode_and_match_the_table(
    archive: tuple[Path, SampleSummary], rows: list[dict[str, str]]
) -> None:
    folder, summary = archive
    for row in rows:
        with Image.open(folder / row["path"]) as image:
            image.load()
            assert (image.size, image.mode, image.format) == ((64, 64), "RGB", "JPEG")
        name = f"{row['shipment_id']}_{row['frame']}_{row['camera_class']}.jpg"
        assert row["path"] == f"images/{name}"
    assert {path.name for path in (folder / "images").iterdir()} == {
        row["path"].removeprefix("images/") for row in rows
    }
    assert (summary.shipments, summary.photos) == (SMALL, len(rows))
    assert tuple(rows[0]) == COLUMNS


def test_an_existing_archive_is_not_drawn_again(
    archive: tuple[Path, SampleSummary],
) -> None:
    folder, summary = archive
    before = (folder / "labels.csv").stat().st_mtime_ns

    def refuse(_done: int, _total: int) -> None:
        raise AssertionError("drawn again")

    assert draw_sample_archive(folder, shipments=SMALL, progress=refuse) == summary
    assert (folder / "labels.csv").stat().st_mtime_ns == before
    with pytest.raises(SettingError, match="other seed"):
        draw_sample_archive(folder, seed=83, shipments=SMALL)
    with pytest.raises(SettingError, match="other shipments"):
        draw_sample_archive(folder, shipments=SMALL + 1)


def test_a_changed_archive_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    draw_sample_archive(folder, shipments=2)
    photo = next((folder / "images").iterdir())
    original = photo.read_bytes()
    photo.write_bytes(original + b"\0")
    with pytest.raises(SettingError, match="other photos_digest"):
        draw_sample_archive(folder, shipments=2)
    photo.unlink()
    with pytest.raises(SettingError, match="no sample archive"):
        draw_sample_archive(folder, shipments=2)
    photo.write_bytes(original)
    (folder / "images" / "stranger.jpg").write_bytes(original)
    with pytest.raises(SettingError, match="files beside"):
        draw_sample_archive(folder, shipments=2)


def test_a_folder_with_something_else_is_refused_and_an_empty_one_is_used(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(SettingError, match="no sample archive"):
        draw_sample_archive(tmp_path / "mine", shipments=2)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"
    (tmp_path / "empty").mkdir()
    assert draw_sample_archive(tmp_path / "empty", shipments=2).shipments == 2
    for wrong in ({"shipments": 0}, {"processes": 0}):
        with pytest.raises(SettingError, match="at least 1"):
            draw_sample_archive(tmp_path / "never", **wrong)  # type: ignore[arg-type]


def test_a_draw_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(_done: int, _total: int) -> None:
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        draw_sample_archive(tmp_path / "archive", shipments=2, progress=fail)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_draw_leaves_no_table_and_no_process(tmp_path: Path) -> None:
    script = tmp_path / "draw.py"
    script.write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from parcel_assets.adapters.sample_archive import draw_sample_archive\n"
        "if __name__ == '__main__':\n"
        "    draw_sample_archive(Path(sys.argv[1]), shipments=100_000, processes=2,\n"
        "                        progress=lambda done, total: print(done, flush=True))\n"
    )
    folder = tmp_path / "out" / "archive"
    with subprocess.Popen(
        [sys.executable, str(script), str(folder)], stdout=subprocess.PIPE
    ) as drawing:
        assert drawing.stdout is not None
        assert drawing.stdout.readline()
        os.kill(drawing.pid, signal.SIGKILL)
    assert not folder.exists()
    assert not list((tmp_path / "out").rglob("labels.csv"))
    _wait_until_quiet(tmp_path / "out")
    assert draw_sample_archive(folder, shipments=2).shipments == 2


def _wait_until_quiet(folder: Path) -> None:
    """Workers end with their parent, so files stop appearing."""
    deadline, before = time.monotonic() + 20.0, -1
    while time.monotonic() < deadline:
        count = sum(1 for _ in folder.rglob("*.jpg"))
        if count == before:
            return
        before = count
        time.sleep(0.5)
    pytest.fail("a worker outlived its parent")


def test_no_row_contradicts_itself(photos: list[Photo]) -> None:
    for photo in photos:
        assert photo.label in {"damaged", "intact"}
        assert (photo.label == "damaged") == (photo.damage_type != "") == (photo.severity != "")
        assert photo.damage_type in {"", *DAMAGE_SHARES}
        assert photo.camera_id.startswith(f"{photo.site}-{photo.camera_class}-")
        assert photo.site in photo.lane.split("-")
    identities = {photo.shipment_id for photo in photos}
    assert len(identities) == 4000
    assert all(len(name) == 13 and name.isdigit() for name in identities)
    assert sum(name.startswith("0") for name in identities) > 100
    assert len({photo.path for photo in photos}) == len(photos)


def test_frames_follow_each_other(photos: list[Photo]) -> None:
    by_shipment: dict[str, list[Photo]] = {}
    for photo in photos:
        by_shipment.setdefault(photo.shipment_id, []).append(photo)
    for frames in by_shipment.values():
        assert [photo.frame for photo in frames] == list(range(1, len(frames) + 1))
        assert len(frames) <= 4
        moments = [photo.captured_at for photo in frames]
        assert moments == sorted(moments)


def test_shares_are_near_the_stated_ones(photos: list[Photo]) -> None:
    cameras = Counter(photo.camera_class for photo in photos)
    for camera, share in CAMERA_SHARES.items():
        assert abs(cameras[camera] / len(photos) - share) < 0.02
    scenes = {photo.scene.texture_seed: photo.scene for photo in photos}.values()
    damages = Counter(scene.damage.kind for scene in scenes if scene.damage is not None)
    for kind, share in DAMAGE_SHARES.items():
        assert abs(damages[kind] / damages.total() - share) < 0.03
    assert 0.2 < sum(photo.label == "damaged" for photo in photos) / len(photos) < 0.4


def test_label_noise_is_as_stated(photos: list[Photo]) -> None:
    alarms = [photo.label for photo in photos if not shows_damage(photo.scene, photo.pose)]
    assert abs(alarms.count("damaged") / len(alarms) - 0.03) < 0.01
    faint: list[str] = []
    clear: list[str] = []
    for photo in photos:
        if photo.scene.damage is not None and shows_damage(photo.scene, photo.pose):
            (faint if photo.scene.damage.severity < 0.45 else clear).append(photo.label)
    assert abs(clear.count("intact") / len(clear) - 0.03) < 0.015
    assert abs(faint.count("intact") / len(faint) - 0.17) < 0.06


def test_a_relabelled_parcel_shares_one_photo_with_its_first_shipment(
    photos: list[Photo],
) -> None:
    groups: dict[int, list[Photo]] = {}
    for photo in photos:
        groups.setdefault(photo.pixel_seed, []).append(photo)
    shared = [group for group in groups.values() if len(group) > 1]
    assert 10 <= len(shared) <= 40
    for first, second in shared:
        assert first.shipment_id != second.shipment_id
        same = ("label", "damage_type", "severity", "reviewer_id", "captured_at", "camera_id")
        assert all(getattr(first, name) == getattr(second, name) for name in same)
