"""Measures serving, and exports ONNX, in a fresh process: `python -m parcel_assets.serving`.

Decides how that process is started (one thread, little environment) and how its answer is heard.
What is measured is written in `parcel_assets.serving`; replicas are computed in `core.serving`.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from parcel_assets.core.errors import SettingError
from parcel_assets.core.ports import Pixels

ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# ONNX Runtime reports to its maker unless this stands before it is loaded
TELEMETRY_OFF = {"ORT_DISABLE_TELEMETRY": "1"}
TIME_LIMIT_SECONDS = 300.0


class ServingProcess:
    """The serving bench on this machine; `seconds_maximum` bounds each of its readings."""

    def __init__(self, *, requests: int = 300, seconds_maximum: float = 5.0) -> None:
        self._requests = requests
        self._seconds_maximum = seconds_maximum

    def measure(self, model: Path, side_pixels: int) -> dict[str, Any]:
        """Return the reading of one replica; raises SettingError where the process fails."""
        return _ask(
            {
                "task": "measure",
                "model": str(model),
                "side_pixels": side_pixels,
                "requests": self._requests,
                "seconds_maximum": self._seconds_maximum,
            }
        )

    def export_onnx(self, model: Path, pixels: Pixels, folder: Path) -> dict[str, Any]:
        """Write model.onnx and golden files into a folder; return `files` and a `sentence`."""
        with tempfile.TemporaryDirectory(prefix="parcel-assets-export-") as private:
            golden = Path(private) / "pixels.npy"
            np.save(golden, pixels, allow_pickle=False)
            return _ask(
                {
                    "task": "export",
                    "model": str(model),
                    "pixels": str(golden),
                    "folder": str(folder),
                }
            )


def _ask(order: Mapping[str, Any]) -> dict[str, Any]:
    """Return the last line that the process prints, as JSON."""
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    try:
        ended = subprocess.run(  # noqa: S603 - our own module, no shell
            [sys.executable, "-P", "-m", "parcel_assets.serving", json.dumps(order)],
            capture_output=True,
            check=False,
            timeout=TIME_LIMIT_SECONDS,
            env=environment | ONE_THREAD | TELEMETRY_OFF,
        )
    except subprocess.TimeoutExpired as error:
        raise _refusal(order, f"no answer within {TIME_LIMIT_SECONDS:g} seconds") from error
    lines = ended.stdout.decode(errors="replace").strip().splitlines()
    try:
        answer = json.loads(lines[-1])
    except (IndexError, ValueError) as error:
        words = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise _refusal(
            order, f"exit status {ended.returncode}: {' '.join(words) or 'no word'}"
        ) from error
    if ended.returncode or not isinstance(answer, dict):
        raise _refusal(order, f"exit status {ended.returncode}")
    return answer


def _refusal(order: Mapping[str, Any], found: str) -> SettingError:
    return SettingError(
        found,
        expected="an answer",
        where=f"serving process, {order['task']}",
        remedy="Run `python -m parcel_assets.serving` with the same order to see all it says.",
    )
