"""Where a revision stands: finished, held with a name and a command, or open."""

from dataclasses import replace
from pathlib import Path

import pytest

from parcel_assets.core.stage import Stage
from parcel_assets.core.standing import (
    FINISHED,
    HOLD,
    OPEN,
    Standing,
    has_ended,
    next_command,
    standing_of,
)
from parcel_assets.steps.admission import load_chain
from parcel_assets.steps.release import build_packet, register_model
from parcel_assets_tests.defs.told import as_told, bend
from parcel_assets_tests.release_story import REVISION, tell


def test_a_search_in_the_middle_names_its_next_stage(tmp_path: Path) -> None:
    standing = standing_of(load_chain(REVISION, bend(tell(tmp_path), Stage.TABLE)))
    assert (standing.state, standing.next_stage) == (OPEN, Stage.RERUN)
    assert standing.next_command == f"parcel-assets run {REVISION}"
    assert not has_ended(standing)


def test_a_lost_slice_holds_until_a_person_decides(tmp_path: Path) -> None:
    story = tell(tmp_path, corners="lost", decided=True)
    ports = bend(story, Stage.SLICES)
    standing = standing_of(load_chain(REVISION, ports))
    assert (standing.state, standing.hold) == (HOLD, "hold:slice-quality")
    assert "crushed_corner" in standing.sentence
    assert has_ended(standing)  # whoever gives it up in its hold may follow it
    assert standing.next_command.startswith(f"parcel-assets decide {REVISION} --outcome accept")


def test_a_released_search_is_finished(tmp_path: Path) -> None:
    ports = as_told(tell(tmp_path))
    build_packet(REVISION, ports)
    register_model(REVISION, ports)
    standing = standing_of(load_chain(REVISION, ports))
    assert (standing.state, standing.facts["verdict"]) == (FINISHED, "released")
    assert standing.done == tuple(Stage)
    assert has_ended(standing)


def test_a_missed_target_is_a_hold_whose_packet_can_be_read(tmp_path: Path) -> None:
    ports = replace(as_told(tell(tmp_path, outcome="FAIL")))
    build_packet(REVISION, ports)
    standing = standing_of(load_chain(REVISION, ports))
    assert (standing.state, standing.hold) == (HOLD, "rejected:performance")
    assert standing.next_command == f"parcel-assets packet show {REVISION}"


@pytest.mark.parametrize("hold", ["hold:search-running", "hold:lineage", "hold:no-worker"])
def test_what_another_run_lifts_has_not_ended(hold: str) -> None:
    assert next_command("r", hold) == "parcel-assets run r"
    assert not has_ended(Standing("r", HOLD, "", "", hold=hold, done=(Stage.SEARCH,)))
