"""Every case is a test, or says why it cannot be one."""

import ast
from pathlib import Path

from parcel_assets_tests.cases import NOT_APPLICABLE, NUMBERS


def numbers_tested() -> set[str]:
    """Return the numbers that the names of test functions in this folder carry."""
    found = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for one in ast.walk(ast.parse(path.read_text())):
            if isinstance(one, ast.FunctionDef) and one.name.startswith("test_"):
                found.add(one.name.split("_")[1])
    return found


def test_every_number_is_a_test_or_a_reason() -> None:
    tested = numbers_tested() & set(NUMBERS)
    assert set(NUMBERS) - tested - set(NOT_APPLICABLE) == set()
    assert not tested & set(NOT_APPLICABLE)
    assert set(NOT_APPLICABLE) <= set(NUMBERS)
    assert len(NOT_APPLICABLE) <= 5
    assert all(len(reason) > 20 for reason in NOT_APPLICABLE.values())


def test_no_test_carries_a_number_that_is_no_case() -> None:
    strange = {one for one in numbers_tested() if one[:1] in "bo" and one[1:].isdecimal()}
    assert strange <= set(NUMBERS)
