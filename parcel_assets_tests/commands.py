"""The command line in processes of its own, for tests that go the whole way and kill on it.

`SMALL_SEARCH` has 82 short trials; its archive is the fixture `small_archive`.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from parcel_assets.core.chain import Chain
from parcel_assets.steps.admission import load_chain
from parcel_assets.wiring import Settings, open_ports

PLANS = Path(__file__).parent.parent / "data" / "plans"
SMALL_SEARCH = "small-kill-test"
COMMAND = [sys.executable, "-c", "from parcel_assets.cli import app; app()"]


def environment(data: Path, **more: str) -> dict[str, str]:
    """Return an environment in which everything is kept in the data folder."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PARCEL_ASSETS_")}
    kept.pop("DAGSTER_HOME", None)
    return kept | {"PARCEL_ASSETS_DATA": str(data)} | more


def start(data: Path, *words: str) -> "subprocess.Popen[bytes]":
    """Start a command whose words nobody reads."""
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(
        [*COMMAND, *words], env=environment(data), stdout=nowhere, stderr=nowhere
    )


def command(data: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    return subprocess.run(
        [*COMMAND, *words], env=environment(data), capture_output=True, text=True, check=False
    )


def document(done: "subprocess.CompletedProcess[str]") -> Any:
    """Return what a command printed under `--json`."""
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    return json.loads(done.stdout)


def data_with(archive: Path, folder: Path) -> Path:
    """Return a new data folder that holds the plan `SMALL_SEARCH` and its archive."""
    (folder / "plans").mkdir(parents=True)
    shutil.copyfile(PLANS / f"{SMALL_SEARCH}.toml", folder / "plans" / f"{SMALL_SEARCH}.toml")
    shutil.copytree(archive, folder / "archives" / "sample-small")
    return folder


def chain_in(data: Path) -> Chain:
    """Return the verified chain of the search in a data folder."""
    return load_chain(SMALL_SEARCH, open_ports(Settings.read({}, data=data)))
