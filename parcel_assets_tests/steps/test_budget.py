"""What ends a search, what pauses it, what a person ends; what is recorded before it is told."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.core.errors import (
    AdmissionError,
    IdentityError,
    LedgerError,
    NoWorkerError,
    StorageError,
)
from parcel_assets.core.ledger import Event, Kind, Lease
from parcel_assets.core.replay import replay_decisions
from parcel_assets.core.standing import HOLD, OPEN, Standing, standing_of
from parcel_assets.core.trial import TrialState, Verdict
from parcel_assets.steps.admission import load_chain
from parcel_assets.steps.search import close_search
from parcel_assets.steps.table import validate_table
from parcel_assets_tests.fake_training import FakeSampler
from parcel_assets_tests.search_world import REVISION, small_plan
from parcel_assets_tests.simulation.theatre import (
    Actor,
    Case,
    CaseEngine,
    Entries,
    RunLedger,
    Said,
    Script,
)
from parcel_assets_tests.simulation.worker import IDENTITY
from parcel_assets_tests.steps.desk import FakeValidator

pytestmark = pytest.mark.usefixtures("unflushed")


def standing_in(case: Case) -> Standing:
    return standing_of(load_chain(REVISION, case.world.ports()))


class Fails(Script):
    """Every trial says of itself that it failed, whatever it was about to say."""

    def say(self, worker: Actor, kind: str, facts: dict[str, Any]) -> None:
        worker.fail()


class DiesAt(Script):
    """Every worker dies before one kind of its messages arrives."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def act(self, engine: CaseEngine, worker: Actor) -> Said:
        said = super().act(engine, worker)
        dies = any(message["kind"] == self.kind for _, message in said)
        return engine.lose(worker, "it died") if dies else said


# ---- how it ends --------------------------------------------------------------------------------


def test_an_exhausted_space_ends_the_search_and_its_slots_are_counted_as_unstarted(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path)
    body = case.search(sampler=FakeSampler(distinct_maximum=9))
    assert (body["ended"], body["started_trials"], body["unstarted_trials"]) == ("space", 9, 3)
    assert sum(body["trials_by_state"].values()) == 12
    assert body["trials_by_state"]["waiting"] == 3
    ports = replace(case.world.ports(), validator=FakeValidator())
    assert validate_table(REVISION, ports).body["trials_by_state"]["waiting"] == 3


def test_where_every_trial_fails_the_search_ends_once_as_failed(tmp_path: Path) -> None:
    case = Case(tmp_path, search__budget_trials=4, search__attempts_per_trial=2)
    assert case.search(Fails())["ended"] == "failed"
    assert len(case.bodies(Kind.SEARCH_ENDED)) == 1
    state = case.state
    # trials and their attempts are two counts
    assert (state.trials_by_state, state.attempts_by_state) == ({"failed": 4}, {"failed": 8})


def test_at_the_cap_nothing_more_starts_and_no_prefix_of_the_ledger_is_above_it(
    tmp_path: Path,
) -> None:
    plan = small_plan(search__trial_seconds_maximum=30.0)
    hours = (plan.after_search_seconds + 31.0) / 3600
    case = Case(tmp_path, search__cap_accelerator_hours=hours)
    body = case.search(workers=8)
    assert body["ended"] == "cap"
    assert 0 < body["started_trials"] < 12
    assert body["started_trials"] + body["unstarted_trials"] == 12
    case.require_cap(case.world.plan().search_seconds_maximum)
    assert len(case.bodies(Kind.SEARCH_ENDED)) == 1
    before = case.events
    case.search(workers=8)
    assert case.events == before


