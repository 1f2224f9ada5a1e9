"""Checkpoints cleared from the disk after a search: nothing is in doubt; a single one gone is."""

import shutil
from pathlib import Path

import pytest

from parcel_assets.steps.dispatch_lineage import PrefixReader, clashes_of
from parcel_assets_tests.simulation.theatre import Case


@pytest.fixture
def case(tmp_path: Path, unflushed: None) -> Case:
    """Return a revision whose search has ended."""
    case = Case(tmp_path)
    case.search()
    return case


def clashes(case: Case) -> dict[str, str]:
    state = case.state
    return clashes_of(state, PrefixReader(case.world.store), state.attempts.values())


def test_attempts_cleared_away_whole_after_their_batches_were_verified_are_in_no_doubt(
    case: Case,
) -> None:
    assert clashes(case) == {}
    shutil.rmtree(case.world.folder / "store" / "attempts")
    assert clashes(case) == {}


def test_the_same_before_a_batch_was_verified_is_a_clash(case: Case) -> None:
    shutil.rmtree(case.world.folder / "store" / "attempts")
    state = case.state
    state.closed_batches.remove(1)
    found = clashes_of(state, PrefixReader(case.world.store), state.attempts.values())
    assert {state.subjects[state.attempts[one].subject].batch for one in found} == {1}


def test_one_file_gone_from_a_prefix_is_a_clash_still(case: Case) -> None:
    record = next(iter(case.state.attempts.values()))
    prefix = case.world.store.prefix_path(record.started.prefix)
    (prefix / record.checkpoints[0].file).unlink()
    assert "is gone" in clashes(case)[record.attempt]
