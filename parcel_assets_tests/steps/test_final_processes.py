"""The final evaluation and the reruns with the real vault, ledger and processes."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.adapters.vault_age import AgeVault
from parcel_assets.core.errors import (
    AdmissionError,
    HoldoutError,
    LeaseHeldError,
    LedgerError,
    PlanChangedError,
    StorageError,
)
from parcel_assets.core.evidence import RerunBody
from parcel_assets.core.ledger import CLOSED_BY_OPENING, Kind
from parcel_assets.core.ports import Ports
from parcel_assets.steps import selection
from parcel_assets.steps.admission import leased
from parcel_assets.steps.data import register_plan
from parcel_assets.steps.evaluation import evaluate_final
from parcel_assets.steps.selection import report_slices, rerun_selected
from parcel_assets.steps.table import validate_table
from parcel_assets_tests.search_world import REVISION as WORLD_REVISION
from parcel_assets_tests.search_world import World, small_plan
from parcel_assets_tests.steps.desk import (
    REVISION,
    Desk,
    FakePictures,
    FakeValidator,
    desk_plan,
    final_ports,
    make_desk,
)

TRAINER = "parcel_assets_tests.steps.place_trainer:PlaceTrainer"
RACERS = 8


def real_vault(folder: Path) -> AgeVault:
    return AgeVault(folder / "vault", folder / "keys", folder / "store", trainer=TRAINER)


def real_ledger(folder: Path) -> SqlLedger:
    return SqlLedger(f"sqlite:///{folder / 'ledger.sqlite'}")


def real_ports(folder: Path) -> Ports:
    return final_ports(folder, real_ledger(folder), real_vault(folder))


def ready_desk(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Desk:
    """Return a revision on real ledger and vault that waits for its final evaluation."""
    given: dict[str, Any] = {"ledger": real_ledger(folder), "vault": real_vault(folder)}
    desk = make_desk(folder, **given | changes)
    monkeypatch.setattr(selection, "run_tasks", desk.run_tasks)
    for step in (validate_table, rerun_selected, report_slices):
        step(desk.revision, desk.ports)
    return desk


def decryptions(folder: Path) -> int:
    notes = list((folder / "vault").glob("*/decryptions.log"))
    return sum(len(note.read_text().splitlines()) for note in notes)


def evaluate_here(folder: Path) -> str:
    """Evaluate in this process; return the outcome, or the name of the refusal."""
    try:
        return str(evaluate_final(REVISION, real_ports(folder)).body["outcome"])
    except (LeaseHeldError, HoldoutError) as error:
        return type(error).__name__


@pytest.mark.slow
def test_of_many_racing_openers_one_opens_and_all_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready_desk(tmp_path, monkeypatch)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(RACERS, mp_context=spawn) as pool:
        racers = [pool.submit(evaluate_here, tmp_path) for _ in range(RACERS)]
        answers = [one.result() for one in racers]
    assert set(answers) <= {"PASS", "LeaseHeldError"}
    assert "PASS" in answers
    events = real_ledger(tmp_path).events(REVISION)
    assert sum(event.kind == Kind.HOLDOUT_OPENED for event in events) == 1
    assert decryptions(tmp_path) == 1


class Dying:
    """Dies, as by Ctrl-C, before or after calls of a port, each once and in order."""

    moments: list[str]

    def die(self, moment: str) -> None:
        if self.moments and self.moments[0] == moment:
            self.moments.pop(0)
            raise KeyboardInterrupt(moment)


class DyingLedger(SqlLedger, Dying):
    def open_holdout(self, *given: Any) -> Any:
        self.die("before the opening")
        event = super().open_holdout(*given)
        self.die("after the opening")
        return event

    def append(self, lease: Any, entries: Any) -> Any:
        kinds = {kind for kind, _ in entries}
        word = "result" if Kind.HOLDOUT_EVALUATED in kinds else "evidence"
        self.die(f"before the {word}")
        events = super().append(lease, entries)
        self.die(f"after the {word}")
        return events


class DyingVault(AgeVault, Dying):
    def leave_receipt(self, *given: Any) -> None:
        self.die("before the receipt")
        super().leave_receipt(*given)
        self.die("after the receipt")

    def evaluate(self, *given: Any) -> Any:
        self.die("before the look")
        answer = super().evaluate(*given)
        self.die("after the look")
        return answer


EVERY_MOMENT = [
    f"{side} the {what}"
    for what in ("receipt", "opening", "look", "result", "evidence")
    for side in ("before", "after")
]


def test_dying_at_every_step_in_turn_it_ends_in_one_look_and_one_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger_url: str
) -> None:
    ledger = DyingLedger(ledger_url)
    vault = DyingVault(tmp_path / "vault", tmp_path / "keys", tmp_path / "store", trainer=TRAINER)
    ledger.moments = vault.moments = []
    desk = ready_desk(tmp_path, monkeypatch, ledger=ledger, vault=vault)
    ledger.moments = vault.moments = list(EVERY_MOMENT)
    died = []
    while vault.moments:
        with pytest.raises(KeyboardInterrupt) as stopped:
            evaluate_final(REVISION, desk.ports)
        died.append(str(stopped.value))
    assert died == EVERY_MOMENT
    evidence = evaluate_final(REVISION, desk.ports)
    assert evidence.body["outcome"] == "PASS"
    events = ledger.events(REVISION)
    for kind in (Kind.HOLDOUT_OPENED, Kind.HOLDOUT_EVALUATED):
        assert sum(event.kind == kind for event in events) == 1
    recorded = [
        event.body["evidence"]
        for event in events
        if event.kind == Kind.STAGE_RECORDED and event.body["stage"] == "final_evaluation"
    ]
    assert len(recorded) == 1
    assert decryptions(tmp_path) == 1
    assert len(list((tmp_path / "vault").glob("*/opened.json"))) == 1
    ledger.close()


MOMENTS = {
    "before the receipt": ("AgeVault.leave_receipt", "before"),
    "before the result": ("SqlLedger.append", "before"),
    "after the result": ("SqlLedger.append", "after"),
    "after the receipt": ("AgeVault.leave_receipt", "after"),
    "before the opening": ("SqlLedger.open_holdout", "before"),
    "after the opening": ("SqlLedger.open_holdout", "after"),
    "before the look": ("AgeVault.evaluate", "before"),
    "after the look": ("AgeVault.evaluate", "after"),
}


@pytest.mark.parametrize(
    "moment",
    [
        one if one == "after the look" else pytest.param(one, marks=pytest.mark.slow)
        for one in MOMENTS
    ],
)
def test_killed_at_any_point_it_ends_in_one_decryption_and_one_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, ledger_url: str
) -> None:
    url = ledger_url
    ready_desk(tmp_path, monkeypatch, ledger=SqlLedger(url)).ports.ledger.close()  # type: ignore[attr-defined]
    target, side = MOMENTS[moment]
    killed = subprocess.run(
        [sys.executable, "-m", __name__, str(tmp_path), target, side, url], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    ledger = SqlLedger(url)
    evidence = evaluate_final(REVISION, final_ports(tmp_path, ledger, real_vault(tmp_path)))
    assert evidence.body["outcome"] == "PASS"
    kinds = [event.kind for event in ledger.events(REVISION)]
    assert kinds.count(Kind.HOLDOUT_OPENED) == kinds.count(Kind.HOLDOUT_EVALUATED) == 1
    assert decryptions(tmp_path) == 1
    ledger.close()


def die_at(folder: Path, target: str, side: str, url: str) -> None:
    """Evaluate in this process and kill it at one side of one call."""
    kind, _, name = target.partition(".")
    owner = {"AgeVault": AgeVault, "SqlLedger": SqlLedger}[kind]
    true_method = getattr(owner, name)

    def dying(self: Any, *given: Any) -> Any:
        if side == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = true_method(self, *given)
        os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, dying)
    evaluate_final(REVISION, final_ports(folder, SqlLedger(url), real_vault(folder)))


class TestSecondLooks:
    def test_a_deleted_ledger_does_not_open_the_holdout_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = ready_desk(tmp_path, monkeypatch)
        evaluate_final(REVISION, desk.ports)
        new = SqlLedger(f"sqlite:///{tmp_path / 'new.sqlite'}")
        with pytest.raises(LedgerError) as lost:
            ready_desk(tmp_path, monkeypatch, ledger=new)
        assert "Its holdout was opened, and stays shut to any other ledger." in lost.value.remedy
        # somebody takes the anchors away as well: the receipt beside the labels is still there
        shutil.rmtree(tmp_path / "store" / "anchors")
        newer = SqlLedger(f"sqlite:///{tmp_path / 'newer.sqlite'}")
        again = ready_desk(tmp_path, monkeypatch, ledger=newer)
        with pytest.raises(HoldoutError) as refused:
            evaluate_final(REVISION, again.ports)
        assert refused.value.facts["field"] == "freeze_event"
        assert "for which the holdout was opened" in str(refused.value)
        assert decryptions(tmp_path) == 1

    def test_other_names_for_the_same_photos_are_refused_by_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = ready_desk(tmp_path, monkeypatch)
        evaluate_final(REVISION, desk.ports)
        renamed = desk_plan(snapshot__archive="another-name")
        with pytest.raises(AdmissionError) as refused:
            ready_desk(tmp_path, monkeypatch, revision="search-b", plan=renamed)
        assert refused.value.facts["gate"] == "holdout_unspent"
        words = "200 shipments (h0000, h0001, h0002, h0003, h0004, …), opened by search-a"
        assert words in refused.value.facts["sentence"]

    def test_a_hand_edited_evidence_file_leaves_it_shut(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = ready_desk(tmp_path, monkeypatch)
        digest = desk.events(Kind.STAGE_RECORDED)[-1].body["evidence"]
        path = desk.ports.store.path(digest)
        path.chmod(0o644)
        path.write_bytes(
            path.read_bytes().replace(b'"protected_passed":true', b'"protected_passed":null')
        )
        with pytest.raises(StorageError, match=digest[:8]):
            evaluate_final(REVISION, desk.ports)
        assert decryptions(tmp_path) == 0
        assert not list((tmp_path / "vault").glob("*/opened.json"))

    def test_a_swapped_model_file_is_told_and_nothing_is_decrypted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = ready_desk(tmp_path, monkeypatch)
        rerun = desk.events(Kind.STAGE_RECORDED)[-2].body["evidence"]
        model = desk.ports.store.get_document(rerun)["body"]["model"]
        path = desk.ports.store.path(model)
        path.chmod(0o644)
        path.write_bytes(b'{"place": 60}')
        with pytest.raises(HoldoutError, match="model"):
            evaluate_final(REVISION, desk.ports)
        assert decryptions(tmp_path) == 0

    def test_nothing_that_could_use_it_is_taken_after_the_opening(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = ready_desk(tmp_path, monkeypatch)
        first = evaluate_final(REVISION, desk.ports)
        before = desk.ports.ledger.events(REVISION)
        other = desk_plan(split__key="another key")
        with pytest.raises(PlanChangedError) as split_key:
            register_plan(REVISION, other, desk.ports)
        assert split_key.value.facts["field"] == "split.key"
        with leased(desk.ports, REVISION, "test") as lease:
            for kind in sorted(CLOSED_BY_OPENING):
                body = {"attempt": "a1", "batch": 9, "step": 1, "trial": "parcel-03"}
                with pytest.raises(LedgerError, match="after the holdout was opened"):
                    desk.ports.ledger.append(lease, [(kind, body)])
        assert desk.ports.ledger.events(REVISION) == before
        assert evaluate_final(REVISION, desk.ports) == first

    def test_a_deleted_vault_folder_does_not_hide_what_the_ledger_knows(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = ready_desk(tmp_path, monkeypatch)
        evaluate_final(REVISION, desk.ports)
        shutil.rmtree(tmp_path / "vault")
        with pytest.raises(AdmissionError) as refused:
            ready_desk(tmp_path, monkeypatch, revision="search-b", further_shipment=True)
        assert refused.value.facts["gate"] == "holdout_unspent"

    def test_the_result_is_read_again_when_the_key_is_away(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = ready_desk(tmp_path, monkeypatch)
        first = evaluate_final(REVISION, desk.ports)
        (tmp_path / "keys/holdout.key").unlink()
        assert evaluate_final(REVISION, real_ports(tmp_path)) == first


def test_no_holdout_label_lies_on_the_search_side_before_the_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready_desk(tmp_path, monkeypatch)
    holdout = [f"h{number:04d}.png".encode() for number in (0, 7, 199)]
    for path in (one for one in tmp_path.rglob("*") if one.is_file()):
        content = path.read_bytes()
        if any(photo in content for photo in holdout):
            assert b"damage" not in content, path


def test_reruns_need_no_search_checkpoint_and_give_the_search_scores(tmp_path: Path) -> None:
    world = World(tmp_path)
    # forty photos spread wildly over seeds; this is about checkpoints
    world.freeze(small_plan(rerun={"seeds": [101, 102], "maximum_instability": 0.99}))
    world.search(workers=2)
    for checkpoint in (tmp_path / "store" / "attempts").rglob("step-*"):
        checkpoint.unlink()  # the owner markers stay: without them a lineage is in doubt
    ports = replace(
        world.ports(workers=2),
        validator=FakeValidator(),
        pictures=cast("Any", FakePictures()),
    )
    validate_table(WORLD_REVISION, ports)
    body = RerunBody.model_validate(rerun_selected(WORLD_REVISION, ports).body)
    assert body.scores_equal
    assert body.largest_score_difference == 0
    started = {
        one.body["attempt"]: one.body
        for one in world.ledger.events(WORLD_REVISION)
        if one.kind == Kind.ATTEMPT_STARTED
    }
    for trained in (body.own, *body.extra, body.reference):
        assert started[trained.attempt]["parent_checkpoint"] is None
        assert started[trained.attempt]["resume_step"] == 0
    charged = world.state().charged_seconds_by_purpose
    assert charged["rerun"] > 0
    assert charged["reference"] > 0


if __name__ == "__main__":
    die_at(Path(sys.argv[1]), *sys.argv[2:])
