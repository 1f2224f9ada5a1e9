"""The processes of an engine: what they see of this machine, and that they end with their parent.

Decides environment (an allow-list), compute threads, sessions and pipes; who is started when is the
engine's to say.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from parcel_assets.adapters import engine_warden

READ_BYTES = 1 << 16
PR_SET_PDEATHSIG = 1
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


def spawn_worker(command: Sequence[str], setup: Path, mark: str) -> "subprocess.Popen[bytes]":
    """Start a worker's process, spoken with over pipes that never wait; raises OSError."""
    process = subprocess.Popen(  # noqa: S603 - our own command, no shell
        [*command, str(setup)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=_environment() | ENVIRONMENT_SET | {engine_warden.MARK_VARIABLE: mark},
        start_new_session=True,  # an interrupt at the keyboard is the coordinator's
    )
    for descriptor in descriptors_of(process):
        os.set_blocking(descriptor, False)
    return process


def spawn_warden(mark: str) -> "subprocess.Popen[bytes]":
    """Start the warden of all processes whose mark starts so; raises OSError."""
    program = str(Path(engine_warden.__file__).resolve())
    return subprocess.Popen(  # noqa: S603 - our own file
        [sys.executable, "-I", "-S", program, mark, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        env=_environment(),
        cwd="/",
        start_new_session=True,  # whoever kills our group leaves it
    )


def descriptors_of(process: "subprocess.Popen[bytes]") -> tuple[int, int, int]:
    """Return the descriptors of a process's stdout, stderr and stdin."""
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdin is not None
    return process.stdout.fileno(), process.stderr.fileno(), process.stdin.fileno()


def close_pipes(process: "subprocess.Popen[bytes]") -> None:
    """Close our ends of a process's pipes."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def read_now(descriptor: int) -> bytes | None:
    """Return what a pipe holds now, at most READ_BYTES; None: nothing, empty: it was closed."""
    try:
        return os.read(descriptor, READ_BYTES)
    except BlockingIOError:
        return None


def die_with_parent() -> None:
    """Ask the kernel to end this process with its parent, whatever library code is running.

    Elsewhere than on Linux no kernel can be asked: the closed pipe and the warden have to do.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ENVIRONMENT_ALLOWED if name in os.environ}
