"""Local worker processes: what they may see, how they are heard, that none outlives its engine."""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.adapters.engine_local import LocalEngine

ECHO = """
import json, os, sys
print(json.dumps({"kind": "hello", "environment": dict(os.environ), "setup": sys.argv[1]}))
sys.stdout.flush()
for line in sys.stdin:
    print(json.dumps({"kind": "echo", "heard": json.loads(line)}), flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "setup.json").write_text("{}")
    return tmp_path


def engine_of(folder: Path, program: str) -> LocalEngine:
    return LocalEngine(folder / "logs", (sys.executable, "-c", program))


def hear(engine: LocalEngine, kind: str) -> dict[str, Any]:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for _, message in engine.receive(0.2):
            if message["kind"] == kind:
                return message
    raise AssertionError(f"no {kind} came")


@pytest.fixture
def echo(folder: Path) -> Iterator[LocalEngine]:
    engine = engine_of(folder, ECHO)
    yield engine
    engine.close()


def test_a_worker_sees_no_credential_and_computes_with_one_thread(
    echo: LocalEngine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARCEL_ASSETS_LEDGER_URL", "postgresql://secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    echo.start("w1", folder / "setup.json")
    hello = hear(echo, "hello")
    assert "secret" not in json.dumps(hello["environment"])
    assert hello["environment"]["OMP_NUM_THREADS"] == "1"
    assert hello["setup"] == str(folder / "setup.json")


def test_messages_go_both_ways_in_order(echo: LocalEngine, folder: Path) -> None:
    echo.start("w1", folder / "setup.json")
    for number in range(3):
        echo.send("w1", {"kind": "order", "number": number})
    heard: list[int] = []
    deadline = time.monotonic() + 20
    while len(heard) < 3 and time.monotonic() < deadline:
        heard += [m["heard"]["number"] for _, m in echo.receive(0.2) if m["kind"] == "echo"]
    assert heard == [0, 1, 2]


def test_a_worker_that_ends_is_lost_once_with_the_end_of_its_log(folder: Path) -> None:
    engine = engine_of(folder, "import sys; sys.stderr.write('out of memory'); sys.exit(7)")
    engine.start("w1", folder / "setup.json")
    lost = hear(engine, "lost")
    assert "exit code 7" in lost["reason"]
    assert lost["tail"] == "out of memory"
    engine.send("w1", {"kind": "order"})
    assert engine.receive(0.1) == []
    engine.close()


@pytest.mark.parametrize("line", ["no json", "[]", '{"kind": 3}', '{"kind": "lost"}'])
def test_a_worker_that_speaks_no_protocol_is_ended(folder: Path, line: str) -> None:
    program = f"import time; print({line!r}, flush=True); time.sleep(60)"
    engine = engine_of(folder, program)
    engine.start("w1", folder / "setup.json")
    assert "no message" in hear(engine, "lost")["reason"]
    engine.close()


def test_stopping_ends_a_worker_and_its_children_at_once(folder: Path) -> None:
    program = (
        "import subprocess, sys, json, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(json.dumps({'kind': 'hello', 'child': child.pid}), flush=True)\n"
        "time.sleep(60)"
    )
    engine = engine_of(folder, program)
    engine.start("w1", folder / "setup.json")
    child = hear(engine, "hello")["child"]
    engine.stop("w1")
    deadline = time.monotonic() + 5
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":
            break
        time.sleep(0.02)
    else:
        assert not Path(f"/proc/{child}").exists()
    assert engine.receive(0.05) == []
    engine.close()


def test_closing_ends_all_workers(folder: Path) -> None:
    engine = engine_of(folder, ECHO)
    for name in ("w1", "w2"):
        engine.start(name, folder / "setup.json")
    hear(engine, "hello")
    processes = [worker.process for worker in engine._workers.values()]
    engine.close()
    assert all(process.returncode is not None for process in processes)
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)
