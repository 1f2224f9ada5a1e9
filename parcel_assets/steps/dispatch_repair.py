"""Contamination that is found after a batch closed: held, rerun, replayed (design §7).

Every lineage is verified once more before something is made of the search. What is found then stops
that stage; the next run of the search trains the trials again and replays the decisions without
what was contaminated.
"""

from parcel_assets.core.attempts import AttemptRecord, SubjectRecord
from parcel_assets.core.chain import Chain
from parcel_assets.core.contamination import replay_without, unreplayed
from parcel_assets.core.errors import HoldError
from parcel_assets.core.ledger import Kind
from parcel_assets.core.search import fold_search
from parcel_assets.core.search_charges import Room, room_for
from parcel_assets.core.trial import TrialState
from parcel_assets.steps.admission import StageSession
from parcel_assets.steps.dispatch_desk import Desk, Entry
from parcel_assets.steps.dispatch_lineage import clashes_of
from parcel_assets.steps.dispatch_loop import Dispatcher
from parcel_assets.steps.dispatch_settle import quarantine_entries
from parcel_assets.steps.dispatch_work import Task

HOLD_LINEAGE = "hold:lineage"


def require_lineages(session: StageSession) -> None:
    """Verify every lineage of the revision before a stage builds on it.

    Raises HoldError where one does not hold: all attempts involved are quarantined then.
    """
    chain = session.chain
    desk = Desk(chain.plan, chain.plan_digest, session.lease, session.ports, chain.split)
    desk.set_aside_quarantined()
    records = list(desk.state.attempts.values())
    if not quarantine_clashes(desk, records, f"the start of {session.stage}"):
        return
    faults = desk.state.lineage_faults
    raise HoldError(
        "; ".join(faults[:3]),
        expected="ledger, files and parents of every attempt that agree",
        where=f"{session.stage} of {chain.revision}",
        remedy="All attempts involved are quarantined. Run again: their trials are trained again "
        "and every decision is replayed without them.",
        hold=HOLD_LINEAGE,
    )


def quarantine_clashes(desk: Desk, records: list[AttemptRecord], found_by: str) -> bool:
    """Quarantine all that clashes of settled attempts involve; say whether there were any."""
    clashes = clashes_of(desk.state, desk.reader, records)
    if clashes:
        desk.record(*quarantine_entries(desk, clashes, found_by))
        desk.set_aside_quarantined()
    return bool(clashes)


def needs_repair(chain: Chain) -> bool:
    """Say whether contamination found late waits for reruns and for its replay.

    Once the holdout is open (H7), or a person closed the search, nothing is trained any more.
    """
    over = {Kind.HOLDOUT_OPENED, Kind.SEARCH_CLOSED}
    if any(event.kind in over for event in chain.events):
        return False
    return bool(unreplayed(fold_search(chain.plan, chain.events)))


def replay_entries(desk: Desk) -> list[Entry]:
    """Return what records the replay without late contamination; nothing where there is none."""
    attempts = unreplayed(desk.state)
    if not attempts:
        return []
    sampler = desk.ports.sampler(desk.plan.search.sampler)
    body = replay_without(desk.plan, desk.state, sampler, attempts)
    return [(Kind.CONTAMINATION_REPLAYED, body.document())]


class Repair:
    """The work after a search's end: contaminated trials again, then the replay."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.dispatcher: Dispatcher | None = None

    def finished(self) -> bool:
        """Say whether every late quarantine was replayed, or a person closed the search."""
        return self.desk.state.closed is not None or not unreplayed(self.desk.state)

    def advance(self) -> None:
        """Once no trial can run again: verify every lineage anew, then replay."""
        desk = self.desk
        waits = self._left() and room_for(desk.plan, desk.state, "search") != Room.NO
        if self.finished() or desk.state.open_attempts or waits:
            return
        records = list(desk.state.attempts.values())
        if not quarantine_clashes(desk, records, "the repair after the search"):
            desk.record(*replay_entries(desk))

    def next_task(self) -> Task | None:
        """Return the contaminated trial of the lowest number that may run again."""
        desk, left = self.desk, self._left()
        if not left or room_for(desk.plan, desk.state, "search") != Room.YES:
            return None
        trial = left[0].trial
        assert trial is not None
        return Task(trial.trial_id, "search", trial.configuration, trial.seed)

    def report_progress(self) -> None:
        """Tell nothing: the ledger shows each attempt."""

    def _left(self) -> list[SubjectRecord]:
        """Return the trials that a quarantine left without a clean run and that have attempts."""
        state, attempts = self.desk.state, self.desk.plan.search.attempts_per_trial
        return [
            state.trials[number]
            for number in sorted(state.trials)
            if state.trial_state(number) == TrialState.QUARANTINED
            and not state.trials[number].used_up(attempts)
        ]
