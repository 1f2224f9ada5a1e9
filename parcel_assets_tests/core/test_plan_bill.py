"""The bill: what a search can cost at most, before it runs."""

import pytest

from parcel_assets.core.plan_bill import bill_of
from parcel_assets_tests.core.plans import plan


def test_the_worst_case_is_every_attempt_at_its_longest() -> None:
    bill = bill_of(plan(search__attempts_per_trial=2, search__trial_seconds_maximum=36.0), None)
    after = 14 * 36 / 3600  # twice six reruns, one reference, one final evaluation
    assert bill.after_search_hours == pytest.approx(after)
    assert bill.hours == pytest.approx(82 * 2 * 36 / 3600 + after)
    assert not bill.cap_binds


def test_the_cap_ends_a_worst_case_above_it() -> None:
    bill = bill_of(plan(search__cap_accelerator_hours=1.0), None)
    assert (bill.hours, bill.cap_binds) == (1.0, True)
    assert bill.uncapped_hours > 1.0


def test_more_workers_wait_less_and_pay_the_same() -> None:
    bill = bill_of(plan(), None)
    assert bill.wall_hours[1] == pytest.approx(bill.hours)
    assert bill.wall_hours[8] == pytest.approx(bill.hours / 8)


def test_disk_counts_pixels_only_where_the_archive_is_known() -> None:
    known, unknown = bill_of(plan(), 1000), bill_of(plan(), None)
    assert known.disk_bytes["decoded pixels"] == 1000 * 32 * 32 * 3
    assert "decoded pixels" not in unknown.disk_bytes
    assert known.disk_bytes["checkpoints"] > 0
