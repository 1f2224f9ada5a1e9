"""Shared names, prefixes and checkpoints: B01-B09."""

import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parcel_assets.adapters.store_files import FileStore
from parcel_assets.core.codec import digest_bytes
from parcel_assets.core.errors import LeaseHeldError, LedgerError, PlanError, StorageError
from parcel_assets.core.ledger import Kind
from parcel_assets.core.trial import AttemptState
from parcel_assets_tests.core.plans import plan as make_plan
from parcel_assets_tests.fakes import FakeLedger
from parcel_assets_tests.search_world import REVISION
from parcel_assets_tests.simulation.theatre import (
    BETWEEN,
    MILESTONE,
    WAYS,
    Actor,
    Case,
    CaseEngine,
    Said,
    Script,
    Sleeper,
    of_82_steps,
)
from parcel_assets_tests.simulation.worker import origin_in, write_checkpoint


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """Return what an honest search of 82 steps comes to, both ways."""
    done: dict[str, Case] = {}

    def searched(way: str) -> Case:
        if way not in done:
            done[way] = Case(tmp_path_factory.mktemp("quiet"), **of_82_steps(way))
            done[way].search()
        return done[way]

    return searched


def files_below(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            status = path.stat()
            found[str(path)] = (status.st_size, status.st_mtime_ns)
    return found


def proposals(case: Case) -> list[Mapping[str, Any]]:
    return sorted(case.bodies(Kind.BATCH_OPENED), key=lambda body: int(body["batch"]))


# ---- B01: two runs, one name, one second ---------------------------------------------------------


class StartsAgain(Script):
    """In the middle of a trial somebody starts what `again` does, in the same second."""

    turn_seconds = 0.0

    def __init__(self, again: Callable[[], None]) -> None:
        super().__init__()
        self.again = again
        self.done = False

    def beside(self, engine: CaseEngine) -> Said:
        if not self.done and any(one.attempt and one.step == 6 for one in engine.workers.values()):
            self.done = True
            self.again()
        return []


def test_b01_two_searches_started_in_the_same_second_under_one_name(tmp_path: Path) -> None:
    case = Case(tmp_path)

    def again() -> None:
        second = Case.__new__(Case)  # the same folder, ledger, name and second
        second.__dict__.update(case.__dict__)
        before = files_below(tmp_path / "store" / "attempts")
        with pytest.raises(LeaseHeldError):
            second.search()
        assert files_below(tmp_path / "store" / "attempts") == before

    script = StartsAgain(again)
    assert case.search(script)["ended"] == "budget"
    assert script.done
    prefixes = [body["prefix"] for body in case.bodies(Kind.ATTEMPT_STARTED)]
    assert len(prefixes) == len(set(prefixes))


def test_b01_two_ledgers_born_in_the_same_second_over_one_store(tmp_path: Path) -> None:
    """Their chains are equal to the digest, so that they would choose the same prefixes."""
    first = Case(tmp_path)

    def again() -> None:
        before = files_below(tmp_path / "store" / "attempts")
        other = Case(tmp_path, ledger=FakeLedger())
        assert other.events[0] == first.events[0]
        with pytest.raises(StorageError, match="taken by"):
            other.search()
        assert files_below(tmp_path / "store" / "attempts") == before

    script = StartsAgain(again)
    assert first.search(script)["ended"] == "budget"
    assert script.done


def test_b01_a_later_ledger_under_the_same_name_is_refused_and_never_gets_the_same_prefixes(
    tmp_path: Path,
) -> None:
    first = Case(tmp_path)
    first.search()
    before = files_below(tmp_path / "store" / "attempts")
    later = FakeLedger()
    later.clock_seconds += 1.0
    second = Case(tmp_path, ledger=later)
    with pytest.raises(LedgerError, match="its anchor is in the store"):
        second.search()
    shutil.rmtree(tmp_path / "store" / "anchors")  # somebody insists
    second.search()
    after = files_below(tmp_path / "store" / "attempts")
    assert {path: after[path] for path in before} == before
    mine, theirs = (
        {body["prefix"] for body in one.bodies(Kind.ATTEMPT_STARTED)} for one in (first, second)
    )
    assert not mine & theirs


# ---- B02: the signature incident -----------------------------------------------------------------


class SharedPrefix(Script):
    """B saves step 45 below A's prefix, A its step 39; A is lost and started again.

    `latest`: the restarted A takes whatever is newest in its old folder and reports what B's
    weights give, which is better than all; else it does what it is told.
    """

    PLAUSIBLE = 0  # needless reviews: nobody is as good

    def __init__(self, *, latest: bool) -> None:
        super().__init__()
        self.latest = latest
        self.folder_of_a: Path | None = None
        self.saved = False
        self.stolen = Path()

    def alarms(self, worker: Actor) -> int | None:
        if self.latest and worker.attempt == "parcel-01/2":
            return self.PLAUSIBLE
        return 9 + worker.number

    def act(self, engine: CaseEngine, worker: Actor) -> Said:
        said = super().act(engine, worker)
        if worker.attempt == "parcel-01/1":
            self.folder_of_a = worker.folder
            if worker.step >= 42:
                if not self.saved:  # it waits until B has written
                    worker.step, worker.waits = 42, True
                    return [one for one in said if one[1]["kind"] == "alive"]
                return [*said, *engine.lose(worker)]
        if worker.attempt == "parcel-02/1" and worker.step == 46 and not self.saved:
            assert self.folder_of_a is not None
            worker.step = 45
            self.stolen = worker.leave_checkpoint(self.folder_of_a, 45)
            worker.step, self.saved = 46, True
        return said

    def say(self, worker: Actor, kind: str, facts: dict[str, Any]) -> None:
        takes_it = self.latest and worker.attempt == "parcel-01/2" and worker.step > 45
        if takes_it and kind == "checkpoint":
            self.continue_from_b(worker, facts)
        worker.really_say(kind, **facts)

    def continue_from_b(self, worker: Actor, facts: dict[str, Any]) -> None:
        """Write over the checkpoint as one whose parent is B's."""
        stolen = self.stolen.read_bytes()
        facts["parent"] = digest_bytes(stolen)
        lineage = worker.lineage(parent_checkpoint=facts["parent"])
        path = worker.folder / str(facts["file"])
        facts["checkpoint"] = write_checkpoint(path, lineage, origin_in(stolen))


@pytest.mark.parametrize("latest", [True, False], ids=["takes the newest", "takes its own"])
@pytest.mark.parametrize("way", WAYS)
def test_b02_two_trials_share_a_prefix_and_one_is_restarted(
    tmp_path: Path, way: str, latest: bool
) -> None:
    class Honest(Script):
        def alarms(self, worker: Actor) -> int | None:
            return 9 + worker.number

    changes = of_82_steps(way, search__attempts_per_trial=4)
    calm, case = Case(tmp_path / "calm", **changes), Case(tmp_path / "torn", **changes)
    calm.search(Honest())
    script = SharedPrefix(latest=latest)
    assert case.search(script)["ended"] == "budget"
    assert script.saved
    again = case.attempt("parcel-01/2")
    saved = [one.step for one in case.attempt("parcel-01/1").checkpoints]
    assert saved == [9, 13, 26, 39] if way == MILESTONE else [9, 13, 26, 27, 39]
    assert again.started.resume_step == 0, "nothing is resumed from a folder in doubt"
    # both trials are in doubt, both ran again from nothing under prefixes of their own
    assert case.quarantined == {"parcel-01/1", "parcel-02/1"} | (
        {"parcel-01/2"} if latest else set()
    )
    for number in (1, 2):
        clean = [one for one in case.attempts(number) if one.clean]
        assert [(one.state, one.started.resume_step) for one in clean] == [
            (AttemptState.COMPLETED, 0)
        ]
    # what was plausible is nowhere: 0 needless reviews would have been the best of all
    assert 0.0 not in case.compared()
    assert all(0.0 not in row.costs.values() for row in case.rows())
    assert proposals(case) == proposals(calm)
    assert case.table == calm.table
    assert case.state.lineage_faults == ()


# ---- B03, B04: who gets a prefix, and when -------------------------------------------------------

ROUNDS, CLAIMERS = 100, 8


def test_b03_eight_claim_prefixes_at_once_a_hundred_times(tmp_path: Path) -> None:
    store, barrier = FileStore(tmp_path / "store"), threading.Barrier(CLAIMERS)

    def claim(claimer: int) -> list[tuple[Path, bool]]:
        got = []
        for number in range(ROUNDS):
            barrier.wait(60)
            own = store.claim_prefix(f"spring/parcel-{claimer}/{number}", {"attempt": claimer})
            barrier.wait(60)
            try:
                store.claim_prefix(f"spring/shared/{number}", {"attempt": claimer})
            except StorageError:
                got.append((own, False))
            else:
                got.append((own, True))
        return got

    with ThreadPoolExecutor(CLAIMERS) as pool:
        found = [one for got in pool.map(claim, range(CLAIMERS)) for one in got]
    assert len({own for own, _ in found}) == ROUNDS * CLAIMERS
    assert sum(won for _, won in found) == ROUNDS, "of one prefix, one claimer each round"


def test_b03_eight_workers_started_together_write_below_eight_prefixes(tmp_path: Path) -> None:
    case = Case(tmp_path, search__batch_trials=8, search__budget_trials=16)
    script = Script()
    case.search(script, workers=8)
    prefixes = {order["prefix"] for _, order in script.orders}
    assert len(prefixes) == len(script.orders) == 16


def test_b04_a_prefix_is_claimed_when_it_is_chosen_and_not_at_the_first_write(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path)

    class Hesitates(Script):
        turn_seconds = 5.0
        seen: str = ""

        def sent(self, engine: CaseEngine, worker_id: str, message: Mapping[str, Any]) -> None:
            if message["kind"] != "order" or self.seen:
                return
            self.seen = str(message["attempt"])
            # five seconds before anybody writes: ledger and store know who it belongs to
            started = {one["attempt"]: one for one in case.bodies(Kind.ATTEMPT_STARTED)}[self.seen]
            assert [one.name for one in Path(message["prefix"]).iterdir()] == ["owner.json"]
            with pytest.raises(StorageError, match=f"taken by .*{self.seen}"):
                case.world.store.claim_prefix(started["prefix"], {"attempt": "another"})
            lease = case.ledger._leases[REVISION][0]
            with pytest.raises(LedgerError):
                case.ledger.append(lease, [(Kind.ATTEMPT_STARTED, started)])

    script = Hesitates()
    case.search(script)
    assert script.seen


# ---- B06: handed out again, and still alive ------------------------------------------------------


def test_b06_a_worker_silent_past_its_lease_speaks_after_its_trial_was_handed_on(
    tmp_path: Path, quiet: Callable[[str], Case]
) -> None:
    case, script = Case(tmp_path, **of_82_steps(BETWEEN)), Sleeper()
    case.search(script)
    assert {"milestone", "finished"} <= {message["kind"] for _, message in script.late}
    first, second = case.attempts(1)
    assert (first.state, second.state) == (AttemptState.EXPIRED, AttemptState.COMPLETED)
    assert 82 not in first.reports
    kept = [one for one in case.set_aside if "milestone" in one["message"]]
    assert kept, "its late report is kept as evidence"
    assert all("given up" in one["reason"] for one in case.set_aside)
    assert case.table == quiet(BETWEEN).table


# ---- B07, B09: names in the configuration, names of the process ----------------------------------


@pytest.mark.parametrize("section", ["training", "search"])
def test_b07_a_checkpoint_folder_in_the_plan_is_refused(section: str) -> None:
    with pytest.raises(PlanError, match=f"{section}.checkpoint_folder"):
        make_plan(**{f"{section}__checkpoint_folder": "/shared/checkpoints"})


def test_b07_a_folder_among_the_knobs_moves_no_prefix(tmp_path: Path) -> None:
    knob = {"kind": "choice", "values": ["/shared/checkpoints"]}
    with pytest.raises(PlanError, match=r"space\.checkpoint_folder is no knob"):
        make_plan(space__checkpoint_folder=knob)
    own = of_82_steps(MILESTONE, space__checkpoint_folder=knob)
    own["training"]["network"] = "somebody.network:Network"
    case, script = Case(tmp_path, **own), Script()
    case.search(script)
    assert {order["configuration"]["checkpoint_folder"] for _, order in script.orders} == {
        "/shared/checkpoints"
    }
    for _, order in script.orders:
        assert order["prefix"].endswith(order["attempt"])
        assert order["subject"] in order["prefix"]


def test_b09_a_second_search_in_one_process_knows_nothing_of_the_first(tmp_path: Path) -> None:
    first = Case(tmp_path)
    first.search()
    before = first.events
    second = Case(tmp_path, ledger=first.ledger, revision="autumn", search__seed=8)
    script = Script()
    second.search(script)
    assert first.events == before
    prefixes = {str(body["prefix"]) for body in second.bodies(Kind.ATTEMPT_STARTED)}
    assert all(one.startswith("autumn-") for one in prefixes)
    assert {one.split(".")[0] for one, _ in script.orders} == {"autumn"}
    assert len(second.rows()) == 12
    seeds = [{row.seed for row in one.rows()} for one in (first, second)]
    assert not seeds[0] & seeds[1]
    assert np.all([one.revision == "autumn" for one in second.events])
