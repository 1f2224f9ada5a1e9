"""Prefixes read whole: no link followed, and read again whenever the file system saw a change."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from parcel_assets.adapters.store_files import FileStore
from parcel_assets.core.attempts import AttemptRecord
from parcel_assets.core.lineage import FoundFile, read_found_file
from parcel_assets.steps import dispatch_lineage
from parcel_assets.steps.dispatch_lineage import PrefixReader

PREFIX = "spring/parcel-01/1"
RECORD = cast("AttemptRecord", SimpleNamespace(started=SimpleNamespace(prefix=PREFIX)))


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    store = FileStore(tmp_path / "store")
    folder = store.claim_prefix(PREFIX, {"attempt": "a"})
    (folder / "inner").mkdir()
    (folder / "inner" / "scores.f4").write_bytes(b"12345678")
    return store


def digests(reader: PrefixReader) -> dict[str, str]:
    return {name: file.digest for name, file in reader.content(RECORD).files.items()}


def test_every_file_is_found_but_the_marker(store: FileStore) -> None:
    content = PrefixReader(store).content(RECORD)
    assert list(content.files) == ["inner/scores.f4"]
    assert content.owner == {"attempt": "a"}


def test_a_prefix_that_is_not_there_is_empty(store: FileStore) -> None:
    record: Any = SimpleNamespace(started=SimpleNamespace(prefix="spring/parcel-02/1"))
    content = PrefixReader(store).content(record)
    assert (content.owner, dict(content.files)) == (None, {})


def test_a_change_that_hides_behind_size_and_time_is_seen(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # any file counts as settled, as it would after two seconds
    monkeypatch.setattr(dispatch_lineage, "SETTLED_SECONDS", -10.0)
    reader, path = PrefixReader(store), store.prefix_path(PREFIX) / "inner" / "scores.f4"
    before, times = digests(reader), path.stat()
    changed_at = times.st_ctime_ns
    while path.stat().st_ctime_ns == changed_at:  # until the file system's clock ticks
        path.write_bytes(b"87654321")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (times.st_size, times.st_mtime_ns)
    assert digests(reader) != before


def test_a_file_in_another_ones_place_is_seen(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_lineage, "SETTLED_SECONDS", -10.0)
    reader, path = PrefixReader(store), store.prefix_path(PREFIX) / "inner" / "scores.f4"
    before, times = digests(reader), path.stat()
    other = path.with_name("other")
    other.write_bytes(b"87654321")
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(path)
    assert digests(reader) != before


def test_what_nobody_touched_is_not_read_again(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_lineage, "SETTLED_SECONDS", -10.0)
    reader = PrefixReader(store)
    before = digests(reader)
    real = read_found_file
    read: list[bytes] = []

    def count(content: bytes) -> FoundFile:
        read.append(content)
        return real(content)

    monkeypatch.setattr(dispatch_lineage, "read_found_file", count)
    assert digests(reader) == before
    assert read == []
    assert digests(PrefixReader(store)) == before, "another process reads all once"
    assert len(read) == 1


def test_a_file_changed_just_now_is_read_again(store: FileStore) -> None:
    # within the grain of the file system's clock a second change would not show
    reader = PrefixReader(store)
    digests(reader)
    assert reader._known == {}


def test_links_are_told_and_not_followed(store: FileStore, tmp_path: Path) -> None:
    folder = store.prefix_path(PREFIX)
    other = store.claim_prefix("spring/parcel-02/1", {"attempt": "b"})
    (folder / "theirs").symlink_to(other)
    (folder / "elsewhere").symlink_to(tmp_path)
    (folder / "itself").symlink_to(folder / "itself")
    os.mkfifo(folder / "pipe")
    found = {name: one.link_to for name, one in PrefixReader(store).content(RECORD).files.items()}
    assert found["theirs"] == "spring/parcel-02/1"
    assert found["elsewhere"] == "a link to elsewhere"
    assert found["itself"] is not None
    assert found["pipe"] == "a device, a pipe or a socket"
    assert found["inner/scores.f4"] is None


def test_a_prefix_that_is_a_link_is_one_file_in_doubt(store: FileStore) -> None:
    folder = store.prefix_path("spring/parcel-03/1")
    folder.parent.mkdir()
    folder.symlink_to(store.prefix_path(PREFIX))
    record: Any = SimpleNamespace(started=SimpleNamespace(prefix="spring/parcel-03/1"))
    content = PrefixReader(store).content(record)
    assert [one.link_to for one in content.files.values()] == [PREFIX]
    assert content.owner == {"attempt": "a"}


@pytest.mark.parametrize("text", [b"", b"[]", b"{"])
def test_a_marker_that_cannot_be_read_is_nobodys(store: FileStore, text: bytes) -> None:
    marker = store.prefix_path(PREFIX) / "owner.json"
    marker.chmod(0o644)
    marker.write_bytes(text)
    assert PrefixReader(store).content(RECORD).owner == {}
