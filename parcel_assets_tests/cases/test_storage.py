"""What is written where, by how many at once: B48-B52."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.core.codec import canonical_json
from parcel_assets.core.errors import AdmissionError, LeaseHeldError
from parcel_assets.core.ledger import Kind, verify_chain
from parcel_assets.core.plan import Plan
from parcel_assets.core.ports import PastTrial
from parcel_assets.core.space import Scalar
from parcel_assets.steps.release import build_packet, register_model
from parcel_assets_tests.contracts.ledger_contract import FROZEN, NOTE
from parcel_assets_tests.fake_training import FakeSampler
from parcel_assets_tests.release_story import REVISION as STORY
from parcel_assets_tests.release_story import tell
from parcel_assets_tests.simulation.theatre import Case, Script

STARTERS = 16


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'ledger.db'}"


# ---- B48: sixteen at one barrier -----------------------------------------------------------------


def test_b48_sixteen_open_one_sqlite_ledger_at_once_and_all_write(tmp_path: Path) -> None:
    barrier = threading.Barrier(STARTERS)

    def start(number: int) -> int:
        barrier.wait(60)
        ledger = SqlLedger(url_of(tmp_path))  # one of them makes the file, beside all others
        lease = ledger.acquire(f"revision-{number}", "start")
        for _ in range(3):
            ledger.append(lease, [NOTE if ledger.events(lease.revision) else FROZEN])
        ledger.release(lease)
        ledger.close()
        return number

    with ThreadPoolExecutor(STARTERS) as pool:
        assert sorted(pool.map(start, range(STARTERS))) == list(range(STARTERS))
    ledger = SqlLedger(url_of(tmp_path))
    assert len(ledger.revisions()) == STARTERS
    for revision in ledger.revisions():
        events = ledger.events(revision)
        verify_chain(events)
        assert len(events) == 3
    ledger.close()


def test_b48_sixteen_that_want_one_revision_at_once_are_one_and_fifteen_told_so(
    tmp_path: Path,
) -> None:
    barrier = threading.Barrier(STARTERS)
    ledgers = [SqlLedger(url_of(tmp_path)) for _ in range(STARTERS)]

    def start(ledger: SqlLedger) -> str:
        barrier.wait(60)
        try:
            ledger.acquire("spring", "start")
        except LeaseHeldError as error:
            return type(error).__name__
        return "holds it"

    with ThreadPoolExecutor(STARTERS) as pool:
        answers = list(pool.map(start, ledgers))
    for ledger in ledgers:
        ledger.close()
    assert sorted(set(answers)) == ["LeaseHeldError", "holds it"]
    assert answers.count("holds it") == 1


# ---- B49: numbers and configurations -------------------------------------------------------------


class Forgetful(FakeSampler):
    """Knows neither what was proposed nor which batch asks: one seed, one answer."""

    def propose(
        self, plan: Plan, *, seed: int, past: Sequence[PastTrial], count: int
    ) -> list[dict[str, Scalar]]:
        return super().propose(plan, seed=1, past=(), count=count)


def configurations(case: Case) -> list[bytes]:
    bodies = case.bodies(Kind.BATCH_OPENED)
    return [canonical_json(one["configuration"]) for body in bodies for one in body["trials"]]


@pytest.mark.parametrize(
    ("rule", "ended", "trials"), [("allow", "budget", 12), ("redraw", "space", 3)]
)
def test_b49_eight_workers_and_one_seed(tmp_path: Path, rule: str, ended: str, trials: int) -> None:
    case, script = Case(tmp_path, search__equal_configurations=rule), Script()
    body = case.search(script, workers=8, sampler=Forgetful())
    numbers = [one["number"] for batch in case.bodies(Kind.BATCH_OPENED) for one in batch["trials"]]
    assert numbers == list(range(1, trials + 1)), "each number once, in order"
    assert len(set(configurations(case))) == 3, "equal ones are seen"
    assert (body["ended"], body["started_trials"]) == (ended, trials)
    assert body["unstarted_trials"] == 12 - trials
    seeds = {row.number: row.seed for row in case.rows()}
    assert len(set(seeds.values())) == len(seeds), "equal configurations, other seeds"


def test_b49_batches_of_a_sampler_that_keeps_its_word_do_not_repeat_each_other(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path)
    case.search(workers=8)
    assert len(set(configurations(case))) == 12


# ---- B52: a packet that is not whole -------------------------------------------------------------


def test_b52_a_packet_that_lost_a_file_is_not_registered(tmp_path: Path) -> None:
    story = tell(tmp_path)
    build_packet(STORY, story.ports)
    for file in ("model/model.safetensors", "search/curves.csv", "plan.json"):
        place = story.ports.packets / STORY / file
        kept = place.rename(tmp_path / "kept")
        with pytest.raises(AdmissionError, match=f"{file}: is listed and absent") as refused:
            register_model(STORY, story.ports)
        assert refused.value.facts["gate"] == "packet_digests"
        kept.rename(place)
    assert not any(one.kind == Kind.MODEL_REGISTERED for one in story.events)
    assert not list((tmp_path / "registry").glob("*")), "nothing was handed over in part"


# ---- more of the kind ----------------------------------------------------------------------------

WRITER = """
import sys, time
from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets_tests.contracts.ledger_contract import FROZEN, NOTE
ledger = SqlLedger(sys.argv[1])
lease = ledger.acquire("spring", "test")
ledger.append(lease, [FROZEN])
for _ in range(3):
    ledger.append(lease, [NOTE])
print("written", flush=True)
time.sleep(60)
"""


def killed_writer(folder: Path) -> Path:
    """Return the write-ahead log of a ledger of four events whose writer was killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, url_of(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    return folder / "ledger.db-wal"


def append_and_read(folder: Path, count: int) -> None:
    """Append an event as a new process would, and read all again."""
    ledger = SqlLedger(url_of(folder))
    lease = ledger.acquire("spring", "test")
    ledger.append(lease, [NOTE])
    ledger.release(lease)
    events = ledger.events("spring")
    verify_chain(events)
    assert len(events) == count
    ledger.close()


def require_torn_write_is_forgotten(folder: Path) -> None:
    wal = killed_writer(folder)
    size = wal.stat().st_size
    assert size > 20
    os.truncate(wal, size - 20)
    (folder / "ledger.db-shm").unlink(missing_ok=True)  # as after a loss of power
    ledger = SqlLedger(url_of(folder))
    left = len(ledger.events("spring"))
    verify_chain(ledger.events("spring"))
    ledger.close()
    assert left == 3, "the torn one is gone, whole"
    for more in (1, 2, 3):
        append_and_read(folder, left + more)


def test_further_a_whole_log_of_a_killed_writer_is_read_to_its_end(tmp_path: Path) -> None:
    killed_writer(tmp_path)
    append_and_read(tmp_path, 5)


def test_further_values_keep_their_types_through_the_ledger(tmp_path: Path) -> None:
    """Where 1, 1.0 and true are one, the winner's configuration trains another network."""
    case = Case(tmp_path, space__rare_oversampling={"kind": "choice", "values": [1, 1.0, 2.5]})
    script = Script()
    case.search(script)
    told: dict[str, dict[str, Any]] = {
        str(order["subject"]): order["configuration"] for _, order in script.orders
    }
    for row in case.rows():
        sent = told[row.trial_id]
        assert row.configuration == sent
        assert {name: type(one) for name, one in row.configuration.items()} == {
            name: type(one) for name, one in sent.items()
        }
    assert {type(one["rare_oversampling"]) for one in told.values()} == {int, float}
