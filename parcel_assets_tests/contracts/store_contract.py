"""What every store must do; a test module inherits the suite and offers an empty `store`."""

import json
import stat
from pathlib import Path

import pytest

from parcel_assets.core.codec import digest_bytes
from parcel_assets.core.errors import StorageError
from parcel_assets.core.ports import Store

OWNER = {"attempt": "a"}
ANCHOR = {"revision": "spring", "sequence": 3, "stage": "trial_batches", "digest": "d" * 64}


class StoreContract:
    """The suite; a subclass defines a fixture `store`."""

    def test_bytes_come_back_under_their_digest(self, store: Store) -> None:
        digest = store.put(b"parcel", ".bin")
        assert digest == digest_bytes(b"parcel")
        assert store.get(digest) == b"parcel"
        assert store.path(digest).read_bytes() == b"parcel"
        assert store.path(digest).name == f"{digest}.bin"

    def test_an_object_is_read_only_and_written_once(self, store: Store) -> None:
        digest = store.put(b"parcel")
        first = store.path(digest)
        assert stat.S_IMODE(first.stat().st_mode) == 0o444
        assert store.put(b"parcel", ".bin") == digest
        assert store.path(digest) == first

    def test_several_objects_are_written_at_once(self, store: Store) -> None:
        objects = [(b"one", ".bin"), (b"two", ""), (b"one", ".bin")]
        digests = store.put_many(objects)
        assert [store.get(digest) for digest in digests] == [b"one", b"two", b"one"]
        assert store.put_many([]) == ()

    def test_a_local_file_is_copied_in(self, store: Store, tmp_path: Path) -> None:
        source = tmp_path / "model.safetensors"
        source.write_bytes(b"x" * 100_000)
        digest = store.put_file(source, ".safetensors")
        source.write_bytes(b"y")
        assert store.get(digest) == b"x" * 100_000

    def test_documents_have_one_form(self, store: Store) -> None:
        assert store.put_document({"b": 1, "a": "é"}) == store.put_document({"a": "é", "b": 1})
        assert store.get_document(store.put_document({"a": [1]})) == {"a": [1]}
        with pytest.raises(StorageError):
            store.get_document(store.put(b"\x00"))

    @pytest.mark.parametrize("digest", ["0" * 64, "../../etc/passwd", "", "short"])
    def test_what_was_never_put_is_refused(self, store: Store, digest: str) -> None:
        with pytest.raises(StorageError):
            store.get(digest)
        with pytest.raises(StorageError):
            store.path(digest)

    def test_a_strange_suffix_is_refused(self, store: Store) -> None:
        with pytest.raises(ValueError, match="suffix"):
            store.put(b"parcel", "/../x")

    def test_a_flipped_byte_is_noticed_and_the_next_put_mends_it(self, store: Store) -> None:
        digest = store.put(b"parcel")
        path = store.path(digest)
        path.chmod(0o644)
        path.write_bytes(b"parcex")
        with pytest.raises(StorageError):
            store.get(digest)
        assert store.put(b"parcel") == digest
        assert store.get(digest) == store.path(digest).read_bytes() == b"parcel"

    def test_a_prefix_has_one_owner(self, store: Store) -> None:
        folder = store.claim_prefix("r/parcel-07/1", OWNER)
        assert folder == store.prefix_path("r/parcel-07/1")
        assert json.loads((folder / "owner.json").read_bytes()) == OWNER
        for taken in ("r/parcel-07/1", "r/parcel-07/1/inner", "r/parcel-07"):
            with pytest.raises(StorageError):
                store.claim_prefix(taken, {"attempt": "b"})
        assert json.loads((folder / "owner.json").read_bytes()) == OWNER
        store.claim_prefix("r/parcel-07/2", {"attempt": "b"})

    def test_a_folder_or_a_link_that_is_there_already_is_not_claimed(self, store: Store) -> None:
        store.prefix_path("r/parcel-01/1").mkdir(parents=True)
        store.prefix_path("r/parcel-01/2").symlink_to("nowhere")
        for number in (1, 2):
            with pytest.raises(StorageError):
                store.claim_prefix(f"r/parcel-01/{number}", OWNER)

    @pytest.mark.parametrize(
        "prefix", ["", "/r", "../r", "r//1", "r/..", "r/.hidden", "r\\1", "C:/r", "r/Parcel-01"]
    )
    def test_a_prefix_cannot_leave_its_place(self, store: Store, prefix: str) -> None:
        with pytest.raises(StorageError):
            store.claim_prefix(prefix, OWNER)
        with pytest.raises(StorageError):
            store.prefix_path(prefix)

    def test_a_prefix_in_doubt_is_kept_elsewhere_with_a_note(self, store: Store) -> None:
        folder = store.claim_prefix("r/parcel-01/1", OWNER)
        (folder / "checkpoint").write_bytes(b"evidence")
        kept = store.set_aside("r/parcel-01/1", {"reason": "a clash"})
        assert not folder.exists()
        assert (kept / "checkpoint").read_bytes() == b"evidence"
        assert store.set_aside("r/parcel-01/1", {"reason": "another"}) == kept, "asked again"
        assert json.loads(kept.with_suffix(".json").read_bytes()) == {"reason": "a clash"}

    def test_a_prefix_that_was_never_made_is_set_aside_as_a_note(self, store: Store) -> None:
        kept = store.set_aside("r/parcel-01/1", {"reason": "a clash"})
        assert not kept.exists()
        assert json.loads(kept.with_suffix(".json").read_bytes()) == {"reason": "a clash"}

    def test_an_anchor_is_left_once(self, store: Store) -> None:
        later = ANCHOR | {"sequence": 12, "stage": "validated_trial_table"}
        for anchor in (later, ANCHOR, ANCHOR):
            store.leave_anchor("spring", anchor)
        assert [dict(one) for one in store.anchors("spring")] == [ANCHOR, later]
        assert store.anchors("autumn") == ()

    def test_another_anchor_at_the_same_event_is_refused(self, store: Store) -> None:
        store.leave_anchor("spring", ANCHOR)
        with pytest.raises(StorageError):
            store.leave_anchor("spring", ANCHOR | {"digest": "e" * 64})
        assert [dict(one) for one in store.anchors("spring")] == [ANCHOR]
