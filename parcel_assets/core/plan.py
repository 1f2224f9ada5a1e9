"""The plan: an immutable, digested description of one search.

This file says what a plan may hold and which plans are sound. Reading text strictly is left to
core.plan_reader, freezing a plan to the ledger. Whatever can change the answer is in here, hence in
the digest; where and how fast a search runs is a setting.
"""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from parcel_assets.core.approval import ApproverName, ApproverPlan
from parcel_assets.core.codec import digest_value
from parcel_assets.core.slice_plan import (
    PROTECTED_SLICES_MAXIMUM,
    Fraction,
    MinimumSupport,
    Oversample,
    SlicePlan,
)
from parcel_assets.core.space import (
    Domain,
    Lines,
    PositiveFloat,
    PositiveInt,
    Scalar,
    Section,
    Seeds,
    Words,
    nearest_hint,
)

REVISION_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
BUILT_IN_NETWORK = "cnn"
BUILT_IN_KNOBS = (
    "learning_rate",
    "width",
    "depth",
    "weight_decay",
    "positive_weight",
    "rare_oversampling",
    "augmentation",
    "image_size",
)

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]


class Columns(Section):
    """Which column of the label table holds what; every value is read as text."""

    photo: str = "path"
    shipment: str = "shipment_id"
    label: str = "label"
    damage_type: str | None = None
    camera_class: str | None = None
    further: tuple[str, ...] = ()  # other columns that slices may use: site, carrier, lane


class LabelMap(Section):
    """Which texts in the label column mean damaged, which intact; any other is a bad row."""

    damaged: tuple[str, ...] = ("damaged",)
    intact: tuple[str, ...] = ("intact",)

    @model_validator(mode="after")
    def _disjoint(self) -> Self:
        both = sorted(set(self.damaged) & set(self.intact))
        if both:
            raise ValueError(f"{both} mean both damaged and intact")
        return self


class ImageRules(Section):
    """How a file becomes 8-bit RGB pixels, and which files are refused."""

    formats: tuple[str, ...] = ("JPEG", "PNG", "WEBP", "BMP", "TIFF")
    minimum_side_pixels: PositiveInt = 16
    maximum_pixels: PositiveInt = 50_000_000
    maximum_file_bytes: PositiveInt = 25_000_000
    maximum_aspect_ratio: PositiveFloat = 20.0
    background: tuple[int, int, int] = (255, 255, 255)  # what shows behind transparency
    sixteen_bit_depth: PositiveInt | None = None  # declared depth; None refuses 16-bit files


