"""Workers as processes on this machine: started, spoken with over pipes, and stopped.

Decides the process: its environment (an allow-list), one compute thread, its log file, its end. It
decides nothing about trials and retries nothing; a worker that ends is reported as lost, once.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parcel_assets.core.errors import SettingError
from parcel_assets.core.messages import read_message
from parcel_assets.core.ports import Message

COMMAND = (sys.executable, "-m", "parcel_assets.worker")
LINE_BYTES_MAXIMUM = 4 << 20
READ_BYTES = 1 << 16
STOP_SECONDS = 10.0
LOG_TAIL_BYTES = 2000
# workers hold no key and no credential: only what a Python process needs to start and compute
ENVIRONMENT_ALLOWED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
    "SYSTEMROOT",
    "CUDA_VISIBLE_DEVICES",
    "PARCEL_ASSETS_IMAGE",
)
# two compute threads never paid and change results: see the measurements in the README
ENVIRONMENT_SET = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(slots=True)
class _Worker:
    process: "subprocess.Popen[bytes]"
    log: Path
    buffer: bytearray = field(default_factory=bytearray)


class LocalEngine:
    """The engine port on local processes; `command` starts a worker, given its setup file."""

    def __init__(self, log_folder: Path, command: Sequence[str] = COMMAND) -> None:
        self._logs = log_folder
        self._command = tuple(command)
        self._workers: dict[str, _Worker] = {}
        self._selector = selectors.DefaultSelector()
        self._inbox: list[tuple[str, dict[str, Any]]] = []

    def start(self, worker_id: str, setup: Path) -> None:
        """Start a fresh worker process; raises SettingError where that is not possible."""
        environment = {k: os.environ[k] for k in ENVIRONMENT_ALLOWED if k in os.environ}
        log = self._logs / f"{worker_id}.log"
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as file:
                process = subprocess.Popen(  # noqa: S603 - our own command, no shell
                    [*self._command, str(setup)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    env=environment | ENVIRONMENT_SET,
                    start_new_session=True,  # an interrupt at the keyboard is the coordinator's
                )
        except OSError as error:
            raise SettingError(
                f"a worker that does not start ({error})",
                expected="room for a process and a log file",
                where=str(log),
                remedy="Free memory or disk, then run again: the search resumes.",
            ) from error
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._workers[worker_id] = _Worker(process, log)
        self._selector.register(process.stdout, selectors.EVENT_READ, worker_id)

    def send(self, worker_id: str, message: Message) -> None:
        """Send a message; a worker that is gone is reported as lost by `receive`."""
        worker = self._workers.get(worker_id)
        if worker is None or worker.process.stdin is None:
            return
        try:
            worker.process.stdin.write(json.dumps(dict(message)).encode() + b"\n")
            worker.process.stdin.flush()
        except (BrokenPipeError, ConnectionResetError):
            self._lose(worker_id, "it no longer listens")

    def receive(self, timeout_seconds: float) -> list[tuple[str, dict[str, Any]]]:
        """Return the messages that have come, waiting at most `timeout_seconds` for the first."""
        if not self._inbox:
            for key, _ in self._selector.select(timeout_seconds):
                self._read(str(key.data))
        found, self._inbox = self._inbox, []
        return found

    def _read(self, worker_id: str) -> None:
        worker = self._workers[worker_id]
        assert worker.process.stdout is not None
        try:
            chunk = os.read(worker.process.stdout.fileno(), READ_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self._lose(worker_id, "")
            return
        worker.buffer += chunk
        *lines, rest = bytes(worker.buffer).split(b"\n")
        worker.buffer = bytearray(rest)
        for line in lines:
            message = _message(line)
            if message is None:
                self._lose(worker_id, "it sent a line that is no message")
                return
            self._inbox.append((worker_id, message))
        if len(rest) > LINE_BYTES_MAXIMUM:
            self._lose(worker_id, f"it sent a line above {LINE_BYTES_MAXIMUM} bytes")

    def _lose(self, worker_id: str, reason: str) -> None:
        """End a worker and report it as lost, with what its log says last."""
        worker = self._workers[worker_id]
        code = self._end(worker_id)
        if not reason:
            cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            reason = f"its process ended ({cause})"
        message = {"kind": "lost", "reason": reason, "log": str(worker.log), "tail": _tail(worker)}
        self._inbox.append((worker_id, message))

    def stop(self, worker_id: str) -> None:
        """End a worker at once and wait until it is gone; what it still says is not heard."""
        if worker_id in self._workers:
            self._end(worker_id)

    def close(self) -> None:
        """End all workers."""
        for worker_id in tuple(self._workers):
            self._end(worker_id)
        self._selector.close()

    def _end(self, worker_id: str) -> int:
        """Kill the worker's process group and collect it; return its exit code."""
        worker = self._workers.pop(worker_id)
        process = worker.process
        assert process.stdout is not None
        assert process.stdin is not None
        self._selector.unregister(process.stdout)
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.poll()
        code = process.wait(STOP_SECONDS)
        process.stdout.close()
        try:
            process.stdin.close()
        except BrokenPipeError:
            return code  # what was not sent stays unsent
        return code


def _message(line: bytes) -> dict[str, Any] | None:
    """Return a line as a message; None where it is none, or speaks as only the engine may."""
    message = read_message(line)
    return None if message is None or message["kind"] == "lost" else message


def _tail(worker: _Worker) -> str:
    """Return the end of a worker's log."""
    with worker.log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
        return file.read().decode(errors="replace").strip()
