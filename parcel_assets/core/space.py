"""The search space: what a knob may be, and the strict section that every part of a plan is."""

import difflib
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from parcel_assets.core.plain_words import odd_character

Scalar = bool | int | float | str
# a bound that no sound plan comes near, so that nothing computed from it overflows
PositiveInt = Annotated[int, Field(gt=0, le=10**15)]
PositiveFloat = Annotated[float, Field(gt=0, le=1e12)]


def shown_as_it_is(text: str) -> str:
    """Return a person's words; raises ValueError where pages cannot show them as they are."""
    fault = odd_character(text)
    if fault is not None:
        raise ValueError(f"holds {fault}, which pages cannot show as it is")
    if not text.strip():
        raise ValueError("is blank")
    return text


def _lines_shown(text: str) -> str:
    shown_as_it_is(" ".join(text.split("\n")))
    return text


def _distinct(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"{list(seeds)} repeats a seed, which would show a spread of nothing")
    return seeds


Words = Annotated[str, AfterValidator(shown_as_it_is)]
Lines = Annotated[str, AfterValidator(_lines_shown)]
# two at least: a spread needs two
Seeds = Annotated[tuple[int, ...], Field(min_length=2), AfterValidator(_distinct)]


def nearest_hint(word: str, known: Any) -> str:
    """Return a hint naming the nearest known word, or the known words where none is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known: {', '.join(known)}" if known else ""


class Section(BaseModel):
    """A frozen part of the plan: unknown keys, loose types, NaN and infinity are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class FloatDomain(Section):
    """A real knob between two bounds, both included."""

    kind: Literal["float"]
    low: float
    high: float
    log: bool = False

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low >= self.high or (self.log and self.low <= 0):
            raise ValueError("expected low < high, and low > 0 on a log scale")
        return self

    def holds(self, value: Scalar) -> bool:
        """Say whether a configuration's value lies in the domain."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.low <= float(value) <= self.high


class IntDomain(Section):
    """A whole-number knob between two bounds, both included."""

    kind: Literal["int"]
    low: int
    high: int
    step: PositiveInt = 1
    log: bool = False

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low >= self.high or (self.log and (self.low <= 0 or self.step != 1)):
            raise ValueError("expected low < high; on a log scale low > 0 and step 1")
        return self

    def holds(self, value: Scalar) -> bool:
        """Say whether a configuration's value lies in the domain."""
        whole = isinstance(value, int) and not isinstance(value, bool)
        return (
            whole
            and self.low <= int(value) <= self.high
            and (int(value) - self.low) % self.step == 0
        )


class ChoiceDomain(Section):
    """A knob with listed values."""

    kind: Literal["choice"]
    values: Annotated[tuple[Scalar, ...], Field(min_length=1)]

    def holds(self, value: Scalar) -> bool:
        """Say whether a configuration's value lies in the domain."""
        return any(value == one and type(value) is type(one) for one in self.values)


Domain = Annotated[FloatDomain | IntDomain | ChoiceDomain, Field(discriminator="kind")]
