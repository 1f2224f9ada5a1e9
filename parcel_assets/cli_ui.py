"""Serves Dagster's pages and its daemon on this machine, until stopped by whatever means."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from parcel_assets.cli_common import say
from parcel_assets.cli_dagster import fail_dead_runs, open_instance
from parcel_assets.core.errors import SettingError
from parcel_assets.wiring import REPOSITORY, Settings

WORKSPACE = REPOSITORY / "workspace.yaml"
SERVER_START_SECONDS = 90.0
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, a service manager, a closed window
LOCK_FILE = "served-by"


def serve_ui(settings: Settings, port: int) -> int:
    """Serve Dagster's pages and its daemon on this machine until stopped; return an exit code."""
    if not WORKSPACE.is_file():
        raise SettingError(
            "no workspace.yaml",
            expected="a checkout of parcel_assets",
            where=str(WORKSPACE),
            remedy="Run it from a checkout, or start `dagster dev -m parcel_assets.definitions`.",
        )
    if not settings.data.is_dir():
        raise SettingError(
            "no such folder",
            expected="a folder with plans or searches to show",
            where=str(settings.data),
            remedy="Name the folder with --data (or PARCEL_ASSETS_DATA). Nothing was created.",
        )
    with open_instance(settings) as instance:
        fail_dead_runs(instance)
    wanted, port = port, _free_port(port)
    if port != wanted:
        say(f"Port {wanted} is taken by another program; serving on {port} instead.")
    address = f"http://127.0.0.1:{port}"
    with _alone(settings.dagster_home / LOCK_FILE, address), _stopped_by_signals():
        return _serve(settings, port, address)


def _serve(settings: Settings, port: int, address: str) -> int:
    environment = os.environ | settings.environment()
    programs = (
        ["dagster_webserver", "-w", str(WORKSPACE), "-h", "127.0.0.1", "-p", str(port)],
        ["dagster._daemon", "run", "-w", str(WORKSPACE)],
    )
    log = settings.logs / "ui.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        children = [
            subprocess.Popen(  # noqa: S603  (our own interpreter, fixed words)
                [sys.executable, "-m", *words],
                cwd=REPOSITORY,
                env=environment,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
            for words in programs
        ]
        try:
            _wait_until_served(address, children, log)
            say(f"The asset graph is on {address}/asset-groups", style="bold")
            say(f"Log: {log}. Stop with Ctrl-C.")
            while all(child.poll() is None for child in children):
                time.sleep(0.5)
        except KeyboardInterrupt:
            say("\nStopping.")
            return 0
        finally:
            _stop(children)
    raise SettingError(
        "a Dagster process that ended by itself",
        expected="a webserver and a daemon that stay up",
        where=str(log),
        remedy="Read the log's last lines.",
    )


@contextmanager
def _alone(lock: Path, address: str) -> Iterator[None]:
    """Hold the instance's lock: of two daemons on one instance each would run every sensor."""
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise SettingError(
                f"pages served already, on {file.read().strip() or 'another port'}",
                expected="one webserver and one daemon for an instance",
                where=str(lock.parent),
                remedy="Use those, or stop the other `parcel-assets ui` first.",
            ) from error
        file.truncate(0)
        file.write(address)
        file.flush()
        yield


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Let every usual way to stop a process end the block as Ctrl-C does, so that nothing stays."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {one: signal.signal(one, stop) for one in STOPS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _free_port(wanted: int) -> int:
    """Return the wanted port, or one that is free where it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            with socket.socket() as other:
                other.bind(("127.0.0.1", 0))
                return int(other.getsockname()[1])
    return wanted


def _wait_until_served(address: str, children: list[subprocess.Popen[bytes]], log: Path) -> None:
    say("Starting Dagster ...")
    end = time.monotonic() + SERVER_START_SECONDS
    while time.monotonic() < end and all(child.poll() is None for child in children):
        try:
            with urllib.request.urlopen(f"{address}/server_info", timeout=2):  # noqa: S310
                return
        except OSError:
            time.sleep(0.3)
    raise SettingError(
        "no page within a minute and a half",
        expected="Dagster's webserver to answer",
        where=str(log),
        remedy="Read the log's last lines.",
    )


def _stop(children: list[subprocess.Popen[bytes]]) -> None:
    """Stop the servers with everything they started, at once where they do not go by themselves."""
    for child in children:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)
    for child in children:
        try:
            child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
