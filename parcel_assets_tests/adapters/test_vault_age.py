"""The age vault: labels sealed, one receipt for shared shipments, one decryption, one result."""

import json
import multiprocessing
import re
import stat
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.adapters import vault_age_files
from parcel_assets.adapters.store_files import FileStore
from parcel_assets.adapters.vault_age import AgeVault
from parcel_assets.core.codec import canonical_json
from parcel_assets.core.errors import HoldoutError, SettingError
from parcel_assets.core.final import FinalRequest
from parcel_assets.core.holdout import holdout_digest, holdout_keys
from parcel_assets.core.snapshot import Label
from parcel_assets_tests.core.plans import plan
from parcel_assets_tests.steps.desk import draw_part, put_array
from parcel_assets_tests.steps.place_trainer import model_bytes

TRAINER = "parcel_assets_tests.steps.place_trainer:PlaceTrainer"
KILLED = "parcel_assets_tests.steps.place_trainer:KilledTrainer"
DIGEST = "ab" * 32
ARCHIVE = "test-parcels"
RACERS = 12


def labels(photos: int = 6, kind: str = "secret_dent") -> list[Label]:
    return [
        Label(photo_id=f"p{number}", damaged=number % 2 == 0, damage_type=kind)
        for number in range(photos)
    ]


def vault_at(folder: Path, trainer: str = TRAINER) -> AgeVault:
    return AgeVault(folder / "vault", folder / "keys", folder / "store", trainer=trainer)


class TestSeal:
    def test_a_seal_is_made_once_and_its_word_repeated(self, tmp_path: Path) -> None:
        first = vault_at(tmp_path).seal(DIGEST, labels())
        assert vault_at(tmp_path).seal(DIGEST, labels()[::-1]) == first

    def test_the_same_labels_sealed_elsewhere_give_another_commitment(self, tmp_path: Path) -> None:
        one = vault_at(tmp_path / "one").seal(DIGEST, labels())
        two = vault_at(tmp_path / "two").seal(DIGEST, labels())
        assert one.commitment != two.commitment

    def test_no_file_of_the_vault_holds_a_label(self, tmp_path: Path) -> None:
        vault_at(tmp_path).seal(DIGEST, labels())
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert {path.name for path in files} == {
            "labels.age",
            "seal.json",
            "holdout.key",
            "holdout.pub",
            "holdout.mark",
        }
        assert not any(b"secret_dent" in path.read_bytes() for path in files)

    def test_the_private_key_is_its_owner_s_and_the_sealed_file_read_only(
        self, tmp_path: Path
    ) -> None:
        vault_at(tmp_path).seal(DIGEST, labels())
        assert stat.S_IMODE((tmp_path / "keys/holdout.key").stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "keys/holdout.mark").stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / f"vault/{DIGEST}/labels.age").stat().st_mode) == 0o444

    def test_sealing_needs_no_private_key(self, tmp_path: Path) -> None:
        vault_at(tmp_path).seal(DIGEST, labels())
        (tmp_path / "keys/holdout.key").rename(tmp_path / "with-the-key-holder")
        vault_at(tmp_path).seal("cd" * 32, labels())
        vault_at(tmp_path).seal(DIGEST, labels())
        assert not (tmp_path / "keys/holdout.key").exists()

    @pytest.mark.parametrize("changed", [labels(5), labels(6, "other")])
    def test_other_photos_or_labels_for_a_sealed_holdout_are_refused(
        self, tmp_path: Path, changed: list[Label]
    ) -> None:
        vault_at(tmp_path).seal(DIGEST, labels())
        with pytest.raises(HoldoutError, match="other photos or labels than were sealed"):
            vault_at(tmp_path).seal(DIGEST, changed)

    def test_a_name_that_is_no_digest_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(HoldoutError, match="64 hex"):
            vault_at(tmp_path).seal("../elsewhere", labels())

    def test_a_crash_half_way_leaves_nothing_sealed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def die(*_given: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Path, "rename", die)
        with pytest.raises(KeyboardInterrupt):
            vault_at(tmp_path).seal(DIGEST, labels())
        assert not list((tmp_path / "vault").iterdir())
        monkeypatch.undo()
        vault_at(tmp_path).seal(DIGEST, labels())


