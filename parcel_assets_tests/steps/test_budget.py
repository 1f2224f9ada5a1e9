"""What ends a search, what pauses it, what a person ends, and what workers may not say of steps."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.adapters import store_files
from parcel_assets.core.errors import (
    AdmissionError,
    IdentityError,
    LedgerError,
    NoWorkerError,
    PlanChangedError,
    PlanError,
    StorageError,
)
from parcel_assets.core.ledger import Event, Kind, Lease
from parcel_assets.core.plan_reader import require_same_plan
from parcel_assets.core.replay import replay_decisions
from parcel_assets.core.search import fold_search
from parcel_assets.core.standing import HOLD, OPEN, standing_of
from parcel_assets.core.trial import AttemptState, TrialState, Verdict
from parcel_assets.steps.admission import load_chain
from parcel_assets.steps.search import close_search
from parcel_assets.steps.table import validate_table
from parcel_assets.steps.worker import Setup
from parcel_assets_tests.fake_training import FakeSampler
from parcel_assets_tests.fakes import FakeLedger
from parcel_assets_tests.search_world import REVISION, World, small_plan
from parcel_assets_tests.simulated_engine import (
    IDENTITY,
    Misfortune,
    MortalLedger,
    SimulatedEngine,
    SimulatedWorker,
)
from parcel_assets_tests.steps.desk import FakeValidator

Twist = Callable[["TwistedWorker", str, dict[str, Any]], None]


@pytest.fixture(autouse=True)
def _no_flushing(monkeypatch: pytest.MonkeyPatch) -> None:
    # files that live for a second need not reach the disk
    monkeypatch.setattr(store_files, "_flush", lambda file: file.flush())
    monkeypatch.setattr(store_files, "_flush_folder", lambda _folder: None)


class TwistedWorker(SimulatedWorker):
    """A worker whose every word goes through a twist, which says it, another one, or nothing."""

    def __init__(self, setup: Setup, twist: Twist) -> None:
        super().__init__(setup)
        self._twist = twist

    def say(self, kind: str, **facts: Any) -> None:
        self._twist(self, kind, facts)

    def really_say(self, kind: str, **facts: Any) -> None:
        super().say(kind, **facts)


class TwistedEngine(SimulatedEngine):
    """Simulated workers that talk through a twist, or are not what they should be."""

    def __init__(self, ledger: MortalLedger, twist: Twist | None, dies_at: str = "") -> None:
        super().__init__(ledger, Misfortune(0, per_call=0.0))
        self._twist = twist
        self._dies_at = dies_at

    def start(self, worker_id: str, setup: Path) -> None:
        if self._twist is None:
            super().start(worker_id, setup)
            return
        self.workers[worker_id] = TwistedWorker(Setup.read(setup), self._twist)

    def receive(self, timeout_seconds: float) -> list[tuple[str, dict[str, Any]]]:
        said = super().receive(timeout_seconds)
        lost = {one for one, message in said if message["kind"] == self._dies_at}
        for worker_id in lost:
            self.workers.pop(worker_id, None)
        kept = [(one, message) for one, message in said if one not in lost]
        return kept + [(one, {"kind": "lost", "reason": "it died"}) for one in sorted(lost)]


class Town:
    """A revision, and searches of it whose workers are simulated."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.ledger = FakeLedger()
        self.world = World(folder, ledger=self.ledger)
        self.world.freeze(small_plan(**changes))

    def search(
        self,
        twist: Twist | None = None,
        *,
        workers: int = 2,
        dies_at: str = "",
        identity: dict[str, str] | None = None,
        engine: type[TwistedEngine] = TwistedEngine,
        ledger: type[MortalLedger] = MortalLedger,
        **settings: Any,
    ) -> dict[str, Any]:
        mortal = ledger(Misfortune(0, per_call=0.0), shared=self.ledger)
        self.world.ledger = mortal
        measured = identity or dict(IDENTITY)
        try:
            body: dict[str, Any] = self.world.search(
                workers=workers,
                engine=lambda: engine(mortal, twist, dies_at),
                identity=lambda _plan, _files: measured,
                **settings,
            ).body
        finally:
            self.ledger.clock_seconds = max(self.ledger.clock_seconds, mortal.clock_seconds)
            self.world.ledger = self.ledger
        return body

    @property
    def events(self) -> tuple[Event, ...]:
        return self.ledger.events(REVISION)

    def kinds(self, kind: Kind) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    def standing(self) -> Any:
        return standing_of(load_chain(REVISION, self.world.ports()))

    def require_cap_at_every_prefix(self) -> None:
        plan = self.world.plan()
        state = fold_search(plan, ())
        for event in self.events:
            state.apply(event)
            held = sum(one.started.reserved_seconds for one in state.open_attempts)
            charged = sum(state.charged_seconds_by_purpose.values())
            assert charged + held <= plan.search_seconds_maximum


