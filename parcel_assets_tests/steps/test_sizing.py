"""Where the sizes of a simulation come from: the split that a revision made, or nothing."""

from pathlib import Path

import pytest

from parcel_assets.core.simulation_world import World
from parcel_assets.core.stage import Stage
from parcel_assets.steps.admission import load_chain
from parcel_assets.steps.sizing import sizes_of_split
from parcel_assets_tests.core.plans import plan
from parcel_assets_tests.release_story import REVISION, tell


def test_a_split_has_counted_what_it_holds(tmp_path: Path) -> None:
    story = tell(tmp_path)
    chain = load_chain(REVISION, story.ports)
    sizes = sizes_of_split(REVISION, story.plan, story.ports, World())
    assert sizes is not None
    parts = chain.split.parts
    assert sizes.validation.shipments_expected == parts["validation"].shipments
    assert sizes.holdout.shipments_expected == pytest.approx(parts["holdout"].shipments)
    assert int(sizes.validation.photos.sum()) == parts["validation"].photos
    judged = {one["name"]: one for one in chain.evidence[Stage.SLICES].body["slices"]}
    for one in sizes.slices:
        counted = judged[one.rule.name]
        assert one.clusters.shipments_expected == counted["shipments"]
        assert one.clusters.damaged_expected == counted["damaged_photos"]
        assert not one.assumed


def test_an_unknown_revision_and_another_plan_have_no_sizes(tmp_path: Path) -> None:
    story = tell(tmp_path)
    assert sizes_of_split("unknown", story.plan, story.ports, World()) is None
    assert sizes_of_split(REVISION, plan(), story.ports, World()) is None
