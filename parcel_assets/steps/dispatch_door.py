"""The door: who a worker says it is, what it answers, how it prepares photos; all before step 1.

A worker is told where things are, never what they should be. Three things are asked of it in turn:
its identity, the digests of rows drawn afresh under a fresh nonce, and what its own trainer makes
of those rows. Each is compared with what this coordinator has frozen or measures itself. What
follows from a difference is left to the pool.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from parcel_assets.core.codec import short
from parcel_assets.core.identity import (
    Difference,
    difference,
    first_difference_of,
    read_identity,
)
from parcel_assets.core.identity_data import (
    MARK_LENGTH,
    answer_challenge,
    challenged_photos,
    challenged_pixels,
    parts_of,
    photos_held,
    planned_images,
    same_sketch,
    sketch_images,
)
from parcel_assets.core.identity_words import PhotosHeld
from parcel_assets.core.ports import Message, TrainingData
from parcel_assets.steps.dispatch_desk import Desk

CHALLENGE_ROWS = 4  # per part
MARKS_MAXIMUM = 4_000_000


@dataclass(frozen=True, slots=True)
class Visit:
    """A worker at the door: what it said it is, and what it was asked."""

    identity: Mapping[str, str]
    nonce: str
    rows: Mapping[str, Sequence[int]]

    @property
    def challenge(self) -> dict[str, object]:
        """The message that asks for the rows."""
        rows = {part: list(one) for part, one in self.rows.items()}
        return {"kind": "challenge", "nonce": self.nonce, "rows": rows}


@dataclass
class Door:
    """Examines one worker after the other; `draw` picks the rows of challenges."""

    desk: Desk
    draw: Callable[[int], int] = secrets.randbelow
    make_nonce: Callable[[], str] = field(default=lambda: secrets.token_hex(16))

    @cached_property
    def data(self) -> TrainingData:
        """What workers should hold, as this coordinator holds it."""
        return self.desk.data()

    def examine(self, said: Message) -> Visit | Difference:
        """Compare a worker's measured identity with the frozen one; draw its challenge."""
        found = read_identity(said.get("identity"))
        if found is None:
            return difference("identity", found="none that can be read", expected="texts by item")
        expected = self.desk.state.identity
        assert expected is not None, "the identity is frozen before workers start"
        differs = first_difference_of(expected, found)
        if differs is not None:
            return first_difference_of(expected, found, self._held(said)) or differs
        rows = {
            part: [self.draw(len(one.photo_ids)) for _ in range(CHALLENGE_ROWS)]
            for part, one in parts_of(self.data).items()
        }
        return Visit(found, self.make_nonce(), rows)

    def judge_answer(self, visit: Visit, said: Message) -> Difference | None:
        """Compare the digests of the rows that the worker holds with those of ours."""
        expected = answer_challenge(self.data, nonce=visit.nonce, rows=visit.rows)
        found = said.get("digests")
        if not isinstance(found, list) or len(found) != len(expected):
            return difference(
                "challenge",
                found="no such digests",
                expected=f"{len(expected)} digests",
                item="answer",
            )
        photos = challenged_photos(self.data, visit.rows)
        for photo, one, other in zip(photos, found, expected, strict=True):
            if one != other:
                seen = short(one) if isinstance(one, str) else "no digest"
                return difference("challenge", found=seen, expected=short(other), item=photo)
        return None

    def judge_ready(self, visit: Visit, said: Message) -> Difference | None:
        """Compare how the worker's trainer prepares the rows, and its threads, with the plan."""
        plan = self.desk.plan
        threads = said.get("threads")
        if threads != plan.training.threads_per_trial:
            return difference(
                "hardware",
                found=str(threads),
                expected=str(plan.training.threads_per_trial),
                item="threads",
            )
        images = planned_images(plan.preprocess, challenged_pixels(self.data, visit.rows))
        expected = sketch_images(visit.nonce, images)
        found = _numbers(said.get("sketch"))
        if not same_sketch(found, expected, images[0].size):
            return difference(
                "preprocessing",
                found=_rounded(found),
                expected=_rounded(expected),
                item="images",
            )
        return None

    def _held(self, said: Message) -> PhotosHeld | None:
        """Return how many of a worker's photos are not the pinned archive's; for words only."""
        marks = said.get("photos")
        if not isinstance(marks, str) or len(marks) > MARKS_MAXIMUM * MARK_LENGTH:
            return None
        known = [photo for part in parts_of(self.data) for photo in self.desk.photo_ids(part)]
        return photos_held(marks, known, self.desk.photo_ids("holdout"))


def _numbers(said: object) -> list[float]:
    if not isinstance(said, list):
        return []
    return [one for one in said if isinstance(one, float)]


def _rounded(sketch: Sequence[float]) -> str:
    return " ".join(f"{one:.3f}" for one in sketch[:2]) + " …"
