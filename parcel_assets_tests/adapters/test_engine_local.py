"""Local worker processes: the contract of engines, and that none outlives its engine."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.adapters import engine_log
from parcel_assets.adapters.engine_local import LocalEngine
from parcel_assets_tests.contracts.engine_contract import (
    CONTRACT,
    EngineContract,
    SearchEngineContract,
    is_gone,
    setup_file,
    wait_until,
)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


class Local:
    """How the contract opens a local engine and ends a worker."""

    def open_engine(self, logs: Path, command: tuple[str, ...]) -> LocalEngine:
        return LocalEngine(logs, command)

    def end_worker(self, engine: Any, worker_id: str) -> None:
        os.kill(engine._workers[worker_id].process.pid, signal.SIGKILL)


class TestLocalEngine(Local, EngineContract):
    """Every behaviour of a worker, on local processes."""


class TestLocalEngineInTheSearch(Local, SearchEngineContract):
    """Real workers with the fake trainer."""


def test_a_worker_imports_nothing_from_the_folder_that_a_run_was_started_in(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("parcel_assets", "json"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('another program')")
    monkeypatch.chdir(tmp_path)
    engine = LocalEngine(logs)
    engine.start("w", tmp_path / "no-setup.json")
    ((_, lost),) = engine.receive(60)
    engine.close()
    assert "another program" not in lost["tail"]
    assert "no-setup.json" in lost["tail"]  # our own worker ran, and missed its setup


# ---- however the coordinator dies ---------------------------------------------------------------


COORDINATOR = """
import json, os, sys, time
from pathlib import Path
from parcel_assets.adapters.engine_local import LocalEngine
folder, behaviours = Path(sys.argv[1]), sys.argv[2:]
engine = LocalEngine(folder / "logs", (sys.executable, "-m", "parcel_assets_tests.contract_worker"))
for behaviour in behaviours:
    (folder / f"{behaviour}.json").write_text(json.dumps({"behaviour": behaviour}))
    engine.start(behaviour, folder / f"{behaviour}.json")
heard = []
while len(heard) < len(behaviours):
    heard += [message for _, message in engine.receive(1.0) if message["kind"] == "hello"]
pids = [p for one in heard for p in (one["pid"], *one.get("children", []))]
print(json.dumps({"workers": pids, "warden": engine._warden.pid}), flush=True)
time.sleep(600)
"""


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Callable[..., tuple[Any, list[int], int]]]:
    """Return what starts a coordinator of workers that would live for ever."""
    started = []

    def start(*behaviours: str, shell: bool = False) -> tuple[Any, list[int], int]:
        words = [sys.executable, "-c", COORDINATOR, str(tmp_path), *behaviours]
        if shell:
            words = ["/bin/sh", "-c", '"$@"; true', "sh", *words]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
        started.append(process)
        assert process.stdout is not None
        facts = json.loads(process.stdout.readline())
        return process, facts["workers"], facts["warden"]

    yield start
    for process in started:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        finally:
            process.communicate()


def all_gone(processes: list[int]) -> None:
    wait_until(lambda: all(is_gone(one) for one in processes), 10)


def test_no_worker_and_no_child_of_one_outlives_its_coordinator(
    coordinator: Callable[..., tuple[Any, list[int], int]],
) -> None:
    left = []
    for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, "group", "shell"):
        process, workers, warden = coordinator("stuck", "has_children", shell=how == "shell")
        assert not any(is_gone(one) for one in workers)
        if isinstance(how, str):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.send_signal(how)
        left += [*workers, warden]
    all_gone(left)


def test_a_paused_worker_does_not_outlive_its_coordinator_either(
    coordinator: Callable[..., tuple[Any, list[int], int]],
) -> None:
    process, workers, warden = coordinator("has_children")
    for one in workers:
        os.kill(one, signal.SIGSTOP)
    process.kill()
    all_gone([*workers, warden])


def test_a_stuck_worker_dies_by_the_kernel_where_the_warden_was_killed_too(
    coordinator: Callable[..., tuple[Any, list[int], int]],
) -> None:
    process, workers, warden = coordinator("stuck_child_of_parent")
    os.kill(warden, signal.SIGKILL)
    process.kill()
    all_gone(workers)


def test_a_worker_forked_but_not_yet_started_when_its_coordinator_died_is_found(
    coordinator: Callable[..., tuple[Any, list[int], int]], tmp_path: Path
) -> None:
    """The fork bears the mark only from its program's start on: the warden looks for a while."""
    process, workers, _warden = coordinator("echo")
    environment = Path(f"/proc/{workers[0]}/environ").read_bytes().split(b"\0")
    (mark,) = [one.decode() for one in environment if one.startswith(b"PARCEL_ASSETS_MARK=")]
    late = f"sleep 1; exec env {mark} {sys.executable} -c 'import time; time.sleep(600)'"
    child = subprocess.Popen(["/bin/sh", "-c", late], start_new_session=True)
    process.kill()
    try:
        assert child.wait(10) == -signal.SIGKILL
    finally:
        child.kill()


