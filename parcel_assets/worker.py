"""A worker's own process: `python -m parcel_assets.worker SETUP.json`, spoken with in JSON lines.

Decides how messages travel and when the process ends: with its stdin, with its parent, never later.
Whatever a library prints goes to the log instead of into the messages. What a worker does with its
orders is `steps.worker`'s.
"""

import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parcel_assets.adapters.engine_process import die_with_parent
from parcel_assets.adapters.identity_host import measure_identity
from parcel_assets.core.errors import WorkerError
from parcel_assets.core.ports import Message, Trainer
from parcel_assets.steps.worker import Setup, serve
from parcel_assets.wiring import open_trainer

HEARTBEAT_SECONDS = 1.0
EXIT_ORPHANED = 3


class PipeChannel:
    """JSON lines over two file descriptors, with a thread that listens and one that shows life."""

    def __init__(self, reads: int, writes: int, heartbeat_seconds: float) -> None:
        self._reads = os.fdopen(reads, "rb")
        self._writes = writes
        self._heartbeat_seconds = heartbeat_seconds
        self._parent = os.getppid()
        self._inbox: queue.Queue[dict[str, Any]] = queue.Queue()
        self._sending = threading.Lock()
        self._progress: tuple[str, int] = ("", 0)
        self._life = threading.Thread(target=self._show_life, name="life", daemon=True)
        threading.Thread(target=self._listen, name="orders", daemon=True).start()
        self._life.start()

    def send(self, message: Message) -> None:
        """Send a message as one line; the process ends where nobody listens any more."""
        line = json.dumps(dict(message), allow_nan=False).encode() + b"\n"
        with self._sending:
            try:
                while line:
                    line = line[os.write(self._writes, line) :]
            except BrokenPipeError:
                os._exit(EXIT_ORPHANED)

    def receive(self) -> dict[str, Any]:
        """Wait for the next message."""
        return self._inbox.get()

    def note(self, attempt: str, step: int) -> None:
        """Remember progress for the signs of life; raises WorkerError where those have ceased."""
        self._progress = (attempt, step)
        if not self._life.is_alive():
            raise WorkerError(
                "a worker that can no longer show that it lives",
                expected="a sign of life each second",
                where=f"{attempt} at step {step}",
                remedy="It stops at once, before it is missed. Look at its log.",
            )

    def _listen(self) -> None:
        for line in self._reads:
            self._inbox.put(json.loads(line))
        os._exit(EXIT_ORPHANED)  # in mid-training too: nobody would hear the result

    def _show_life(self) -> None:
        while True:
            time.sleep(self._heartbeat_seconds)
            if os.getppid() != self._parent:
                os._exit(EXIT_ORPHANED)
            attempt, step = self._progress
            self.send({"kind": "alive", "attempt": attempt, "step": step})


def run(arguments: list[str], trainer: Callable[[], Trainer]) -> None:
    """Serve on stdin and stdout with a trainer until the coordinator is gone."""
    die_with_parent()
    reads, writes = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    channel = PipeChannel(reads, writes, HEARTBEAT_SECONDS)
    serve(
        Setup.read(Path(arguments[0])),
        channel,
        measure_identity=measure_identity,
        open_trainer=trainer,
    )


def main() -> None:
    """Serve with the trainer that the composition root names."""
    run(sys.argv[1:], open_trainer)


if __name__ == "__main__":
    main()
