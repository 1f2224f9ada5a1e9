"""Who a process is on this host: a name for the host, its clock, whether a process still lives.

A process number is reused after its process has ended, so a process is named by number and start
together. What follows from a dead owner is decided by the callers.
"""

import os
import platform
import subprocess
import time
from pathlib import Path

_PROC = Path("/proc")


def host_name() -> str:
    """Return a name for this host's process numbers: node and, where known, process namespace."""
    namespace = _PROC / "self" / "ns" / "pid"
    try:
        return f"{platform.node()}/{namespace.readlink()}"
    except OSError:
        return platform.node()


def boot_name() -> str:
    """Return a name for this start of the host's kernel (and its clock, if namespaced).

    Without /proc it is the host's name alone.
    """
    try:
        boot = (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
        namespace = _PROC / "self" / "ns" / "time"
        return f"{boot}/{namespace.readlink()}" if namespace.exists() else boot
    except OSError:
        return platform.node()


def boot_seconds() -> float:
    """Return a clock that all processes of one boot share and that nobody can set."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def process_start(process_id: int) -> str | None:
    """Return when a live process started, as text that is only compared; None if it does not live.

    A process that has ended and is not yet collected by its parent does not live.
    """
    if (_PROC / "self" / "stat").exists():
        try:
            stat = (_PROC / str(process_id) / "stat").read_text()
            boot = (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
        except OSError:
            return None
        # the command in parentheses may hold blanks: fields are counted after its end
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in {"Z", "X"} else f"{boot}:{fields[19]}"
    return _process_start_by_tool(process_id)


def _process_start_by_tool(process_id: int) -> str | None:
    """Return the start of a live process where there is no /proc."""
    found = subprocess.run(  # noqa: S603 - a fixed program and a number
        ["/bin/ps", "-o", "stat=,lstart=", "-p", str(process_id)],
        capture_output=True,
        text=True,
        check=False,
    )
    state, _, started = found.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else started.strip()


def surely_dead(host: str, process_id: int, started: str) -> bool:
    """Say whether this host knows that a process has ended.

    A namesake of this host, and this host before its last start, are other hosts: two machines
    may have one name, and then only the end of a lease tells.
    """
    if host != host_name():
        return False
    own = process_start(os.getpid()) or ""
    if (_PROC / "self" / "stat").exists() and own.partition(":")[0] != started.partition(":")[0]:
        return False
    return not process_lives(process_id, started)


def process_lives(process_id: int, started: str) -> bool:
    """Say whether the process of this number and start still lives."""
    return process_start(process_id) == started
