"""`parcel-assets ui`: one server and one daemon for an instance, and none when it has stopped."""

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from parcel_assets_tests.defs.webserver import free_port, until

pytestmark = pytest.mark.slow

UI = [sys.executable, "-c", "from parcel_assets.cli import app; app()", "ui", "--port"]


def start(data: Path, port: int) -> subprocess.Popen[bytes]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PARCEL_ASSETS_", "DAGSTER_"))}
    return subprocess.Popen(
        [*UI, str(port)],
        env=kept | {"PARCEL_ASSETS_DATA": str(data)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def at_work_on(data: Path) -> list[str]:
    """Return the commands of all processes whose Dagster instance lies in a data folder."""
    wanted = f"DAGSTER_HOME={data / 'dagster'}".encode()
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (place / "environ").read_bytes().split(b"\0"):
                found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def answers(port: int) -> bool | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=2):
            return True
    except OSError:
        return None


def test_a_second_ui_is_refused_and_a_terminated_one_leaves_nothing_behind(tmp_path: Path) -> None:
    port = free_port()
    serving = start(tmp_path, port)
    try:
        until(lambda: answers(port), 120, "the page")
        assert any("dagster._daemon" in words for words in at_work_on(tmp_path))
        second = start(tmp_path, free_port())
        said, _ = second.communicate(timeout=120)
        assert second.returncode == 1
        assert f"pages served already, on http://127.0.0.1:{port}" in " ".join(
            said.decode().split()
        )
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(timeout=60) == 0
    finally:
        serving.kill()
        serving.communicate()
    until(lambda: None if at_work_on(tmp_path) else True, 30, "the last process")
    assert answers(port) is None
