"""Is the outcome the right one? Pure answers from a plan, its events and what a process said.

Each function is one question. Nothing here waits, reads or injects; the drills gather and ask.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from parcel_assets.core.codec import short
from parcel_assets.core.errors import LedgerError
from parcel_assets.core.ledger import Event, Kind, verify_chain
from parcel_assets.core.plan import Plan
from parcel_assets.core.search import SearchState, fold_search
from parcel_assets.core.table import table_digest, table_rows
from parcel_assets.core.trial import TrialState
from parcel_assets.drills.records import Check, listed

SETTLED = {TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED, TrialState.QUARANTINED}


@dataclass(frozen=True, slots=True)
class Scene:
    """A plan and the events that a disturbed search left."""

    plan: Plan
    events: Sequence[Event]
    state: SearchState = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", fold_search(self.plan, self.events))

    def of(self, kind: Kind, after: int = 0) -> list[Event]:
        """Return the events of a kind with a sequence above `after`."""
        return [one for one in self.events if one.kind == kind and one.sequence > after]

    @property
    def table(self) -> str:
        """The digest of the trial table as it stands."""
        return table_digest(table_rows(self.plan, self.state))


# ---- the search as a whole ----------------------------------------------------------------------


def search_ended(scene: Scene, reason: str = "budget") -> Check:
    """Ask whether every slot started and settled once, nothing is open, and the end is named."""
    state, budget = scene.state, scene.plan.search.budget_trials
    settled = sum(state.trials_by_state.get(str(one), 0) for one in SETTLED)
    good = (
        state.ended == reason
        and (state.started, settled) == (budget, budget)
        and not state.open_attempts
        and not state.lineage_faults
    )
    counts = listed(f"{count} {name}" for name, count in state.trials_by_state.items())
    faults = f"; lineage: {state.lineage_faults[0]}" if state.lineage_faults else ""
    return Check(
        "Did the search end with every slot settled once?",
        good,
        f"ended: {state.ended}; {state.started} of {budget} slots started; {counts}; "
        f"{len(state.open_attempts)} attempts open{faults}",
    )


def same_table(scene: Scene, undisturbed: str) -> Check:
    """Ask whether the table is that of a search that nobody disturbed."""
    return Check(
        "Is the trial table that of an undisturbed run?",
        scene.table == undisturbed,
        f"digest {short(scene.table)}, undisturbed {short(undisturbed)}",
    )


def charged_within_the_cap(scene: Scene) -> Check:
    """Ask whether no charge is negative or above its reservation, and the sum within the cap."""
    wrong = [
        one.attempt
        for one in scene.state.attempts.values()
        if one.ended and not 0 <= one.ended.charged_seconds <= one.started.reserved_seconds
    ]
    total = sum(scene.state.charged_seconds_by_purpose.values())
    return Check(
        "Is all compute charged, and within the cap?",
        not wrong and total <= scene.plan.cap_seconds,
        f"{total:.1f} of {scene.plan.cap_seconds:.0f} accelerator-seconds; charges out of bounds: "
        f"{listed(wrong)}",
    )


def chain_whole(events: Sequence[Event]) -> Check:
    """Ask whether the chain of events verifies from its first to its last."""
    try:
        verify_chain(events)
    except LedgerError as error:
        return Check("Does the ledger's chain verify?", False, str(error))
    return Check("Does the ledger's chain verify?", bool(events), f"{len(events)} events")


# ---- clock --------------------------------------------------------------------------------------


def clock_runs_forward(scene: Scene) -> Check:
    """Ask whether no event lies before the one that precedes it."""
    back = [
        after.sequence
        for before, after in itertools.pairwise(scene.events)
        if after.at_seconds < before.at_seconds
    ]
    return Check(
        "Does the ledger's clock run forward only?",
        not back,
        f"events earlier than the one before: {listed(back)}",
    )


# ---- holdout and slices -------------------------------------------------------------------------


def holdout_closed(scene: Scene, traces: Sequence[str]) -> Check:
    """Ask whether neither the ledger nor the vault's folder knows of an opening."""
    opened = scene.of(Kind.HOLDOUT_OPENED)
    return Check(
        "Is the holdout still closed?",
        not opened and not traces,
        f"openings in the ledger: {len(opened)}; receipts and notes in the vault: {listed(traces)}",
    )


def held(name: str, found: str | None, sentence: str) -> Check:
    """Ask whether a revision stands at the hold that it should."""
    return Check(f"Does the revision stand at {name}?", found == name, f"{found}: {sentence}")


def cheaper_but_worse(costs: tuple[float, float], slice_facts: Mapping[str, object]) -> Check:
    """Ask whether the winner beats the reference overall and fails on the protected slice."""
    candidate, reference = costs
    return Check(
        "Is the winner cheaper overall, and does it fail on the protected slice?",
        candidate < reference and slice_facts.get("outcome") == "fail",
        f"{candidate:.0f} against {reference:.0f} per 1,000 overall; {slice_facts.get('sentence')}",
    )


# ---- processes ----------------------------------------------------------------------------------


def ended_with(who: str, expected: int, code: int) -> Check:
    """Ask whether a command ended with the exit code that it should."""
    return Check(f"Did {who} end with exit code {expected}?", code == expected, f"exit code {code}")


def refused_in_words(who: str, code: int, output: str, words: str) -> Check:
    """Ask whether a command refused, saying why."""
    line = next((one.strip() for one in output.splitlines() if words in one), "not said")
    return Check(
        f"Was {who} refused, in words?", code not in {0, 2} and words in output, f"{code}: {line}"
    )


def nobody_left(who: str, living: Collection[int]) -> Check:
    """Ask whether nothing runs any more."""
    return Check(
        f"Was nothing of {who} left running 10 s later?", not living, f"processes: {listed(living)}"
    )
