"""The search: batches opened, dispatched, verified and closed until the budget or the cap ends it.

Every rule is asked of `core`; this file only carries out what is decided and resumes from the
ledger after any kill. Its evidence says how the search went; the ledger has every detail.
"""

from contextlib import suppress

from parcel_assets.core.attempts import AttemptRecord
from parcel_assets.core.errors import AdmissionError, IdentityError, LedgerError
from parcel_assets.core.evidence import SearchBody
from parcel_assets.core.identity import DATA_FIELDS, FIRST_RULES, first_difference_of, only_fields
from parcel_assets.core.ledger import Kind
from parcel_assets.core.plain_words import odd_character
from parcel_assets.core.ports import Ports
from parcel_assets.core.search import fold_search
from parcel_assets.core.search_batches import (
    SETTLED,
    batches_to_close,
    cut_table,
    next_batch,
    number_trials,
    propose,
)
from parcel_assets.core.search_charges import Room, room_for
from parcel_assets.core.search_rules import end_reason, next_trial
from parcel_assets.core.selection import close_decision
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.core.trial import Batch
from parcel_assets.steps.admission import leased, load_chain, open_stage
from parcel_assets.steps.dispatch_desk import Desk
from parcel_assets.steps.dispatch_lineage import clashes_of
from parcel_assets.steps.dispatch_loop import Dispatcher
from parcel_assets.steps.dispatch_repair import Repair, needs_repair, replay_entries
from parcel_assets.steps.dispatch_settle import settle_leftovers
from parcel_assets.steps.dispatch_work import Task
from parcel_assets.steps.timestamps import stamp_split

PROGRESS_SECONDS = 0.5
END_OF_SEARCH = "the end of the search"


def run_trial_batches(revision: str, ports: Ports) -> Evidence:
    """Run or resume the search of a revision to its end and return its evidence.

    Raises IdentityError where no worker is what the plan says, LeaseHeldError while another process
    runs the search, SettingError where the machine gives way; all of them lose nothing.
    """
    with open_stage(Stage.SEARCH, revision, ports) as session:
        chain = session.chain
        if session.existing is not None and not needs_repair(chain):
            return session.existing
        desk = Desk(chain.plan, chain.plan_digest, session.lease, ports, chain.split)
        settle_leftovers(desk, "its coordinator was lost")
        work = Search(desk) if desk.state.ended is None else Repair(desk)
        if not work.finished():
            _freeze_identity(desk)
            dispatcher = Dispatcher(desk, work, ports.open_engine(), _workers(desk))
            work.dispatcher = dispatcher
            dispatcher.run()
        return session.record(search_body(desk))


def _workers(desk: Desk) -> int:
    """Return how many workers the slots that are not settled can use."""
    settled = sum(desk.state.trials_by_state.get(str(one), 0) for one in SETTLED)
    return max(1, min(desk.ports.workers, desk.plan.search.budget_trials - settled))


def close_search(revision: str, ports: Ports, *, reason: str) -> None:
    """End a search for good, under the lease; closing it again changes nothing.

    Raises LedgerError without a reason, without a plan, or once a receipt or an opening is there
    (H7); LeaseHeldError while a live process works on the revision.
    """
    words = reason.strip()
    if not words or odd_character(words):
        raise LedgerError(
            odd_character(words) or "no reason",
            expected="a person's reason in plain text, which the ledger keeps",
            where=f"close of {revision}",
            remedy="Say why: `--reason TEXT`.",
        )
    with leased(ports, revision, "close") as lease:
        chain = load_chain(revision, ports)
        if chain.is_opening:
            raise LedgerError(
                "a holdout that this search has begun to open",
                expected="a close before the final evaluation",
                where=f"close of {revision}",
                remedy=f"Its one look is finished by `parcel-assets run {revision}`.",
            )
        state = fold_search(chain.plan, chain.events)
        # what a decision has closed stays closed in its words
        if state.closed is None and close_decision(chain.events) is None:
            if Stage.SPLIT in chain.evidence:
                desk = Desk(chain.plan, chain.plan_digest, lease, ports, chain.split)
                settle_leftovers(desk, "the search was closed")
            ended = [] if state.ended else [(Kind.SEARCH_ENDED, {"reason": "closed"})]
            ports.ledger.append(lease, [*ended, (Kind.SEARCH_CLOSED, {"words": words})])
    with suppress(AdmissionError):  # before the split there is no search to leave evidence of
        run_trial_batches(revision, ports)  # it has ended: only its evidence is left


def _freeze_identity(desk: Desk) -> None:
    """Freeze the workers' identity, once the split is stamped; refuse another split or snapshot."""
    measured = desk.measure_identity()
    frozen = desk.state.identity
    if frozen is None:
        stamp_split(desk.lease, desk.ports)
        entry = {
            "identity": measured,
            "reserved_after_seconds": desk.plan.after_search_seconds,
        }
        desk.record((Kind.SEARCH_OPENED, entry))
        return
    difference = first_difference_of(
        only_fields(frozen, DATA_FIELDS), only_fields(measured, DATA_FIELDS)
    )
    if difference is not None and difference.field == "rules":
        raise IdentityError(
            f"identities measured by rules {measured.get('rules', FIRST_RULES)}",
            expected=f"rules {frozen.get('rules', FIRST_RULES)}, by which this search was opened",
            where=f"trial_batches of {desk.revision}",
            remedy="The package was changed in between. Finish the search with the version that "
            "opened it, or plan a new search revision.",
            field="rules",
        )
    if difference is not None:
        raise AdmissionError(
            f"{difference.field} = {difference.found}",
            expected=f"{difference.expected}, under which this search was opened",
            where=f"trial_batches of {desk.revision}",
            remedy="A search does not change its data. Plan a new search revision.",
            gate="evidence",
            gate_stage=str(Stage.SPLIT),
            hold=None,
        )


