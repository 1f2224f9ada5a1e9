"""Colliding, lying and sleeping workers as real processes: what they left decides nothing."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.adapters.engine_local import LocalEngine
from parcel_assets.core.attempts import AttemptRecord
from parcel_assets.core.codec import digest_bytes
from parcel_assets.core.errors import AdmissionError, HoldError
from parcel_assets.core.ledger import Kind
from parcel_assets.core.lineage import read_found_file
from parcel_assets.core.standing import HOLD, standing_of
from parcel_assets.core.table import table_rows
from parcel_assets.core.trial import AttemptState, trial_seed
from parcel_assets.steps import dispatch_pool
from parcel_assets.steps.admission import load_chain
from parcel_assets.steps.dispatch import run_tasks
from parcel_assets.steps.dispatch_work import Task
from parcel_assets.steps.table import validate_table
from parcel_assets_tests.fake_training import read_weights, saver
from parcel_assets_tests.search_world import REVISION, World, small_plan
from parcel_assets_tests.steps.desk import FakeValidator
from parcel_assets_tests.steps.test_search_processes import (
    coordinator,
    wait_for,
    worker_processes,
)

SHORT = {"search__budget_trials": 6, "search__batch_trials": 2}


def make_world(folder: Path) -> World:
    world = World(folder)
    world.freeze(small_plan(**SHORT))
    return world


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = make_world(tmp_path_factory.mktemp("one"))
    world.search(workers=2)
    return world


def bodies(world: World, kind: Kind) -> list[Mapping[str, Any]]:
    return [event.body for event in world.ledger.events(REVISION) if event.kind == kind]


def decisions(world: World) -> list[Mapping[str, Any]]:
    """Return every batch as it was opened: its configurations and its cut table."""
    return sorted(bodies(world, Kind.BATCH_OPENED), key=lambda body: int(body["batch"]))


def prefix_of(world: World, record: AttemptRecord) -> Path:
    return world.store.prefix_path(record.started.prefix)


def kept(world: World, record: AttemptRecord) -> Path:
    """Return where a quarantined attempt's prefix is kept."""
    return world.folder / "store" / "quarantine" / record.started.prefix


def quarantined(world: World) -> set[str]:
    return {one.attempt for one in world.state().attempts.values() if not one.clean}


def require_undisturbed(world: World, undisturbed: World) -> None:
    """Contamination reached no proposal, no cut and no row of the table."""
    assert decisions(world) == decisions(undisturbed)
    assert world.table_digest() == undisturbed.table_digest()
    assert world.state().lineage_faults == ()


def require_set_aside(world: World, record: AttemptRecord) -> None:
    """The prefix is out of the attempts, whole, with a note that names its event."""
    assert not prefix_of(world, record).exists()
    note = json.loads(kept(world, record).with_suffix(".json").read_bytes())
    event = world.ledger.events(REVISION)[note["ledger_sequence"] - 1]
    assert (event.kind, event.body["attempt"]) == (Kind.ATTEMPT_QUARANTINED, record.attempt)
    assert note["reason"] == event.body["reason"]
    assert note["found_by"]
    for saved in record.checkpoints:
        evidence = kept(world, record) / saved.file
        assert digest_bytes(evidence.read_bytes()) == saved.checkpoint


def require_run_again(world: World, record: AttemptRecord) -> None:
    """The trial was run again cleanly, from nothing, under a prefix of its own."""
    again = world.state().subjects[record.subject].attempts[1:]
    assert [(one.started.resume_step, one.clean) for one in again] == [(0, True)]
    assert again[0].started.prefix != record.started.prefix


# ---- a second worker that goes on from the first one's checkpoint --------------------------------

VICTIM, THIEF = "parcel-01/1", "parcel-02/1"


def lie(world: World, kind: str, after: str) -> dict[str, Any]:
    seed = small_plan().search.seed
    return {
        "lie": {
            "kind": kind,
            "victim": trial_seed(seed, 1),
            "victim_trial": "parcel-01",
            "thief": trial_seed(seed, 2),
            "after": after,
            "slow": 0.0 if after == "model.safetensors" else 0.3,
            "told": str(world.folder / "told"),
        }
    }


