"""A first plan for an archive of one's own: guessed columns, leading zeros, warnings, no faults."""

import pytest

from parcel_assets.core.errors import ArchiveError
from parcel_assets.core.plan_reader import read_plan
from parcel_assets.core.plan_template import plan_text
from parcel_assets.core.sketch import LabelTable, sketch_archive

HEADER = ("path", "parcel_id", "camera", "label", "damage")


def table(*rows: tuple[str, ...], header: tuple[str, ...] = HEADER) -> LabelTable:
    return LabelTable(
        "labels.csv",
        "utf-8",
        ",",
        header,
        tuple(dict(zip(header, row, strict=True)) for row in rows),
    )


TWO = table(
    ("a.jpg", "0185507921789", "side", "damaged", "dent"),
    ("b.jpg", "0185507921789", "top", "damaged", "tear"),
    ("c.jpg", "1185507921780", "top", "intact", ""),
)


def test_columns_are_guessed_from_the_header() -> None:
    sketch = sketch_archive(TWO)
    assert (sketch.photo, sketch.shipment, sketch.label) == ("path", "parcel_id", "label")
    assert (sketch.damage_type, sketch.camera_class) == ("damage", "camera")
    assert (sketch.damaged, sketch.intact) == (("damaged",), ("intact",))
    assert sketch.shipments == 2


def test_ids_of_digits_get_a_pattern_that_catches_lost_zeros() -> None:
    assert sketch_archive(TWO).shipment_pattern == "[0-9]{13}"


@pytest.mark.parametrize(
    ("shipment", "words"),
    [("1.85508E+11", "spreadsheet"), ("NA", "blank"), ("185507921789", "leading zeros")],
)
def test_damaged_ids_are_pointed_out(shipment: str, words: str) -> None:
    rows = [tuple(row.values()) for row in TWO.rows]
    more = ("d.jpg", shipment, "top", "intact", "")
    assert any(words in one for one in sketch_archive(table(*rows, more)).warnings)


def test_a_table_without_shipments_is_refused_naming_the_words_that_would_do() -> None:
    bad = table(("a.jpg", "damaged"), header=("path", "label"))
    with pytest.raises(ArchiveError, match="parcel_id"):
        sketch_archive(bad)


def test_the_written_plan_has_no_faults_and_keeps_everything_as_text() -> None:
    text = plan_text(sketch_archive(TWO), archive="mine", location="/photos/mine")
    plan = read_plan(text)
    assert plan.snapshot.columns.shipment == "parcel_id"
    assert plan.snapshot.shipment_pattern == "[0-9]{13}"
    assert plan.snapshot.digest == ""
    assert plan.search.budget_trials == 82
    assert {one.role for one in plan.slices.values()} == {"monitored"}
    assert "leading zeros stay" in text


def test_labels_that_mean_neither_are_named_in_the_plan() -> None:
    odd = table(
        ("a.jpg", "1", "top", "damaged", ""), ("b.jpg", "2", "top", "perhaps", ""),
        ("c.jpg", "3", "top", "intact", ""),
    )  # fmt: skip
    text = plan_text(sketch_archive(odd), archive="mine", location="mine")
    assert "not mapped, so refused as bad rows: perhaps" in text
    assert read_plan(text).snapshot.labels.damaged == ("damaged",)
