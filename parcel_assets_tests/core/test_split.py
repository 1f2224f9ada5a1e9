"""The split keeps components whole (D1), and what was assigned stays as the archive grows (D3)."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcel_assets.core.errors import SplitError
from parcel_assets.core.plan import SplitPlan
from parcel_assets.core.slice_plan import MinimumSupport
from parcel_assets.core.snapshot import Label, Photo
from parcel_assets.core.split import (
    PARTS,
    Assignment,
    assign_components,
    check_support,
    count_photos,
    duplicates_across_parts,
    find_components,
    hashed_part,
    milestone_subset,
    part_data,
    photo_row,
    split_digest,
)
from parcel_assets.steps.parts import support_minimums
from parcel_assets_tests.core.plans import plan

SPLIT = SplitPlan(key="test key")


def photo(shipment: str, image: str, number: int = 0, **attributes: str) -> Photo:
    return Photo(
        photo_id=f"{shipment}/{image}/{number}",
        shipment_id=shipment,
        file_digest=f"file {image}",
        pixel_digest=image,
        width_pixels=64,
        height_pixels=64,
        attributes=attributes,
    )


def split(photos: Sequence[Photo], register: dict[str, str] | None = None) -> Assignment:
    return assign_components(find_components(photos), SPLIT, register or {})


archives = st.lists(
    st.builds(
        photo,
        st.integers(0, 25).map(lambda one: f"S{one:02}"),
        st.integers(0, 60).map(lambda one: f"image {one}"),
    ),
    max_size=60,
)


# ---- components ----------------------------------------------------------------------------------


def test_shipments_that_share_an_image_are_one_component() -> None:
    photos = [photo("A", "1"), photo("B", "1"), photo("B", "2"), photo("C", "2"), photo("D", "3")]
    assert find_components(photos) == (("A", "B", "C"), ("D",))


@given(archives, st.randoms(use_true_random=False))
def test_components_do_not_follow_the_order_of_photos(photos: list[Photo], random: object) -> None:
    shuffled = list(photos)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis' random has no public type
    assert find_components(shuffled) == find_components(photos)


@given(archives)
def test_components_partition_the_shipments(photos: list[Photo]) -> None:
    components = find_components(photos)
    listed = [shipment for component in components for shipment in component]
    assert sorted(listed) == sorted({one.shipment_id for one in photos})


# ---- D1: no component in two parts ---------------------------------------------------------------


@given(archives)
def test_neither_shipment_nor_image_lies_in_two_parts(photos: list[Photo]) -> None:
    part_of = split(photos).part_of
    parts_of_shipment: dict[str, set[str]] = {}
    parts_of_image: dict[str, set[str]] = {}
    for one in photos:
        parts_of_shipment.setdefault(one.shipment_id, set()).add(part_of[one.shipment_id])
        parts_of_image.setdefault(one.pixel_digest, set()).add(part_of[one.shipment_id])
    assert all(len(parts) == 1 for parts in parts_of_shipment.values())
    assert all(len(parts) == 1 for parts in parts_of_image.values())
    by_part = {part: [one for one in photos if part_of[one.shipment_id] == part] for part in PARTS}
    assert duplicates_across_parts(by_part) == 0


def test_a_twin_in_another_part_is_counted_on_both_sides() -> None:
    rows = {"train": [photo("A", "1"), photo("A", "2")], "holdout": [photo("B", "1")]}
    assert duplicates_across_parts(rows) == 2


# ---- D3: what was assigned stays -----------------------------------------------------------------


@given(archives, archives)
def test_a_shipment_never_moves_as_the_archive_grows(
    early: list[Photo], later: list[Photo]
) -> None:
    register = split(early).part_of
    grown = split([*early, *later], register)
    for shipment, part in grown.part_of.items():
        assert register.get(shipment, part) == part


@given(archives, archives)
def test_growth_tears_no_component_and_loses_no_shipment(
    early: list[Photo], later: list[Photo]
) -> None:
    register = split(early).part_of
    grown = split([*early, *later], register)
    part_of, aside = grown.part_of, set(grown.quarantined_shipments)
    everyone = {one.shipment_id for one in [*early, *later]}
    assert part_of.keys() | aside == everyone
    assert not part_of.keys() & aside
    for component in find_components([*early, *later]):
        inside = {part_of.get(one) for one in component}
        assert len(inside) == 1
        before = {register[one] for one in component if one in register}
        assert (set(component) <= aside) == (len(before) > 1)


@given(archives, archives)
def test_another_split_key_moves_nobody_either(early: list[Photo], later: list[Photo]) -> None:
    register = split(early).part_of
    other = SplitPlan(key="another key", train=0.2, validation=0.2, holdout=0.6)
    again = assign_components(find_components([*early, *later]), other, register)
    for shipment, part in again.part_of.items():
        assert register.get(shipment, part) == part


def test_a_component_that_newly_joins_two_parts_stands_aside_whole() -> None:
    register = {"A": "train", "B": "holdout", "D": "train"}
    photos = [photo("A", "1"), photo("B", "1"), photo("C", "1"), photo("D", "2")]
    found = split(photos, register)
    assert found.quarantined == (("A", "B", "C"),)
    assert found.quarantined_shipments == ("A", "B", "C")
    assert found.part_of == {"D": "train"}


def test_a_newcomer_joins_the_part_of_the_shipment_it_shares_a_photo_with() -> None:
    found = split([photo("A", "1"), photo("B", "1")], {"B": "holdout"})
    assert found.part_of == {"A": "holdout", "B": "holdout"}
    assert found.linked == (("A", "B"),)


# ---- assignment by keyed hash --------------------------------------------------------------------


def test_parts_have_the_planned_shares() -> None:
    parts = [hashed_part(f"shipment {number}", SPLIT) for number in range(4000)]
    shares = {part: parts.count(part) / len(parts) for part in PARTS}
    assert shares == pytest.approx({"train": 0.5, "validation": 0.3, "holdout": 0.2}, abs=0.03)


def test_the_hash_is_pinned_so_that_old_splits_stay_readable() -> None:
    assert " ".join(hashed_part(one, SPLIT) for one in "ABCDEF") == (
        "train validation train validation train validation"
    )


def test_the_digest_covers_ids_and_parts_only() -> None:
    assert split_digest({"train": ["B", "A"]}) == split_digest({"train": ("A", "B")})
    assert split_digest({"train": ["A"]}) != split_digest({"holdout": ["A"]})


# ---- counts and support --------------------------------------------------------------------------


def pairs(*shipments: str, damaged: str = "") -> list[tuple[Photo, Label]]:
    return [
        (
            photo(one, f"image {one}", camera_class="top"),
            Label(photo_id=one, damaged=one in damaged, damage_type="dent" * (one in damaged)),
        )
        for one in shipments
    ]


def test_counts_are_by_part_dimension_and_value() -> None:
    counts = count_photos({"train": pairs("A", "B", damaged="A")}, ["damage_type", "camera_class"])
    assert counts == {
        "train": {
            "label": {"damaged": 1, "intact": 1},
            "damage_type": {"": 1, "dent": 1},
            "camera_class": {"top": 2},
        }
    }


@pytest.mark.parametrize(
    ("minimum", "met"),
    [
        (MinimumSupport(part="train", shipments=3), True),
        (MinimumSupport(part="train", shipments=4), False),
        (MinimumSupport(part="holdout"), False),
        (MinimumSupport(part="train", damaged_photos=2), False),
        (MinimumSupport(part="train", dimension="damage_type", value="dent"), True),
        (MinimumSupport(part="train", dimension="damage_type", value="wet"), False),
        (MinimumSupport(part="train", dimension="damage_type", shipments=2), False),
        (MinimumSupport(part="train", dimension="camera_class", value="top", shipments=3), True),
    ],
)
def test_a_minimum_is_met_or_says_what_is_missing(minimum: MinimumSupport, met: bool) -> None:
    rows = {"train": pairs("A", "B", "C", damaged="A"), "validation": [], "holdout": []}
    (result,) = check_support([minimum], rows)
    assert result["met"] is met
    assert result["sentence"].startswith(minimum.part)


def test_a_minimum_of_a_crossing_counts_photos_that_have_every_value() -> None:
    asked = MinimumSupport(
        part="train",
        dimension="damage_type",
        value="dent",
        crossed_with={"camera_class": "top"},
        damaged_photos=1,
    )
    rows = {"train": pairs("A", "B", damaged="A"), "validation": [], "holdout": []}
    (found,) = check_support([asked], rows)
    assert found["met"]
    assert "with damage_type = dent and camera_class = top holds 1 shipments" in found["sentence"]
    (found,) = check_support(
        [asked.model_copy(update={"crossed_with": {"camera_class": "x"}})], rows
    )
    assert not found["met"]


def test_a_protected_slice_without_damage_stops_the_search_before_it_starts() -> None:
    asked = support_minimums(plan())
    corner = [one for one in asked if one.value == "crushed_corner"]
    assert [(one.part, one.damaged_photos) for one in corner] == [("validation", 1)]
    stated = {
        "part": "validation",
        "dimension": "damage_type",
        "value": "crushed_corner",
        "damaged_photos": 60,
    }
    asked = support_minimums(plan(split__minimum=[stated]))
    assert [one.damaged_photos for one in asked if one.value == "crushed_corner"] == [60]


@pytest.mark.parametrize("part", ["train", "validation", "holdout"])
def test_a_minimum_of_shipments_alone_takes_no_demand_for_damage_away(part: str) -> None:
    corner = {"dimension": "damage_type", "value": "crushed_corner"}
    stated = [{"part": part, "shipments": 5}, {"part": "validation", "shipments": 5, **corner}]
    asked = support_minimums(plan(split__minimum=stated))
    rows = {one: pairs("A", "B", "C", "D", "E") for one in ("train", "validation", "holdout")}
    lacking = {(one["part"], one["value"]) for one in check_support(asked, rows) if not one["met"]}
    assert lacking >= {(part, None), ("validation", "crushed_corner")}


# ---- rows and subsets ----------------------------------------------------------------------------


def test_part_data_keeps_row_order_and_fills_absent_values() -> None:
    rows = [photo_row(*one) for one in pairs("B", "A", damaged="A")]
    rows[0]["attributes"] = {}
    data = part_data(rows, np.zeros((2, 4, 4, 3), np.uint8))
    assert data.shipments == ("B", "A")
    assert data.damaged.tolist() == [False, True]
    assert data.attributes == {"camera_class": ("", "top"), "damage_type": ("", "dent")}


def test_rows_without_labels_make_no_part_data() -> None:
    rows = [photo_row(photo("A", "1"), None)]
    assert not {"damaged", "damage_type"} & rows[0].keys()
    with pytest.raises(SplitError, match="1 without a label"):
        part_data(rows, np.zeros((1, 4, 4, 3), np.uint8))
    with pytest.raises(SplitError, match="and 2 photos"):
        part_data([], np.zeros((2, 4, 4, 3), np.uint8))


@given(st.lists(st.sampled_from("ABCDEFGH"), min_size=1), st.floats(0.01, 1))
def test_a_milestone_subset_takes_whole_shipments(shipments: list[str], fraction: float) -> None:
    rows = milestone_subset(shipments, "key", fraction)
    inside = {shipments[row] for row in rows}
    assert len(rows) == sum(one in inside for one in shipments)
    assert len(inside) == int(np.ceil(fraction * len(set(shipments))))


def test_a_milestone_subset_does_not_follow_the_split() -> None:
    validation = [s for s in map(str, range(4000)) if hashed_part(s, SPLIT) == "validation"]
    chosen = {validation[row] for row in milestone_subset(validation, SPLIT.key, 0.5)}
    low = [s for s in validation if s in chosen]
    assert len(low) / len(validation) == pytest.approx(0.5, abs=0.01)
    assert chosen != set(validation[: len(chosen)])
