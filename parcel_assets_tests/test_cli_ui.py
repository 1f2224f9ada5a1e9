"""`parcel-assets ui`: one server and one daemon for an instance, and none when it has stopped."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import nullcontext
from pathlib import Path

import pytest

from parcel_assets import cli_ui
from parcel_assets.cli_ui import serve_ui
from parcel_assets.wiring import Settings
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


def test_a_port_that_others_have_is_named_with_the_one_that_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served: list[int] = []
    monkeypatch.setattr(cli_ui, "open_instance", lambda _settings: nullcontext())
    monkeypatch.setattr(cli_ui, "fail_dead_runs", lambda _instance: None)
    monkeypatch.setattr(cli_ui, "_serve", lambda _settings, port, _address: served.append(port))
    settings = Settings.read({}, data=tmp_path)
    settings.dagster_home.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as other:
        wanted = int(other.getsockname()[1])
        serve_ui(settings, wanted)
    assert f"Port {wanted} is taken by another program; serving on {served[0]}" in (
        capsys.readouterr().out
    )
    serve_ui(settings, wanted)
    assert served[1:] == [wanted]
    assert "taken" not in capsys.readouterr().out
