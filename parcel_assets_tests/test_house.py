"""The rules of the house: who may import whom, what is pure, what is never used."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "parcel_assets"
MODULES = sorted(PACKAGE.rglob("*.py"))
LINES_AT_MOST = 335
FUNCTION_LINES_AT_MOST = 65
# what only runs its own subprocess, and so composes its own adapters
ENTRIES = {"worker", "vault", "serving"}
# each of these runs a stage or records a decision; the other files in steps/ are parts of them
STAGE_STEPS = {"data", "search", "table", "selection", "evaluation", "decision", "release"}
LAYERS = {
    "core": {"core"},
    "steps": {"core", "steps"},
    "adapters": {"core", "adapters"},
    "wiring": {"core", "adapters", "wiring"},
    "defs": {"core", "steps", "wiring", "defs"},
    "definitions": {"defs"},
    "cli": {"core", "steps", "wiring", "defs", "definitions", "drills", "cli", "public"},
    "drills": {"core", "steps", "wiring", "drills"},
    # what an incident brings along runs in the processes under test, like a user's own code
    "outside": {"core", "steps", "adapters"},
    "entry": {"core", "steps", "adapters", "wiring"},
    "public": {"core", "adapters"},
}
# files that one technology needs in several words
FAMILIES = {
    "approval": "packet", "checkpoint": "trainer", "network": "trainer", "image": "source",
    "timestamp": "packet",
}  # fmt: skip
# split these when they are next worked on; no further file may join them
LONGER = {"core.plan": 360, "core.ports": 490}
# a table in the form of calls
LONGER_FUNCTIONS = {"adapters.validator_expectations._expectations": 81}
PURE_PACKAGES = {"pydantic", "numpy", "scipy", "parcel_assets"}
IMPURE = {
    "asyncio", "ctypes", "ftplib", "glob", "http", "importlib", "logging",
    "multiprocessing", "os", "platform", "random", "secrets", "shutil", "signal", "socket",
    "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
# methods that reach for a file or a clock, whatever they are called on
OUTSIDE_METHODS = {
    "exists", "glob", "is_dir", "is_file", "iterdir", "mkdir", "now", "open", "read_bytes",
    "read_text", "rename", "rmdir", "stat", "today", "touch", "unlink", "utcnow", "write_bytes",
    "write_text",
}  # fmt: skip
PICKLERS = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
HEAVY = ("torch", "pytorch_lightning", "great_expectations", "optuna", "matplotlib", "ray", "PIL")


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def imports_of(path: Path) -> Iterator[str]:
    """Yield every module that a file imports anywhere, `from a import b` as `a.b`."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer_of(module: str) -> str:
    """Return the layer of one of our modules, or of a name imported from it."""
    parts = module.split(".")
    first = parts[1] if len(parts) > 1 else "public"
    if first == "drills":
        return "outside" if parts[2:3] == ["outside"] else first
    if first in {"core", "steps", "adapters", "defs", "wiring", "definitions"}:
        return first
    if first == "settings":
        return "wiring"
    if first == "cli" or first.startswith("cli_"):
        return "cli"
    return "entry" if first in ENTRIES else "public"


def family_of(adapter: str) -> str:
    """Return which port's family an adapter file belongs to: its first word, or the shared one."""
    first = adapter.split("_", maxsplit=1)[0]
    return FAMILIES.get(first, first)


def ours(path: Path) -> Iterator[str]:
    yield from (one for one in imports_of(path) if one.split(".")[0] == "parcel_assets")


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_arrows_point_inwards(path: Path) -> None:
    layer = layer_of(name_of(path).removesuffix(".__init__"))
    wrong = [one for one in ours(path) if layer_of(one) not in LAYERS[layer]]
    assert not wrong, f"{layer} may not import {wrong}"


def test_no_stage_calls_another_stage() -> None:
    wrong = [
        (path.name, one)
        for path in sorted((PACKAGE / "steps").glob("*.py"))
        for one in ours(path)
        if layer_of(one) == "steps" and one.split(".")[2] in STAGE_STEPS
    ]
    assert not wrong


def test_an_adapter_imports_no_adapter_of_another_port() -> None:
    wrong = [
        (path.name, one)
        for path in sorted((PACKAGE / "adapters").glob("*.py"))
        for one in ours(path)
        if layer_of(one) == "adapters" and family_of(one.split(".")[2]) != family_of(path.stem)
    ]
    assert not wrong


