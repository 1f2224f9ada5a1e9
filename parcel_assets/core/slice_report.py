"""Which photos a slice holds, the slices a plan asks for, and who stands behind each of them.

What a slice must show is judged in `slices`; what a failed slice stops is said by the gate table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from parcel_assets.core.ports import Flags, PartData, Scores
from parcel_assets.core.slice_family import judge_together
from parcel_assets.core.slice_plan import DAMAGE_DIMENSION, SlicePlan, SliceRule, fields_of
from parcel_assets.core.slice_verdict import SliceResult
from parcel_assets.core.slices import judge_cost_slice, judge_miss_slice
from parcel_assets.core.statistics import Costs
from parcel_assets.core.thresholds import review_decisions

MEMBERS_MAXIMUM = 50

Attributes = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class ScoredModel:
    """A model's scores of one part's photos and the threshold at which it sends to review."""

    scores: Scores
    threshold: float

    @property
    def review(self) -> Flags:
        """Which photos go to review."""
        return review_decisions(self.scores, self.threshold)


def slice_rules(slices: Mapping[str, SlicePlan], attributes: Attributes) -> tuple[SliceRule, ...]:
    """Return the slices, protected ones first, then by name.

    A slice without a value becomes one for each value found.
    """
    rules = []
    # a frozen plan has lost the order of its file, so the order must follow from its content
    ordered = sorted(slices.items(), key=lambda item: (item[1].role != "protected", item[0]))
    for name, one in ordered:
        found = [one.value] if one.value is not None else _values(one.dimension, attributes)
        for value in found:
            shown = name if one.value is not None else f"{name}:{value or '(blank)'}"
            rules.append(SliceRule(**(fields_of(one) | {"name": shown, "value": value})))
    return tuple(rules)


def slice_photos(rule: SliceRule, attributes: Attributes, photos: int) -> Flags:
    """Return which of the part's photos lie in the slice, one flag for each.

    A photo of a crossing has every value that the crossing names.
    """
    inside = np.ones(photos, dtype=np.bool_)
    for dimension, asked in rule.asked.items():
        values = attributes.get(dimension, ("",) * photos)
        inside &= np.fromiter((one == asked for one in values), dtype=np.bool_, count=photos)
    return inside


def judge_slices(
    rules: Sequence[SliceRule],
    part: PartData,
    candidate: ScoredModel,
    reference: ScoredModel,
    costs: Costs,
) -> tuple[SliceResult, ...]:
    """Return every slice judged, candidate against reference, each at its own threshold.

    Harm is claimed by all slices of a role together. Raises EvidenceError for a protected slice
    without a damaged photo; a monitored one is INSUFFICIENT in words.
    """
    ours, theirs = candidate.review, reference.review
    results = []
    for rule in rules:
        inside = slice_photos(rule, part.attributes, len(part.photo_ids))
        if rule.is_of_damage:
            result = judge_miss_slice(
                rule,
                ours,
                theirs,
                part.damaged,
                part.shipments,
                members=inside,
                allow_no_damage=True,
            )
        else:
            result = judge_cost_slice(
                rule,
                ours,
                theirs,
                part.damaged,
                part.shipments,
                members=inside,
                costs=costs,
                allow_no_damage=True,
            )
        results.append(result)
    return judge_together(rules, results)


def slice_members(
    rule: SliceRule, part: PartData, candidate: ScoredModel, *, most: int = MEMBERS_MAXIMUM
) -> dict[str, Any]:
    """Return photos and shipments behind a slice, worst missed first, at most `most` each."""
    inside = slice_photos(rule, part.attributes, len(part.photo_ids))
    missed = inside & part.damaged & ~candidate.review
    rows = worst_first(inside, missed, part, candidate)
    shipments = list(dict.fromkeys(part.shipments[row] for row in rows))
    return {
        "photos_total": len(rows),
        "missed_total": int(missed.sum()),
        "shipments_total": len(shipments),
        "shipments": shipments[:most],
        "photos": [
            {
                "photo_id": part.photo_ids[row],
                "shipment_id": part.shipments[row],
                "damaged": bool(part.damaged[row]),
                "missed": bool(missed[row]),
                "score": round(float(candidate.scores[row]), 6),
            }
            for row in rows[:most]
        ],
    }


def worst_missed(
    part: PartData, candidate: ScoredModel, most: int, rule: SliceRule | None = None
) -> npt.NDArray[np.int64]:
    """Return rows of missed damage, of a slice or of all, lowest score first, at most `most`."""
    missed = part.damaged & ~candidate.review
    if rule is not None:
        missed = missed & slice_photos(rule, part.attributes, len(part.photo_ids))
    return worst_first(missed, missed, part, candidate)[:most]


def worst_first(
    inside: Flags, missed: Flags, part: PartData, candidate: ScoredModel
) -> npt.NDArray[np.int64]:
    """Return the rows inside: missed damage by lowest score, other damage, then intact ones."""
    rows = np.flatnonzero(inside)
    # ties in the score keep the order of the rows, which are sorted by photo id
    order = np.lexsort((candidate.scores[rows], ~part.damaged[rows], ~missed[rows]))
    return rows[order].astype(np.int64)


def _values(dimension: str, attributes: Attributes) -> list[str]:
    found = set(attributes.get(dimension, ()))
    # an intact photo has no damage type: that blank is no slice
    return sorted(found - {""} if dimension == DAMAGE_DIMENSION else found)
