"""The chain finds every edit, and the opening of the holdout closes the search (H7)."""

from dataclasses import replace

import pytest

from parcel_assets.core.errors import LedgerError
from parcel_assets.core.ledger import (
    CLOSED_BY_OPENING,
    Event,
    Kind,
    chain_event,
    check_may_append,
    verify_chain,
)


def a_chain(length: int) -> list[Event]:
    events: list[Event] = []
    for number in range(length):
        events.append(
            chain_event(
                events[-1] if events else None,
                revision="r1",
                at_seconds=100.0 + number,
                kind=Kind.PLAN_FROZEN if number == 0 else Kind.BATCH_CLOSED,
                body={"batch": number},
            )
        )
    return events


def test_an_untouched_chain_verifies() -> None:
    verify_chain(a_chain(5))


@pytest.mark.parametrize("change", ["edited", "dropped", "reordered", "appended"])
def test_a_changed_chain_is_found_at_its_first_bad_event(change: str) -> None:
    events = a_chain(5)
    if change == "edited":
        events[2] = replace(events[2], body={"batch": 99})
    elif change == "dropped":
        del events[2]
    elif change == "reordered":
        events[2], events[3] = events[3], events[2]
    else:
        events.append(replace(events[4], sequence=6))
    with pytest.raises(LedgerError):
        verify_chain(events)


def test_the_clock_never_runs_backwards() -> None:
    first = chain_event(None, revision="r", at_seconds=50.0, kind=Kind.PLAN_FROZEN, body={})
    second = chain_event(first, revision="r", at_seconds=10.0, kind=Kind.BATCH_CLOSED, body={})
    assert second.at_seconds == 50.0


@pytest.mark.parametrize("kind", sorted(CLOSED_BY_OPENING))
def test_nothing_that_could_have_used_the_holdout_follows_its_opening(kind: Kind) -> None:
    with pytest.raises(LedgerError, match="after the holdout was opened"):
        check_may_append({Kind.PLAN_FROZEN, Kind.HOLDOUT_OPENED}, kind, "r1")


def test_nothing_precedes_the_plan_and_one_time_events_come_once() -> None:
    with pytest.raises(LedgerError, match="before any plan"):
        check_may_append(set(), Kind.SEARCH_OPENED, "r1")
    with pytest.raises(LedgerError, match="a second"):
        check_may_append({Kind.PLAN_FROZEN, Kind.SEARCH_ENDED}, Kind.SEARCH_ENDED, "r1")
