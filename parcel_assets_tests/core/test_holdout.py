"""The holdout's keys: one per shipment and per image, whatever the order of its rows."""

from parcel_assets.core.holdout import holdout_digest, holdout_keys

ROWS = [
    {"shipment_id": "B", "pixel_digest": "p2"},
    {"shipment_id": "A", "pixel_digest": "p1"},
    {"shipment_id": "A", "pixel_digest": "p2"},
]


def test_each_shipment_and_each_image_has_one_key() -> None:
    assert holdout_keys("sample", ROWS) == (
        "image:p1",
        "image:p2",
        "shipment:sample/A",
        "shipment:sample/B",
    )


def test_keys_and_digest_do_not_follow_row_order() -> None:
    keys = holdout_keys("sample", ROWS)
    assert keys == holdout_keys("sample", reversed(ROWS))
    assert holdout_digest(keys) == holdout_digest(list(reversed(keys)))


def test_one_shipment_more_is_another_holdout_that_shares_keys() -> None:
    keys = holdout_keys("sample", ROWS)
    more = holdout_keys("sample", [*ROWS, {"shipment_id": "C", "pixel_digest": "p3"}])
    assert holdout_digest(more) != holdout_digest(keys)
    assert set(keys) < set(more)


def test_an_image_is_spent_in_every_archive() -> None:
    here, there = holdout_keys("here", ROWS), holdout_keys("there", ROWS)
    assert {one for one in here if one in there} == {"image:p1", "image:p2"}
