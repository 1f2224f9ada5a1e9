"""All 82 slots with real training, killed again and again: the same table, nothing twice.

One undisturbed search with one worker says what the table is. Those with two and with eight workers
must come to the same, and so must one that loses workers, whole runs or both at random moments, and
at its end all its checkpoints.
"""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from parcel_assets.core.chain import Chain
from parcel_assets.core.errors import LedgerError
from parcel_assets.core.evidence import RerunBody
from parcel_assets.core.ledger import Event, Kind
from parcel_assets.core.search import fold_search
from parcel_assets.core.stage import Stage
from parcel_assets.core.table import table_digest, table_rows
from parcel_assets.core.trial import AttemptState
from parcel_assets.steps.evaluation import evaluate_final
from parcel_assets.wiring import Settings, open_ports
from parcel_assets_tests.commands import (
    SMALL_SEARCH,
    chain_in,
    command,
    data_with,
    document,
    start,
)

pytestmark = pytest.mark.slow

BUDGET = 82
KILLS = 21  # workers, the whole run, or both, in turn
PATIENCE_SECONDS = 600.0


def digest_of(chain: Chain) -> str:
    return table_digest(table_rows(chain.plan, fold_search(chain.plan, chain.events)))


@pytest.fixture(scope="module")
def undisturbed(small_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = data_with(small_archive, tmp_path_factory.mktemp("one"))
    document(command(data, "--workers", "1", "run", SMALL_SEARCH, "--json"))
    return data


@pytest.fixture(scope="module")
def killed(small_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder whose search was killed KILLS times in mid-trial and went on."""
    data = data_with(small_archive, tmp_path_factory.mktemp("killed"))
    killer = Killer(data)
    moments = sorted(random.Random(21).sample(range(1, BUDGET - 4), KILLS))
    for number, moment in enumerate(moments):
        killer.wait_for(lambda moment=moment: killer.settled >= moment)  # type: ignore[misc]
        if number % 2:
            killer.wait_for(killer.in_mid_trial)  # else whatever is going on
        if number % 3 != 1:
            killer.kill_workers()
        if number % 3 != 0:
            killer.kill_run()
    killer.wait_for(lambda: str(Stage.TABLE) in killer.recorded)
    killer.kill_run(again=False)
    shutil.rmtree(data / "store" / "attempts")  # no rerun needs a search's checkpoint
    document(command(data, "--workers", "2", "run", SMALL_SEARCH, "--json"))
    return data


class Killer:
    """Watches the ledger of one data folder and ends processes of its runs without a word."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._run = self._start()
        self._events: list[Event] = []

    def _start(self) -> "subprocess.Popen[bytes]":
        return start(self._data, "--workers", "2", "run", SMALL_SEARCH)

    def wait_for(self, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        ledger = open_ports(Settings.read({}, data=self._data)).ledger
        self._look(ledger.events)
        while not ready():
            assert self._run.poll() is None, "the run ended by itself"
            assert time.monotonic() < end
            time.sleep(0.01)
            self._look(ledger.events)

    def _look(self, events: Callable[[str, int], tuple[Event, ...]]) -> None:
        self._events += events(SMALL_SEARCH, len(self._events))

    @property
    def settled(self) -> int:
        ends = {AttemptState.COMPLETED, AttemptState.PRUNED}
        kinds = [one for one in self._events if one.kind == Kind.ATTEMPT_ENDED]
        return sum(one.body["state"] in ends for one in kinds)

    @property
    def recorded(self) -> list[str]:
        recorded = [one for one in self._events if one.kind == Kind.STAGE_RECORDED]
        return [str(one.body["stage"]) for one in recorded]

    def in_mid_trial(self) -> bool:
        """Say whether every open attempt has a checkpoint to go on from."""
        of = {
            kind: {str(one.body["attempt"]) for one in self._events if one.kind == kind}
            for kind in (Kind.ATTEMPT_STARTED, Kind.CHECKPOINT_SAVED, Kind.ATTEMPT_ENDED)
        }
        still = of[Kind.ATTEMPT_STARTED] - of[Kind.ATTEMPT_ENDED]
        return bool(still) and still <= of[Kind.CHECKPOINT_SAVED]

    def kill_run(self, *, again: bool = True) -> None:
        self._run.kill()
        self._run.wait()
        if again:
            self._run = self._start()

    def kill_workers(self) -> None:
        for worker in _workers_of(self._run.pid):
            os.kill(worker, signal.SIGKILL)


def _workers_of(run: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                command_line = (folder / "cmdline").read_bytes()
            except OSError:
                continue  # it ended while we looked
            if parent == run and b"parcel_assets.worker" in command_line:
                found.append(int(folder.name))
    return found


def test_killed_with_two_workers_the_table_is_that_of_one_worker_undisturbed(
    undisturbed: Path, killed: Path
) -> None:
    calm, torn = chain_in(undisturbed), chain_in(killed)
    assert digest_of(torn) == digest_of(calm) == calm.table.table_digest
    for chain in (calm, torn):
        state = fold_search(chain.plan, chain.events)
        assert (state.started, state.unstarted) == (BUDGET, 0)
        assert len(state.trials) == BUDGET
        assert state.lineage_faults == ()
    attempts = fold_search(torn.plan, torn.events).attempts.values()
    resumed = [one for one in attempts if one.started.resume_step > 0]
    assert len(resumed) >= KILLS // 2
    assert {one.ended.reason.partition(":")[0] for one in attempts if one.ended} >= {
        "its worker was lost",
        "its coordinator was lost",
    }
    assert not any(one.used_up for one in attempts)


@pytest.mark.parametrize("workers", [2, 8])
def test_undisturbed_with_more_workers_the_table_is_that_of_one(
    undisturbed: Path, small_archive: Path, tmp_path: Path, workers: int
) -> None:
    data = data_with(small_archive, tmp_path / "data")
    document(command(data, "--workers", str(workers), "run", SMALL_SEARCH, "--json"))
    chain = chain_in(data)
    assert digest_of(chain) == digest_of(chain_in(undisturbed)) == chain.table.table_digest


def test_without_any_checkpoint_of_the_search_the_rerun_gives_its_scores(killed: Path) -> None:
    chain = chain_in(killed)
    body = RerunBody.model_validate(chain.evidence[Stage.RERUN].body)
    assert body.scores_equal
    assert body.largest_score_difference == 0
    state = fold_search(chain.plan, chain.events)
    for trained in (body.own, *body.extra, body.reference):
        started = state.attempts[trained.attempt].started
        assert (started.parent_checkpoint, started.resume_step) == (None, 0)
    assert {"search", "rerun", "reference", "final"} <= set(state.charged_seconds_by_purpose)


def test_final_evaluation_again_gives_the_one_result_of_the_one_decryption(killed: Path) -> None:
    chain = chain_in(killed)
    again = evaluate_final(SMALL_SEARCH, open_ports(Settings.read({}, data=killed)))
    assert again == chain.evidence[Stage.FINAL]
    document(command(killed, "run", SMALL_SEARCH, "--json"))
    (note,) = (killed / "vault").glob("*/decryptions.log")
    assert len(note.read_text().splitlines()) == 1


def test_one_changed_score_changes_the_digest(undisturbed: Path) -> None:
    chain = chain_in(undisturbed)
    reported = next(
        one
        for one in chain.events
        if one.kind == Kind.MILESTONE_REPORTED and one.body["step"] == chain.plan.training.steps
    )
    for field, value in (("scores", "0" * 64), ("cost_per_1000", 1.5)):
        changed = replace(reported, body={**reported.body, field: value})
        events = tuple(changed if one is reported else one for one in chain.events)
        assert digest_of(replace(chain, events=events)) != digest_of(chain)


def test_a_score_edited_in_the_ledger_is_noticed(undisturbed: Path, tmp_path: Path) -> None:
    data = tmp_path / "edited"
    shutil.copytree(undisturbed, data)
    with sqlite3.connect(data / "ledger.sqlite") as connection:
        connection.execute("DROP TRIGGER events_keeps_words")
        connection.execute(
            "UPDATE events SET body = replace(body, '\"cost_per_1000\":', '\"cost_per_1000\":1')"
            " WHERE sequence = (SELECT max(sequence) FROM events WHERE kind = 'milestone_reported')"
        )
    with pytest.raises(LedgerError, match="changed from outside"):
        chain_in(data)
    assert command(data, "run", SMALL_SEARCH).returncode == 1
