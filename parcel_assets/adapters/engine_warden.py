"""The warden of an engine's processes: when the engine is gone, it ends what the engine left.

Decides how leftovers are found: by a mark in their environment, which children inherit whatever
session they move to, and by their process groups where no /proc shows an environment. Runs as a
program of its own, by path and on the standard library alone, so that it starts in milliseconds:
`python -I -S engine_warden.py MARK PARENT`, told of groups by lines on its stdin.
"""

import os
import select
import signal
import sys
import time
from pathlib import Path

MARK_VARIABLE = "PARCEL_ASSETS_MARK"
PROCESSES = Path("/proc")
WORDS_OF_END = b"end"  # said by an engine that closed by itself
LOOK_SECONDS = 1.0
# a worker forked in its parent's last moment bears no mark before it has started its program
GRACE_SECONDS = 2.0
PATIENCE_SECONDS = 20.0
PAUSE_SECONDS = 0.05


def kill_marked(mark: str) -> int:
    """Kill every process whose environment bears a mark that starts so; return how many.

    Where the system shows no environments (macOS), none is found.
    """
    needle = f"{MARK_VARIABLE}={mark}".encode()
    killed = 0
    for folder in PROCESSES.glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it ended while we looked, or is another user's
        if any(one.startswith(needle) for one in variables):
            killed += _kill(int(folder.name), group=False)
    return killed


def kill_group(group: int) -> int:
    """Kill a process group; return 1, or 0 where it has ended."""
    return _kill(group, group=True)


def _kill(number: int, *, group: bool) -> int:
    try:
        (os.killpg if group else os.kill)(number, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # gone (macOS: permission, where all are zombies)
        return 0
    return 1


def watch(mark: str, parent: int) -> None:
    """Wait for the engine's end, then kill until nothing of it is found."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups, closed = _listen(parent)
    now = time.monotonic()
    quiet_at, give_up_at = now + (0.0 if closed else GRACE_SECONDS), now + PATIENCE_SECONDS
    while time.monotonic() < give_up_at:
        groups = {group for group in groups if kill_group(group)}
        if not kill_marked(mark) and not groups and time.monotonic() >= quiet_at:
            return
        time.sleep(PAUSE_SECONDS)


def _listen(parent: int) -> tuple[set[int], bool]:
    """Hear of groups (`+12`, `-12`) until the engine is gone; return them and whether it said so.

    A closed pipe is not enough to go by: a process forked off the engine's may hold it open.
    """
    groups: set[int] = set()
    heard, closed = b"", False
    while True:
        if not select.select([0], [], [], LOOK_SECONDS)[0]:
            if os.getppid() != parent:
                return groups, closed
            continue
        chunk = os.read(0, 4096)
        if not chunk:
            return groups, closed
        *lines, heard = (heard + chunk).split(b"\n")
        for line in lines:
            closed = line == WORDS_OF_END
            if not closed:
                (groups.add if line.startswith(b"+") else groups.discard)(int(line[1:]))


if __name__ == "__main__":
    watch(sys.argv[1], int(sys.argv[2]))
