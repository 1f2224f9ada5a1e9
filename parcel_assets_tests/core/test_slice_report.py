"""Which photos a slice holds and who stands behind it: worst missed first, nothing unnamed."""

from typing import Any

import numpy as np

from parcel_assets.core.ports import PartData
from parcel_assets.core.slice_plan import SlicePlan, SliceRule
from parcel_assets.core.slice_report import (
    ScoredModel,
    judge_slices,
    slice_members,
    slice_photos,
    slice_rules,
    worst_missed,
)
from parcel_assets.core.statistics import Costs

PART = PartData(
    photo_ids=("a", "b", "c", "d", "e", "f"),
    shipments=("1", "1", "2", "2", "3", "3"),
    pixels=np.zeros((6, 2, 2, 3), np.uint8),
    damaged=np.array([True, True, True, False, False, True]),
    attributes={
        "damage_type": ("dent", "tear", "dent", "", "", "dent"),
        "camera_class": ("top", "top", "side", "", "side", "top"),
    },
)
MODEL = ScoredModel(np.array([0.4, 0.9, 0.1, 0.2, 0.8, 0.4], np.float32), 0.5)


def rule(dimension: str, value: str, **changes: Any) -> SliceRule:
    return SliceRule(name="one", dimension=dimension, value=value, **changes)


def test_a_slice_without_a_value_becomes_one_for_each_value_found() -> None:
    slices = {
        "types": SlicePlan(dimension="damage_type"),
        "cameras": SlicePlan(dimension="camera_class"),
        "zebra": SlicePlan(dimension="damage_type", value="dent", role="protected"),
    }
    names = [one.name for one in slice_rules(slices, PART.attributes)]
    # an intact photo has no damage type, but a photo without a camera class is a slice to see
    assert names == [
        "zebra",
        "cameras:(blank)",
        "cameras:side",
        "cameras:top",
        "types:dent",
        "types:tear",
    ]


def test_the_order_of_the_plan_s_file_does_not_matter() -> None:
    slices = {"b": SlicePlan(dimension="camera_class"), "a": SlicePlan(dimension="damage_type")}
    turned = dict(reversed(slices.items()))
    assert slice_rules(slices, PART.attributes) == slice_rules(turned, PART.attributes)


def test_a_value_that_nobody_has_is_an_empty_slice() -> None:
    assert not slice_photos(rule("camera_class", "handheld"), PART.attributes, 6).any()
    assert not slice_photos(rule("site", "north"), PART.attributes, 6).any()


def test_missed_damage_comes_first_by_score_then_found_damage_then_intact() -> None:
    members = slice_members(rule("camera_class", "top"), PART, MODEL)
    assert [one["photo_id"] for one in members["photos"]] == ["a", "f", "b"]
    assert [one["missed"] for one in members["photos"]] == [True, True, False]
    assert members["shipments"] == ["1", "3"]


def test_lists_are_bounded_but_totals_are_not() -> None:
    members = slice_members(rule("damage_type", "dent"), PART, MODEL, most=1)
    assert len(members["photos"]) == len(members["shipments"]) == 1
    totals = [members[f"{what}_total"] for what in ("photos", "missed", "shipments")]
    assert totals == [3, 3, 3]


def test_the_worst_missed_are_those_of_lowest_score() -> None:
    assert worst_missed(PART, MODEL, 2).tolist() == [2, 0]


def test_an_empty_monitored_slice_is_insufficient_in_words() -> None:
    (judged,) = judge_slices(
        [rule("camera_class", "handheld")], PART, MODEL, MODEL, Costs(5.0, 1.0)
    )
    assert judged.outcome == "insufficient"
    assert "no miss could show" in judged.sentence
