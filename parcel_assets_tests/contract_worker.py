"""Workers that behave as told, good and bad: `python -m parcel_assets_tests.contract_worker SETUP`.

The setup file holds `behaviour`, the name of a function here. None of them ends with its parent by
itself, but for `echo`: that is the engine's to see to.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FOREVER_SECONDS = 600.0


def say(kind: str, **facts: Any) -> None:
    """Send a message."""
    line(json.dumps({"kind": kind} | facts))


def line(text: str) -> None:
    """Send a line, which may be no message."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def hello(**facts: Any) -> None:
    """Say who this is and what it sees."""
    facts |= {"pid": os.getpid(), "setup": sys.argv[1], "environment": dict(os.environ)}
    say(
        "hello",
        descriptors=sorted(int(one.name) for one in Path("/proc/self/fd").iterdir()),
        **facts,
    )


def echo() -> None:
    """Answer every message with it."""
    hello()
    for text in sys.stdin:
        say("echo", heard=json.loads(text))


def protocol() -> None:
    """Speak as a worker of the search does until it is ready."""
    say("hello", identity={"code": "none"})
    for text in sys.stdin:
        if json.loads(text)["kind"] == "challenge":
            say("answer", digests={"train": ["0" * 64]})
            say("ready")


def exits() -> None:
    """Speak, print to the log and end."""
    say("last words")
    sys.stderr.write("out of memory")
    sys.exit(7)


def garbage() -> None:
    """Send the line that the setup holds."""
    line(json.loads(Path(sys.argv[1]).read_bytes())["line"])
    time.sleep(FOREVER_SECONDS)


def endless_line() -> None:
    """Send a line that does not end."""
    while True:
        sys.stdout.write("x" * 65536)


def floods() -> None:
    """Send messages and print to the log, without a pause."""
    number = 0
    while True:
        say("flood", number=number)
        sys.stderr.write("printed without end\n" * 200)
        number += 1


def never_reads() -> None:
    """Say hello and read nothing."""
    hello()
    time.sleep(FOREVER_SECONDS)


def closes_ears() -> None:
    """Close its stdin, speak, and live on."""
    os.close(0)
    say("hello")
    time.sleep(FOREVER_SECONDS)


def stuck() -> None:
    """Hang in native code that lets no other thread of Python run, deaf to polite signals."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    hello()
    ctypes.PyDLL(None).sleep(int(FOREVER_SECONDS))


def stuck_child_of_parent() -> None:
    """Hang likewise, having asked the kernel to end it with its parent as a real worker does."""
    from parcel_assets.adapters.engine_process import die_with_parent

    die_with_parent()
    stuck()


def has_children() -> None:
    """Start a child in its own group and one that left for a session of its own, then hang."""
    program = [sys.executable, "-c", f"import time; time.sleep({FOREVER_SECONDS})"]
    near, far = subprocess.Popen(program), subprocess.Popen(program, start_new_session=True)
    hello(children=[near.pid, far.pid])
    time.sleep(FOREVER_SECONDS)


if __name__ == "__main__":
    globals()[json.loads(Path(sys.argv[1]).read_bytes())["behaviour"]]()
