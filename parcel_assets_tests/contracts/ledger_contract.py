"""What every ledger must do; a test module inherits the suite and offers a `ledger` fixture."""

import pytest

from parcel_assets.core.errors import (
    HoldoutError,
    LeaseHeldError,
    LedgerError,
    SplitError,
    StaleFenceError,
)
from parcel_assets.core.ledger import CLOSED_BY_OPENING, GENESIS, Kind, Lease, verify_chain
from parcel_assets.core.ledger_audit import read_chain
from parcel_assets.core.ports import Ledger

FROZEN = (Kind.PLAN_FROZEN, {"plan": {"purpose": "é"}, "plan_digest": "d" * 64})
NOTE = (Kind.MESSAGE_SET_ASIDE, {"text": "late", "number": 0.1})


class LedgerContract:
    """The suite; a subclass defines a fixture `ledger` that is empty."""

    @pytest.fixture
    def lease(self, ledger: Ledger) -> Lease:
        lease = ledger.acquire("spring", "test")
        ledger.append(lease, [FROZEN])
        return lease

    def test_events_are_chained_and_read_back_as_written(
        self, ledger: Ledger, lease: Lease
    ) -> None:
        written = ledger.append(lease, [NOTE, NOTE])
        events = ledger.events("spring")
        verify_chain(events)
        assert [event.sequence for event in events] == [1, 2, 3]
        assert events[1:] == written
        assert events[0].previous == GENESIS
        assert events[0].body["plan"] == {"purpose": "é"}
        assert ledger.events("spring", after=2) == events[2:]
        assert ledger.events("autumn") == ()

    def test_the_clock_never_runs_backwards(self, ledger: Ledger, lease: Lease) -> None:
        first = ledger.now()
        (event,) = ledger.append(lease, [NOTE])
        assert first <= event.at_seconds + 1e-6
        assert ledger.now() >= first

    def test_revisions_come_in_order_of_their_first_event(
        self, ledger: Ledger, lease: Lease
    ) -> None:
        ledger.append(ledger.acquire("autumn", "test"), [FROZEN])
        assert ledger.revisions() == ("spring", "autumn")

    def test_nothing_comes_before_the_plan(self, ledger: Ledger) -> None:
        lease = ledger.acquire("spring", "test")
        with pytest.raises(LedgerError):
            ledger.append(lease, [NOTE])
        assert ledger.events("spring") == ()

    def test_a_second_freeze_is_refused_and_changes_nothing(
        self, ledger: Ledger, lease: Lease
    ) -> None:
        with pytest.raises(LedgerError):
            ledger.append(lease, [NOTE, FROZEN])
        assert len(ledger.events("spring")) == 1
        ledger.append(lease, [NOTE])
        verify_chain(ledger.events("spring"))

    def test_an_attempt_and_a_batch_are_said_once(self, ledger: Ledger, lease: Lease) -> None:
        started = (Kind.ATTEMPT_STARTED, {"attempt": "a1", "prefix": "p"})
        ledger.append(lease, [started, (Kind.BATCH_OPENED, {"batch": 1})])
        for again in (started, (Kind.BATCH_OPENED, {"batch": 1})):
            with pytest.raises(LedgerError):
                ledger.append(lease, [again])
        ledger.append(lease, [(Kind.BATCH_OPENED, {"batch": 2})])

    def test_a_live_holder_keeps_others_out(self, ledger: Ledger, lease: Lease) -> None:
        with pytest.raises(LeaseHeldError):
            ledger.acquire("spring", "other")

    def test_a_released_lease_is_free_and_stale(self, ledger: Ledger, lease: Lease) -> None:
        ledger.release(lease)
        newer = ledger.acquire("spring", "other")
        assert newer.fence > lease.fence
        with pytest.raises(StaleFenceError):
            ledger.append(lease, [NOTE])
        with pytest.raises(StaleFenceError):
            ledger.renew(lease)
        ledger.release(lease)
        ledger.renew(newer)
        ledger.append(newer, [NOTE])
        verify_chain(ledger.events("spring"))

    def test_an_assigned_shipment_never_moves(self, ledger: Ledger, lease: Lease) -> None:
        ledger.assign(lease, "depot", {"0001": "train", "0002": "holdout"})
        ledger.assign(lease, "depot", {"0001": "train", "0003": "validation"})
        with pytest.raises(SplitError):
            ledger.assign(lease, "depot", {"0004": "train", "0002": "train"})
        assert ledger.assignments("depot") == {
            "0001": "train",
            "0002": "holdout",
            "0003": "validation",
        }
        assert ledger.assignments("harbour") == {}

    def test_a_shipment_stays_in_the_tranche_it_was_dealt_to(
        self, ledger: Ledger, lease: Lease
    ) -> None:
        ledger.assign(lease, "depot", {"0001": "holdout", "0002": "holdout"}, {"0001": 1})
        ledger.assign(lease, "depot", {"0003": "holdout"}, {"0001": 1, "0003": 2})
        with pytest.raises(SplitError):
            ledger.assign(lease, "depot", {"0004": "holdout"}, {"0004": 1, "0003": 1})
        assert ledger.tranches("depot") == {"0001": 1, "0003": 2}
        assert "0004" not in ledger.assignments("depot")
        assert ledger.tranches("harbour") == {}

    def test_a_holdout_opens_once_for_one_revision(self, ledger: Ledger, lease: Lease) -> None:
        event = ledger.open_holdout(lease, {"holdout_digest": "h"}, ["k1", "k2"])
        assert ledger.events("spring")[-1] == event
        assert ledger.opened_by(["k2", "k3"]) == {"k2": "spring"}
        with pytest.raises(HoldoutError):
            ledger.open_holdout(lease, {"holdout_digest": "h"}, ["k9"])
        assert ledger.opened_by(["k9"]) == {}

    def test_one_opened_shipment_is_enough_to_refuse(self, ledger: Ledger, lease: Lease) -> None:
        ledger.open_holdout(lease, {"holdout_digest": "h"}, ["k1", "k2"])
        other = ledger.acquire("autumn", "test")
        ledger.append(other, [FROZEN])
        with pytest.raises(HoldoutError):
            ledger.open_holdout(other, {"holdout_digest": "i"}, ["k3", "k2"])
        assert ledger.opened_by(["k3"]) == {}
        assert len(ledger.events("autumn")) == 1
        ledger.open_holdout(other, {"holdout_digest": "i"}, ["k3"])

    def test_after_the_opening_no_trial_is_accepted(self, ledger: Ledger, lease: Lease) -> None:
        ledger.open_holdout(lease, {"holdout_digest": "h"}, ["k1"])
        before = ledger.events("spring")
        for kind in sorted(CLOSED_BY_OPENING):
            body = {"attempt": "a1", "batch": 1, "step": 1}
            with pytest.raises(LedgerError):
                ledger.append(lease, [(kind, body)])
        assert ledger.events("spring") == before
        ledger.append(lease, [(Kind.HOLDOUT_EVALUATED, {}), (Kind.HOLDOUT_RELEASED, {})])

    def test_an_archive_version_is_new_once(self, ledger: Ledger) -> None:
        assert ledger.note_archive_version("depot", "v1", {"photos": 3})
        assert not ledger.note_archive_version("depot", "v1", {"photos": 3})
        assert ledger.note_archive_version("depot", "v2", {})

    def test_an_audit_reads_all_that_is_held_of_a_revision(
        self, ledger: Ledger, lease: Lease
    ) -> None:
        ledger.append(lease, [NOTE, (Kind.ATTEMPT_STARTED, {"attempt": "a1", "fence": 1})])
        opened = ledger.open_holdout(lease, {"holdout_digest": "h"}, ["k2", "k1"])
        ledger.append(ledger.acquire("autumn", "test"), [FROZEN])
        record = ledger.record_of("spring")
        events, fault = read_chain("spring", record.rows)
        assert fault is None
        assert events == ledger.events("spring")
        assert [row["once_key"] for row in record.rows] == [
            "plan_frozen",
            None,
            "attempt:a1",
            "holdout_opened",
        ]
        assert (record.fence, record.opening) == (lease.fence, opened.digest)
        assert record.opened_keys == ("k1", "k2")
        assert record.missing_rules == ()
        assert ledger.record_of("winter").rows == ()