# ---- how it ends --------------------------------------------------------------------------------


def test_a_finished_search_run_again_with_eight_workers_starts_nothing(tmp_path: Path) -> None:
    town = Town(tmp_path)
    assert town.search()["ended"] == "budget"
    before = town.events
    town.search(workers=8)
    assert town.events == before


def test_an_exhausted_space_ends_the_search_and_its_slots_are_counted_as_unstarted(
    tmp_path: Path,
) -> None:
    town = Town(tmp_path)
    body = town.search(sampler=FakeSampler(distinct_maximum=9))
    assert (body["ended"], body["started_trials"], body["unstarted_trials"]) == ("space", 9, 3)
    assert sum(body["trials_by_state"].values()) == 12
    assert body["trials_by_state"]["waiting"] == 3
    ports = replace(town.world.ports(), validator=FakeValidator())
    assert validate_table(REVISION, ports).body["trials_by_state"]["waiting"] == 3


def test_where_every_trial_fails_the_search_ends_once_as_failed(tmp_path: Path) -> None:
    def fails(worker: TwistedWorker, _kind: str, _facts: dict[str, Any]) -> None:
        worker.really_say("failed", category="own", error={"found": "a loss"})
        worker.order = None

    town = Town(tmp_path, search__budget_trials=4, search__attempts_per_trial=2)
    assert town.search(fails)["ended"] == "failed"
    assert len(town.kinds(Kind.SEARCH_ENDED)) == 1
    state = town.world.state()
    # trials and their attempts are two counts
    assert (state.trials_by_state, state.attempts_by_state) == ({"failed": 4}, {"failed": 8})


def test_at_the_cap_nothing_more_starts_and_no_prefix_of_the_ledger_is_above_it(
    tmp_path: Path,
) -> None:
    plan = small_plan(search__trial_seconds_maximum=30.0)
    hours = (plan.after_search_seconds + 31.0) / 3600
    town = Town(tmp_path, search__cap_accelerator_hours=hours)
    body = town.search(workers=8)
    assert body["ended"] == "cap"
    assert 0 < body["started_trials"] < 12
    assert body["started_trials"] + body["unstarted_trials"] == 12
    town.require_cap_at_every_prefix()
    assert len(town.kinds(Kind.SEARCH_ENDED)) == 1
    before = town.events
    town.search(workers=8)
    assert town.events == before


def test_the_cap_reached_while_the_last_trial_fails_still_ends_the_search_once(
    tmp_path: Path,
) -> None:
    def fails_late(worker: TwistedWorker, kind: str, facts: dict[str, Any]) -> None:
        assert worker.order is not None
        if worker.order["subject"] != "parcel-02" or kind != "finished":
            worker.really_say(kind, **facts)
            return
        worker.really_say("failed", category="own", error={"found": "a loss"})

    plan = small_plan(search__trial_seconds_maximum=30.0)
    hours = (plan.after_search_seconds + 30.0) / 3600
    town = Town(tmp_path, search__cap_accelerator_hours=hours, search__budget_trials=2)
    body = town.search(fails_late, workers=1)
    assert body["ended"] == "cap"
    assert len(town.kinds(Kind.SEARCH_ENDED)) == 1
    town.require_cap_at_every_prefix()