ORDERS = {"the thief first": "checkpoint-3.safetensors", "its victim first": "model.safetensors"}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", ["forged", "marker", "shared"])
def test_a_plausible_metric_from_anothers_checkpoint_is_nowhere(
    undisturbed: World, tmp_path: Path, kind: str, order: str
) -> None:
    world = make_world(tmp_path)
    world.search(workers=2, worker="lying_worker", faults=lie(world, kind, ORDERS[order]))
    state = world.state()
    victim, thief = state.attempts[VICTIM], state.attempts[THIEF]
    ends = [body["attempt"] for body in bodies(world, Kind.ATTEMPT_ENDED)]
    first = THIEF if order == "the thief first" else VICTIM
    assert min(ends.index(VICTIM), ends.index(THIEF)) == ends.index(first)
    # the lie went well up to the close: complete, and better than all
    assert thief.ended is not None
    assert thief.ended.state == AttemptState.COMPLETED
    planted = {one.cost_per_1000 for one in thief.reports.values()}
    honest = undisturbed.state()
    assert not planted & {one for t in honest.trials for one in costs_of(undisturbed, t)}
    assert quarantined(world) == {VICTIM, THIEF}
    for record in (victim, thief):
        require_set_aside(world, record)
        require_run_again(world, record)
    values = {
        cost for body in decisions(world) for cut in body["cut_table"] for _, cost in cut["values"]
    }
    assert not planted & values
    require_undisturbed(world, undisturbed)


def costs_of(world: World, number: int) -> set[float | None]:
    return {one.cost_per_1000 for one in world.state().trials[number].reports.values()}


def test_who_reports_anothers_checkpoint_as_its_parent_is_found_at_once(
    undisturbed: World, tmp_path: Path
) -> None:
    world = make_world(tmp_path)
    faults = lie(world, "reports", ORDERS["the thief first"])
    world.search(workers=2, worker="lying_worker", faults=faults)
    found = {body["attempt"]: body["found_by"] for body in bodies(world, Kind.ATTEMPT_QUARANTINED)}
    assert found == {VICTIM: "a report", THIEF: "a report"}
    require_undisturbed(world, undisturbed)


# ---- files moved about from outside --------------------------------------------------------------


def header_of(path: Path) -> dict[str, str]:
    return dict(read_found_file(path.read_bytes()).lineage or {})


def copied(world: World, thief: AttemptRecord, victim: AttemptRecord) -> None:
    source = prefix_of(world, victim) / victim.checkpoints[0].file
    shutil.copy(source, prefix_of(world, thief) / "checkpoint-99.safetensors")


def hard_link(world: World, thief: AttemptRecord, victim: AttemptRecord) -> None:
    source = prefix_of(world, victim) / victim.checkpoints[0].file
    os.link(source, prefix_of(world, thief) / "notes")


def soft_link(world: World, thief: AttemptRecord, victim: AttemptRecord) -> None:
    (prefix_of(world, thief) / "notes").symlink_to(prefix_of(world, victim))


def weights_under_own_header(world: World, thief: AttemptRecord, victim: AttemptRecord) -> None:
    weights, _ = read_weights(prefix_of(world, victim) / victim.checkpoints[0].file)
    newest = thief.checkpoints[0]
    own = header_of(prefix_of(world, thief) / newest.file) | {"parent_checkpoint": ""}
    saver(weights, newest.step)(prefix_of(world, thief) / "twin.safetensors", own)


Plant = Callable[[World, AttemptRecord, AttemptRecord], None]


@pytest.mark.parametrize(
    "plant",
    [hard_link, soft_link, weights_under_own_header],
    ids=lambda one: str(one.__name__),
)
def test_whoever_holds_anothers_content_is_quarantined_with_the_other(
    undisturbed: World, tmp_path: Path, plant: Plant
) -> None:
    world = make_world(tmp_path)
    process = coordinator(world, step_seconds=0.15)

    def pair() -> list[AttemptRecord]:
        found = list(world.state().attempts.values())[:2]
        return [one for one in found if one.checkpoints and one.ended is None]

    wait_for(lambda: len(pair()) == 2)
    victim, thief = pair()
    plant(world, thief, victim)
    assert process.wait(120) == 0
    assert quarantined(world) == {victim.attempt, thief.attempt}
    for record in (victim, thief):
        require_set_aside(world, record)
        require_run_again(world, record)
    require_undisturbed(world, undisturbed)


