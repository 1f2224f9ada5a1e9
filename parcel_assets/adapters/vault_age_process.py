"""Starts the vault's own process on one order and returns its one answer, or raises its reason.

The process gets an allow-list of this one's environment. What it may do is decided in it.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parcel_assets.core.codec import canonical_json
from parcel_assets.core.errors import HoldoutError

ENVIRONMENT = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
)


def ask_vault(order: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return what the vault's process answers to an order; raises HoldoutError with its reason."""
    with tempfile.TemporaryDirectory(prefix="parcel-assets-vault-") as private:
        path = Path(private) / "request.json"
        path.write_bytes(canonical_json(dict(order)))
        ended = subprocess.run(  # noqa: S603 - our own module, no shell
            [sys.executable, "-P", "-m", "parcel_assets.vault", str(path)],
            capture_output=True,
            check=False,
            env=_environment(),
        )
    answer = _answer(ended.stdout)
    if "error" in answer:
        facts = {key: answer[key] for key in ("expected", "where", "remedy")}
        raise HoldoutError(str(answer["found"]), **facts)
    if ended.returncode or not answer:
        last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise HoldoutError(
            f"vault process ended with {ended.returncode} ({' '.join(last) or 'no word'})",
            expected="a result",
            where=where,
            remedy="Materialize final_evaluation again: the same opening is resumed.",
        )
    return answer


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    return kept | {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}


def _answer(output: bytes) -> dict[str, Any]:
    """Return the last line that the subprocess printed, where it is an answer."""
    lines = output.splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