class SnapshotPlan(Section):
    """The pinned archive: where it lies, how its table reads, and the digest it must have."""

    archive: Name  # the archive's name in the registers of assignments and opened holdouts
    location: str  # a folder, relative to the data folder unless absolute
    digest: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")  # empty: not pinned yet
    table: str = "labels.csv"
    encoding: str = "utf-8"
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    columns: Columns = Columns()
    labels: LabelMap = LabelMap()
    shipment_pattern: str | None = None  # a regular expression that every shipment id matches whole
    bad_rows: Literal["refuse", "leave_out"] = "refuse"
    images: ImageRules = ImageRules()

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The words that slices may use: mapped columns, under our names where we have one."""
        own = [n for n in ("damage_type", "camera_class") if getattr(self.columns, n) is not None]
        return (*own, *self.columns.further)


class SplitPlan(Section):
    """The grouped split: key of the hash, fractions of the parts, minimum support."""

    key: str = Field(min_length=1)
    train: Fraction = 0.5
    validation: Fraction = 0.3
    holdout: Fraction = 0.2
    # one for each search; left out where absent, so that a plan without them keeps its digest
    holdout_tranches: int | None = Field(default=None, ge=1, le=20, exclude_if=lambda n: n is None)
    minimum: tuple[MinimumSupport, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        total = self.train + self.validation + self.holdout
        if abs(total - 1) > 1e-9:
            raise ValueError(f"train + validation + holdout is {total:g}, expected 1")
        return self


class PreprocessPlan(Section):
    """What every network sees: square side in pixels and the normalisation of 0..1 channels."""

    image_size_pixels: Annotated[int, Field(ge=16, le=512)] = 64
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    standard_deviation: tuple[PositiveFloat, PositiveFloat, PositiveFloat] = (0.25, 0.25, 0.25)


class MetricPlan(Section):
    """What a mistake costs, and the one threshold policy of all trials."""

    missed_damage: PositiveFloat
    needless_review: PositiveFloat
    unit: Words = "cost units"
    threshold_policy: Literal["minimum_cost"] = "minimum_cost"
    threshold_grid_points: Annotated[int, Field(ge=10, le=10_000)] = 200
    # share of validation shipments scored at milestones before the last
    milestone_fraction: Annotated[float, Field(gt=0, le=1)] = 0.5


class SearchPlan(Section):
    """The bounded search: sampler, budget, cap, batches and attempts."""

    sampler: str = "tpe"
    seed: int = 0
    budget_trials: Annotated[int, Field(gt=0, le=1_000_000)]
    cap_accelerator_hours: PositiveFloat
    batch_trials: PositiveInt = 8
    lookahead_batches: PositiveInt = 2
    attempts_per_trial: PositiveInt = 2
    trial_seconds_maximum: PositiveFloat = 300.0
    equal_configurations: Literal["allow", "redraw"] = "allow"


class TrainingPlan(Section):
    """One trial's training: steps, batches, milestones, network."""

    steps: PositiveInt = 82
    batch_photos: PositiveInt = 64
    milestones: tuple[PositiveInt, ...] = (9, 27, 82)
    checkpoint_every_steps: PositiveInt = 20
    threads_per_trial: PositiveInt = 1
    network: str = Field(default=BUILT_IN_NETWORK, pattern=r"^(cnn|[\w.]+:\w+)$")
    rare_slice: Oversample | None = None

    @model_validator(mode="after")
    def _milestones_end_at_the_last_step(self) -> Self:
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ValueError(f"milestones {list(self.milestones)} must increase")
        if not self.milestones or self.milestones[-1] != self.steps:
            raise ValueError(f"the last milestone must be the last step, {self.steps}")
        return self


class PruningPlan(Section):
    """How gently trials are cut at each milestone before the last."""

    keep_fractions: tuple[Annotated[float, Field(gt=0, le=1)], ...] = (0.75, 0.5)
    minimum_comparable: Annotated[int, Field(ge=2)] = 12
    warm_up_trials: Annotated[int, Field(ge=0)] = 16  # never pruned; they measure the correlation
    minimum_rank_correlation: Annotated[float, Field(ge=-1, le=1)] = 0.5


class SelectionPlan(Section):
    """How the winner is chosen on validation, before any slice is looked at."""

    rule: Literal["lowest_cost"] = "lowest_cost"
    tie_break: Literal["lower_number"] = "lower_number"
    on_gate_fail: Literal["hold"] = "hold"


class RerunPlan(Section):
    """The declared reruns of the chosen configuration, beside its own seed."""

    seeds: Seeds = (101, 102, 103, 104, 105)  # five give the tolerance its meaning
    maximum_instability: Fraction = 0.10  # spread over mean of the reruns' cost
    maximum_score_difference: Annotated[float, Field(ge=0)] = 0.0  # same seed, same hardware: equal


class ReferencePlan(Section):
    """The configuration in use today, trained under the same pin for paired comparison."""

    name: Words = "in use today"
    seed: int = 1
    configuration: dict[str, Scalar]


class FinalPlan(Section):
    """The final evaluation, declared before the first trial."""

    target_cost_per_1000: PositiveFloat
    minimum_shipments: PositiveInt = 100
    minimum_damaged_photos: PositiveInt = 30
    # judge on shipments that an earlier search opened; the packet says how often they were used
    allow_spent: Annotated[bool, Field(exclude_if=lambda allowed: not allowed)] = False


class WorkerPlan(Section):
    """The required worker image: a digest, or `record` to freeze the coordinator's own identity."""

    image: str = Field(default="record", min_length=1)


class ParentPlan(Section):
    """The earlier revision that this search follows, and why."""

    revision: str
    reason: Words


