"""Look at a search from outside: its ledger, its processes. Waiting ends with a bound, in words."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from parcel_assets.core.ledger import Event, Kind
from parcel_assets.core.ports import Ledger
from parcel_assets.drills.records import DrillError

LOOK_SECONDS = 0.01
PATIENCE_SECONDS = 240.0
WORKER = b"parcel_assets.worker"
PROCESSES = Path("/proc")


def wait_for(ready: Callable[[], bool], words: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Look until it is so; raises DrillError where it does not come to be."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise DrillError(
                f"no {words} within {seconds:.0f} s",
                expected=words,
                where="drill",
                remedy="Run the drill again with --keep and look at its logs.",
            )
        time.sleep(LOOK_SECONDS)


class Watch:
    """The events of one revision, read again and again while somebody else appends."""

    def __init__(self, revision: str, ledger: Ledger) -> None:
        self.revision = revision
        self._ledger = ledger
        self.events: list[Event] = []

    def look(self) -> list[Event]:
        """Return all events up to now."""
        self.events += self._ledger.events(self.revision, len(self.events))
        return self.events

    def of(self, kind: Kind) -> list[Event]:
        """Return the events of a kind up to now."""
        return [one for one in self.look() if one.kind == kind]

    def names(self, kind: Kind) -> list[str]:
        """Return the attempts that events of a kind are about, in order."""
        return [str(one.body["attempt"]) for one in self.of(kind)]

    def in_mid_trial(self, attempts: int = 1) -> list[str]:
        """Return the open attempts if there are so many, each with a checkpoint; else nothing."""
        started, saved = self.names(Kind.ATTEMPT_STARTED), set(self.names(Kind.CHECKPOINT_SAVED))
        still = [one for one in started if one not in self.names(Kind.ATTEMPT_ENDED)]
        return still if len(still) >= attempts and saved.issuperset(still) else []

    def worker_of(self, attempt: str) -> str:
        """Return the id of the worker that an attempt was ordered from."""
        started = self.of(Kind.ATTEMPT_STARTED)
        return next(str(one.body["worker_id"]) for one in started if one.body["attempt"] == attempt)

    def place_of(self, worker_id: str) -> int:
        """Return which of its run's workers, in order of their start, a worker is.

        Only among admitted workers, and of the newest run.
        """
        run = worker_id.rpartition(".")[0]
        admitted = {str(one.body["worker_id"]) for one in self.of(Kind.WORKER_ADMITTED)}
        own = [one for one in admitted if one.rpartition(".")[0] == run]
        return sorted(own, key=lambda name: int(name.rpartition(".")[2])).index(worker_id)

    def set_aside_from(self, worker_id: str) -> list[Event]:
        """Return the milestone reports of a worker that were set aside."""
        return [
            one
            for one in self.of(Kind.MESSAGE_SET_ASIDE)
            if one.body["worker_id"] == worker_id
            and str(one.body["message"]).startswith("milestone")
        ]


# ---- processes ----------------------------------------------------------------------------------


def _processes() -> Iterator[tuple[int, int, bytes, str]]:
    """Yield id, parent, command line and state of every process."""
    for folder in PROCESSES.iterdir():
        if folder.name.isdecimal():
            try:
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue  # it ended while we looked
            yield int(folder.name), int(parent), command, state


def workers_of(run: int) -> list[int]:
    """Return the worker processes that a run has now, in order of their start."""
    return sorted(
        number
        for number, parent, command, state in _processes()
        if parent == run and WORKER in command and state != "Z"
    )


def processes_on(data: Path) -> list[int]:
    """Return the living processes whose command line or environment names a data folder."""
    mark, found = str(data).encode(), []
    for number, _parent, command, state in _processes():
        if number == os.getpid() or state == "Z":
            continue
        try:
            environment = (PROCESSES / str(number) / "environ").read_bytes()
        except OSError:
            continue
        if mark + b"/" in command or b"PARCEL_ASSETS_DATA=" + mark + b"\0" in environment:
            found.append(number)
    return found


def command_of(process: int) -> list[str]:
    """Return the words of a process's command line."""
    line = (PROCESSES / str(process) / "cmdline").read_bytes()
    return [one.decode() for one in line.split(b"\0") if one]
