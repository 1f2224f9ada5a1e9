"""A worker's identity is compared field by field, and a difference says what it likely means."""

import pytest

from parcel_assets.core.identity import FIELDS, first_difference_of

EXPECTED = {name: f"{name} as frozen" for name in FIELDS} | {"archive.photos": "2400"}


def test_an_equal_identity_has_no_difference() -> None:
    assert first_difference_of(EXPECTED, dict(EXPECTED)) is None


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_counts_and_is_named(field: str) -> None:
    found = first_difference_of(EXPECTED, EXPECTED | {field: "other"})
    assert found is not None
    assert (found.field, found.found) == (field, "other")
    assert found.cause


def test_a_missing_and_an_unknown_field_are_differences() -> None:
    short = {name: value for name, value in EXPECTED.items() if name != "metric"}
    missing = first_difference_of(EXPECTED, short)
    assert missing is not None
    assert (missing.field, missing.found) == ("metric", "nothing")
    extra = first_difference_of(EXPECTED, EXPECTED | {"mood": "good"})
    assert extra is not None
    assert extra.field == "mood"


def test_a_newer_archive_is_told_by_its_photos() -> None:
    other = EXPECTED | {"archive.photos": "2414", "train_pixels": "x", "split": "y"}
    found = first_difference_of(EXPECTED, other)
    assert found is not None
    assert found.cause == "this worker reads an archive with 14 newer photos"
    assert found.others == ("split", "train_pixels")