def test_a_trial_that_would_end_past_its_reservation_is_stopped_there_and_recorded(
    tmp_path: Path,
) -> None:
    def never_ends(worker: TwistedWorker, kind: str, facts: dict[str, Any]) -> None:
        if kind == "checkpoint":
            worker.really_say(kind, **facts)
        worker.waits = True

    town = Town(tmp_path, search__budget_trials=1, search__trial_seconds_maximum=5.0)
    assert town.search(never_ends, workers=1)["ended"] == "failed"
    (first, second) = (one.body for one in town.kinds(Kind.ATTEMPT_ENDED))
    assert first["reason"] == second["reason"] == "it reached the limit of 5 s"
    assert town.world.state().charged_seconds_by_purpose == {"search": 10.0}


def test_an_invalid_proposal_stops_the_run_and_takes_no_slot(tmp_path: Path) -> None:
    class Strays(FakeSampler):
        """Its fifth configuration lies outside the space."""

        def propose(self, plan: Any, *, seed: int, past: Any, count: int) -> Any:
            found = super().propose(plan, seed=seed, past=past, count=count)
            if len(past) <= 4 < len(past) + len(found):
                found[4 - len(past)]["width"] = 9999
            return found

    town = Town(tmp_path)
    with pytest.raises(PlanError, match="width = 9999"):
        town.search(sampler=Strays())
    state = town.world.state()
    assert (state.proposed, state.open_attempts, state.ended) == (3, (), None)
    body = town.search()  # the sampler was mended
    assert (body["started_trials"], body["unstarted_trials"]) == (12, 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [("search.budget_trials", 13), ("search.cap_accelerator_hours", 2.0)],
)
def test_more_budget_for_a_frozen_plan_is_refused_by_name(field: str, value: Any) -> None:
    frozen = small_plan()
    with pytest.raises(PlanChangedError) as refused:
        require_same_plan(
            REVISION, frozen.document(), small_plan(**{field.replace(".", "__"): value})
        )
    assert refused.value.facts["field"] == field
    assert "new search revision" in refused.value.remedy


# ---- pauses -------------------------------------------------------------------------------------


def test_workers_that_die_before_their_first_word_pause_the_search_which_then_goes_on(
    tmp_path: Path,
) -> None:
    town = Town(tmp_path)
    with pytest.raises(NoWorkerError) as stopped:
        town.search(dies_at="milestone")
    assert stopped.value.facts["hold"] == "hold:no-worker"
    state = town.world.state()
    assert (len(town.kinds(Kind.SEARCH_PAUSED)), state.ended, state.open_attempts) == (1, None, ())
    # their slots are started, their time is charged, and no trial has lost an attempt
    assert 0 < state.started == len({one.subject for one in state.attempts.values()})
    assert sum(state.charged_seconds_by_purpose.values()) > 0
    assert not any(one.used_up for one in state.attempts.values())
    standing = town.standing()
    assert (standing.state, standing.hold) == (HOLD, "hold:no-worker")
    assert "it died" in standing.sentence
    assert standing.next_command == f"parcel-assets run {REVISION}"
    body = town.search()
    assert (body["ended"], body["started_trials"]) == ("budget", 12)
    assert town.world.state().paused is None
    assert town.standing().state == OPEN


def test_a_trial_that_loses_its_worker_at_its_last_step_every_time_does_not_go_on_for_ever(
    tmp_path: Path,
) -> None:
    town = Town(tmp_path)
    with pytest.raises(NoWorkerError, match=r"parcel-0\d losing its worker 6 times"):
        town.search(dies_at="finished", workers=1)
    attempts = town.world.state().trials[1].attempts
    assert [one.last_step for one in attempts] == [10] * len(attempts)
    assert town.search()["ended"] == "budget"


def test_workers_that_are_all_refused_pause_the_search_without_a_slot(tmp_path: Path) -> None:
    town = Town(tmp_path)
    with pytest.raises(IdentityError) as refused:
        town.search(identity=dict(IDENTITY) | {"code": "other"})
    assert refused.value.facts["hold"] == "hold:no-worker"
    assert town.standing().hold == "hold:no-worker"
    assert town.world.state().started == 0


# ---- closed by a person -------------------------------------------------------------------------