class Plan(Section):
    """One whole plan; `ready` only tells a sensor to launch it and is outside the digest."""

    purpose: Lines
    ready: bool = False
    snapshot: SnapshotPlan
    split: SplitPlan
    preprocess: PreprocessPlan = PreprocessPlan()
    metric: MetricPlan
    search: SearchPlan
    training: TrainingPlan = TrainingPlan()
    pruning: PruningPlan = PruningPlan()
    space: Annotated[dict[str, Domain], Field(min_length=1)]
    selection: SelectionPlan = SelectionPlan()
    rerun: RerunPlan = RerunPlan()
    reference: ReferencePlan
    slices: dict[Name, SlicePlan] = Field(default_factory=dict)
    final: FinalPlan
    worker: WorkerPlan = WorkerPlan()
    parent: ParentPlan | None = None
    approvers: dict[ApproverName, ApproverPlan] = Field(default_factory=dict)  # none: no signature

    @model_validator(mode="after")
    def _sound_as_a_whole(self) -> Self:
        faults = [*self._knob_faults(), *self._slice_faults(), *self._size_faults()]
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _knob_faults(self) -> list[str]:
        faults = []
        if self.training.network == BUILT_IN_NETWORK:
            for place, knobs in (("space", self.space), ("reference.configuration", None)):
                names = knobs if knobs is not None else self.reference.configuration
                faults += [
                    f"{place}.{name} is no knob of the built-in network"
                    f"{nearest_hint(name, BUILT_IN_KNOBS)}"
                    for name in names
                    if name not in BUILT_IN_KNOBS
                ]
        return faults

    def _slice_faults(self) -> list[str]:
        faults = []
        protected = [name for name, one in self.slices.items() if one.role == "protected"]
        if len(protected) > PROTECTED_SLICES_MAXIMUM:
            faults.append(f"slices: {len(protected)} protected, at most {PROTECTED_SLICES_MAXIMUM}")
        known = self.dimensions
        asked: list[tuple[str, str]] = []
        places: dict[str, SlicePlan | MinimumSupport] = {
            **{f"slices.{name}": one for name, one in self.slices.items()},
            **{f"split.minimum.{place}": one for place, one in enumerate(self.split.minimum)},
        }
        for place, one in places.items():
            if one.dimension is not None:
                asked.append((f"{place}.dimension", one.dimension))
            asked += [(f"{place}.crossed_with", dimension) for dimension in one.crossed_with]
        if self.training.rare_slice is not None:
            asked.append(("training.rare_slice.dimension", self.training.rare_slice.dimension))
        faults += [
            f"{place}: {dimension!r} is no mapped column{nearest_hint(dimension, known)}"
            for place, dimension in asked
            if dimension not in known
        ]
        return faults

    def _size_faults(self) -> list[str]:
        faults = []
        if len(self.pruning.keep_fractions) != len(self.training.milestones) - 1:
            faults.append(
                f"pruning.keep_fractions has {len(self.pruning.keep_fractions)} values, expected "
                f"one for each milestone before the last ({len(self.training.milestones) - 1})"
            )
        if self.final.allow_spent and self.split.holdout_tranches is not None:
            faults.append(
                "final.allow_spent with split.holdout_tranches: a tranche holds no spent shipment; "
                "leave one of them out"
            )
        if self.search_seconds_maximum < self.search.trial_seconds_maximum:
            faults.append(
                f"search.cap_accelerator_hours = {self.search.cap_accelerator_hours:g} leaves no "
                f"room for one trial after the share of rerun, reference and final evaluation "
                f"({self.after_search_seconds / 3600:.3g} h)"
            )
        return faults

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The words that slices may use: mapped columns, under our names where we have one."""
        return self.snapshot.dimensions

    @property
    def cap_seconds(self) -> float:
        """The cap in accelerator-seconds."""
        return self.search.cap_accelerator_hours * 3600

    @property
    def after_search_seconds(self) -> float:
        """The share of the cap kept for rerun, reference and final evaluation, accelerator-seconds.

        Own-seed rerun and extra seeds twice (a `replace` decision reruns the next trial), one
        reference, one final evaluation.
        """
        trainings = 2 * (1 + len(self.rerun.seeds)) + 2
        return trainings * self.search.trial_seconds_maximum

    @property
    def search_seconds_maximum(self) -> float:
        """The most accelerator-seconds that the trials may be charged."""
        return self.cap_seconds - self.after_search_seconds

    def document(self) -> dict[str, Any]:
        """Return the plan as JSON fields, `ready` left out: it changes no answer.

        Without approvers their section is left out too, as in plans from before it was known.
        """
        left_out = {"ready"} if self.approvers else {"ready", "approvers"}
        return self.model_dump(mode="json", exclude=left_out)

    @property
    def digest(self) -> str:
        """The digest of the plan's document."""
        return digest_value(self.document())
