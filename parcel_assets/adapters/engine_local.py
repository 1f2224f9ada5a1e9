"""Workers as processes on this machine: started, spoken with over pipes, and stopped.

Decides when a worker is started, heard, lost and ended. It decides nothing about trials and retries
nothing; a worker that ends is reported as lost, once.
No call waits for a worker but `stop` and `close`, which wait until it is gone.
"""

import json
import logging
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parcel_assets.adapters import engine_warden
from parcel_assets.adapters.engine_log import BoundedLog, log_file_of, remove_old_logs
from parcel_assets.adapters.engine_process import (
    READ_BYTES,
    close_pipes,
    descriptors_of,
    read_now,
    spawn_warden,
    spawn_worker,
)
from parcel_assets.adapters.engine_words import message_of, require_known, require_new
from parcel_assets.core.errors import SettingError
from parcel_assets.core.ports import Message

# -P: what lies in the folder a run was started from is not imported by the worker alone
COMMAND = (sys.executable, "-P", "-m", "parcel_assets.worker")
LINE_BYTES_MAXIMUM = 4 << 20
UNREAD_BYTES_MAXIMUM = 16 << 20  # sent to a worker that does not read
STOP_SECONDS = 10.0
PAUSE_SECONDS = 0.005
LOOK_SECONDS = 0.5  # how often to look for ended workers whose pipes stay open

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Worker:
    process: "subprocess.Popen[bytes]"
    mark: str
    log: BoundedLog
    reads: int  # the descriptor of its stdout
    prints: int  # of its stderr
    hears: int  # of its stdin
    said: bytearray = field(default_factory=bytearray)
    unsent: bytearray = field(default_factory=bytearray)
    deaf: bool = False


