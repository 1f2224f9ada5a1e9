"""The trial table: what the search found about every slot, and the digest that names it.

The digest covers number, configuration, seed, state, values at milestones and the digest of the
validation scores: not how it went (attempts, workers, times, compute), which the ledger keeps.
"""

from collections.abc import Sequence

import numpy as np

from parcel_assets.core.attempts import SubjectRecord
from parcel_assets.core.codec import digest_value
from parcel_assets.core.errors import StorageError
from parcel_assets.core.plan import Plan
from parcel_assets.core.ports import Scores
from parcel_assets.core.search import SearchState
from parcel_assets.core.trial import TrialRow, TrialState, trial_id_of, trial_seed

_SCORE_TYPE = np.dtype("<f4")


def table_rows(plan: Plan, state: SearchState) -> tuple[TrialRow, ...]:
    """Return one row for each slot of the budget, by number.

    A slot that was never proposed is `waiting` and has an empty configuration.
    """
    late = {
        one.subject
        for one in state.attempts.values()
        # a contaminated winner is an invalid winner, whatever a replay shows
        if one.quarantined_late and (one.chosen or not one.cleared)
    }
    return tuple(
        _row(plan, state, number, late) for number in range(1, plan.search.budget_trials + 1)
    )


def _row(plan: Plan, state: SearchState, number: int, late: set[str]) -> TrialRow:
    record = state.trials.get(number) or SubjectRecord(trial_id_of(number))
    status, reports, trial = state.trial_state(number), record.reports, record.trial
    final = reports.get(plan.training.steps) if status == TrialState.COMPLETED else None
    return TrialRow(
        number=number,
        trial_id=trial_id_of(number),
        seed=trial.seed if trial else trial_seed(plan.search.seed, number),
        configuration=trial.configuration if trial else {},
        state=status,
        costs={
            str(step): reports[step].cost_per_1000
            for step in plan.training.milestones
            if step in reports
        },
        final_cost_per_1000=final.cost_per_1000 if final else None,
        threshold=final.threshold if final else None,
        scores=final.scores if final else None,
        lineage_ok=status != TrialState.QUARANTINED and record.subject not in late,
    )


def table_digest(rows: Sequence[TrialRow]) -> str:
    """Return the digest of the table's rows."""
    return digest_value([row.document() for row in rows])


def pack_scores(scores: Scores) -> bytes:
    """Return scores as the bytes that the store keeps: little-endian float32, in row order."""
    return np.ascontiguousarray(scores, dtype=_SCORE_TYPE).tobytes()


def unpack_scores(data: bytes, photos: int) -> Scores:
    """Return the scores in stored bytes; raises StorageError for another number of photos."""
    if len(data) != photos * _SCORE_TYPE.itemsize:
        raise StorageError(
            f"{len(data)} bytes of scores",
            expected=f"{photos * _SCORE_TYPE.itemsize} bytes for {photos} photos",
            where="stored scores",
            remedy="These scores belong to another set of photos.",
        )
    return np.frombuffer(data, dtype=_SCORE_TYPE).astype(np.float32)
