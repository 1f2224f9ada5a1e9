"""Who may be chosen, in which order: completed, intact, lowest cost, ties to the lower number."""

from typing import Any

import pytest

from parcel_assets.core.errors import HoldError
from parcel_assets.core.ledger import Event, Kind
from parcel_assets.core.selection import choose, choose_next, day_of, rank_trials
from parcel_assets.core.trial import TrialRow, TrialState


def row(number: int, **changes: Any) -> TrialRow:
    fields: dict[str, Any] = {
        "number": number,
        "trial_id": f"parcel-{number:02d}",
        "seed": number,
        "configuration": {},
        "state": TrialState.COMPLETED,
        "costs": {},
        "final_cost_per_1000": 100.0 + number,
        "threshold": 0.5,
        "scores": "00" * 32,
        "lineage_ok": True,
    }
    return TrialRow(**fields | changes)


def decision() -> Event:
    return Event("a", 9, 1.0, Kind.DECISION_RECORDED, {"outcome": "replace"}, "", "dd" * 32)


@pytest.mark.parametrize(
    "changes",
    [
        {"state": TrialState.PRUNED},
        {"state": TrialState.FAILED},
        {"state": TrialState.QUARANTINED},
        {"lineage_ok": False},
        {"final_cost_per_1000": None},
        {"threshold": None},
        {"scores": None},
    ],
)
def test_only_a_completed_trial_with_intact_lineage_and_a_value_ranks(
    changes: dict[str, Any],
) -> None:
    best = row(1, **{"final_cost_per_1000": 1.0} | changes)
    assert [one.number for one in rank_trials([best, row(2)])] == [2]


def test_equal_costs_go_to_the_lower_number_whatever_the_order_of_rows() -> None:
    rows = [row(number, final_cost_per_1000=7.0) for number in (3, 1, 2)]
    assert [one.number for one in rank_trials(rows)] == [1, 2, 3]


def test_the_next_is_taken_from_the_frozen_ranking_not_from_a_new_one() -> None:
    first = choose([row(1), row(2), row(3)], "00" * 32, "a")
    later = [row(1), row(2, final_cost_per_1000=999.0, threshold=0.25), row(3)]
    following = choose_next(first, later, decision(), "a")
    assert (following.trial, following.threshold) == ("parcel-02", 0.25)
    assert following.ranking == first.ranking
    assert following.informed_by == "dd" * 32


def test_a_trial_that_lost_its_lineage_is_passed_over() -> None:
    first = choose([row(1), row(2), row(3)], "00" * 32, "a")
    later = [row(1), row(2, lineage_ok=False), row(3)]
    assert choose_next(first, later, decision(), "a").trial == "parcel-03"


def test_with_nobody_behind_it_holds() -> None:
    first = choose([row(1)], "00" * 32, "a")
    with pytest.raises(HoldError, match="no trial behind parcel-01"):
        choose_next(first, [row(1)], decision(), "a")


def test_a_day_is_a_day_in_utc() -> None:
    assert day_of(0.0).isoformat() == "1970-01-01"
    assert day_of(86_399.9).isoformat() == "1970-01-01"
