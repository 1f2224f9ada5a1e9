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
from parcel_assets.core.errors import AdmissionError, HoldoutError, LeaseHeldError
from parcel_assets.core.evidence import RerunBody
from parcel_assets.core.ledger import Kind
from parcel_assets.core.ports import Ports
from parcel_assets.steps import selection
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
    monkeypatch.setattr(selection, "run_jobs", desk.run_jobs)
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


MOMENTS = {
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    ready_desk(tmp_path, monkeypatch)
    target, side = MOMENTS[moment]
    killed = subprocess.run(
        [sys.executable, "-m", __name__, str(tmp_path), target, side], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    evidence = evaluate_final(REVISION, real_ports(tmp_path))
    assert evidence.body["outcome"] == "PASS"
    assert decryptions(tmp_path) == 1


def die_at(folder: Path, target: str, side: str) -> None:
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
    evaluate_final(REVISION, real_ports(folder))


class TestSecondLooks:
    def test_a_deleted_ledger_does_not_open_the_holdout_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = ready_desk(tmp_path, monkeypatch)
        evaluate_final(REVISION, desk.ports)
        again = ready_desk(
            tmp_path, monkeypatch, ledger=SqlLedger(f"sqlite:///{tmp_path / 'new.sqlite'}")
        )
        with pytest.raises(HoldoutError) as refused:
            evaluate_final(REVISION, again.ports)
        assert refused.value.facts["field"] == "freeze_event"
        assert decryptions(tmp_path) == 1

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
    shutil.rmtree(tmp_path / "store" / "attempts")
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
    die_at(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
