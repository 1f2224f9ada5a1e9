"""What the reruns say of the chosen trial: every number of `selected_rerun`, from scores in memory.

Choosing and training come before; which of these numbers stop the chain is said by the gate table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parcel_assets.core.bootstrap import display_interval
from parcel_assets.core.codec import derive_seed
from parcel_assets.core.comparison import compare_paired_costs, tie_set
from parcel_assets.core.errors import EvidenceError, StorageError
from parcel_assets.core.evidence import RerunBody, TrainedModel
from parcel_assets.core.plan import Plan
from parcel_assets.core.ports import PartData, Scores
from parcel_assets.core.ranks import area_under_curve
from parcel_assets.core.reruns import judge_reruns
from parcel_assets.core.selection import Selection
from parcel_assets.core.selection_bias import selection_corrected_cost
from parcel_assets.core.slice_report import ScoredModel
from parcel_assets.core.statistics import Costs, estimate_cost, trivial_cost_maximum
from parcel_assets.core.thresholds import review_decisions, threshold_interval
from parcel_assets.core.trial import TrialRow

CORRECTION_DRAWS = 1000


@dataclass(frozen=True, slots=True)
class Reruns:
    """The trainings after the search: own seed, declared seeds, reference; scores by subject."""

    own: TrainedModel
    extra: tuple[TrainedModel, ...]
    reference: TrainedModel
    scores: Mapping[str, Scores]  # subject -> (photos,) float32


def target_warning(plan: Plan) -> str | None:
    """Return in words that a plan's target asks nothing, whatever share of photos is damaged."""
    target, most = plan.final.target_cost_per_1000, trivial_cost_maximum(costs_of(plan))
    if target < most:
        return None
    return (
        f"the target of {target:g} {plan.metric.unit} per 1,000 photos asks nothing of a model: "
        f"reviewing everything or reviewing nothing never costs more than {most:.0f}, whatever "
        "share is damaged. Lower `final.target_cost_per_1000`."
    )


def costs_of(plan: Plan) -> Costs:
    """Return the plan's costs of one error."""
    return Costs(plan.metric.missed_damage, plan.metric.needless_review)


def rerun_body(
    plan: Plan,
    selection: Selection,
    *,
    ranked: Mapping[str, TrialRow],
    searched: Mapping[str, Scores],
    reruns: Reruns,
    validation: PartData,
) -> RerunBody:
    """Return the evidence of `selected_rerun`.

    `ranked` holds the trials that could be chosen, best first, and `searched` their scores in the
    same order. The released artifact is the own-seed rerun at the threshold frozen at selection;
    the reference stands at its own.
    """
    costs, own, chosen = costs_of(plan), reruns.own, ranked[selection.trial]
    own_scores, search_scores = reruns.scores[own.subject], searched[selection.trial]
    candidate = ScoredModel(own_scores, selection.threshold)
    base = ScoredModel(reruns.scores[reruns.reference.subject], reruns.reference.threshold)
    numbers = model_numbers(candidate, validation, costs)
    steady = threshold_interval(
        own_scores,
        validation.damaged,
        validation.shipments,
        costs,
        threshold=selection.threshold,
        grid_points=plan.metric.threshold_grid_points,
    )
    truth = (validation.damaged, validation.shipments)
    paired = compare_paired_costs(candidate.review, base.review, *truth, costs)
    judgement = judge_reruns(
        _cost(chosen),
        own.cost_per_1000,
        [one.cost_per_1000 for one in reruns.extra],
        [_cost(row) for row in ranked.values()],
        maximum_instability=plan.rerun.maximum_instability,
        missed=numbers["missed"],
        unit=plan.metric.unit,
    )
    return RerunBody(
        selected_trial=selection.trial,
        selected_cost_per_1000=_cost(chosen),
        threshold=selection.threshold,
        ranking=selection.ranking,
        tie_set=_ties(selection.trial, ranked, searched, validation, costs),
        corrected_cost=_corrected(plan, selection.trial, ranked, searched, validation),
        slice_informed=selection.informed_by is not None,
        own=own,
        extra=reruns.extra,
        reference=reruns.reference,
        judgement=judgement.as_document(),
        scores_equal=own_scores.tobytes() == search_scores.tobytes(),
        largest_score_difference=largest_difference(own_scores, search_scores),
        model=own.model,
        trivial_cost_per_1000={
            "review_all": numbers["review_all_cost_per_1000"],
            "review_none": numbers["review_none_cost_per_1000"],
        },
        validation=numbers
        | {
            "against_reference": paired.as_document(),
            "threshold_interval": steady.as_document(),
        },
        reference_validation=model_numbers(base, validation, costs),
    )


def model_numbers(model: ScoredModel, part: PartData, costs: Costs) -> dict[str, Any]:
    """Return a model's numbers on a part at its threshold.

    Bounds are those of `estimate_cost`; `display_interval` is the bootstrap's, for pages only.
    """
    estimate = estimate_cost(model.review, part.damaged, part.shipments, costs)
    area = None if part.damaged.all() else area_under_curve(model.scores, part.damaged)
    interval = display_interval(model.review, part.damaged, part.shipments, costs)
    return {
        **estimate.as_document(),
        "display_interval": (
            None if interval is None else {"low": interval[0], "high": interval[1]}
        ),
        "threshold": model.threshold,
        "area_under_curve": area,
    }


def largest_difference(first: Scores, second: Scores) -> float:
    """Return the largest difference between two models' scores of the same photos."""
    if first.shape != second.shape:
        raise StorageError(
            f"{len(first)} scores of the rerun",
            expected=f"{len(second)}, as the search stored",
            where="own-seed rerun",
            remedy="Both must score the whole validation part; look at the rerun's attempt.",
        )
    return float(np.max(np.abs(first.astype(np.float64) - second.astype(np.float64))))


def _cost(row: TrialRow) -> float:
    assert row.final_cost_per_1000 is not None  # rank_trials lets no other row in
    return row.final_cost_per_1000


def _ties(
    winner: str,
    ranked: Mapping[str, TrialRow],
    searched: Mapping[str, Scores],
    validation: PartData,
    costs: Costs,
) -> tuple[str, ...]:
    reviews = {
        trial_id: review_decisions(searched[trial_id], row.threshold)
        for trial_id, row in ranked.items()
        if row.threshold is not None
    }
    return tuple(tie_set(reviews, validation.damaged, validation.shipments, costs, winner))


def _corrected(
    plan: Plan,
    chosen: str,
    ranked: Mapping[str, TrialRow],
    searched: Mapping[str, Scores],
    validation: PartData,
) -> dict[str, float] | None:
    """Return the selection-corrected cost, or None where the shipments are too few to resample.

    Every draw chooses by the plan's rule: lowest cost, ties to the lower trial number, and as many
    passed over as a `replace` decision passed over.
    """
    in_order = sorted(ranked, key=lambda trial_id: ranked[trial_id].number)
    try:
        corrected = selection_corrected_cost(
            np.stack([searched[trial_id] for trial_id in in_order]),
            validation.damaged,
            validation.shipments,
            costs_of(plan),
            seed=derive_seed("selection correction", plan.digest),
            draws=CORRECTION_DRAWS,
            grid_points=plan.metric.threshold_grid_points,
            behind=list(ranked).index(chosen),
        )
    except EvidenceError:
        return None
    return {
        "mean": corrected.cost_per_1000,
        "low": corrected.range_low,
        "high": corrected.range_high,
    }