def test_a_person_ends_a_search_for_good_and_the_chain_goes_no_further(tmp_path: Path) -> None:
    town = Town(tmp_path)
    with pytest.raises(NoWorkerError):
        town.search(dies_at="finished")
    close_search(REVISION, town.world.ports(), reason=" the machine is gone ")
    (ended,) = town.kinds(Kind.SEARCH_ENDED)
    assert ended.body["reason"] == "closed"
    standing = town.standing()
    assert (standing.state, standing.hold) == (HOLD, "closed")
    assert standing.sentence.endswith("by a person: the machine is gone")
    chain = load_chain(REVISION, town.world.ports())
    body = chain.search
    assert (body.ended, body.started_trials + body.unstarted_trials) == ("closed", 12)
    ports = replace(town.world.ports(), validator=FakeValidator())
    with pytest.raises(AdmissionError) as refused:
        validate_table(REVISION, ports)
    assert refused.value.facts["hold"] == "closed"
    before = town.events
    close_search(REVISION, town.world.ports(), reason="once more")
    town.search(workers=8)
    assert town.events == before


def test_a_search_that_ended_by_itself_can_still_be_closed(tmp_path: Path) -> None:
    town = Town(tmp_path)
    town.search()
    digest = town.world.table_digest()
    close_search(REVISION, town.world.ports(), reason="contaminated")
    assert [one.body["reason"] for one in town.kinds(Kind.SEARCH_ENDED)] == ["budget"]
    assert town.standing().hold == "closed"
    assert town.world.table_digest() == digest


def test_no_search_is_closed_without_a_reason_or_once_its_holdout_is_open(tmp_path: Path) -> None:
    town = Town(tmp_path)
    with pytest.raises(LedgerError, match="no reason"):
        close_search(REVISION, town.world.ports(), reason="  ")
    town.search()
    lease = town.ledger.acquire(REVISION, "test")
    town.ledger.open_holdout(lease, {"holdout_digest": "h"}, ["h"])
    town.ledger.release(lease)
    with pytest.raises(LedgerError, match="begun to open"):
        close_search(REVISION, town.world.ports(), reason="too late")


# ---- recorded before it is acted on -------------------------------------------------------------


class WatchedEngine(TwistedEngine):
    """Looks into the ledger whenever a worker is told something."""

    told: int = 0

    def send(self, worker_id: str, message: Mapping[str, Any]) -> None:
        events = self.ledger.events(REVISION)
        if message["kind"] == "order":
            started = [one for one in events if one.kind == Kind.ATTEMPT_STARTED]
            assert message["attempt"] in {one.body["attempt"] for one in started}
            assert (Path(message["prefix"]) / "owner.json").exists()
        elif message["kind"] == "verdict":
            order = self.workers[worker_id].order
            assert order is not None
            found = [
                one.body["verdict"]
                for one in events
                if one.kind == Kind.MILESTONE_REPORTED and one.body["attempt"] == order["attempt"]
            ]
            assert len(found) == self.reported(worker_id)
            assert message["go_on"] == (found[-1] != "stop")
        type(self).told += 1
        super().send(worker_id, message)

    def reported(self, worker_id: str) -> int:
        """Return how many reports the worker's order has made."""
        worker = self.workers[worker_id]
        milestones = worker.setup.plan.training.milestones
        return sum(step <= worker.step for step in milestones)


class CountingLedger(MortalLedger):
    """Counts transactions."""

    appends: int = 0

    def append(self, lease: Lease, entries: Any) -> tuple[Event, ...]:
        type(self).appends += 1
        return super().append(lease, entries)


def test_no_worker_is_told_what_the_ledger_does_not_hold_yet(tmp_path: Path) -> None:
    town = Town(tmp_path)
    WatchedEngine.told = CountingLedger.appends = 0
    town.search(workers=8, engine=WatchedEngine, ledger=CountingLedger)
    assert WatchedEngine.told > 12 * 2
    # and yet the events of one round of messages share a transaction
    assert CountingLedger.appends < len(town.events) / 2


