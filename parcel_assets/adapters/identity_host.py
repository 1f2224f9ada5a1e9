"""Measure the identity of a worker process on this host, from the files that it loads.

Decides what each field covers. Nothing here imports a training library: versions come from package
metadata, code from source files. Comparing identities is `core.identity`'s.
"""

import ast
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from parcel_assets.core.codec import digest_bytes, digest_value
from parcel_assets.core.errors import SettingError
from parcel_assets.core.plan import BUILT_IN_NETWORK

PACKAGES = ("torch", "pytorch-lightning", "numpy", "safetensors", "pydantic", "scipy")
IMAGE_VARIABLE = "PARCEL_ASSETS_IMAGE"  # a container sets it to its own image digest
# what a worker runs: its code decides what is trained and reported
WORKER_SOURCES = (
    "worker.py",
    "core/*.py",
    "steps/worker.py",
    "adapters/trainer_*.py",
    "adapters/network_*.py",
    "adapters/checkpoint_*.py",
    "adapters/identity_*.py",
)
CPU_FEATURES = ("amx_bf16", "avx512_bf16", "avx512f", "avx2", "avx", "sse4_2", "asimd", "sve")


def measure_identity(plan_document: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, str]:
    """Return every field of an identity; `files` are the local paths of pixels and rows per part.

    Reads each file whole, and pixels with the header that says what shape they have.
    """
    plan = dict(plan_document)
    identity = {
        "plan": digest_value(plan),
        "snapshot": digest_value(plan["snapshot"]),
        "metric": digest_value(plan["metric"]),
        "space": digest_value(plan["space"]),
        "training": digest_value({"training": plan["training"], "pruning": plan["pruning"]}),
        "code": _code_digest(str(plan["training"]["network"])),
        "packages": _packages(),
        "hardware": _hardware(int(plan["training"]["threads_per_trial"])),
        "image": os.environ.get(IMAGE_VARIABLE) or "none named",
    }
    shipments: dict[str, list[str]] = {}
    shapes: dict[str, list[int]] = {}
    for name, file in sorted(files.items()):
        path = Path(file)
        part, _, kind = name.rpartition("_")
        if kind == "pixels":
            identity[name] = _file_digest(path)
            pixels = np.load(path, mmap_mode="r", allow_pickle=False)
            shapes[part] = [int(size) for size in pixels.shape[1:]]
        else:
            content = path.read_bytes()
            identity[name] = digest_bytes(content)
            rows = json.loads(content)
            identity[f"{part}_photos"] = str(len(rows))
            shipments[part] = sorted({str(row["shipment_id"]) for row in rows})
    identity["split"] = digest_value(shipments)
    identity["preprocessing"] = digest_value({"plan": plan["preprocess"], "shapes": shapes})
    return identity


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _code_digest(network: str) -> str:
    """Return the digest of the sources that a worker runs, a user's network included."""
    package = Path(__file__).resolve().parent.parent
    files = [path for pattern in WORKER_SOURCES for path in package.glob(pattern)]
    sources = {str(path.relative_to(package)): _file_digest(path) for path in sorted(files)}
    if network != BUILT_IN_NETWORK:
        _require_network(network)
        for path in _sources_of(network.partition(":")[0].partition(".")[0]):
            sources[f"network/{path.name}"] = _file_digest(path)
    return digest_value(sources)


def _require_network(network: str) -> None:
    """Raise SettingError where a user's network cannot be there: no such module, no such name.

    Only its source is read: importing it here would load a training library into the coordinator.
    """
    module, _, name = network.partition(":")
    source = _source_of(module)
    if source is None:
        raise _no_network(network, f"no module {module}")
    if source.suffix != ".py":
        return
    try:
        tree = ast.parse(source.read_text("utf-8"))
    except (SyntaxError, ValueError) as error:
        raise _no_network(network, f"a module that is not Python ({error})") from error
    names: set[str] = set()
    for one in ast.walk(tree):
        if isinstance(one, ast.ClassDef):
            names.add(one.name)
        elif isinstance(one, ast.Name):
            names.add(one.id)
        elif isinstance(one, ast.ImportFrom | ast.Import):
            names |= {alias.asname or alias.name for alias in one.names}
    if not names & {name, "*"}:
        raise _no_network(network, f"no {name} in {source}")


def _source_of(module: str) -> Path | None:
    """Return the file of a module, without importing it or its packages; None where it is not."""
    top, *inner = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None:
        return None
    if not inner:
        return Path(spec.origin or "")
    for folder in spec.submodule_search_locations or ():
        below = Path(folder, *inner)
        named = [below / "__init__.py", *sorted(below.parent.glob(f"{below.name}.*"))]
        found = [one for one in named if one.is_file() and one.suffix in {".py", ".so", ".pyd"}]
        if found:
            return found[0]
    return None


def _no_network(network: str, found: str) -> SettingError:
    return SettingError(
        found,
        expected="a LightningModule that every worker can import",
        where=f"training.network = {network!r}",
        remedy="Install it where the workers run (or add its folder to PYTHONPATH) and run again, "
        "or name another under a new search revision. No slot was spent.",
    )


def _sources_of(module: str) -> Iterable[Path]:
    """Return the source files of a top-level module or package, without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None:
        return []
    if spec.submodule_search_locations:
        folders = [Path(folder) for folder in spec.submodule_search_locations]
        return sorted(path for folder in folders for path in folder.rglob("*.py"))
    return [Path(spec.origin)] if spec.origin else []


def _packages() -> str:
    found = [f"python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} absent")
    return ", ".join(found)


def _hardware(threads: int) -> str:
    """Return machine, widest vector features and threads: what the last bits depend on."""
    info = Path("/proc/cpuinfo")
    flags: set[str] = set()
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith(("flags", "Features")):
                flags = set(line.partition(":")[2].split())
                break
    features = " ".join(name for name in CPU_FEATURES if name in flags)
    return f"{platform.machine()} {features or platform.processor()}, {threads} thread(s)".strip()
