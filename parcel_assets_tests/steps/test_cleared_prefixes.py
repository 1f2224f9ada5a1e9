"""Checkpoints cleared from the disk after a search: nothing is in doubt; a single one gone is."""

import shutil
from pathlib import Path

import pytest

from parcel_assets.steps.dispatch_lineage import PrefixReader, clashes_of
from parcel_assets_tests.steps.test_budget import Town


@pytest.fixture
def town(tmp_path: Path) -> Town:
    """Return a revision whose search has ended."""
    town = Town(tmp_path)
    town.search()
    return town


def clashes(town: Town) -> dict[str, str]:
    state = town.world.state()
    return clashes_of(state, PrefixReader(town.world.store), state.attempts.values())


def test_attempts_cleared_away_whole_after_their_batches_were_verified_are_in_no_doubt(
    town: Town,
) -> None:
    assert clashes(town) == {}
    shutil.rmtree(town.world.folder / "store" / "attempts")
    assert clashes(town) == {}


def test_the_same_before_a_batch_was_verified_is_a_clash(town: Town) -> None:
    shutil.rmtree(town.world.folder / "store" / "attempts")
    state = town.world.state()
    state.closed_batches.remove(1)
    found = clashes_of(state, PrefixReader(town.world.store), state.attempts.values())
    assert {state.subjects[state.attempts[one].subject].batch for one in found} == {1}


def test_one_file_gone_from_a_prefix_is_a_clash_still(town: Town) -> None:
    record = next(iter(town.world.state().attempts.values()))
    prefix = town.world.store.prefix_path(record.started.prefix)
    (prefix / record.checkpoints[0].file).unlink()
    assert "is gone" in clashes(town)[record.attempt]