class BriefLedger(MortalLedger):
    """Refuses one transaction in the middle of the search, as a full disk would."""

    def append(self, lease: Lease, entries: Any) -> tuple[Event, ...]:
        kinds = [kind for kind, _ in entries]
        if not self.killed and Kind.ATTEMPT_ENDED in kinds and len(self.events(REVISION)) > 60:
            self.killed = True
            raise StorageError("no room", expected="room", where="ledger", remedy="Free some.")
        self.killed = False
        return super().append(lease, entries)


def test_a_transaction_that_is_refused_leaves_no_state_ahead_of_the_ledger(
    tmp_path: Path,
) -> None:
    town, calm = Town(tmp_path / "refused"), Town(tmp_path / "calm")
    with pytest.raises(StorageError, match="no room"):
        town.search(ledger=BriefLedger)
    state = town.world.state()
    assert state.open_attempts == ()
    assert town.search()["ended"] == calm.search()["ended"] == "budget"
    assert town.world.table_digest() == calm.world.table_digest()
    assert not any(one.used_up for one in town.world.state().attempts.values())


# ---- what workers say of steps ------------------------------------------------------------------


def wrong_once(subject: str, **wrong: Any) -> Twist:
    """Return a twist: the first message of a kind of one subject's first attempt is bent."""

    def twist(worker: TwistedWorker, kind: str, facts: dict[str, Any]) -> None:
        assert worker.order is not None
        step = worker.step
        if worker.order["attempt"] == f"{subject}/1" and kind == wrong["kind"]:
            worker.step = wrong.get("step", step)
            facts = facts | {key: wrong[key] for key in ("photos_seen",) if key in wrong}
        worker.really_say(kind, **facts)
        worker.step = step

    return twist


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"kind": "milestone", "step": 11}, "step 11 of 10"),
        ({"kind": "checkpoint", "step": 11}, "step 11 of 10"),
        ({"kind": "finished", "step": 83}, "step 83 of 10"),
        ({"kind": "milestone", "step": 5}, "milestone 2 skipped"),
        ({"kind": "milestone", "photos_seen": 2}, "2 photos seen"),
    ],
    ids=["past the end", "checkpoint past it", "finish past it", "skipped", "another axis"],
)
def test_a_message_that_breaks_the_protocol_is_refused_and_its_worker_stopped(
    tmp_path: Path, wrong: dict[str, Any], reason: str
) -> None:
    town = Town(tmp_path, search__budget_trials=3)
    assert town.search(wrong_once("parcel-02", **wrong), workers=1)["ended"] == "budget"
    first, second = town.world.state().trials[2].attempts
    assert (first.state, second.state) == (AttemptState.FAILED, AttemptState.COMPLETED)
    assert first.ended is not None
    assert reason in first.ended.reason
    assert first.started.worker_id != second.started.worker_id, "it was told to stop"
    assert not any(step > 10 for step in first.reports)


def test_a_report_between_milestones_is_kept_for_the_curve_and_never_judged(
    tmp_path: Path,
) -> None:
    def tells_more(worker: TwistedWorker, kind: str, facts: dict[str, Any]) -> None:
        worker.really_say(kind, **facts)
        if kind != "milestone" or worker.step != 2:
            return
        worker.step = 4  # the photos of a milestone, but between two
        worker.really_say(kind, **facts | {"photos_seen": 4 * 8})
        worker.step = 2

    quiet, town = Town(tmp_path / "quiet"), Town(tmp_path / "more")
    quiet.search()
    town.search(tells_more)
    state, plan = town.world.state(), town.world.plan()
    between = [
        one.reports[4]
        for record in state.trials.values()
        for one in record.attempts
        if 4 in one.reports
    ]
    assert len(between) >= 8
    assert {one.verdict for one in between} == {Verdict.NOT_COMPARABLE}
    assert {one.reason for one in between} == {"step 4 is no milestone of the plan"}
    assert all(one.cost_per_1000 is not None for one in between)
    assert state.trials_by_state.get(str(TrialState.PRUNED), 0) > 0
    assert town.world.table_digest() == quiet.world.table_digest()
    assert all(one.agrees for one in replay_decisions(plan, town.events))