# ---- found after the batch had closed ------------------------------------------------------------


def plant_late(world: World) -> None:
    state = world.state()
    copied(world, state.attempts[THIEF], state.attempts[VICTIM])


def test_what_is_found_after_the_search_holds_until_its_replay_changes_nothing(
    undisturbed: World, tmp_path: Path
) -> None:
    world = make_world(tmp_path)
    world.search(workers=2)
    plant_late(world)
    ports = replace(world.ports(), validator=FakeValidator())
    with pytest.raises(HoldError) as held:
        validate_table(REVISION, ports)
    assert held.value.facts["hold"] == "hold:lineage"
    assert {one.attempt for one in world.state().attempts.values() if one.quarantined_late} == {
        VICTIM,
        THIEF,
    }
    standing = standing_of(load_chain(REVISION, ports))
    assert (standing.state, standing.hold) == (HOLD, "hold:lineage")
    with pytest.raises(AdmissionError, match="lineage_verified"):
        validate_table(REVISION, ports)
    world.search(workers=2)
    (replayed,) = bodies(world, Kind.CONTAMINATION_REPLAYED)
    assert (set(replayed["attempts"]), replayed["changed"]) == ({VICTIM, THIEF}, [])
    assert replayed["batches"] == [3]
    for name in (VICTIM, THIEF):
        require_set_aside(world, world.state().attempts[name])
        require_run_again(world, world.state().attempts[name])
    require_undisturbed(world, undisturbed)
    table = validate_table(REVISION, ports)
    assert table.body["table_digest"] == undisturbed.table_digest()