def test_a_trial_that_would_end_past_its_reservation_is_stopped_there_and_recorded(
    tmp_path: Path,
) -> None:
    class NeverEnds(Script):
        def say(self, worker: Actor, kind: str, facts: dict[str, Any]) -> None:
            if kind == "checkpoint":
                worker.really_say(kind, **facts)
            worker.waits = True

    case = Case(tmp_path, search__budget_trials=1, search__trial_seconds_maximum=5.0)
    assert case.search(NeverEnds(), workers=1)["ended"] == "failed"
    (first, second) = case.bodies(Kind.ATTEMPT_ENDED)
    assert first["reason"] == second["reason"] == "it reached the limit of 5 s"
    assert case.state.charged_seconds_by_purpose == {"search": 10.0}


# ---- pauses -------------------------------------------------------------------------------------


def test_workers_that_die_before_their_first_word_pause_the_search_which_then_goes_on(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path)
    with pytest.raises(NoWorkerError) as stopped:
        case.search(DiesAt("milestone"))
    assert stopped.value.facts["hold"] == "hold:no-worker"
    state = case.state
    assert (len(case.bodies(Kind.SEARCH_PAUSED)), state.ended, state.open_attempts) == (1, None, ())
    # their slots are started, their time is charged, and no trial has lost an attempt
    assert 0 < state.started == len({one.subject for one in state.attempts.values()})
    assert sum(state.charged_seconds_by_purpose.values()) > 0
    assert not any(one.used_up for one in state.attempts.values())
    standing = standing_in(case)
    assert (standing.state, standing.hold) == (HOLD, "hold:no-worker")
    assert "it died" in standing.sentence
    assert standing.next_command == f"parcel-assets run {REVISION}"
    body = case.search()
    assert (body["ended"], body["started_trials"]) == ("budget", 12)
    assert case.state.paused is None
    assert standing_in(case).state == OPEN


def test_a_trial_that_loses_its_worker_at_its_last_step_every_time_does_not_go_on_for_ever(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path)
    with pytest.raises(NoWorkerError, match=r"parcel-0\d losing its worker 6 times"):
        case.search(DiesAt("finished"), workers=1)
    attempts = case.state.trials[1].attempts
    assert [one.last_step for one in attempts] == [10] * len(attempts)
    assert case.search()["ended"] == "budget"


def test_workers_that_are_all_refused_pause_the_search_without_a_slot(tmp_path: Path) -> None:
    case = Case(tmp_path)
    with pytest.raises(IdentityError) as refused:
        case.search(identity=lambda _plan, _files: IDENTITY | {"code": "other"})
    assert refused.value.facts["hold"] == "hold:no-worker"
    assert standing_in(case).hold == "hold:no-worker"
    assert case.state.started == 0


# ---- closed by a person -------------------------------------------------------------------------


def test_a_person_ends_a_search_for_good_and_the_chain_goes_no_further(tmp_path: Path) -> None:
    case = Case(tmp_path)
    with pytest.raises(NoWorkerError):
        case.search(DiesAt("finished"))
    close_search(REVISION, case.world.ports(), reason=" the machine is gone ")
    (ended,) = case.bodies(Kind.SEARCH_ENDED)
    assert ended["reason"] == "closed"
    standing = standing_in(case)
    assert (standing.state, standing.hold) == (HOLD, "closed")
    assert standing.sentence.endswith("by a person: the machine is gone")
    chain = load_chain(REVISION, case.world.ports())
    body = chain.search
    assert (body.ended, body.started_trials + body.unstarted_trials) == ("closed", 12)
    ports = replace(case.world.ports(), validator=FakeValidator())
    with pytest.raises(AdmissionError) as refused:
        validate_table(REVISION, ports)
    assert refused.value.facts["hold"] == "closed"
    before = case.events
    close_search(REVISION, case.world.ports(), reason="once more")
    case.search(workers=8)
    assert case.events == before


