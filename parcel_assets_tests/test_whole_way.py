"""The whole way with real training: a demo to its packet, again for nothing, killed between."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.core.ledger import Kind
from parcel_assets.wiring import Settings

pytestmark = pytest.mark.slow

PLANS = Path(__file__).parent.parent / "data" / "plans"
PLAN = "small-kill-test"
BUDGET = 82


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("data")
    shutil.copytree(PLANS, folder / "plans")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def environment(data: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PARCEL_ASSETS_")}
    kept.pop("DAGSTER_HOME", None)
    return kept | {"PARCEL_ASSETS_DATA": str(data)}


def command(data: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from parcel_assets.cli import app; app()", *words],
        env=environment(data),
        capture_output=True,
        text=True,
        check=False,
    )


def attempts_in(data: Path) -> dict[str, int]:
    """Return, by revision, how many attempts the ledger knows."""
    ledger = SqlLedger(Settings.read({}, data=data).ledger_url)
    return {
        revision: sum(one.kind == Kind.ATTEMPT_STARTED for one in ledger.events(revision))
        for revision in ledger.revisions()
    }


def document(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_a_demo_killed_in_mid_trial_goes_on_to_its_packet(data: Path) -> None:
    running = subprocess.Popen(
        [sys.executable, "-c", "from parcel_assets.cli import app; app()", "demo", "--quick"],
        env=environment(data),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
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
