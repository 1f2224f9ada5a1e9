"""What a plan says about slices: which photos one holds, its role, its margins and its support.

How a slice is judged stands in core.slices, which photos it finds in core.slice_report.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from parcel_assets.core.space import PositiveFloat, PositiveInt, Section

PROTECTED_SLICES_MAXIMUM = 6  # more protected slices cost so much power that none would pass
DAMAGE_DIMENSION = "damage_type"  # known of damaged photos only, so such a slice has no cost
Fraction = Annotated[float, Field(gt=0, lt=1)]
# two miss rates differ by at most 100 points: a margin of that much could never be left
Points = Annotated[float, Field(gt=0, lt=100)]

# left out where it is empty, so that a plan without crossings keeps its digest
Crossing = Annotated[dict[str, str], Field(exclude_if=lambda crossed_with: not crossed_with)]


class MinimumSupport(Section):
    """What a part must hold before anything trains; without a dimension it is the whole part."""

    part: Literal["train", "validation", "holdout"]
    dimension: str | None = None
    value: str | None = None
    crossed_with: Crossing = Field(default_factory=dict)
    shipments: int = Field(default=1, ge=0)
    damaged_photos: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _asks_of_a_dimension(self) -> Self:
        if self.value is not None and self.dimension is None:
            raise ValueError(f"value {self.value!r} of no dimension; name the `dimension` too")
        _require_crossing(self.dimension, self.crossed_with)
        return self


class SlicePlan(Section):
    """One slice, or with no value every value of the dimension, and what it must show.

    `crossed_with` narrows it to photos that also have these values in other dimensions. Points are
    percentage points of the miss rate. A cost slice fails at the share of its margin that
    `fail_miss_points` is of `margin_miss_points`. A protected slice holds the candidate unless it
    passes; a monitored one is reported.
    """

    dimension: str
    value: str | None = None
    crossed_with: Crossing = Field(default_factory=dict)
    role: Literal["protected", "monitored"] = "monitored"
    margin_miss_points: Points = 10.0
    fail_miss_points: Points = 5.0
    margin_cost_fraction: PositiveFloat = 0.10
    minimum_shipments: PositiveInt = 30
    minimum_damaged_photos: PositiveInt = 60
    minimum_effective_photos: PositiveInt = 30
    absolute_miss_rate_limit: Fraction | None = None

    @model_validator(mode="after")
    def _can_judge(self) -> Self:
        if self.role == "protected" and self.value is None:
            raise ValueError("a protected slice names its value")
        if self.fail_miss_points > self.margin_miss_points:
            raise ValueError(
                f"fail_miss_points = {self.fail_miss_points:g} is above margin_miss_points = "
                f"{self.margin_miss_points:g}; expected at most the margin"
            )
        _require_crossing(self.dimension, self.crossed_with)
        return self

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The dimensions that decide membership, the slice's own first."""
        return (self.dimension, *self.crossed_with)

    @property
    def is_of_damage(self) -> bool:
        """Whether the slice holds damaged photos only: it has a miss rate but no cost."""
        return DAMAGE_DIMENSION in self.dimensions


class Oversample(Section):
    """The rare slice that the knob `rare_oversampling` multiplies in training batches."""

    dimension: str
    value: str


class SliceRule(SlicePlan):
    """One slice of a plan under its name, with the one value that it is about."""

    name: str

    @property
    def asked(self) -> dict[str, str]:
        """Dimension -> value that a photo of the slice has."""
        return {self.dimension: self.value or "", **self.crossed_with}


def fields_of(section: SlicePlan) -> dict[str, Any]:
    """Return a slice's fields, for another slice that differs in some."""
    return {name: getattr(section, name) for name in SlicePlan.model_fields}


def crossing_words(crossed_with: Mapping[str, str]) -> str:
    """Return a crossing in words, ready to follow the slice's own dimension and value."""
    return "".join(f" and {name} = {value}" for name, value in sorted(crossed_with.items()))


def _require_crossing(dimension: str | None, crossed_with: Mapping[str, str]) -> None:
    if crossed_with and (dimension is None or dimension in crossed_with):
        raise ValueError(
            "crossed_with names further dimensions with their values; expected a `dimension` of "
            "its own that is not among them"
        )