@pytest.mark.parametrize("path", sorted((PACKAGE / "core").glob("*.py")), ids=name_of)
def test_core_does_no_input_or_output(path: Path) -> None:
    for module in imports_of(path):
        top = module.split(".")[0]
        assert top not in IMPURE, f"{path.name} imports {module}"
        assert top in PURE_PACKAGES or top in sys.stdlib_module_names, f"{path.name}: {module}"
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            assert getattr(node.func, "id", "") not in {"open", "print", "input"}, path.name
            assert getattr(node.func, "attr", "") not in OUTSIDE_METHODS, (path.name, node.lineno)


def test_what_drills_test_knows_nothing_of_drills() -> None:
    own = {"cli", "cli_drill"}  # the command line offers them
    wrong = [
        name_of(path)
        for path in MODULES
        if path.parent != PACKAGE / "drills" and path.parent.name != "outside"
        if path.stem not in own and "drill" in path.read_text(encoding="utf-8").lower()
    ]
    assert not wrong


def test_nothing_is_pickled() -> None:
    for path in MODULES:
        found = {one.split(".")[0] for one in imports_of(path)} & PICKLERS
        assert not found, f"{path.name} imports {found}"
        source = path.read_text(encoding="utf-8")
        assert "torch.load(" not in source, f"{path.name}: weights are safetensors"
        assert "allow_pickle=True" not in source, path.name


def test_our_own_programs_are_started_without_the_working_folder_on_their_path() -> None:
    # else a folder named parcel_assets (or json.py) where a run was started would be run instead
    starts = [(path.name, call) for path in MODULES for call in _own_programs(path)]
    assert starts
    assert not [one for one in starts if one[1][1] != "-P"]


def _own_programs(path: Path) -> Iterator[list[str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.List | ast.Tuple):
            words = [ast.unparse(one).strip("'") for one in node.elts]
            if words[:1] == ["sys.executable"] and any("parcel_assets." in one for one in words):
                yield words


def test_no_future_annotations() -> None:
    # they break the type hints that Dagster reads from assets, and our records need none
    wrong = [path.name for path in MODULES if "__future__.annotations" in set(imports_of(path))]
    assert not wrong


def test_no_error_is_swallowed() -> None:
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ExceptHandler):
                broad = node.type is None or getattr(node.type, "id", "") in {
                    "Exception",
                    "BaseException",
                }
                inner = list(ast.walk(node))
                raises = any(isinstance(one, ast.Raise) for one in inner)
                # a worker outlives what a user's network raises: it says so, and logs where
                logs = any(getattr(one, "attr", "") == "exception" for one in inner)
                assert not broad or raises or logs, f"{path.name}:{node.lineno}"


def test_every_file_says_what_it_decides() -> None:
    for path in MODULES:
        assert ast.get_docstring(tree_of(path)), f"{path.name} has no docstring"


def test_files_stay_readable() -> None:
    long = {
        name_of(path): lines
        for path in MODULES
        if (lines := len(path.read_text(encoding="utf-8").splitlines()))
        > LONGER.get(name_of(path).removeprefix("parcel_assets."), LINES_AT_MOST)
    }
    assert not long, f"split them by what they decide: {long}"


def test_functions_stay_readable() -> None:
    long = {}
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef):
                name = f"{name_of(path)}.{node.name}".removeprefix("parcel_assets.")
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > LONGER_FUNCTIONS.get(name, FUNCTION_LINES_AT_MOST):
                    long[name] = lines
    assert not long, f"split them by what they decide: {long}"


@pytest.mark.parametrize("module", ["parcel_assets.definitions", "parcel_assets.cli"])
def test_the_code_location_and_the_command_line_load_light(module: str) -> None:
    program = f"import sys, {module}; print([one for one in {HEAVY!r} if one in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_worker_does_not_know_dagster() -> None:
    program = "import sys, parcel_assets.worker; print('dagster' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_no_machine_path_is_committed() -> None:
    for path in MODULES:
        source = path.read_text(encoding="utf-8")
        for word in ("/work/", "/home/", "../shared"):
            assert word not in source, f"{path.name} names {word}"
