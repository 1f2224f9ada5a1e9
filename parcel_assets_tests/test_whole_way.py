"""The whole way with real training: a demo to its packet, again for nothing, killed between."""

import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.core.ledger import Kind
from parcel_assets.wiring import Settings
from parcel_assets_tests.commands import PLANS, command, document, start

pytestmark = pytest.mark.slow

BUDGET = 82


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("data")
    shutil.copytree(PLANS, folder / "plans")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def attempts_in(data: Path) -> dict[str, int]:
    """Return, by revision, how many attempts the ledger knows."""
    ledger = SqlLedger(Settings.read({}, data=data).ledger_url)
    return {
        revision: sum(one.kind == Kind.ATTEMPT_STARTED for one in ledger.events(revision))
        for revision in ledger.revisions()
    }


def test_a_demo_killed_in_mid_trial_goes_on_to_its_packet(data: Path) -> None:
    running = start(data, "demo", "--quick")
    end = time.monotonic() + 300
    while running.poll() is None and time.monotonic() < end:
        time.sleep(0.5)
        if (data / "ledger.sqlite").exists() and sum(attempts_in(data).values()) > 6:
            running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    before = sum(attempts_in(data).values())
    standing = document(command(data, "demo", "--quick", "--json"))
    assert standing["state"] == "finished"
    assert Path(standing["packet_folder"], "report.html").is_file()
    (after,) = attempts_in(data).values()
    assert before < after
    search = document(command(data, "status", standing["revision"], "--json"))["search"]
    assert sum(search["trials_by_state"].values()) == BUDGET


def test_the_second_demo_spends_nothing(data: Path) -> None:
    before = attempts_in(data)
    standing = document(command(data, "demo", "--quick", "--json"))
    assert standing["state"] == "finished"
    assert attempts_in(data) == before


def test_its_packet_verifies_and_is_fetched(data: Path, tmp_path: Path) -> None:
    (revision,) = attempts_in(data)
    assert document(command(data, "packet", "verify", revision, "--json"))["verifies"]
    fetched = document(command(data, "packet", "fetch", revision, str(tmp_path / "p"), "--json"))
    assert Path(fetched["folder"], "SHA256SUMS").is_file()
    assert "verdict" in document(command(data, "packet", "show", revision, "--json"))
