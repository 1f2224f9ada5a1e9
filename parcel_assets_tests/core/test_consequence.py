"""Missed parcels per 1,000: counted per shipment, by hand in small cases."""

import numpy as np

from parcel_assets.core.consequence import (
    consequence_words,
    parcels_damaged,
    parcels_missed_per_1000,
)

SHIPMENTS = ("a", "a", "b", "b", "c", "d")
DAMAGED = np.array([True, True, True, False, True, False])


def flags(*places: int) -> np.ndarray:
    return np.isin(np.arange(len(SHIPMENTS)), places)


def test_a_parcel_is_missed_when_none_of_its_photos_is_reviewed() -> None:
    # a is seen by its second photo, b by its intact photo, c by nobody, d has no damage
    assert parcels_missed_per_1000(flags(1, 3), DAMAGED, SHIPMENTS) == 250.0
    assert parcels_missed_per_1000(flags(), DAMAGED, SHIPMENTS) == 750.0
    assert parcels_missed_per_1000(flags(0, 2, 4), DAMAGED, SHIPMENTS) == 0.0


def test_of_a_slice_only_parcels_damaged_in_it_count() -> None:
    corner = flags(0, 4, 5)  # d's photo is no damage
    assert parcels_missed_per_1000(flags(1), DAMAGED, SHIPMENTS, corner) == 500.0
    assert parcels_missed_per_1000(flags(1), DAMAGED, SHIPMENTS, flags()) == 0.0


def test_order_of_photos_does_not_matter() -> None:
    order = np.array([5, 2, 0, 4, 1, 3])
    review = flags(1, 3)
    mixed = tuple(SHIPMENTS[place] for place in order)
    assert parcels_missed_per_1000(review[order], DAMAGED[order], mixed) == 250.0


def test_the_words_name_both_models_and_the_difference_that_is_printed() -> None:
    words = consequence_words(
        {
            "parcels_missed_per_1000": 31.04,
            "reference_parcels_missed_per_1000": 28.5,
            "slices_in_parcels": [
                {
                    "name": "corner",
                    "missed_per_1000": 200.0,
                    "reference_missed_per_1000": 260.4,
                    "parcels": 5,
                }
            ],
        }
    )
    assert "Of 1,000 parcels 31.0 would leave" in words
    assert "(with the model in use 28.5): 2.5 more." in words
    assert "damaged in corner, 200 would leave so (with the model in use 260): 60 fewer" in words
    assert words.endswith(", judged by the 5 of them on validation.")


def test_a_rate_rests_on_the_parcels_that_are_damaged_there() -> None:
    assert parcels_damaged(DAMAGED, SHIPMENTS, flags(0, 1, 4, 5)) == 2
    assert parcels_damaged(DAMAGED, SHIPMENTS, flags()) == 0