def test_a_killed_warden_is_replaced_at_the_next_start(logs: Path, tmp_path: Path) -> None:
    setup = setup_file(tmp_path, "echo")
    engine = LocalEngine(logs, CONTRACT)
    engine.start("w1", setup)
    first = engine._warden
    assert first is not None
    first.kill()
    first.wait()
    engine.start("w2", setup)
    assert engine._warden is not None
    assert engine._warden.pid != first.pid
    assert engine._warden.poll() is None
    engine.close()


# ---- the machine's limits -----------------------------------------------------------------------


def test_without_a_descriptor_left_the_start_is_refused_in_words(tmp_path: Path) -> None:
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from parcel_assets.adapters.engine_local import LocalEngine\n"
        "from parcel_assets.core.errors import SettingError\n"
        "engine = LocalEngine(Path(sys.argv[1]), ('/bin/cat',))\n"
        "engine.start('w0', Path('-'))\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))\n"
        "before = len(list(Path('/proc/self/fd').iterdir()))\n"
        "for number in range(1, 9):\n"
        "    try:\n"
        "        engine.start(f'w{number}', Path('-'))\n"
        "        before = len(list(Path('/proc/self/fd').iterdir()))\n"
        "    except SettingError as error:\n"
        "        assert 'does not start' in str(error) and 'Too many open files' in str(error)\n"
        "        break\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))\n"
        "engine.stop('w0')\n"
        "after = len(list(Path('/proc/self/fd').iterdir()))\n"
        "assert after < before, (before, after)\n"
        "engine.close()\n"
        "print('refused', number)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("refused"), done.stderr
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 24  # of that process only


def test_a_log_folder_that_cannot_be_is_refused_in_words(tmp_path: Path) -> None:
    from parcel_assets.core.errors import SettingError

    (tmp_path / "logs").write_text("a file")
    engine = LocalEngine(tmp_path / "logs", CONTRACT)
    with pytest.raises(SettingError, match="does not start"):
        engine.start("w1", tmp_path / "setup.json")
    engine.close()


def test_logs_of_earlier_workers_are_kept_up_to_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_log, "LOG_FILES_KEPT", 2)
    for number in range(5):
        path = tmp_path / f"w{number}.log"
        path.write_text("old")
        os.utime(path, (number, number))
    engine_log.remove_old_logs(tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["w3.log", "w4.log"]


def test_a_log_on_a_full_disk_is_cut_short_and_its_end_still_known(tmp_path: Path) -> None:
    (tmp_path / "full.log").symlink_to("/dev/full")
    log = engine_log.BoundedLog(tmp_path / "full.log")
    log.write(b"first")
    log.write(b" and last words")
    assert log.tail == "first and last words"
    log.close()
