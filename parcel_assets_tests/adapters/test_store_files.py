"""The file store: objects appear whole or not at all, and no prefix has two owners."""

import errno
import json
import os
import stat
import threading
from pathlib import Path

import pytest

from parcel_assets.adapters.store_files import FileStore
from parcel_assets.core.codec import digest_bytes
from parcel_assets.core.errors import StorageError


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_bytes_come_back_under_their_digest(store: FileStore) -> None:
    digest = store.put(b"parcel", ".bin")
    assert digest == digest_bytes(b"parcel")
    assert store.get(digest) == b"parcel"
    assert store.path(digest).name == f"{digest}.bin"


def test_an_object_is_read_only_and_written_once(store: FileStore) -> None:
    digest = store.put(b"parcel")
    first = store.path(digest).stat()
    assert stat.S_IMODE(first.st_mode) == 0o444
    assert store.put(b"parcel", ".bin") == digest
    assert store.path(digest).stat().st_ino == first.st_ino


def test_a_local_file_is_copied_in(store: FileStore, tmp_path: Path) -> None:
    source = tmp_path / "model.safetensors"
    source.write_bytes(b"x" * 3_000_000)
    digest = store.put_file(source, ".safetensors")
    assert store.get(digest) == source.read_bytes()
    assert store.put_file(source) == digest
    assert len(files_below(tmp_path / "store")) == 1


def test_documents_have_one_form(store: FileStore) -> None:
    assert store.put_document({"b": 1, "a": "é"}) == store.put_document({"a": "é", "b": 1})
    assert store.get_document(store.put_document({"a": [1]})) == {"a": [1]}
    with pytest.raises(StorageError, match="not JSON"):
        store.get_document(store.put(b"\x00"))


def test_an_absent_object_is_named(store: FileStore) -> None:
    with pytest.raises(StorageError, match="no object 00000000"):
        store.get("0" * 64)
    with pytest.raises(StorageError, match="64 hex characters"):
        store.path("../../etc/passwd")


def test_a_flipped_byte_is_noticed_and_the_next_put_mends_it(store: FileStore) -> None:
    digest = store.put(b"parcel")
    path = store.path(digest)
    path.chmod(0o644)
    path.write_bytes(b"parcex")
    with pytest.raises(StorageError, match="damaged or edited"):
        store.get(digest)
    assert store.put(b"parcel") == digest
    assert store.get(digest) == b"parcel"


