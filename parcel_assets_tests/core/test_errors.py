"""Refusals: four parts that read as one sentence, and survive a process border."""

import pickle

from parcel_assets.core.errors import ArchiveError


def test_parts_that_are_sentences_are_joined_into_one() -> None:
    error = ArchiveError(
        "gate x not passed: 3 photos are torn.",
        expected="every photo whole.",
        where="belt",
        remedy="Mend them.",
    )
    assert str(error) == (
        "belt: found gate x not passed: 3 photos are torn; expected every photo whole. Mend them."
    )
    assert error.as_fields()["found"].endswith("torn.")


def test_a_refusal_survives_a_process_border() -> None:
    error = ArchiveError("a", expected="b", where="c", remedy="d", rows=[1])
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.as_fields()) == (str(error), error.as_fields())