def test_a_kill_between_the_ledger_and_the_move_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path)
    world.search(workers=2)
    plant_late(world)
    ports = replace(world.ports(), validator=FakeValidator())

    def killed(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(world.store, "set_aside", killed)
    with pytest.raises(KeyboardInterrupt):
        validate_table(REVISION, ports)
    monkeypatch.undo()
    assert quarantined(world) == {VICTIM, THIEF}
    assert prefix_of(world, world.state().attempts[VICTIM]).exists()
    world.search(workers=2)
    for name in (VICTIM, THIEF):
        require_set_aside(world, world.state().attempts[name])
    assert world.state().lineage_faults == ()


def test_where_the_replay_changes_a_decision_the_hold_stays(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    faults = lie(world, "untraced", ORDERS["the thief first"])
    world.search(workers=2, worker="lying_worker", faults=faults)
    assert world.state().best_trial == "parcel-02", "nothing to be found yet"
    before = decisions(world)
    plant_late(world)
    ports = replace(world.ports(), validator=FakeValidator())
    with pytest.raises(HoldError):
        validate_table(REVISION, ports)
    world.search(workers=2)
    (replayed,) = bodies(world, Kind.CONTAMINATION_REPLAYED)
    assert replayed["changed"] == ["batch 3 would hold other configurations"]
    assert decisions(world) == before, "proposals and cuts stay as they were"
    assert world.state().best_trial != "parcel-02"
    rows = {row.trial_id: row for row in table_rows(world.plan(), world.state())}
    assert not rows["parcel-02"].lineage_ok
    events = len(world.ledger.events(REVISION))
    world.search(workers=2)
    assert len(world.ledger.events(REVISION)) == events, "replayed once"
    with pytest.raises(AdmissionError, match="other configurations") as refused:
        validate_table(REVISION, ports)
    assert refused.value.facts["hold"] == "hold:lineage"


def test_what_is_found_at_the_searchs_end_is_replayed_before_it(
    undisturbed: World, tmp_path: Path
) -> None:
    world = make_world(tmp_path)
    planted: list[str] = []

    def plant_once(_kind: str, facts: Mapping[str, Any]) -> None:
        if facts.get("batch") == 3 and not planted:
            plant_late(world)
            planted.append(VICTIM)

    world.search(workers=2, notify=plant_once, faults={"step_seconds": 0.1})
    found = {body["attempt"]: body["found_by"] for body in bodies(world, Kind.ATTEMPT_QUARANTINED)}
    assert found == dict.fromkeys((VICTIM, THIEF), "the end of the search")
    kinds = [event.kind for event in world.ledger.events(REVISION)]
    assert kinds.index(Kind.CONTAMINATION_REPLAYED) < kinds.index(Kind.SEARCH_ENDED)
    require_undisturbed(world, undisturbed)


def test_a_rerun_that_holds_a_trials_checkpoint_puts_both_in_doubt(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.search(workers=2)
    plan, ports = world.plan(), world.ports()
    trial = world.state().trials[1].trial
    assert trial is not None
    tasks = [Task("rerun/parcel-01/own", "rerun", trial.configuration, trial.seed)]
    split = load_chain(REVISION, ports).split
    lease = world.ledger.acquire(REVISION, "test")
    run_tasks(tasks, plan=plan, lease=lease, ports=ports, split=split, workers=1)
    attempts = world.state().attempts
    rerun = attempts["rerun/parcel-01/own/1"]
    assert quarantined(world) == set(), "its own weights are its trial's"
    copied(world, rerun, attempts[THIEF])
    results = run_tasks(tasks, plan=plan, lease=lease, ports=ports, split=split, workers=1)
    assert quarantined(world) == {rerun.attempt, THIEF}
    assert results["rerun/parcel-01/own"].attempt == "rerun/parcel-01/own/2"
    assert world.state().lineage_faults != (), "the trial's batch had closed"


# ---- a worker that sleeps past its lease and wakes -----------------------------------------------


class PartitionedEngine(LocalEngine):
    """Pauses the first worker that saved a checkpoint; stopping it does not reach it.

    It is woken once its trial's next attempt, which resumed its checkpoint, has saved one.
    """

    paused: str | None = None
    attempt = ""
    woken = False
    woken_words = 0

    def receive(self, timeout_seconds: float) -> list[tuple[str, dict[str, Any]]]:
        heard = super().receive(timeout_seconds)
        for worker_id, message in heard:
            if message["kind"] == "checkpoint" and self.paused is None:
                self.paused, self.attempt = worker_id, str(message["attempt"])
                self._signal(signal.SIGSTOP)
            elif message["kind"] == "checkpoint" and not self.woken and worker_id != self.paused:
                if str(message["attempt"]) == self.attempt.replace("/1", "/2"):
                    self.woken = True
                    self._signal(signal.SIGCONT)
            elif self.woken and worker_id == self.paused and message["kind"] != "alive":
                self.woken_words += 1
        return heard

    def stop(self, worker_id: str) -> None:
        if worker_id != self.paused:
            super().stop(worker_id)

    def _signal(self, number: signal.Signals) -> None:
        os.kill(self._workers[str(self.paused)].process.pid, number)


def test_a_worker_that_sleeps_past_its_lease_and_wakes_changes_nothing(
    undisturbed: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_pool, "LEASE_SECONDS", 4.0)
    world = make_world(tmp_path)
    engines: list[PartitionedEngine] = []

    def open_engine() -> LocalEngine:
        command = world.ports(faults={"step_seconds": 0.2}).open_engine()
        assert isinstance(command, LocalEngine)
        engines.append(PartitionedEngine(world.folder / "logs", command._command))
        command.close()
        return engines[0]

    world.search(workers=2, engine=open_engine)
    (engine,) = engines
    assert engine.woken
    assert engine.woken_words > 0, "it spoke after it woke"
    state = world.state()
    old = state.attempts[engine.attempt]
    assert old.state == AttemptState.EXPIRED
    second = state.subjects[old.subject].attempts[1]
    assert second.started.parent_checkpoint == old.checkpoints[-1].checkpoint
    aside = bodies(world, Kind.MESSAGE_SET_ASIDE)
    assert any("given up" in body["reason"] for body in aside)
    late = {path.name for path in prefix_of(world, old).iterdir()} - {"owner.json", *old.files}
    assert late, "it wrote below its own old prefix"
    assert quarantined(world) == set()
    require_undisturbed(world, undisturbed)
    assert worker_processes(world) == []