class TestReceipt:
    def test_of_overlapping_shipments_one_receipt_is_left(self, tmp_path: Path) -> None:
        vault = vault_at(tmp_path)
        for digest in (DIGEST, "cd" * 32):
            vault.seal(digest, labels())
        vault.leave_receipt(DIGEST, {"revision": "a", "keys": ["one", "two"]})
        with pytest.raises(HoldoutError, match="opening by a"):
            vault.leave_receipt("cd" * 32, {"revision": "b", "keys": ["two", "three"]})
        vault.leave_receipt("cd" * 32, {"revision": "b", "keys": ["three"]})
        assert [one["revision"] for one in vault.receipts_over(["two"])] == ["a"]
        assert [one["revision"] for one in vault.receipts_over(["one", "three"])] == ["a", "b"]

    def test_nothing_sealed_is_nothing_to_open(self, tmp_path: Path) -> None:
        with pytest.raises(HoldoutError, match="no sealed labels"):
            vault_at(tmp_path).leave_receipt(DIGEST, {"revision": "a", "keys": ["one"]})

    def test_a_damaged_receipt_keeps_the_holdout_shut(self, tmp_path: Path) -> None:
        vault = vault_at(tmp_path)
        vault.seal(DIGEST, labels())
        (tmp_path / f"vault/{DIGEST}/opened.json").write_text("{")
        with pytest.raises(HoldoutError, match="does not read"):
            vault.receipts_over(["one"])

    def test_of_many_racing_processes_one_leaves_the_receipt(self, tmp_path: Path) -> None:
        vault = vault_at(tmp_path)
        for digest in (DIGEST, "cd" * 32):
            vault.seal(digest, labels())
        won = race(leave_one, [(tmp_path, number) for number in range(RACERS)])
        assert won.count(True) == 1
        assert len(vault.receipts_over(["shared"])) == 1


def leave_one(folder: Path, number: int) -> bool:
    digest = (DIGEST, "cd" * 32)[number % 2]
    receipt = {"revision": f"r{number}", "keys": ["shared", f"own-{number}"]}
    try:
        vault_at(folder).leave_receipt(digest, receipt)
    except HoldoutError:
        return False
    return True


