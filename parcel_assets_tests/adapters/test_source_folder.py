"""A folder archive: ids stay text, and every bad row is named at once with what to do."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parcel_assets.adapters.source_folder import FolderSource
from parcel_assets.core.errors import ArchiveError, PlanError
from parcel_assets.core.plan import Columns, ImageRules, LabelMap, SnapshotPlan
from parcel_assets.core.ports import ArchiveContent
from parcel_assets.core.snapshot import BadRow, snapshot_digest
from parcel_assets_tests.adapters.archive_helpers import (
    SECTION,
    draw,
    row,
    usual_rows,
    write_archive,
    write_table,
)


def source(folder: Path, **changes: Any) -> FolderSource:
    section = SnapshotPlan.model_validate(SECTION.model_dump() | changes)
    return FolderSource(section, folder, 16)


def read(folder: Path, **changes: Any) -> ArchiveContent:
    return source(folder, **changes).read()


def only_bad_row(folder: Path, **changes: Any) -> BadRow:
    (found,) = read(folder, **changes).bad_rows
    return found


# ---- sound archives ------------------------------------------------------------------------------


def test_a_sound_archive_comes_whole_and_sorted(tmp_path: Path) -> None:
    rows = usual_rows(5)
    content = read(write_archive(tmp_path, rows[::-1]))
    assert [photo.photo_id for photo in content.photos] == [one["path"] for one in rows]
    assert [label.photo_id for label in content.labels] == [one["path"] for one in rows]
    assert content.photos[0].shipment_id == "0000"
    assert content.photos[0].attributes == {"camera_class": "top"}
    assert content.labels[0].damage_type == "dent"
    assert content.pixels.shape == (10, 16, 16, 3)
    assert content.bad_rows == ()


def test_two_readings_agree_in_every_byte(tmp_path: Path) -> None:
    write_archive(tmp_path, usual_rows(20))
    one, two = read(tmp_path), read(tmp_path)
    assert one.photos == two.photos
    assert (one.pixels == two.pixels).all()


def test_the_digest_does_not_follow_the_image_size(tmp_path: Path) -> None:
    write_archive(tmp_path, usual_rows(3))
    large = FolderSource(SECTION, tmp_path, 48).read()
    assert snapshot_digest(large.photos, {}) == snapshot_digest(read(tmp_path).photos, {})


def test_progress_ends_at_the_whole(tmp_path: Path) -> None:
    write_archive(tmp_path, usual_rows(3))
    heard: list[tuple[int, int]] = []
    source(tmp_path).read(lambda done, total: heard.append((done, total)))
    assert heard[-1] == (6, 6)


def test_the_second_look_reads_labels_and_file_digests(tmp_path: Path) -> None:
    write_archive(tmp_path, usual_rows(3))
    content = read(tmp_path)
    assert source(tmp_path).read_labels() == content.labels
    listed = source(tmp_path).listing()
    assert [(one.photo_id, one.file_digest) for one in listed] == [
        (photo.photo_id, photo.file_digest) for photo in content.photos
    ]
    (tmp_path / listed[0].photo_id).unlink()
    assert source(tmp_path).listing()[0].file_digest == ""


# ---- bad rows: the table -------------------------------------------------------------------------

A = "images/a.jpg"
BAD_ROWS: dict[str, tuple[dict[str, str], dict[str, Any], tuple[str, str]]] = {
    # name: (row, changes of the section, (column, part of `found`))
    "blank shipment": (row(A, ""), {}, ("shipment_id", "''")),
    "shipment NA": (row(A, "NA"), {}, ("shipment_id", "'NA'")),
    "shipment null": (row(A, "null"), {}, ("shipment_id", "'null'")),
    "shipment nan": (row(A, "NaN"), {}, ("shipment_id", "'NaN'")),
    "shipment rounded by a spreadsheet": (row(A, "1.85508E+11"), {}, ("shipment_id", "E+11")),
    "shipment as a float": (row(A, "185507921789.0"), {}, ("shipment_id", ".0")),
    "shipment without its zeros": (
        row(A, "185507921789"),
        {"shipment_pattern": r"\d{13}"},
        ("shipment_id", "185507921789"),
    ),
    "unknown label": (row(A, label="kaputt"), {}, ("label", "'kaputt'")),
    "label in another case": (row(A, label="Intact"), {}, ("label", "'Intact'")),
    "label 1": (row(A, label="1"), {}, ("label", "'1'")),
    "intact with a damage type": (
        row(A, label="intact", damage_type="tear"),
        {},
        ("damage_type", "label 'intact' with damage type 'tear'"),
    ),
    "no path": (row(""), {}, ("photo", "no path")),
    "path with ..": (row("images/../../x.jpg"), {}, ("photo", "..")),
    "absolute path": (row("/etc/passwd"), {}, ("photo", "/etc/passwd")),
    "drive letter": (row("C:/photos/b.jpg"), {}, ("photo", "C:/photos")),
    "backslashes": (row("images\\a.jpg"), {}, ("photo", "images")),
    "control character": (row("images/a\x07.jpg"), {}, ("photo", "x07")),
    "file that is not there": (row("images/gone.jpg"), {}, ("photo", "no such file")),
    "folder": (row("images"), {}, ("photo", "a folder")),
    "file too large": (
        row(A),
        {"images": ImageRules(maximum_file_bytes=10).model_dump()},
        ("photo", "bytes"),
    ),
}


@pytest.mark.parametrize(("bad", "changes", "found"), BAD_ROWS.values(), ids=list(BAD_ROWS))
def test_an_unsound_row_says_where_what_and_what_to_do(
    bad: dict[str, str], changes: dict[str, Any], found: tuple[str, str], tmp_path: Path
) -> None:
    draw(tmp_path / A, 1)
    write_table(tmp_path, [bad])
    content = read(tmp_path, **changes)
    (refused,) = content.bad_rows
    assert content.photos == ()
    assert refused.row == 2
    assert refused.column == found[0]
    assert found[1] in refused.found
    assert refused.file
    assert refused.expected
    assert refused.remedy


def test_every_bad_row_is_reported_at_once(tmp_path: Path) -> None:
    good = usual_rows(2)
    write_archive(tmp_path, good)
    (tmp_path / "images/0001_0.jpg").write_bytes(b"<html>404</html>")
    bad = [row("x.jpg", "", label="?"), row("gone.jpg")]
    write_table(tmp_path, [*good, *bad])
    content = read(tmp_path)
    assert [(one.row, one.column) for one in content.bad_rows] == [
        (4, "photo"),
        (6, "label"),
        (6, "shipment_id"),
        (7, "photo"),
    ]
    assert len(content.photos) == len(content.labels) == len(content.pixels) == 3


def test_the_label_map_is_declared(tmp_path: Path) -> None:
    rows = [row("a.jpg", "1", "TRUE", damage_type=""), row("b.jpg", "2", "FALSE")]
    write_archive(tmp_path, rows)
    labels = LabelMap(damaged=("TRUE",), intact=("FALSE",)).model_dump()
    content = read(tmp_path, labels=labels)
    assert [label.damaged for label in content.labels] == [True, False]


def test_a_link_that_leaves_the_archive_is_refused_and_one_inside_is_not(tmp_path: Path) -> None:
    folder = write_archive(tmp_path / "archive", [row("a.jpg", "1"), row("b.jpg", "2")])
    draw(tmp_path / "secret.jpg", 9)
    (folder / "b.jpg").unlink()
    (folder / "b.jpg").symlink_to(tmp_path / "secret.jpg")
    assert "leaves the archive" in only_bad_row(folder).found
    (folder / "b.jpg").unlink()
    (folder / "b.jpg").symlink_to(folder / "a.jpg")
    assert read(folder).bad_rows == ()


def test_files_that_the_table_does_not_list_are_no_photos(tmp_path: Path) -> None:
    write_archive(tmp_path, [row("a.jpg")])
    for name in ("._a.jpg", "Thumbs.db", ".DS_Store", "unlisted.jpg"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / os.fsdecode(b"caf\xe9.jpg")).write_bytes(b"x")
    assert len(read(tmp_path).photos) == 1


def test_a_name_that_no_file_system_agrees_on_is_reported_in_plain_text(tmp_path: Path) -> None:
    write_archive(tmp_path, [row("a.jpg")])
    os.rename(tmp_path / "a.jpg", os.fsencode(tmp_path) + b"/caf\xe9.jpg")  # noqa: PTH104
    write_table(tmp_path, [row("café.jpg")])
    refused = only_bad_row(tmp_path)
    assert (refused.file, refused.found) == ("café.jpg", "no such file")


def test_a_torn_line_is_one_bad_row(tmp_path: Path) -> None:
    write_archive(tmp_path, usual_rows(1))
    with (tmp_path / "labels.csv").open("a") as table:
        table.write("images/c.jpg,0009,intact\n")
    refused = only_bad_row(tmp_path)
    assert (refused.row, refused.column, refused.found) == (4, "row", "3 cells")


def test_a_photo_listed_twice_is_refused_on_every_line(tmp_path: Path) -> None:
    write_archive(tmp_path, [row("a.jpg", "1"), row("./a.jpg", "2"), row("b.jpg", "3")])
    content = read(tmp_path)
    assert [one.row for one in content.bad_rows] == [2, 3]
    assert {one.column for one in content.bad_rows} == {"photo"}
    assert "rows 2, 3" in content.bad_rows[0].found


def test_a_photo_listed_with_both_labels_is_a_contradiction(tmp_path: Path) -> None:
    write_archive(tmp_path, [row("a.jpg", "1"), row("a.jpg", "1", "damaged")])
    assert {one.column for one in read(tmp_path).bad_rows} == {"duplicate"}


# ---- twins ---------------------------------------------------------------------------------------


def test_identical_pixels_with_opposite_labels_refuse_both_rows(tmp_path: Path) -> None:
    write_archive(tmp_path, [row("a.jpg", "1", "damaged"), row("b.jpg", "2"), row("c.jpg", "3")])
    jpeg = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "b.jpg").write_bytes(jpeg[:2] + b"\xff\xfe\x00\x07hello" + jpeg[2:])
    content = read(tmp_path)
    assert [(one.file, one.column) for one in content.bad_rows] == [
        ("a.jpg", "duplicate"),
        ("b.jpg", "duplicate"),
    ]
    assert "b.jpg" in content.bad_rows[0].found
    assert [photo.photo_id for photo in content.photos] == ["c.jpg"]
    assert (content.pixels[0] == read(tmp_path).pixels[0]).all()
    assert content.pixels.shape[0] == 1


def test_the_same_photo_under_two_shipments_is_noted_on_both(tmp_path: Path) -> None:
    write_archive(tmp_path, [row("a.jpg", "1"), row("b.jpg", "2"), row("c.jpg", "1")])
    shutil.copy(tmp_path / "a.jpg", tmp_path / "b.jpg")
    shutil.copy(tmp_path / "a.jpg", tmp_path / "c.jpg")
    content = read(tmp_path)
    assert [photo.notes for photo in content.photos] == [
        ("same photo in 2",),
        ("same photo in 1",),
        ("same photo in 2",),
    ]


# ---- how a table arrives -------------------------------------------------------------------------


def raw_table(folder: Path, data: bytes) -> Path:
    draw(folder / "a.jpg", 1)
    (folder / "labels.csv").write_bytes(data)
    return folder


HEADER = "path,shipment_id,label,damage_type,camera_class"
LINE = "a.jpg,0185507921789,intact,,top"


def test_a_byte_order_mark_and_blanks_around_names_do_no_harm(tmp_path: Path) -> None:
    text = f"\ufeff path , shipment_id,label ,damage_type,camera_class\r\n{LINE}\r\n\r\n"
    content = read(raw_table(tmp_path, text.encode()))
    assert content.photos[0].shipment_id == "0185507921789"


def test_delimiter_and_encoding_are_the_plans(tmp_path: Path) -> None:
    text = f"{HEADER}\na.jpg,Köln-1,intact,,top".replace(",", ";")
    content = read(raw_table(tmp_path, text.encode("cp1252")), delimiter=";", encoding="cp1252")
    assert content.photos[0].shipment_id == "Köln-1"


def test_a_quoted_line_break_does_not_shift_the_line_numbers(tmp_path: Path) -> None:
    text = f'{HEADER}\r\na.jpg,1,intact,,"top\r\nleft"\r\nb.jpg,2,intact,,top\r\n'
    content = read(raw_table(tmp_path, text.encode()))
    assert content.photos[0].attributes == {"camera_class": "top\r\nleft"}
    assert [(one.file, one.row) for one in content.bad_rows] == [("b.jpg", 4)]


UNREADABLE: dict[str, tuple[bytes, dict[str, Any], str]] = {
    "missing column": (
        f"{HEADER}\n{LINE}\n".replace("shipment_id", "parcel").encode(),
        {},
        r"no column shipment_id in the header \['path', 'parcel', 'label'",
    ),
    "near column": (
        f"{HEADER}\n{LINE}\n".replace("shipment_id", "shipmentid").encode(),
        {},
        "Did you mean 'shipmentid'",
    ),
    "other delimiter": (f"{HEADER}\n{LINE}\n".replace(",", ";").encode(), {}, "delimiter = ';'"),
    "repeated column": (f"{HEADER},path\n{LINE},b\n".encode(), {}, "more than once"),
    "wrong encoding": (f"{HEADER}\n{LINE}é\n".encode("cp1252"), {}, "line 2.*0xE9.*cp1252"),
    "utf-16": (f"{HEADER}\n{LINE}\n".encode("utf-16"), {}, 'encoding = "utf-16"'),
    "broken quotes": (f'{HEADER}\n"a.jpg"x,1,intact,,\n'.encode(), {}, "not CSV"),
    "empty": (b"", {}, "an empty table"),
    "no such table": (b"", {"table": "other.csv"}, "no such file"),
}


@pytest.mark.parametrize(("data", "changes", "words"), UNREADABLE.values(), ids=list(UNREADABLE))
def test_an_unreadable_table_says_what_was_found_instead(
    data: bytes, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ArchiveError, match=f"(?s){words}") as caught:
        read(raw_table(tmp_path, data), **changes)
    assert len(caught.value.facts["rows"]) == 1


def test_utf_16_is_read_where_the_plan_says_so(tmp_path: Path) -> None:
    raw_table(tmp_path, f"{HEADER}\n{LINE}\n".encode("utf-16"))
    assert len(read(tmp_path, encoding="utf-16").photos) == 1


def test_an_absent_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="no such folder"):
        read(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shipment_pattern": "("}, "shipment_pattern"),
        ({"encoding": "klingon"}, "klingon"),
        (
            {"columns": Columns(further=("label",)).model_dump()},
            "columns that do not tell the label",
        ),
    ],
)
def test_a_section_that_cannot_work_is_a_fault_of_the_plan(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(PlanError, match=words):
        read(raw_table(tmp_path, f"{HEADER}\n{LINE}\n".encode()), **changes)


# ---- Parquet -------------------------------------------------------------------------------------


def parquet(folder: Path, **columns: Any) -> Path:
    draw(folder / "a.jpg", 1)
    draw(folder / "b.jpg", 2)
    usual = {
        "path": pa.array(["a.jpg", "b.jpg"]),
        "shipment_id": pa.array(["001", "002"]).dictionary_encode(),
        "label": pa.array(["intact", "damaged"]),
        "damage_type": pa.array([None, "dent"]),
        "camera_class": pa.array([1, 2]),
    }
    pq.write_table(pa.table(usual | columns), folder / "labels.parquet")
    return folder


def test_parquet_reads_like_the_same_csv(tmp_path: Path) -> None:
    content = read(parquet(tmp_path), table="labels.parquet")
    assert [photo.shipment_id for photo in content.photos] == ["001", "002"]
    assert [label.damage_type for label in content.labels] == [None, "dent"]
    assert content.photos[1].attributes == {"camera_class": "2"}


def test_a_numeric_id_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="'shipment_id' of type int64"):
        read(parquet(tmp_path, shipment_id=pa.array([1, 2])), table="labels.parquet")


def test_a_null_id_is_a_bad_row(tmp_path: Path) -> None:
    parquet(tmp_path, shipment_id=pa.array([None, "2"]))
    refused = only_bad_row(tmp_path, table="labels.parquet")
    assert (refused.row, refused.column) == (2, "shipment_id")


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "labels.parquet").write_bytes(b"PAR0")
    with pytest.raises(ArchiveError, match="not Parquet"):
        read(tmp_path, table="labels.parquet")


# ---- real pictures that nobody here drew ---------------------------------------------------------


def test_rendered_cartons_keep_their_ids(real_data: Path) -> None:
    columns = Columns(shipment="parcel_id", damage_type="damage", camera_class="camera")
    section = SnapshotPlan(
        archive="cartons", location="x", columns=columns, shipment_pattern=r"\d{13}"
    )
    content = FolderSource(section, real_data / "industrial-packages", 64).read()
    assert (len(content.photos), content.bad_rows) == (400, ())
    assert len({photo.shipment_id for photo in content.photos}) == 200
    assert any(photo.shipment_id.startswith("0") for photo in content.photos)
    assert sum(label.damaged for label in content.labels) == 200
    assert {photo.width_pixels for photo in content.photos} == {320}
    assert 60 < np.mean(content.pixels) < 200


def test_phone_photos_decode_upright(real_data: Path, tmp_path: Path) -> None:
    photos = [*sorted((real_data / "kit-photos").glob("*.jpg"))]
    photos += sorted((real_data / "tampar").rglob("*.jpg"))
    for number, photo in enumerate(photos):
        shutil.copyfile(photo, tmp_path / f"{number}.jpg")
    write_table(tmp_path, [row(f"{number}.jpg", str(number)) for number in range(len(photos))])
    content = read(tmp_path)
    assert len(content.photos) == len(photos) > 5
    assert content.bad_rows == ()