def test_a_full_disk_leaves_nothing_half_written(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = store.put(b"earlier")

    def no_space(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", no_space)
    source = tmp_path / "source"
    source.write_bytes(b"more")
    for write in (
        lambda: store.put(b"more"),
        lambda: store.put_file(source),
        lambda: store.claim_prefix("r/parcel-01/1", {"attempt": "a"}),
    ):
        with pytest.raises(StorageError, match="no space left") as caught:
            write()
        assert caught.value.facts["errno"] == errno.ENOSPC
    assert files_below(tmp_path / "store") == [store.path(kept)]
    assert not store.prefix_path("r/parcel-01/1").exists()


def test_a_prefix_has_one_owner(store: FileStore) -> None:
    folder = store.claim_prefix("r/parcel-07/1", {"attempt": "a"})
    assert folder == store.prefix_path("r/parcel-07/1")
    with pytest.raises(StorageError, match=r"taken by \{'attempt': 'a'\}"):
        store.claim_prefix("r/parcel-07/1", {"attempt": "b"})
    with pytest.raises(StorageError, match="taken by"):
        store.claim_prefix("r/parcel-07/1/inner", {"attempt": "b"})
    with pytest.raises(StorageError, match="taken by"):
        store.claim_prefix("r/parcel-07", {"attempt": "b"})
    store.claim_prefix("r/parcel-07/2", {"attempt": "b"})


def test_of_many_claimers_exactly_one_wins(store: FileStore) -> None:
    won: list[int] = []
    start = threading.Barrier(8)

    def claim(number: int) -> None:
        start.wait()
        try:
            store.claim_prefix("r/parcel-07/1", {"attempt": number})
        except StorageError:
            return
        won.append(number)

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


@pytest.mark.parametrize("prefix", ["", "/r", "../r", "r//1", "r/..", "r/.hidden", "r\\1", "C:/r"])
def test_a_prefix_cannot_leave_its_place(store: FileStore, prefix: str) -> None:
    with pytest.raises(StorageError, match="attempt prefix"):
        store.claim_prefix(prefix, {})


ANCHOR = {"revision": "spring", "sequence": 7, "digest": "a" * 64, "stage": "slice_report"}


def test_an_anchor_is_left_once(store: FileStore) -> None:
    assert store.anchors("spring") == ()
    store.leave_anchor("spring", ANCHOR)
    store.leave_anchor("spring", ANCHOR)
    store.leave_anchor("spring", ANCHOR | {"sequence": 12})
    assert [one["sequence"] for one in store.anchors("spring")] == [7, 12]
    assert store.anchors("autumn") == ()
    with pytest.raises(StorageError, match="another anchor"):
        store.leave_anchor("spring", ANCHOR | {"digest": "b" * 64})
    assert store.anchors("spring")[0] == ANCHOR


def test_an_anchor_that_does_not_read_is_refused(store: FileStore, tmp_path: Path) -> None:
    store.leave_anchor("spring", ANCHOR)
    (path,) = tmp_path.rglob("*-slice_report.json")
    path.chmod(0o600)
    path.write_text("{")
    with pytest.raises(StorageError, match="no anchor"):
        store.anchors("spring")


def test_a_prefix_below_a_link_or_under_one_is_taken(store: FileStore, tmp_path: Path) -> None:
    first = store.claim_prefix("r/parcel-01/1", {"attempt": "a"})
    (first.parents[1] / "parcel-02").symlink_to(first.parent)  # one folder under two names
    with pytest.raises(StorageError, match="taken by"):
        store.claim_prefix("r/parcel-02/2", {"attempt": "b"})
    assert not (first.parent / "2").exists()
    (first.parent / "3").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StorageError, match="taken by"):
        store.claim_prefix("r/parcel-01/3", {"attempt": "c"})


def test_a_folder_that_is_there_already_is_not_claimed(store: FileStore) -> None:
    store.prefix_path("r/parcel-01/1").mkdir(parents=True)
    with pytest.raises(StorageError, match="an unknown owner"):
        store.claim_prefix("r/parcel-01/1", {"attempt": "a"})


def test_prefixes_never_differ_by_case_alone(store: FileStore) -> None:
    # on a file system that does not tell cases apart they would be one folder
    with pytest.raises(StorageError, match="small letters"):
        store.claim_prefix("r/Parcel-01/1", {"attempt": "a"})


def test_a_kill_between_folder_and_marker_leaves_no_folder(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        store.claim_prefix("r/parcel-01/1", {"attempt": "a"})
    monkeypatch.undo()
    assert not store.prefix_path("r/parcel-01/1").exists()
    store.claim_prefix("r/parcel-01/1", {"attempt": "b"})


def test_a_prefix_in_doubt_is_kept_elsewhere_with_a_note(store: FileStore, tmp_path: Path) -> None:
    folder = store.claim_prefix("r/parcel-01/1", {"attempt": "a"})
    (folder / "checkpoint").write_bytes(b"evidence")
    kept = store.set_aside("r/parcel-01/1", {"reason": "a clash"})
    assert not folder.exists()
    assert kept == tmp_path / "store" / "quarantine" / "r" / "parcel-01" / "1"
    assert (kept / "checkpoint").read_bytes() == b"evidence"
    note = kept.with_suffix(".json")
    assert json.loads(note.read_bytes()) == {"reason": "a clash"}
    assert store.set_aside("r/parcel-01/1", {"reason": "another"}) == kept, "asked again"
    assert json.loads(note.read_bytes()) == {"reason": "a clash"}


def test_a_prefix_in_doubt_that_was_never_made_has_its_note(store: FileStore) -> None:
    kept = store.set_aside("r/parcel-01/1", {"reason": "a clash"})
    assert not kept.exists()
    assert kept.with_suffix(".json").exists()


@pytest.mark.parametrize("moment", ["before the move", "before the note"])
def test_setting_aside_goes_on_after_a_kill(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    folder = store.claim_prefix("r/parcel-01/1", {"attempt": "a"})
    renames: list[Path] = []
    real = Path.rename

    def killed(path: Path, target: Path) -> Path:
        renames.append(path)
        if len(renames) == (1 if moment == "before the note" else 2):
            raise KeyboardInterrupt
        return real(path, target)

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        store.set_aside("r/parcel-01/1", {"reason": "a clash"})
    monkeypatch.undo()
    kept = store.set_aside("r/parcel-01/1", {"reason": "a clash"})
    assert not folder.exists()
    assert (kept / "owner.json").exists()
    assert kept.with_suffix(".json").exists()


def test_a_prefix_that_is_a_link_moves_as_a_link(store: FileStore) -> None:
    other = store.claim_prefix("r/parcel-01/1", {"attempt": "a"})
    link = store.prefix_path("r/parcel-02/1")
    link.parent.mkdir()
    link.symlink_to(other)
    kept = store.set_aside("r/parcel-02/1", {"reason": "a clash"})
    assert kept.is_symlink()
    assert (other / "owner.json").exists()