class Search:
    """The work of a search, in the order of the budget's slots."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.dispatcher: Dispatcher | None = None
        self._space_exhausted = False
        self._began_at = desk.now()
        self._told_at = 0.0
        self._settled_before = self._settled

    # ---- the work -------------------------------------------------------------------------------

    def finished(self) -> bool:
        """Say whether the search has ended."""
        return self.desk.state.ended is not None

    def next_task(self) -> Task | None:
        """Return the waiting trial of the lowest number if the cap has room for it."""
        desk = self.desk
        trial = next_trial(desk.state)
        if trial is None or room_for(desk.plan, desk.state, "search") != Room.YES:
            return None
        return Task(trial.trial_id, "search", trial.configuration, trial.seed)

    def advance(self) -> None:
        """Close what is settled and verified, open what may open, end what is over."""
        desk = self.desk
        for batch in batches_to_close(desk.state):
            if not self._close(batch):
                break  # what runs again now may belong to a later one
        while not self._space_exhausted and next_batch(desk.plan, desk.state) is not None:
            self._open()
        cap_reached = room_for(desk.plan, desk.state, "search") == Room.NO
        reason = end_reason(
            desk.plan,
            desk.state,
            space_exhausted=self._space_exhausted,
            cap_reached=cap_reached,
        )
        if reason is not None and not self._quarantine_clashes(END_OF_SEARCH, self._attempts()):
            entries = replay_entries(desk)
            desk.record(*entries, (Kind.SEARCH_ENDED, {"reason": reason}))

    def _close(self, batch: int) -> bool:
        """Close a batch whose lineages verify; else quarantine, and its trials run again (S6)."""
        if self._quarantine_clashes(f"the close of batch {batch}", self._attempts(batch)):
            return False
        self.desk.record((Kind.BATCH_CLOSED, {"batch": batch}))
        return True

    def _attempts(self, batch: int | None = None) -> list[AttemptRecord]:
        """Return the clean attempts of a batch's trials, or of all."""
        state = self.desk.state
        trials = state.trials.values() if batch is None else state.batch_trials(batch)
        return [record for trial in trials for record in trial.clean_attempts]

    def _quarantine_clashes(self, found_by: str, records: list[AttemptRecord]) -> bool:
        """Compare ledger, files below the prefixes and parents; say whether they disagreed."""
        clashes = clashes_of(self.desk.state, self.desk.reader, records)
        if clashes:
            assert self.dispatcher is not None
            self.dispatcher.quarantine(clashes, found_by)
        return bool(clashes)

    def _open(self) -> None:
        """Propose the next batch from what it may know, and freeze it with its cut table."""
        desk = self.desk
        number = next_batch(desk.plan, desk.state)
        assert number is not None
        sampler = desk.ports.sampler(desk.plan.search.sampler)
        configurations = propose(desk.plan, desk.state, sampler, number)
        if not configurations:
            self._space_exhausted = True
            return
        batch = Batch(
            batch=number,
            trials=number_trials(desk.plan, desk.state, configurations),
            cut_table=cut_table(desk.plan, desk.state, number),
        )
        desk.record((Kind.BATCH_OPENED, batch.document()))

    # ---- progress -------------------------------------------------------------------------------

    @property
    def _settled(self) -> int:
        counts = self.desk.state.trials_by_state
        return sum(counts.get(str(state), 0) for state in SETTLED)

    def report_progress(self) -> None:
        """Tell how far the search is, at most twice a second."""
        desk = self.desk
        now = desk.now()
        if now - self._told_at < PROGRESS_SECONDS:
            return
        self._told_at = now
        state, done, budget = desk.state, self._settled, desk.plan.search.budget_trials
        new = done - self._settled_before
        left = (now - self._began_at) / new * (budget - done) if new else None
        desk.ports.notify(
            "progress",
            {
                "stage": str(Stage.SEARCH),
                "done": done,
                "total": budget,
                "batch": len(state.batches),
                "trials_by_state": state.trials_by_state,
                "best_trial": state.best_trial,
                "best_cost_per_1000": state.best_cost_per_1000,
                "charged_seconds": sum(state.charged_seconds_by_purpose.values()),
                "cap_seconds": desk.plan.cap_seconds,
                "left_seconds": left,
            },
        )


def search_body(desk: Desk) -> SearchBody:
    """Return what the evidence says of a search that has ended."""
    state = desk.state
    assert state.ended is not None
    return SearchBody(
        ended=state.ended,
        budget_trials=desk.plan.search.budget_trials,
        started_trials=state.started,
        unstarted_trials=state.unstarted,
        trials_by_state=state.trials_by_state,
        attempts_by_state=state.attempts_by_state,
        charged_seconds_by_purpose=dict(state.charged_seconds_by_purpose),
        cap_seconds=desk.plan.cap_seconds,
        steps_trained=state.steps_trained,
        steps_saved_by_pruning=state.steps_saved_by_pruning,
        best_trial=state.best_trial,
        best_cost_per_1000=state.best_cost_per_1000,
        ledger_head=state.head,
    )
