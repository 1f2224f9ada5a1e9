"""What the one look at the holdout says: PASS, FAIL or INSUFFICIENT against the plan's target.

The request names everything that the answer depends on, so that a resumed look can be held to it.
Opening, decrypting and scoring are left to the vault; what the outcome stops, to the gate table.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from parcel_assets.core.codec import digest_value
from parcel_assets.core.errors import HoldoutError
from parcel_assets.core.plan import FinalPlan
from parcel_assets.core.ports import Flags, Scores
from parcel_assets.core.ranks import area_under_curve
from parcel_assets.core.rates import effective_size, upper_rate_bound
from parcel_assets.core.slice_plan import DAMAGE_DIMENSION, SlicePlan, SliceRule
from parcel_assets.core.slice_report import slice_photos, slice_rules
from parcel_assets.core.slices import judge_miss_slice
from parcel_assets.core.stage import Record
from parcel_assets.core.statistics import CostEstimate, Costs, cost_words, counted, estimate_cost
from parcel_assets.core.thresholds import review_decisions

FinalOutcome = Literal["PASS", "FAIL", "INSUFFICIENT"]
# the fields a person is told about when a second request differs from the first
IDENTITY_FIELDS = (
    "model",
    "threshold",
    "evaluator_digest",
    "commitment",
    "holdout_digest",
    "freeze_event",
    "ciphertext_digest",
)


class FinalRequest(Record):
    """All that the final result is a function of; where the label key lies is no part of it."""

    revision: str
    plan_digest: str
    freeze_event: str  # digest of SELECTION_FROZEN, which chains to everything before it
    archive: str
    holdout_digest: str
    commitment: str
    ciphertext_digest: str
    pixels: str  # store digest of the holdout's array
    rows: str  # store digest of the holdout's rows
    model: str  # store digest of the one model
    threshold: float
    evaluator_digest: str
    costs: dict[str, float]  # missed_damage, needless_review
    final: FinalPlan
    slices: dict[str, SlicePlan]

    @property
    def digest(self) -> str:
        """The digest of the request: two looks with the same digest are the same look."""
        return digest_value(self.document())


class FinalResult(Record):
    """What the vault answers; body of HOLDOUT_EVALUATED beside the predictions' digest."""

    outcome: FinalOutcome
    sentence: str
    result: dict[str, Any]


def require_same_request(recorded: Mapping[str, Any], request: FinalRequest, where: str) -> None:
    """Raise HoldoutError, naming the field, where an opening was made for another request."""
    ours = request.document()
    for field in IDENTITY_FIELDS:
        if field in recorded and recorded[field] != ours[field]:
            raise HoldoutError(
                f"{field} {_shown(ours[field])}",
                expected=f"{_shown(recorded[field])}, for which the holdout was opened",
                where=where,
                remedy="The holdout opens for one model only. Restore what was frozen, or plan a "
                "new search revision with an unspent holdout.",
                field=field,
            )
    if recorded.get("request_digest") != request.digest:
        raise HoldoutError(
            f"request {request.digest[:8]}",
            expected=f"request {str(recorded.get('request_digest'))[:8]}, as opened",
            where=where,
            remedy="Plan, slices or target differ from those of the opening; restore them.",
            field="request_digest",
        )


def judge_holdout(
    request: FinalRequest,
    rows: Sequence[Mapping[str, Any]],
    labels: Sequence[Sequence[Any]],
    scores: Scores,
) -> FinalResult:
    """Return the final result of one model's scores, in row order, against decrypted label rows.

    Raises HoldoutError where labels and rows are not about the same photos.
    """
    by_photo = {str(photo): (bool(damaged), kind or "") for photo, damaged, kind in labels}
    photos = [str(row["photo_id"]) for row in rows]
    if sorted(photos) != sorted(by_photo) or not len(labels) == len(photos) == len(scores):
        raise HoldoutError(
            f"{len(labels)} labels and {len(scores)} scores",
            expected=f"one of each for the {len(photos)} photos of the holdout",
            where=f"holdout {request.holdout_digest[:8]}",
            remedy="The sealed labels belong to another holdout; restore the sealed file.",
        )
    damaged = np.array([by_photo[photo][0] for photo in photos], dtype=np.bool_)
    shipments = [str(row["shipment_id"]) for row in rows]
    review = review_decisions(scores, request.threshold)
    attributes = _attributes(rows) | {DAMAGE_DIMENSION: [by_photo[photo][1] for photo in photos]}
    costs = Costs(**request.costs)
    if not damaged.any():
        return _without_damage(request, len(set(shipments)), len(photos))
    estimate = estimate_cost(review, damaged, shipments, costs)
    outcome, sentence = judge_final(estimate, request.final)
    return FinalResult(
        outcome=outcome,
        sentence=sentence,
        result={
            **estimate.as_document(),
            "threshold": request.threshold,
            "target_cost_per_1000": request.final.target_cost_per_1000,
            "area_under_curve": None if damaged.all() else area_under_curve(scores, damaged),
            "slices": [
                _slice_result(
                    rule,
                    attributes,
                    review=review,
                    damaged=damaged,
                    shipments=shipments,
                    costs=costs,
                )
                for rule in slice_rules(request.slices, attributes)
            ],
        },
    )


