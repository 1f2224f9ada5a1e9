"""Watching archives: complete or not, and which version."""

from pathlib import Path

import pytest

from parcel_assets.adapters.archive_watch import TableRules, archive_version, look_at_archive

RULES = TableRules()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "belt"
    folder.mkdir()
    (folder / "labels.csv").write_text("path,label\na.jpg,intact\nb.jpg,damaged\n")
    (folder / "a.jpg").write_bytes(b"a")
    (folder / "b.jpg").write_bytes(b"b")
    return folder


def test_an_archive_is_complete_when_every_named_file_is_there(archive: Path) -> None:
    look = look_at_archive(archive, RULES)
    assert (look.complete, look.sentence) == (True, "belt: 2 files")


def test_a_missing_table_or_file_is_said_in_words(archive: Path) -> None:
    (archive / "b.jpg").unlink()
    look = look_at_archive(archive, RULES)
    assert (look.complete, look.sentence) == (False, "belt: 1 of 2 files not there yet")
    (archive / "labels.csv").unlink()
    assert look_at_archive(archive, RULES).sentence == "belt: no labels.csv yet"


def test_another_column_name_is_no_crash(archive: Path) -> None:
    look = look_at_archive(archive, TableRules(photo_column="photo"))
    assert not look.complete
    assert "cannot be read" in look.sentence


def test_the_mark_follows_a_growing_file(archive: Path) -> None:
    before = look_at_archive(archive, RULES).mark
    (archive / "b.jpg").write_bytes(b"bb")
    assert look_at_archive(archive, RULES).mark != before


def test_the_version_is_a_digest_of_bytes_and_of_nothing_else(archive: Path) -> None:
    first = archive_version(archive, RULES, look_at_archive(archive, RULES))
    moved = archive.rename(archive.with_name("moved"))
    (moved / "a.jpg").touch()
    assert archive_version(moved, RULES, look_at_archive(moved, RULES)) == first
    (moved / "a.jpg").write_bytes(b"A")
    assert archive_version(moved, RULES, look_at_archive(moved, RULES)) != first
