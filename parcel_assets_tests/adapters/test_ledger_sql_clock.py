"""The ledger's clock: it never runs backwards, whatever the hosts' clocks do."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from parcel_assets.adapters import ledger_sql_clock
from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.adapters.ledger_sql_schema import leases
from parcel_assets.core.errors import LeaseHeldError
from parcel_assets.core.ledger import verify_chain
from parcel_assets_tests.contracts.ledger_contract import FROZEN, NOTE
from parcel_assets_tests.postgres import Postgres

HOUR = 3600.0
Step = Callable[[float], None]


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Step:
    """Return what steps the host's wall clock by seconds, for good."""
    stepped = [0.0]
    real = time.time

    def move(seconds: float) -> None:
        stepped[0] += seconds

    monkeypatch.setattr(time, "time", lambda: real() + stepped[0])
    return move


def reboot(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the host have been started anew: its clock since then begins again."""
    began = time.monotonic()
    monkeypatch.setattr(ledger_sql_clock, "boot_name", lambda: name)
    monkeypatch.setattr(ledger_sql_clock, "boot_seconds", lambda: time.monotonic() - began)


@pytest.mark.parametrize("seconds", [-HOUR, HOUR])
def test_a_step_within_a_process_is_not_felt(ledger_url: str, step: Step, seconds: float) -> None:
    ledger = SqlLedger(ledger_url)
    lease = ledger.acquire("spring", "test")
    ledger.append(lease, [FROZEN])
    before = ledger.now()
    step(seconds)
    assert before <= ledger.now() < before + HOUR / 2
    ledger.append(lease, [NOTE])
    first, second = ledger.events("spring")
    assert first.at_seconds <= second.at_seconds < first.at_seconds + HOUR / 2
    ledger.close()


def test_a_step_back_between_processes_is_not_felt(ledger_url: str, step: Step) -> None:
    ledger = SqlLedger(ledger_url)
    lease = ledger.acquire("spring", "test")
    (event,) = ledger.append(lease, [FROZEN])
    ledger.release(lease)
    ledger.close()
    step(-HOUR)
    again = SqlLedger(ledger_url)
    assert again.now() >= event.at_seconds
    lease = again.acquire("spring", "test")
    (later,) = again.append(lease, [NOTE])
    assert event.at_seconds <= later.at_seconds < event.at_seconds + HOUR / 2
    verify_chain(again.events("spring"))
    again.close()


@pytest.mark.parametrize("seconds", [-HOUR, HOUR])
def test_a_live_holder_keeps_its_lease_through_a_step(
    ledger_url: str, step: Step, seconds: float
) -> None:
    holder = SqlLedger(ledger_url)
    lease = holder.acquire("spring", "test")
    step(seconds)
    other = SqlLedger(ledger_url)
    with pytest.raises(LeaseHeldError):
        other.acquire("spring", "test")
    other.acquire("autumn", "test")  # takes the clock as well, and must not move it
    third = SqlLedger(ledger_url)
    with pytest.raises(LeaseHeldError):
        third.acquire("spring", "test")
    assert abs(third.now() - holder.now()) < HOUR / 2
    holder.append(lease, [FROZEN])
    for ledger in (holder, other, third):
        ledger.close()


def test_a_clock_that_was_wrong_is_put_right_while_nobody_writes(
    tmp_path: Path, step: Step
) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = SqlLedger(url)
    ledger.release(ledger.acquire("spring", "test"))
    step(HOUR)  # the host has found the right time
    lease = ledger.acquire("spring", "test")
    assert ledger.now() == pytest.approx(time.time(), abs=60)
    ledger.append(lease, [FROZEN])
    ledger.close()


def test_a_clock_put_back_while_the_host_was_down_is_not_felt(
    tmp_path: Path, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = SqlLedger(url)
    lease = ledger.acquire("spring", "test")
    (event,) = ledger.append(lease, [FROZEN])
    ledger.release(lease)
    ledger.close()
    reboot(monkeypatch, "another-start")
    step(-HOUR)
    again = SqlLedger(url)
    assert again.now() >= event.at_seconds
    lease = again.acquire("spring", "test")
    (later,) = again.append(lease, [NOTE])
    assert later.at_seconds >= event.at_seconds
    again.close()


def test_on_postgresql_leases_run_by_the_servers_clock(postgres: Postgres, step: Step) -> None:
    step(-100 * HOUR)
    ledger = SqlLedger(postgres.fresh_url())
    lease = ledger.acquire("spring", "test")
    step(200 * HOUR)
    ledger.renew(lease)
    with ledger._engine.connect() as connection:
        left = sa.select(leases.c.expires_at - sa.extract("epoch", sa.func.clock_timestamp()))
        assert connection.execute(left).scalar_one() == pytest.approx(60.0, abs=30.0)
    ledger.close()
