"""What a page shows of evidence: tables whose rows need not have the same columns."""

from parcel_assets.defs.metadata import table


def test_a_slot_that_never_started_stands_in_the_table_beside_those_that_did() -> None:
    shown = table([{"trial": "parcel-01"}, {"trial": "parcel-02", "width": 8, "rate": 0.5}])
    assert [one.name for one in shown.schema.columns] == ["trial", "width", "rate"]
    assert [one.data["width"] for one in shown.records] == [None, 8]
    assert {len(one.data) for one in shown.records} == {3}


def test_an_empty_table_has_no_columns() -> None:
    assert table([]).schema.columns == []