def test_a_search_that_ended_by_itself_can_still_be_closed(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.search()
    digest = case.table
    close_search(REVISION, case.world.ports(), reason="contaminated")
    assert [one["reason"] for one in case.bodies(Kind.SEARCH_ENDED)] == ["budget"]
    assert standing_in(case).hold == "closed"
    assert case.table == digest


def test_no_search_is_closed_without_a_reason_or_once_its_holdout_is_open(tmp_path: Path) -> None:
    case = Case(tmp_path)
    with pytest.raises(LedgerError, match="no reason"):
        close_search(REVISION, case.world.ports(), reason="  ")
    case.search()
    lease = case.ledger.acquire(REVISION, "test")
    case.ledger.open_holdout(lease, {"holdout_digest": "h"}, ["h"])
    case.ledger.release(lease)
    with pytest.raises(LedgerError, match="begun to open"):
        close_search(REVISION, case.world.ports(), reason="too late")


# ---- recorded before it is acted on -------------------------------------------------------------


class Watches(Script):
    """Looks into the ledger whenever a worker is told something."""

    told = 0

    def sent(self, engine: CaseEngine, worker_id: str, message: Mapping[str, Any]) -> None:
        events = engine.ledger.events(REVISION)
        if message["kind"] == "order":
            started = [one for one in events if one.kind == Kind.ATTEMPT_STARTED]
            assert message["attempt"] in {one.body["attempt"] for one in started}
            assert (Path(message["prefix"]) / "owner.json").exists()
        elif message["kind"] == "verdict":
            worker = engine.workers[worker_id]
            found = [
                one.body["verdict"]
                for one in events
                if one.kind == Kind.MILESTONE_REPORTED and one.body["attempt"] == worker.attempt
            ]
            reported = [step for step in worker.plan.training.milestones if step <= worker.step]
            assert len(found) == len(reported)
            assert message["go_on"] == (found[-1] != "stop")
        self.told += 1


def test_no_worker_is_told_what_the_ledger_does_not_hold_yet(tmp_path: Path) -> None:
    transactions: list[int] = []

    class CountingLedger(RunLedger):
        def append(self, lease: Lease, entries: Entries) -> tuple[Event, ...]:
            transactions.append(len(entries))
            return super().append(lease, entries)

    case, script = Case(tmp_path), Watches()
    case.search(script, workers=8, ledger=CountingLedger)
    assert script.told > 12 * 2
    # and yet the events of one round of messages share a transaction
    assert len(transactions) < len(case.events) / 2


class BriefLedger(RunLedger):
    """Refuses one transaction in the middle of the search, as a full disk would."""

    refused = False

    def append(self, lease: Lease, entries: Entries) -> tuple[Event, ...]:
        ends = any(kind == Kind.ATTEMPT_ENDED for kind, _ in entries)
        if ends and not self.refused and len(self.events(REVISION)) > 60:
            self.refused = True
            raise StorageError("no room", expected="room", where="ledger", remedy="Free some.")
        return super().append(lease, entries)


def test_a_transaction_that_is_refused_leaves_no_state_ahead_of_the_ledger(
    tmp_path: Path,
) -> None:
    case, calm = Case(tmp_path / "refused"), Case(tmp_path / "calm")
    with pytest.raises(StorageError, match="no room"):
        case.search(ledger=BriefLedger)
    state = case.state
    assert state.open_attempts == ()
    assert case.search()["ended"] == calm.search()["ended"] == "budget"
    assert case.table == calm.table
    assert not any(one.used_up for one in case.state.attempts.values())


def test_a_report_between_milestones_is_kept_for_the_curve_and_never_judged(
    tmp_path: Path,
) -> None:
    class TellsMore(Script):
        def say(self, worker: Actor, kind: str, facts: dict[str, Any]) -> None:
            worker.really_say(kind, **facts)
            if kind == "milestone" and worker.step == 2:
                # the photos of a milestone, but between two
                worker.really_say(kind, **facts | {"step": 4, "photos_seen": 4 * 8})

    quiet, case = Case(tmp_path / "quiet"), Case(tmp_path / "more")
    quiet.search()
    case.search(TellsMore())
    state, plan = case.state, case.world.plan()
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
    assert case.table == quiet.table
    assert all(one.agrees for one in replay_decisions(plan, case.events))