def race(work: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> list[Any]:
    """Run the work in as many processes as there are arguments, all at once."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(arguments), mp_context=spawn) as pool:
        return [one.result() for one in [pool.submit(work, *given) for given in arguments]]


class Opened:
    """A sealed holdout of drawn photos with a receipt for one request."""

    def __init__(self, folder: Path, trainer: str = TRAINER) -> None:
        self.folder = folder
        rows, pixels = draw_part("h", 120, 3, (), 0.4)
        store = FileStore(folder / "store")
        keys = holdout_keys(ARCHIVE, rows)
        self.digest = holdout_digest(keys)
        self.vault = vault_at(folder, trainer)
        sealed = self.vault.seal(
            self.digest,
            [
                Label(
                    photo_id=row["photo_id"],
                    damaged=row["damaged"],
                    damage_type=row["damage_type"],
                )
                for row in rows
            ],
        )
        bare = [{key: row[key] for key in row if not key.startswith("damage")} for row in rows]
        self.request = FinalRequest(
            revision="a",
            plan_digest=plan().digest,
            freeze_event="01" * 32,
            archive=ARCHIVE,
            holdout_digest=self.digest,
            commitment=sealed.commitment,
            ciphertext_digest=sealed.ciphertext_digest,
            pixels=put_array(store, pixels),
            rows=store.put_document(bare),
            model=store.put(model_bytes(8)),
            threshold=0.5,
            evaluator_digest=self.vault.evaluator_digest,
            costs={"missed_damage": 5.0, "needless_review": 1.0},
            final=plan().final,
            slices=dict(plan().slices),
        )
        self.receipt = {
            **self.request.document(),
            "request_digest": self.request.digest,
            "keys": list(keys),
        }

    @property
    def decryptions(self) -> int:
        note = self.folder / "vault" / self.digest / "decryptions.log"
        return len(note.read_text().splitlines()) if note.exists() else 0

    def open(self) -> "Opened":
        self.vault.leave_receipt(self.digest, self.receipt)
        return self

    def look(self, **changes: Any) -> dict[str, Any]:
        return self.vault.evaluate({**self.request.document(), **changes})


class TestEvaluate:
    def test_it_looks_once_and_then_repeats_what_it_saw(self, tmp_path: Path) -> None:
        opened = Opened(tmp_path).open()
        answer = opened.look()
        assert answer["outcome"] in {"PASS", "FAIL", "INSUFFICIENT"}
        assert answer["result"]["photos"] == 240
        assert len(FileStore(tmp_path / "store").get(answer["predictions_digest"])) == 240 * 4
        assert opened.look() == answer
        assert opened.decryptions == answer["decryptions"] == 1

    def test_without_a_receipt_it_stays_shut(self, tmp_path: Path) -> None:
        opened = Opened(tmp_path)
        with pytest.raises(HoldoutError, match="no receipt of an opening"):
            opened.look()
        assert opened.decryptions == 0

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"revision": "b"}, "revision b"),
            ({"model": "ff" * 32}, "model"),
            ({"threshold": 0.1}, "threshold"),
            ({"evaluator_digest": "ff" * 32}, "evaluator_digest"),
            ({"commitment": "ff" * 32}, "commitment"),
            ({"final": {"target_cost_per_1000": 1e9}}, "request"),
        ],
    )
    def test_another_request_than_the_receipt_s_is_refused(
        self, tmp_path: Path, changes: dict[str, Any], words: str
    ) -> None:
        opened = Opened(tmp_path).open()
        with pytest.raises(HoldoutError, match=words):
            opened.look(**changes)
        assert opened.decryptions == 0

    def test_a_receipt_that_reuses_needs_a_plan_that_allows_it(self, tmp_path: Path) -> None:
        first = Opened(tmp_path).open()
        first.look()
        later = first.request.model_copy(update={"revision": "b"})
        receipt = {
            **later.document(),
            "request_digest": later.digest,
            "keys": first.receipt["keys"],
            "reuses": ["a"],
        }
        with pytest.raises(HoldoutError, match="opening by a"):
            first.vault.leave_receipt(first.digest, {**receipt, "reuses": []})
        first.vault.leave_receipt(first.digest, receipt)
        with pytest.raises(HoldoutError, match="the plan does not allow another"):
            first.vault.evaluate(later.document())
        assert first.decryptions == 1
        with pytest.raises(HoldoutError):  # once each
            first.vault.leave_receipt(first.digest, {**receipt, "reuses": ["a", "b"]})

    @pytest.mark.parametrize("what", ["model", "pixels", "labels", "predictions"])
    def test_bytes_that_are_not_what_they_are_named_are_refused(
        self, tmp_path: Path, what: str
    ) -> None:
        opened = Opened(tmp_path).open()
        place = tmp_path / "vault" / opened.digest
        if what == "predictions":
            (place / "predictions.json").write_bytes(canonical_json({"predictions_digest": "0"}))
        else:
            path = place / "labels.age"
            if what != "labels":
                path = FileStore(tmp_path / "store").path(getattr(opened.request, what))
            path.chmod(0o644)
            path.write_bytes(path.read_bytes().replace(b"8", b"9", 1) + b" ")
        with pytest.raises(HoldoutError):
            opened.look()
        assert opened.decryptions == 0

    def test_a_key_that_does_not_fit_is_said_and_the_right_one_resumes(
        self, tmp_path: Path
    ) -> None:
        opened = Opened(tmp_path).open()
        key = tmp_path / "keys/holdout.key"
        right = key.read_text()
        key.unlink()
        with pytest.raises(HoldoutError, match="no usable label key"):
            opened.look()
        key.write_text(right)
        with pytest.raises(SettingError, match="others may read"):
            opened.look()
        key.chmod(0o600)
        assert opened.look()["decryptions"] == 1

    def test_a_vault_process_that_dies_before_decrypting_is_resumed(self, tmp_path: Path) -> None:
        opened = Opened(tmp_path, KILLED).open()
        with pytest.raises(HoldoutError, match="ended with 9"):
            opened.look()
        assert opened.decryptions == 0

    def test_a_crash_before_the_result_was_kept_looks_again_and_says_so(
        self, tmp_path: Path
    ) -> None:
        opened = Opened(tmp_path).open()
        first = opened.look()
        # as if the process had died between decrypting and keeping its result
        (tmp_path / "vault" / opened.digest / "result.json").unlink()
        again = opened.look()
        assert again["decryptions"] == 2
        assert {**again, "decryptions": 1} == first

    @pytest.mark.parametrize("field", ["outcome", "evidence_level", "predictions_digest"])
    def test_a_kept_result_that_was_changed_by_hand_is_refused(
        self, tmp_path: Path, field: str
    ) -> None:
        opened = Opened(tmp_path).open()
        first = opened.look()
        kept = tmp_path / "vault" / opened.digest / "result.json"
        content = kept.read_bytes()
        changed = json.loads(content)
        changed["answer"][field] = "whatever is wanted"
        kept.chmod(0o644)
        kept.write_bytes(canonical_json(changed))
        with pytest.raises(HoldoutError, match="not what the look left"):
            opened.look()
        kept.write_bytes(content)
        assert opened.look() == first
        assert opened.decryptions == 1

    def test_a_kept_result_is_told_to_who_brings_the_label_key_only(self, tmp_path: Path) -> None:
        opened = Opened(tmp_path).open()
        opened.look()
        key = tmp_path / "keys/holdout.key"
        key.unlink()
        with pytest.raises(HoldoutError, match="no usable label key"):
            opened.look()
        Opened(tmp_path / "elsewhere")
        (tmp_path / "elsewhere/keys/holdout.key").rename(key)
        with pytest.raises(HoldoutError, match="another label key"):
            opened.look()

    def test_racing_callers_share_one_look(self, tmp_path: Path) -> None:
        opened = Opened(tmp_path).open()
        answers = race(look_from_elsewhere, [(tmp_path, opened.request.document())] * 4)
        assert len({json.dumps(one, sort_keys=True) for one in answers}) == 1
        assert opened.decryptions == 1


def look_from_elsewhere(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    return vault_at(folder).evaluate(request)


def test_every_file_that_makes_a_final_number_is_in_the_evaluator_s_digest() -> None:
    package = Path(vault_age_files.__file__).parent.parent
    reached, waiting = set(), ["core/final.py"]
    while waiting:
        file = waiting.pop()
        if file in reached:
            continue
        reached.add(file)
        text = (package / file).read_text(encoding="utf-8")
        imported = re.findall(r"^from parcel_assets\.(core\.\w+) import", text, re.MULTILINE)
        waiting += [f"{one.replace('.', '/')}.py" for one in imported]
    numbers = {
        file
        for file in reached
        if re.search(
            r"^(import numpy as np$|from scipy)", (package / file).read_text(), re.MULTILINE
        )
    }
    assert {"core/statistics.py", "core/rates.py", "core/slices.py"} <= numbers
    assert numbers - {"core/ports.py"} <= set(vault_age_files.EVALUATOR_FILES)  # ports: types
