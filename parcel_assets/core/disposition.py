"""Decides what a finished search may do next: hold with a reason, or evaluate the final holdout.

The records come in already folded and the gates already judged. Freezing a selection, recording
decisions and opening the holdout belong to others.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from parcel_assets.core.errors import DispositionError
from parcel_assets.core.trial import TrialState

HOLD_BUDGET = "hold:budget"
HOLD_INVALID_WINNER = "hold:invalid-winner"
HOLD_SLICE_QUALITY = "hold:slice-quality"
EVALUATE_FINAL_HOLDOUT = "evaluate:final-holdout"

TRIAL_STATES = frozenset(state.value for state in TrialState)
_MISSING = object()


def parcel_search_disposition(
    trials: Iterable[Mapping[str, Any]], budget: int, selected_trial: str | None
) -> str:
    """Return the disposition of a search, or raise DispositionError for records it cannot judge.

    The first rule that applies wins:

    1. a budget below one, or more trials than budget: `hold:budget`
    2. the selected trial is not a completed one with intact lineage: `hold:invalid-winner`
    3. its slice gate did not pass: `hold:slice-quality`
    4. otherwise: `evaluate:final-holdout`

    Every record needs `trial_id` and a known `state`; a completed one needs a boolean `lineage_ok`
    (another state may lack it or have None); the selected one needs a boolean
    `slice_gate_passed`. Flags are only looked at once the budget holds. Further keys are ignored.
    `selected_trial` None says that nothing was selected. Time and space are linear in the trials.
    """
    if isinstance(budget, bool) or not isinstance(budget, int):
        raise _refusal(
            repr(budget), "an integer budget", "budget", "Pass the plan's budget_trials."
        )
    if selected_trial is not None and not isinstance(selected_trial, str):
        raise _refusal(
            repr(selected_trial),
            "a trial id, or None where no trial was selected",
            "selected_trial",
            "Pass the id of the selected trial.",
        )
    records = _indexed(trials)
    if budget <= 0 or len(records) > budget:
        return HOLD_BUDGET
    intact = {
        trial_id for trial_id, record in records.items() if _is_completed_intact(trial_id, record)
    }
    if selected_trial is None or selected_trial not in intact:
        return HOLD_INVALID_WINNER
    if not _flag(selected_trial, records[selected_trial], "slice_gate_passed"):
        return HOLD_SLICE_QUALITY
    return EVALUATE_FINAL_HOLDOUT


def _indexed(trials: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the records by id, each checked for what every record needs."""
    if isinstance(trials, (str, bytes, Mapping)) or not isinstance(trials, Iterable):
        raise _refusal(
            type(trials).__name__,
            "an iterable of trial records",
            "trials",
            "Pass the records themselves, not one record or a table by id.",
        )
    records: dict[str, Mapping[str, Any]] = {}
    for position, record in enumerate(trials):
        if not isinstance(record, Mapping):
            raise _refusal(
                type(record).__name__,
                "a mapping",
                f"trials[{position}]",
                "Pass each trial as a mapping.",
            )
        trial_id = record.get("trial_id", _MISSING)
        if trial_id is _MISSING:
            raise _missing("trial_id", f"trials[{position}]")
        if not isinstance(trial_id, str) or not trial_id:
            raise _refusal(
                repr(trial_id),
                "a trial id (text)",
                f"trials[{position}].trial_id",
                "Name the trial.",
            )
        if trial_id in records:
            raise _refusal(
                f"{trial_id!r} a second time",
                "each trial once",
                f"trials[{position}].trial_id",
                "Pass one record for each trial, not one for each attempt.",
            )
        _check_state(trial_id, record.get("state", _MISSING))
        records[trial_id] = record
    return records


def _check_state(trial_id: str, state: object) -> None:
    if state is _MISSING:
        raise _missing("state", f"trial {trial_id}")
    if not isinstance(state, str) or state not in TRIAL_STATES:
        raise _refusal(
            repr(state),
            f"one of {', '.join(sorted(TRIAL_STATES))}",
            f"trial {trial_id}.state",
            "Pass the state of the trial as the ledger computes it.",
        )


def _is_completed_intact(trial_id: str, record: Mapping[str, Any]) -> bool:
    if record["state"] == TrialState.COMPLETED:
        return _flag(trial_id, record, "lineage_ok")
    if record.get("lineage_ok") is not None:
        _flag(trial_id, record, "lineage_ok")
    return False


def _flag(trial_id: str, record: Mapping[str, Any], key: str) -> bool:
    value = record.get(key, _MISSING)
    if isinstance(value, bool):
        return value
    if value is _MISSING:
        raise _missing(key, f"trial {trial_id}")
    raise _refusal(
        repr(value),
        "True or False",
        f"trial {trial_id}.{key}",
        "Record the outcome as a boolean; anything unknown is not a pass.",
    )


def _missing(key: str, where: str) -> DispositionError:
    return _refusal(f"no {key!r}", f"the key {key!r}", where, "Add the key: the decision needs it.")


def _refusal(found: str, expected: str, where: str, remedy: str) -> DispositionError:
    return DispositionError(found, expected=expected, where=where, remedy=remedy)