class LocalEngine:
    """The engine port on local processes; `command` starts a worker, given its setup file."""

    def __init__(self, log_folder: Path, command: Sequence[str] = COMMAND) -> None:
        self._logs = log_folder
        self._command = tuple(command)
        self._mark = secrets.token_hex(16)
        self._warden: subprocess.Popen[bytes] | None = None
        self._workers: dict[str, _Worker] = {}
        self._known: set[str] = set()
        self._selector = selectors.DefaultSelector()
        self._inbox: list[tuple[str, dict[str, Any]]] = []
        self._closed = False

    def start(self, worker_id: str, setup: Path) -> None:
        """Start a fresh worker process; raises SettingError where that is not possible."""
        require_new(worker_id, self._known, closed=self._closed)
        mark = f"{self._mark}.{len(self._known)}"
        path = log_file_of(self._logs, worker_id)
        try:
            if not self._known:
                self._logs.mkdir(parents=True, exist_ok=True)
                remove_old_logs(self._logs)
            self._watch()
            printed = BoundedLog(path)
            try:
                process = spawn_worker(self._command, setup, mark)
            except BaseException:
                printed.close()
                raise
        except OSError as error:
            raise SettingError(
                f"a worker that does not start ({error})",
                expected="room for a process and a log file",
                where=str(path),
                remedy="Free memory or disk, then run again: the search resumes.",
            ) from error
        self._known.add(worker_id)
        worker = _Worker(process, mark, printed, *descriptors_of(process))
        self._workers[worker_id] = worker
        self._selector.register(worker.reads, selectors.EVENT_READ, worker_id)
        self._selector.register(worker.prints, selectors.EVENT_READ, worker_id)
        self._tell_warden(f"+{process.pid}")

    def send(self, worker_id: str, message: Message) -> None:
        """Send a message without waiting; a worker that is gone is lost in `receive`, not here."""
        require_known(worker_id, self._known)
        worker = self._workers.get(worker_id)
        if worker is None or worker.deaf:
            return
        worker.unsent += json.dumps(dict(message)).encode() + b"\n"
        self._flush(worker_id, worker)

    def _flush(self, worker_id: str, worker: _Worker) -> None:
        """Write what the worker's pipe takes now; the rest follows while we receive."""
        try:
            while worker.unsent:
                del worker.unsent[: os.write(worker.hears, worker.unsent[:READ_BYTES])]
        except BlockingIOError:
            if len(worker.unsent) > UNREAD_BYTES_MAXIMUM:
                self._lose(worker_id, f"it left {UNREAD_BYTES_MAXIMUM} bytes unread")
            elif worker.hears not in self._selector.get_map():
                self._selector.register(worker.hears, selectors.EVENT_WRITE, worker_id)
            return
        except BrokenPipeError:
            worker.deaf = True  # what it said before that is heard first
            worker.unsent.clear()
        if worker.hears in self._selector.get_map():
            self._selector.unregister(worker.hears)

    def receive(self, timeout_seconds: float) -> list[tuple[str, dict[str, Any]]]:
        """Return the messages that have come, waiting at most `timeout_seconds` for the first."""
        deadline = time.monotonic() + timeout_seconds
        while not self._inbox:
            done = self._done()
            left = 0.0 if done else min(LOOK_SECONDS, max(0.0, deadline - time.monotonic()))
            for key, _ in self._selector.select(left):
                self._attend(str(key.data), key.fd)
            for worker_id, reason in done:
                self._lose_after_its_words(worker_id, reason)
            if time.monotonic() >= deadline:
                break  # a worker that prints without end keeps the selector busy for ever
        found, self._inbox = self._inbox, []
        return found

    def fileno(self) -> int:
        """Return a descriptor that is readable where `receive` has something to do."""
        return int(self._selector.fileno())

    def _attend(self, worker_id: str, descriptor: int) -> None:
        worker = self._workers.get(worker_id)
        if worker is None:
            return  # it was lost a moment ago, in this same round
        if descriptor == worker.reads:
            self._hear(worker_id, worker)
        elif descriptor == worker.prints:
            chunk = read_now(worker.prints)
            if chunk == b"":
                self._selector.unregister(worker.prints)  # it closed its log, and may live
            worker.log.write(chunk or b"")
        else:
            self._flush(worker_id, worker)

    def _hear(self, worker_id: str, worker: _Worker) -> bool:
        """Take in what a worker has said; return whether there was anything."""
        chunk = read_now(worker.reads)
        if chunk is None:
            return False
        if not chunk:
            self._lose(worker_id, "")
            return False
        worker.said += chunk
        *lines, rest = bytes(worker.said).split(b"\n")
        worker.said = bytearray(rest)
        for line in lines:
            message = message_of(line)
            if message is None:
                self._lose(worker_id, "it sent a line that is no message")
                return False
            self._inbox.append((worker_id, message))
        if len(rest) > LINE_BYTES_MAXIMUM:
            self._lose(worker_id, f"it sent a line above {LINE_BYTES_MAXIMUM} bytes")
            return False
        return True

    def _done(self) -> list[tuple[str, str]]:
        """Return the workers that ended or closed their ears, and why.

        A worker's closed pipe is not enough to go by: children of a dead one may hold it open.
        """
        ended = [one for one, worker in self._workers.items() if worker.process.poll() is not None]
        deaf = [one for one, worker in self._workers.items() if worker.deaf and one not in ended]
        return [(one, "") for one in ended] + [(one, "it no longer listens") for one in deaf]

    def _lose_after_its_words(self, worker_id: str, reason: str) -> None:
        """Lose a worker, after what it had said before."""
        worker = self._workers.get(worker_id)
        for _ in range(UNREAD_BYTES_MAXIMUM // READ_BYTES):  # it may talk on
            if worker is None or not self._hear(worker_id, worker):
                break
            worker = self._workers.get(worker_id)
        if worker_id in self._workers:
            self._lose(worker_id, reason)

    def _lose(self, worker_id: str, reason: str) -> None:
        """End a worker and report it as lost, with what its log says last."""
        worker = self._workers[worker_id]
        code = self._end(worker_id)
        if not reason:
            cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            reason = f"its process ended ({cause})"
        facts = {"reason": reason, "log": str(worker.log.path), "tail": worker.log.tail}
        self._inbox.append((worker_id, {"kind": "lost"} | facts))

    def stop(self, worker_id: str) -> None:
        """End a worker at once and wait until it is gone; what it still says is not heard."""
        require_known(worker_id, self._known)
        if worker_id in self._workers:
            self._end(worker_id)
        self._inbox = [one for one in self._inbox if one[0] != worker_id]

    def close(self) -> None:
        """End all workers, and whatever they started."""
        self._closed = True
        for worker_id in tuple(self._workers):
            self._end(worker_id)
        self._inbox.clear()
        self._selector.close()
        warden, self._warden = self._warden, None
        if warden is not None:
            self._tell(warden, engine_warden.WORDS_OF_END)
            assert warden.stdin is not None
            warden.stdin.close()
            warden.wait()  # it gives up by itself

    def _end(self, worker_id: str) -> int:
        """Kill the worker, its group and all that bears its mark; return its exit code."""
        worker = self._workers.pop(worker_id)
        for descriptor in (worker.reads, worker.prints, worker.hears):
            if descriptor in self._selector.get_map():
                self._selector.unregister(descriptor)
        engine_warden.kill_group(worker.process.pid)
        limit = time.monotonic() + STOP_SECONDS
        while engine_warden.kill_marked(worker.mark) and time.monotonic() < limit:
            time.sleep(PAUSE_SECONDS)  # until it shows that they are gone
        try:
            code = worker.process.wait(max(0.0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:  # in the kernel, on a disk that does not answer
            code = -signal.SIGKILL
            log.warning(
                "process %d of worker %s was killed and stays", worker.process.pid, worker_id
            )
        self._tell_warden(f"-{worker.process.pid}")
        while chunk := read_now(worker.prints):
            worker.log.write(chunk)
        worker.log.close()
        close_pipes(worker.process)
        return code

    # ---- the warden -----------------------------------------------------------------------------

    def _watch(self) -> None:
        """Have a warden that outlives this process; one that was killed is replaced."""
        if self._warden is not None and self._warden.poll() is None:
            return
        if self._warden is not None and self._warden.stdin is not None:
            self._warden.stdin.close()
        self._warden = spawn_warden(f"{self._mark}.")
        for worker in self._workers.values():
            self._tell_warden(f"+{worker.process.pid}")

    def _tell_warden(self, words: str) -> None:
        if self._warden is not None:
            self._tell(self._warden, words.encode())

    @staticmethod
    def _tell(warden: "subprocess.Popen[bytes]", words: bytes) -> None:
        assert warden.stdin is not None
        try:
            warden.stdin.write(words + b"\n")
        except BrokenPipeError:
            log.warning("the warden of this engine is gone; the next start brings another")
