"""What may reach a gate and what may not, and that the simulator asks the chain's own functions."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from parcel_assets.core import (
    final,
    rerun_report,
    simulation,
    slice_family,
    slice_report,
    statistics,
    thresholds,
)
from parcel_assets.core import search_batches as batches
from parcel_assets.core import selection_bias as bias
from parcel_assets.core import simulation_pruning as pruning
from parcel_assets.core import simulation_slices as simulated
from parcel_assets.core import slices as judging
from parcel_assets.core.slice_family import judge_together
from parcel_assets.core.slice_verdict import Outcome, SliceResult, decide
from parcel_assets.core.slices import judge_miss_slice
from parcel_assets.steps import dispatch_desk as desk
from parcel_assets_tests.promises import rule

PACKAGE = Path(slice_family.__file__).parents[1]
# made in the family, carried in the result, printed with its label: nowhere else
MAY_SAY_SHRUNKEN = {
    "core/slice_family.py",
    "core/slice_verdict.py",
    "adapters/report_html_slices.py",
    "defs/metadata_slices.py",
}


def names_in(path: Path) -> Iterator[str]:
    """Yield every name, attribute, argument and text in a file, docstrings aside."""
    tree = ast.parse(path.read_text())
    docstrings = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg | ast.keyword) and node.arg:
            yield node.arg
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node not in docstrings
        ):
            yield node.value


def test_nothing_that_decides_speaks_of_shrunken_numbers() -> None:
    speak = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if any("shrunken" in name for name in names_in(path))
    }
    assert speak == MAY_SAY_SHRUNKEN
    deciding = ast.parse((PACKAGE / "core/slice_verdict.py").read_text())
    (body,) = [
        node
        for node in deciding.body
        if isinstance(node, ast.FunctionDef) and node.name == "decide"
    ]
    assert "shrunken" not in ast.unparse(body)


def test_a_page_labels_them() -> None:
    words = (PACKAGE / "adapters/report_html_slices.py").read_text()
    assert "for display only" in words


def results(count: int) -> list[SliceResult]:
    every, found = np.ones(120, dtype=bool), []
    for n in range(count):
        candidate = np.arange(120) >= 3 * n
        found.append(
            judge_miss_slice(
                rule(f"slice-{n}"), candidate, every, every, np.arange(120), members=every
            )
        )
    return found


@pytest.mark.parametrize("shrunken", [None, -1e9, 0.0, 1e9])
def test_whatever_a_shrunken_number_says_the_outcome_is_the_same(shrunken: float | None) -> None:
    rules = [rule(f"slice-{n}") for n in range(6)]
    plain = judge_together(rules, results(6))
    bent = judge_together(rules, [replace(one, shrunken_difference=shrunken) for one in results(6)])
    assert [one.outcome for one in plain] == [one.outcome for one in bent]
    assert {one.outcome for one in plain} > {Outcome.PASS}
    for one, numbered in zip(rules, plain, strict=True):
        numbers = {
            key: value
            for key, value in vars(replace(numbered, shrunken_difference=shrunken)).items()
            if key not in {"outcome", "reasons", "sentence"}
        }
        assert decide(one, numbers).outcome is numbered.outcome


def test_the_display_interval_reaches_no_gate_either() -> None:
    readers = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "display_interval" in set(names_in(path))
    }
    assert readers == {
        "core/rerun_report.py",
        "adapters/report_html_search.py",
        "defs/metadata.py",
    }


@pytest.mark.parametrize(
    ("name", "home", "users"),
    [
        ("judge_miss_slice", judging, [simulated, slice_report, final]),
        ("judge_cost_slice", judging, [simulated, slice_report]),
        ("selection_corrected_cost", bias, [simulation, rerun_report]),
        ("estimate_cost", statistics, [simulation, final, rerun_report]),
        ("choose_threshold", thresholds, [simulation, desk]),
        ("judge_final", final, [simulation]),
        ("cut_from_values", batches, [pruning]),
        ("guard_from_pairs", batches, [pruning]),
    ],
)
def test_the_simulator_asks_the_functions_that_the_chain_asks(
    name: str, home: ModuleType, users: list[ModuleType]
) -> None:
    # the same object, not another of the same name
    assert {id(vars(one)[name]) for one in (home, *users)} == {id(vars(home)[name])}


def test_the_simulator_decides_nothing_by_itself() -> None:
    for name in ("simulation", "simulation_slices", "simulation_pruning"):
        said = set(names_in(PACKAGE / "core" / f"{name}.py"))
        assert not said & {"student_quantile", "stdtrit", "stdtr", "upper", "harm_chance"}
