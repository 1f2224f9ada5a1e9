"""For each gate, failed: nothing that Dagster offers takes the next asset past it.

Four ways are tried: the next asset alone, a run without checks, an evaluation reported as passed,
and a failure that lies in an earlier run.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from parcel_assets.core.gates import GATES
from parcel_assets.core.ports import Ports
from parcel_assets.core.stage import Stage
from parcel_assets.steps.release import build_packet
from parcel_assets_tests.defs.faults import FAULTS, STAGE_OF, next_asset
from parcel_assets_tests.defs.told import (
    as_told,
    bend,
    failure_of,
    new_instance,
    ran,
    resource_of,
    run_assets,
)
from parcel_assets_tests.release_story import REVISION, FakeVault, Story, tell


def spend_the_holdout(ports: Ports, story: Story) -> Ports:
    vault = FakeVault()
    told = vars(story.ports.vault)["receipts"][0]
    vault.receipts = [{**told, "revision": "an-earlier-search"}]
    return replace(ports, vault=vault)  # type: ignore[arg-type]  # as the story's own


def double_the_receipt(ports: Ports, story: Story) -> Ports:
    vault = FakeVault()
    told = vars(story.ports.vault)["receipts"][0]
    vault.receipts = [told, copy.deepcopy(told)]
    return replace(ports, vault=vault)  # type: ignore[arg-type]  # as the story's own


RECEIPTS = {"holdout_unspent": spend_the_holdout, "holdout_once": double_the_receipt}


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Story]:
    told: dict[tuple[str, str], Story] = {}

    def story_of(outcome: str, corners: str) -> Story:
        if (outcome, corners) not in told:
            folder = tmp_path_factory.mktemp("story")
            told[outcome, corners] = tell(
                folder, outcome=outcome, corners=corners, decided=corners == "lost"
            )
        return told[outcome, corners]

    return story_of


def failing(name: str, story: Story, folder: Path) -> Ports:
    """Return ports whose chain ends at the gate's stage, with this one gate failing."""
    fault, stage = FAULTS[name], STAGE_OF[name]
    if stage == Stage.PACKET or name == "target":
        ports = as_told(story, packets=folder / "packets")
        build_packet(REVISION, ports)
        if fault.packet is not None:
            fault.packet(ports.packets / REVISION)
        return ports
    change = fault.body
    ports = bend(
        story,
        stage,
        body=(lambda body: change(body, story.store)) if change is not None else None,
        events=fault.events,
    )
    return RECEIPTS[name](ports, story) if name in RECEIPTS else ports


def test_every_gate_has_its_fault() -> None:
    assert set(FAULTS) == {gate.name for gate in GATES}


@pytest.mark.parametrize("name", FAULTS)
def test_a_failed_gate_stops_the_next_asset_however_it_is_started(
    name: str, stories: Callable[[str, str], Story], tmp_path: Path
) -> None:
    fault, stage = FAULTS[name], str(STAGE_OF[name])
    outcome = "FAIL" if name == "target" else "PASS"
    corners = "lost" if name == "protected_slices" else "kept"
    ports = failing(name, stories(outcome, corners), tmp_path)
    resource, instance, after = (
        resource_of(ports, tmp_path),
        new_instance(tmp_path),
        next_asset(name),
    )

    # in one run: the check says why, in the gate's own words, and the next asset does not run
    together = run_assets([stage, after], resource, instance, stand_in=stage)
    shown = {one.check_name: one for one in together.get_asset_check_evaluations()}
    assert not together.success
    assert not ran(together, after)
    assert not shown[name].passed
    assert shown[name].severity == dg.AssetCheckSeverity.ERROR
    others = {other for other, one in shown.items() if other != name and not one.passed}
    assert others <= set(WITH.get(name, ()))

    # the next asset alone, after that failed run
    alone = run_assets([after], resource, instance)
    assert not ran(alone, after)
    words = failure_of(alone, after)
    assert f"gate {name}" in words
    assert fault.words in words

    # an evaluation reported as passed
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey(stage), check_name=name, passed=True, metadata={}, blocking=True
        )
    )
    reported = run_assets([after], resource, instance)
    assert f"gate {name}" in failure_of(reported, after)

    # checks deselected
    unchecked = run_assets([stage, after], resource, instance, checks=False, stand_in=stage)
    assert f"gate {name}" in failure_of(unchecked, after)
    instance.dispose()


# gates that fail together: a fault in the data of one is a fault in the data of the other
WITH = {"packet_digests": ("packet_signature",), "packet_signature": ("packet_digests",)}