def judge_final(estimate: CostEstimate, final: FinalPlan) -> tuple[FinalOutcome, str]:
    """Return the outcome and its sentence: support first, then target met, then target missed.

    PASS: the guarded 95 % upper bound is within the target. FAIL: the cost itself is above it.
    """
    lacking = [
        f"{counted(found, noun)}, at least {minimum} planned"
        for found, minimum, noun in (
            (estimate.shipments, final.minimum_shipments, "shipment"),
            (estimate.damaged_photos, final.minimum_damaged_photos, "damaged photo"),
        )
        if found < minimum
    ]
    cost, upper = estimate.cost_per_1000, estimate.upper_bound_guarded
    counts = (
        f"Final holdout: {counted(estimate.shipments, 'shipment')}, "
        f"{counted(estimate.damaged_photos, 'damaged photo')}, {estimate.missed} missed."
    )
    numbers = (
        f"Cost {cost_words(cost, estimate.missed)} per 1,000 photos, at most "
        f"{cost_words(upper, estimate.missed)} with 95 % "
        f"confidence; target {final.target_cost_per_1000:g}, reviewing everything "
        f"{estimate.review_all_cost_per_1000:.0f}.{_beside_trivial(estimate)}"
    )
    if lacking:
        return "INSUFFICIENT", f"{counts} Too little to judge: {'; '.join(lacking)}. {numbers}"
    if upper <= final.target_cost_per_1000:
        return "PASS", f"{counts} {numbers} The target is met."
    if cost > final.target_cost_per_1000:
        return "FAIL", f"{counts} {numbers} The target is missed."
    return "INSUFFICIENT", f"{counts} {numbers} Not enough evidence to say that the target is met."


def _beside_trivial(estimate: CostEstimate) -> str:
    """Return in words where the model is not shown to cost less than the cheaper trivial policy."""
    trivial, name = min(
        (estimate.review_all_cost_per_1000, "everything"),
        (estimate.review_none_cost_per_1000, "nothing"),
    )
    cost, upper = estimate.cost_per_1000, estimate.upper_bound_guarded
    if cost > trivial:
        return f" Reviewing {name} would cost less: {trivial:.0f}."
    if cost == trivial:
        return f" Reviewing {name} would cost as little: {trivial:.0f}."
    if upper >= trivial:
        return f" It is not shown to cost less than reviewing {name}: {trivial:.0f}."
    return ""


def _without_damage(request: FinalRequest, shipments: int, photos: int) -> FinalResult:
    sentence = (
        f"Final holdout: {counted(shipments, 'shipment')}, {counted(photos, 'photo')}, none "
        "damaged. "
        "No miss could show, so nothing can be said about the target."
    )
    counts = {"shipments": shipments, "photos": photos, "damaged_photos": 0}
    target = {"target_cost_per_1000": request.final.target_cost_per_1000}
    return FinalResult(
        outcome="INSUFFICIENT",
        sentence=sentence,
        result={**counts, **target, "threshold": request.threshold, "slices": []},
    )


def _attributes(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    names = {str(name) for row in rows for name in row["attributes"]}
    return {name: [str(row["attributes"].get(name, "")) for row in rows] for name in sorted(names)}


def _slice_result(
    rule: SliceRule,
    attributes: Mapping[str, Sequence[str]],
    *,
    review: Flags,
    damaged: Flags,
    shipments: Sequence[str],
    costs: Costs,
) -> dict[str, Any]:
    """Return a slice's numbers on the holdout: reported without a reference, so judged by none."""
    inside = slice_photos(rule, attributes, len(damaged))
    behind = [one for one, flag in zip(shipments, inside, strict=True) if flag]
    document: dict[str, Any] = {
        "name": rule.name,
        "dimension": rule.dimension,
        "value": rule.value,
        "crossed_with": dict(rule.crossed_with),
        "role": rule.role,
        "shipments": len(set(behind)),
        "photos": int(inside.sum()),
        "damaged_photos": int((inside & damaged).sum()),
        "missed": int((inside & damaged & ~review).sum()),
        "needless": None if rule.is_of_damage else int((inside & ~damaged & review).sum()),
        "intact_photos": None if rule.is_of_damage else int((inside & ~damaged).sum()),
        "miss_rate": None,
        "miss_rate_upper_bound": None,
        "cost_per_1000": None,
        "against_limit": None,
    }
    hurt = inside & damaged
    if hurt.any():
        size = effective_size(
            ~review[hurt], [one for one, flag in zip(shipments, hurt, strict=True) if flag]
        )
        document |= {"miss_rate": size.rate, "miss_rate_upper_bound": upper_rate_bound(size)}
        if rule.absolute_miss_rate_limit is not None:
            inside_limit = judge_miss_slice(
                rule, review, None, damaged, np.asarray(shipments), members=inside
            )
            document["against_limit"] = str(inside_limit.outcome)
        if not rule.is_of_damage:
            estimate = estimate_cost(review[inside], damaged[inside], behind, costs)
            document["cost_per_1000"] = estimate.cost_per_1000
    return document | {"sentence": _slice_sentence(document)}


def _slice_sentence(document: Mapping[str, Any]) -> str:
    counts = (
        f"{document['name']}: {counted(document['shipments'], 'shipment')}, "
        f"{counted(document['damaged_photos'], 'damaged photo')}, {document['missed']} missed"
    )
    reviews = ""
    if document["needless"] is not None:
        reviews = f" Needless reviews: {document['needless']} of {document['intact_photos']} intact"
        reviews += " photos."
    if document["against_limit"] is not None:
        reviews += f" Against the plan's limit: {document['against_limit'].upper()}."
    if document["miss_rate"] is None:
        return f"{counts}: no damage here, so no miss could show.{reviews}"
    return (
        f"{counts} ({document['miss_rate']:.0%}, at most "
        f"{document['miss_rate_upper_bound']:.0%} with 95 % confidence).{reviews}"
    )


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)[:8]
