"""How large the parts and slices of a plan will be: from its split, its label table, or its words.

Reading either from disk is left to others. Nothing here looks at a photo.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parcel_assets.core.columns import Codes, shipment_codes
from parcel_assets.core.errors import PlanError
from parcel_assets.core.plan import Plan
from parcel_assets.core.simulation_bounds import require_photos
from parcel_assets.core.simulation_world import (
    Clusters,
    Generator,
    World,
    damaged_clusters,
    made_clusters,
)
from parcel_assets.core.slice_plan import DAMAGE_DIMENSION, MinimumSupport, SliceRule
from parcel_assets.core.slice_report import Attributes, slice_photos, slice_rules


@dataclass(frozen=True, slots=True)
class SliceSize:
    """One slice and the shipments that it holds in validation; `assumed` says nobody counted."""

    rule: SliceRule
    clusters: Clusters
    assumed: bool


@dataclass(frozen=True, slots=True)
class Sizes:
    """The parts that gates judge on, and where their sizes come from, in words."""

    source: str
    validation: Clusters
    holdout: Clusters
    slices: tuple[SliceSize, ...]
    world: World


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """Photos by row, for their counts alone: shipments, damaged flags, attributes as text."""

    shipments: Sequence[str]
    damaged: Sequence[bool]
    attributes: Attributes


def sizes_of_rows(
    plan: Plan,
    rows: LabelledRows,
    world: World,
    *,
    source: str,
    validation_share: float,
    holdout_share: float,
) -> Sizes:
    """Return the sizes that counted photos give; shares are of their shipments.

    Raises PlanError where no photo is damaged, so that there is nothing to simulate, and where a
    part is larger than what is simulated.
    """
    damaged = np.asarray(rows.damaged, dtype=np.bool_)
    if not damaged.any():
        raise PlanError(
            f"{len(damaged)} photos, none of them damaged",
            expected="damaged photos",
            where=source,
            remedy="Look at `snapshot.labels` and `snapshot.columns` of the plan.",
            faults=[],
        )
    for share in (validation_share, holdout_share):
        require_photos(
            share * len(damaged), "a part", source, "Simulate fewer: `--shipments NUMBER`."
        )
    codes = shipment_codes(rows.shipments)
    everything = _clusters(codes, damaged, np.ones(len(damaged), dtype=np.bool_))
    slices = []
    for rule in slice_rules(plan.slices, rows.attributes):
        inside = slice_photos(rule, rows.attributes, len(damaged))
        if rule.is_of_damage:
            inside &= damaged
        clusters = replace(_clusters(codes, damaged, inside), share=validation_share)
        slices.append(SliceSize(rule, clusters, assumed=False))
    return Sizes(
        source=source,
        validation=replace(everything, share=validation_share),
        holdout=replace(everything, share=holdout_share),
        slices=tuple(slices),
        world=replace(
            world,
            damaged_share=everything.damaged_share,
            photos_per_shipment=len(damaged) / len(everything.photos),
        ),
    )


def rows_of_table(plan: Plan, rows: Sequence[Mapping[str, str]]) -> LabelledRows:
    """Return a label table's rows as the plan reads them; rows with an unknown label are left out.

    Raises PlanError for a column that the table does not have.
    """
    columns, labels = plan.snapshot.columns, plan.snapshot.labels
    named = {"shipment": columns.shipment, "label": columns.label}
    named |= {
        one: str(getattr(columns, one))
        for one in (DAMAGE_DIMENSION, "camera_class")
        if getattr(columns, one) is not None
    }
    named |= {one: one for one in columns.further}
    header = rows[0].keys() if rows else ()
    missing = sorted(column for column in named.values() if column not in header)
    if missing:
        raise PlanError(
            f"no column {missing[0]!r} in the label table",
            expected=f"the columns {', '.join(sorted(named.values()))}",
            where="snapshot.columns",
            remedy="Mend the mapping, or the table.",
            faults=[{"path": "snapshot.columns", "fault": f"no column {missing[0]!r}"}],
        )
    known = [one for one in rows if one[columns.label] in {*labels.damaged, *labels.intact}]
    damaged = [one[columns.label] in labels.damaged for one in known]
    attributes = {
        name: [one[column] for one in known]
        for name, column in named.items()
        if name not in {"shipment", "label"}
    }
    if DAMAGE_DIMENSION in attributes:  # an intact photo has no kind of damage, whatever it says
        kinds = zip(attributes[DAMAGE_DIMENSION], damaged, strict=True)
        attributes[DAMAGE_DIMENSION] = [kind if hurt else "" for kind, hurt in kinds]
    return LabelledRows([one[columns.shipment] for one in known], damaged, attributes)


def sizes_of_plan(
    plan: Plan, world: World, generator: Generator, *, shipments: int | None = None
) -> Sizes:
    """Return sizes where nothing can be counted: what the plan asks for, or so many shipments.

    A slice is assumed to hold just what its minimum in the split asks, even below the slice's own
    floor; where that asks nothing, what the floor asks; and never more than validation. Raises
    PlanError for a part or slice that is larger than what is simulated.
    """
    asked = _minimum(plan.split.minimum, "validation", None)
    share = plan.split.validation / plan.split.holdout
    if shipments is not None:
        count = round(shipments * plan.split.validation)
        source = f"{shipments} shipments, as given"
    elif asked is not None:
        count, source = asked.shipments, "the least that the plan's split asks for"
    else:
        count = round(plan.final.minimum_shipments * share)
        source = "the least that the plan's final evaluation asks for"
    if shipments is None and asked is not None and asked.damaged_photos:
        photos = max(count, 1) * world.photos_per_shipment
        world = replace(world, damaged_share=min(0.9, asked.damaged_photos / photos))
    for one in (count, count / share):
        require_photos(
            one * world.photos_per_shipment, "a part", source, "Simulate fewer shipments."
        )
    everything = made_clusters(generator, world, max(count, 2))
    slices = [
        SliceSize(rule, _assumed(plan, rule, world, generator, everything), assumed=True)
        for rule in slice_rules(
            {name: one for name, one in plan.slices.items() if one.value is not None}, {}
        )
    ]
    return Sizes(
        source=source,
        validation=everything,
        holdout=replace(everything, share=1 / share),
        slices=tuple(slices),
        world=world,
    )


def _assumed(
    plan: Plan, rule: SliceRule, world: World, generator: Generator, most: Clusters
) -> Clusters:
    least = _minimum(plan.split.minimum, "validation", rule)
    shipments, damaged = rule.minimum_shipments, rule.minimum_damaged_photos
    if least is not None and least.shipments > 1:  # one shipment is asked of any minimum
        shipments = least.shipments
    if least is not None and least.damaged_photos:
        damaged = least.damaged_photos
    damaged = max(1, min(damaged, int(most.damaged.sum())))
    shipments = min(shipments, damaged, len(most.photos))
    if rule.is_of_damage:
        return damaged_clusters(generator, shipments, damaged)
    photos = min(damaged / world.damaged_share, most.photos_expected)
    return made_clusters(generator, world, max(2, round(photos / world.photos_per_shipment)))


def _minimum(
    minimums: Sequence[MinimumSupport], part: str, rule: SliceRule | None
) -> MinimumSupport | None:
    wanted = (None, None, {}) if rule is None else (rule.dimension, rule.value, rule.crossed_with)
    return next(
        (
            one
            for one in minimums
            if one.part == part and (one.dimension, one.value, one.crossed_with) == wanted
        ),
        None,
    )


def _clusters(codes: Codes, damaged: np.ndarray, inside: np.ndarray) -> Clusters:
    photos = np.bincount(codes[inside], minlength=1)
    hurt = np.bincount(codes[inside & damaged], minlength=len(photos))
    held = photos > 0
    return Clusters(photos[held].astype(np.intp), hurt[held].astype(np.intp))
