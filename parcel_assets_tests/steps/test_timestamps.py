"""Timestamps are due before the first trial and before the opening, and nothing goes on unsaid."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.core.errors import TimestampError
from parcel_assets.core.evidence import FinalBody
from parcel_assets.core.ledger import Kind, event_bytes
from parcel_assets.core.timestamps import (
    CLOCKS_APART_SECONDS,
    Token,
    choice_timestamp,
    split_timestamp,
    timestamp_words,
)
from parcel_assets.steps.admission import leased
from parcel_assets.steps.evaluation import evaluate_final
from parcel_assets_tests.fakes import FakeLedger
from parcel_assets_tests.search_world import REVISION as SEARCHED
from parcel_assets_tests.search_world import World, small_plan
from parcel_assets_tests.steps.desk import REVISION, Desk, FakeVault, make_desk
from parcel_assets_tests.steps.test_evaluation import DyingLedger, reported
from parcel_assets_tests.timestamp_authority import FakeTimestamper

Seat = Callable[..., Desk]


@pytest.fixture
def seat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seat:
    """Return a maker of desks whose slice report is on record and whose split is stamped."""

    def make(ledger: FakeLedger | None = None, *, stamped: bool = True) -> Desk:
        ledger = ledger or FakeLedger()
        timestamper = FakeTimestamper(ledger.now) if stamped else None
        return reported(make_desk(tmp_path, ledger=ledger, timestamper=timestamper), monkeypatch)

    return make


def away(_token: Token) -> Token:
    raise TimestampError("no answer", expected="one", where="authority", remedy="Run again.")


def lying(desk: Desk, lie: Callable[[Token], Token]) -> None:
    timestamper = desk.ports.timestamper
    assert isinstance(timestamper, FakeTimestamper)
    timestamper.lie = lie


def final(desk: Desk) -> FinalBody:
    return FinalBody.model_validate(evaluate_final(REVISION, desk.ports).body)


def kinds(desk: Desk) -> list[Kind]:
    return [event.kind for event in desk.ports.ledger.events(REVISION)]


class TestChoice:
    def test_with_both_the_look_claims_l2(self, seat: Seat) -> None:
        desk = seat()
        assert final(desk).evidence_level == "L2"
        assert kinds(desk).count(Kind.TIMESTAMP_RECORDED) == 2

    def test_the_timestamp_stands_right_before_the_opening_and_is_over_all_before(
        self, seat: Seat
    ) -> None:
        desk = seat()
        evaluate_final(REVISION, desk.ports)
        events = desk.ports.ledger.events(REVISION)
        stamp = choice_timestamp(events)
        assert stamp is not None
        assert events[stamp.sequence].kind == Kind.HOLDOUT_OPENED
        assert isinstance(desk.ports.timestamper, FakeTimestamper)
        assert desk.ports.timestamper.stamped[-1] == event_bytes(events[stamp.sequence - 2])

    def test_without_an_authority_nothing_is_asked_and_the_level_is_l1(self, seat: Seat) -> None:
        desk = seat(stamped=False)
        assert final(desk).evidence_level == "L1"
        assert Kind.TIMESTAMP_RECORDED not in kinds(desk)
        assert timestamp_words(desk.ports.ledger.events(REVISION)) == "not timestamped"

    def test_an_authority_that_is_away_keeps_the_holdout_shut_and_the_next_run_goes_on(
        self, seat: Seat
    ) -> None:
        desk = seat()
        before = kinds(desk)
        lying(desk, away)
        with pytest.raises(TimestampError):
            evaluate_final(REVISION, desk.ports)
        assert kinds(desk) == before
        assert isinstance(desk.ports.vault, FakeVault)
        assert not desk.ports.vault.receipts
        lying(desk, lambda token: token)
        assert final(desk).evidence_level == "L2"

    @pytest.mark.parametrize("apart", [-CLOCKS_APART_SECONDS - 2, CLOCKS_APART_SECONDS + 2])
    def test_a_time_before_what_it_stamps_or_ahead_of_now_is_refused(
        self, seat: Seat, apart: float
    ) -> None:
        desk = seat()
        before = kinds(desk)
        lying(desk, lambda token: replace(token, at_seconds=token.at_seconds + apart))
        with pytest.raises(TimestampError, match="early" if apart < 0 else "late") as refused:
            evaluate_final(REVISION, desk.ports)
        assert "clock" in refused.value.remedy
        assert kinds(desk) == before

    def test_after_a_stamped_split_no_authority_is_refused_until_somebody_says_so(
        self, seat: Seat
    ) -> None:
        desk = seat()
        unset = replace(desk.ports, timestamper=None)
        with pytest.raises(TimestampError, match="although the split was timestamped") as refused:
            evaluate_final(REVISION, unset)
        assert "PARCEL_ASSETS_TIMESTAMP_URL=none" in refused.value.remedy
        assert Kind.HOLDOUT_OPENED not in kinds(desk)
        declined = replace(unset, timestamps_declined=True)
        assert evaluate_final(REVISION, declined).body["evidence_level"] == "L1"
        words = timestamp_words(desk.ports.ledger.events(REVISION))
        assert words.startswith("split timestamped 1970-01-01T00:")
        assert words.endswith("choice not timestamped")

    def test_an_authority_set_after_the_search_stamps_the_choice_and_claims_l1(
        self, seat: Seat
    ) -> None:
        desk = seat(stamped=False)
        ports = replace(desk.ports, timestamper=FakeTimestamper(desk.ports.ledger.now))
        assert evaluate_final(REVISION, ports).body["evidence_level"] == "L1"
        words = timestamp_words(desk.ports.ledger.events(REVISION))
        assert words.startswith("split not timestamped, choice timestamped")

    @pytest.mark.parametrize(
        "moment", ["after the other", "before the receipt", "after the opening"]
    )
    def test_a_crash_between_timestamp_and_opening_asks_nobody_twice(
        self, seat: Seat, moment: str
    ) -> None:
        ledger = DyingLedger()
        desk = seat(ledger)
        assert isinstance(desk.ports.vault, FakeVault)
        ledger.dies = desk.ports.vault.dies = moment
        with pytest.raises(KeyboardInterrupt):
            evaluate_final(REVISION, desk.ports)
        ledger.dies = desk.ports.vault.dies = ""
        assert final(desk).evidence_level == "L2"
        assert kinds(desk).count(Kind.TIMESTAMP_RECORDED) == 2

    def test_whatever_is_written_in_between_is_stamped_too(self, seat: Seat) -> None:
        ledger = DyingLedger()
        desk = seat(ledger)
        ledger.dies = "after the other"
        with pytest.raises(KeyboardInterrupt):
            evaluate_final(REVISION, desk.ports)
        with leased(desk.ports, REVISION, "test") as lease:
            ledger.append(lease, [(Kind.WORKER_REFUSED, refused_worker())])
        assert final(desk).evidence_level == "L2"
        assert kinds(desk).count(Kind.TIMESTAMP_RECORDED) == 3


def refused_worker() -> dict[str, Any]:
    return {"worker_id": "w", "field": "code", "found": "a", "expected": "b", "cause": "c"}


class TestSplit:
    def test_it_is_stamped_before_the_search_opens_and_never_again(self, tmp_path: Path) -> None:
        world = World(tmp_path)
        world.freeze(small_plan())
        timestamper = FakeTimestamper(world.ledger.now)
        world.search(timestamper=timestamper)
        world.search(timestamper=timestamper)
        said = [event.kind for event in world.ledger.events(SEARCHED)]
        place = said.index(Kind.TIMESTAMP_RECORDED)
        assert said[place - 1 : place + 2] == [
            Kind.STAGE_RECORDED,
            Kind.TIMESTAMP_RECORDED,
            Kind.SEARCH_OPENED,
        ]
        assert said.count(Kind.TIMESTAMP_RECORDED) == 1

    def test_an_authority_that_is_away_starts_no_trial_and_the_next_run_goes_on(
        self, tmp_path: Path
    ) -> None:
        world = World(tmp_path)
        world.freeze(small_plan())
        before = world.ledger.events(SEARCHED)
        timestamper = FakeTimestamper(world.ledger.now)
        timestamper.lie = away
        with pytest.raises(TimestampError):
            world.search(timestamper=timestamper)
        assert world.ledger.events(SEARCHED) == before
        timestamper.lie = lambda token: token
        world.search(timestamper=timestamper)
        assert split_timestamp(world.ledger.events(SEARCHED)) is not None
