"""Measure the identity of a worker process: of what it has loaded, and of the host it runs on.

Decides what code, packages and hardware cover. Nothing here imports a training library: versions
come from package metadata, code from source files. What plan and loaded data give is measured by
`core.identity_data`, and identities are compared by `core.identity`.
"""

import ast
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from parcel_assets.core.errors import SettingError
from parcel_assets.core.identity_data import measure_data
from parcel_assets.core.plan import BUILT_IN_NETWORK, Plan
from parcel_assets.core.ports import TrainingData

# what a worker imports; all that these require is measured with them
PACKAGES = ("torch", "pytorch-lightning", "numpy", "safetensors", "pydantic", "scipy")
IMAGE_VARIABLE = "PARCEL_ASSETS_IMAGE"  # a container sets it to its own image digest
# what a worker runs: its code decides what is trained and reported
WORKER_SOURCES = (
    "worker.py",
    "wiring.py",
    "core/*.py",
    "steps/worker.py",
    "adapters/trainer_*.py",
    "adapters/network_*.py",
    "adapters/checkpoint_*.py",
    "adapters/identity_*.py",
)
CPU_FEATURES = ("amx_bf16", "avx512_bf16", "avx512f", "avx2", "avx", "sse4_2", "asimd", "sve")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def measure_identity(plan: Plan, data: TrainingData) -> dict[str, str]:
    """Return every item of an identity, from the plan in use and the data that were loaded."""
    network = plan.training.network
    sources = _sources(network)
    return {
        **measure_data(plan, data),
        **{f"code.{name}": digest for name, digest in sources.items()},
        **{f"packages.{name}": version for name, version in _packages(network).items()},
        **{f"hardware.{name}": text for name, text in _hardware().items()},
        "image": os.environ.get(IMAGE_VARIABLE) or "none named",
    }


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sources(network: str) -> dict[str, str]:
    """Return the digests of the sources that a worker runs, a user's network included, by name."""
    package = Path(__file__).resolve().parent.parent
    files = [path for pattern in WORKER_SOURCES for path in package.glob(pattern)]
    sources = {path.relative_to(package).as_posix(): _file_digest(path) for path in sorted(files)}
    if network != BUILT_IN_NETWORK:
        _require_network(network)
        for name, path in _network_sources(network).items():
            sources[f"network/{name}"] = _file_digest(path)
    return sources


def _network_sources(network: str) -> dict[str, Path]:
    """Return the source files of the top-level module or package that a network lies in."""
    top = network.partition(":")[0].partition(".")[0]
    paths = list(_sources_of(top))
    root = Path(os.path.commonpath([path.parent for path in paths])) if paths else Path()
    return {path.relative_to(root).as_posix(): path for path in paths}


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


def _packages(network: str) -> dict[str, str]:
    """Return the versions of Python and of all that a worker imports, directly or not."""
    found = {"python": platform.python_version()}
    waiting = [*PACKAGES, *_packages_of_network(network)]
    while waiting:
        name = _plain_name(waiting.pop())
        if name in found:
            continue
        distribution = _installed(name)
        if distribution is None:
            # of what is required, only what is installed can be imported
            if name in {_plain_name(one) for one in PACKAGES}:
                found[name] = "absent"
            continue
        found[name] = distribution.version
        required = (one for one in distribution.requires or () if "extra ==" not in one)
        waiting += [match.group() for one in required if (match := _NAME.match(one))]
    return dict(sorted(found.items()))


def _installed(name: str) -> importlib.metadata.Distribution | None:
    """Return an installed package; copies that another package carries within it do not count.

    Ray puts its own on the path when it is imported, as a coordinator on Ray does and no worker.
    """
    path = [one for one in sys.path if not (Path(one).parent / "__init__.py").exists()]
    found = importlib.metadata.distributions(name=name, path=path)
    return next(iter(found), None)


def _packages_of_network(network: str) -> list[str]:
    """Return the packages that the sources of a user's network import."""
    if network == BUILT_IN_NETWORK:
        return []
    modules: set[str] = set()
    for path in _network_sources(network).values():
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue  # a file of its package that is no Python: its digest is measured all the same
        for one in ast.walk(tree):
            if isinstance(one, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in one.names}
            elif isinstance(one, ast.ImportFrom) and one.module and not one.level:
                modules.add(one.module.partition(".")[0])
    owners = importlib.metadata.packages_distributions()
    return [name for module in sorted(modules) for name in owners.get(module, ())]


def _plain_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _hardware() -> Mapping[str, str]:
    """Return machine and widest vector features: what the last bits depend on."""
    info = Path("/proc/cpuinfo")
    flags: set[str] = set()
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith(("flags", "Features")):
                flags = set(line.partition(":")[2].split())
                break
    features = " ".join(name for name in CPU_FEATURES if name in flags)
    return {"machine": platform.machine(), "features": features or platform.processor()}
