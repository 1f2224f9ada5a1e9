"""The final judgement: support first, then the guarded bound, then the point; in words."""

from typing import Any

import numpy as np
import pytest

from parcel_assets.core.errors import HoldoutError
from parcel_assets.core.final import FinalRequest, judge_final, judge_holdout, require_same_request
from parcel_assets.core.plan import FinalPlan
from parcel_assets.core.slice_plan import SlicePlan
from parcel_assets.core.statistics import Costs, estimate_cost
from parcel_assets_tests.core.plans import plan

PLAN = plan()


def request(**changes: Any) -> FinalRequest:
    fields: dict[str, Any] = {
        "revision": "a",
        "plan_digest": PLAN.digest,
        "freeze_event": "01" * 32,
        "archive": "test-parcels",
        "holdout_digest": "02" * 32,
        "commitment": "03" * 32,
        "ciphertext_digest": "04" * 32,
        "pixels": "05" * 32,
        "rows": "06" * 32,
        "model": "07" * 32,
        "threshold": 0.5,
        "evaluator_digest": "08" * 32,
        "costs": {"missed_damage": 5.0, "needless_review": 1.0},
        "final": {
            "target_cost_per_1000": 900.0,
            "minimum_shipments": 4,
            "minimum_damaged_photos": 2,
        },
        "slices": {name: one.model_dump() for name, one in PLAN.slices.items()},
    }
    return FinalRequest.model_validate(fields | changes)


def holdout(photos: int = 40) -> tuple[list[dict[str, Any]], list[list[Any]], np.ndarray]:
    """Return rows, label rows and scores: every fourth photo damaged, one of them missed."""
    rows = [
        {
            "photo_id": f"p{number:02d}",
            "shipment_id": f"s{number // 2}",
            "attributes": {"camera_class": "top" if number % 2 else "side"},
        }
        for number in range(photos)
    ]
    labels = [
        [f"p{number:02d}", number % 4 == 0, "crushed_corner" if number % 8 == 0 else None]
        for number in range(photos)
    ]
    scores = np.array([0.9 if number % 4 == 0 else 0.1 for number in range(photos)], np.float32)
    scores[0] = 0.2
    return rows, labels, scores


def estimate(misses: int, shipments: int = 200) -> Any:
    damaged = np.arange(shipments) % 4 == 0
    review = damaged.copy()
    review[np.flatnonzero(damaged)[:misses]] = False
    return estimate_cost(review, damaged, np.arange(shipments), Costs(5.0, 1.0))


class TestOutcome:
    def test_pass_needs_the_guarded_bound_within_the_target(self) -> None:
        found = estimate(misses=1)
        at_bound = FinalPlan(target_cost_per_1000=found.upper_bound_guarded)
        assert judge_final(found, at_bound)[0] == "PASS"
        below = FinalPlan(target_cost_per_1000=found.upper_bound_guarded - 0.01)
        assert judge_final(found, below)[0] == "INSUFFICIENT"

    def test_fail_needs_the_cost_itself_above_the_target(self) -> None:
        found = estimate(misses=20)
        above = FinalPlan(target_cost_per_1000=found.cost_per_1000 - 0.01)
        assert judge_final(found, above)[0] == "FAIL"
        at_cost = FinalPlan(target_cost_per_1000=found.cost_per_1000)
        assert judge_final(found, at_cost)[0] == "INSUFFICIENT"

    @pytest.mark.parametrize("target", [1e-6, 1e6])
    def test_below_the_minimum_nothing_passes_or_fails(self, target: float) -> None:
        few = FinalPlan(target_cost_per_1000=target, minimum_shipments=201)
        outcome, sentence = judge_final(estimate(misses=3), few)
        assert outcome == "INSUFFICIENT"
        assert "200 shipments, at least 201 planned" in sentence

    def test_a_trivial_policy_that_costs_less_is_said_though_the_target_is_met(self) -> None:
        generous = FinalPlan(target_cost_per_1000=10_000.0)
        outcome, sentence = judge_final(estimate(misses=40), generous)  # 50 of 200 are damaged
        assert outcome == "PASS"
        assert "Reviewing everything would cost less: 750. The target is met." in sentence
        assert "would cost as little: 750" in judge_final(estimate(misses=30), generous)[1]
        assert (
            "It is not shown to cost less than reviewing everything: 750"
            in (judge_final(estimate(misses=29), generous)[1])
        )
        honest = judge_final(estimate(misses=5), generous)[1]
        assert "would cost" not in honest
        assert "not shown" not in honest
        cheap = estimate_cost(
            [True] * 9 + [False], [False] * 9 + [True], range(10), Costs(5.0, 1.0)
        )
        assert "Reviewing nothing would cost less: 500." in judge_final(cheap, generous)[1]

    def test_few_misses_carry_no_decimal(self) -> None:
        target = FinalPlan(target_cost_per_1000=1000.0)
        assert "Cost 25 per 1,000" in judge_final(estimate(misses=1), target)[1]
        assert "Cost 300.0 per 1,000" in judge_final(estimate(misses=12), target)[1]


class TestHoldout:
    def test_the_result_holds_counts_bounds_plain_policies_and_slices(self) -> None:
        judged = judge_holdout(request(), *holdout())
        assert judged.outcome == "PASS"
        assert (judged.result["missed"], judged.result["damaged_photos"]) == (1, 10)
        assert judged.result["review_none_cost_per_1000"] == 1250.0
        named = {one["name"]: one for one in judged.result["slices"]}
        assert named["crushed_corner"]["missed"] == 1
        assert named["crushed_corner"]["cost_per_1000"] is None
        assert named["cameras:side"]["cost_per_1000"] == 250.0
        assert named["cameras:top"]["miss_rate"] is None
        assert "no damage here" in named["cameras:top"]["sentence"]

    def test_a_slice_with_intact_photos_tells_its_needless_reviews(self) -> None:
        rows, labels, scores = holdout()
        judged = judge_holdout(request(), rows, labels, np.ones_like(scores))
        named = {one["name"]: one for one in judged.result["slices"]}
        side = named["cameras:side"]
        assert side["needless"] == side["intact_photos"] > 0
        words = f"Needless reviews: {side['needless']} of {side['intact_photos']} intact photos."
        assert words in side["sentence"]
        assert named["crushed_corner"]["needless"] is None
        assert "Needless" not in named["crushed_corner"]["sentence"]

    def test_without_a_reference_only_the_plan_s_limit_can_judge_a_slice(self) -> None:
        limited = SlicePlan(
            dimension="damage_type",
            value="crushed_corner",
            minimum_shipments=1,
            minimum_damaged_photos=1,
            minimum_effective_photos=1,
            absolute_miss_rate_limit=0.05,
        )
        asked = request().model_copy(update={"slices": {"crushed_corner": limited}})
        (judged,) = judge_holdout(asked, *holdout()).result["slices"]
        assert judged["against_limit"] == "fail"
        assert "Against the plan's limit: FAIL." in judged["sentence"]
        (judged,) = judge_holdout(
            request().model_copy(
                update={"slices": {"one": limited.model_copy(update={"value": "nothing"})}}
            ),
            *holdout(),
        ).result["slices"]
        assert judged["against_limit"] is None

    def test_the_order_of_labels_does_not_matter(self) -> None:
        rows, labels, scores = holdout()
        assert judge_holdout(request(), rows, labels[::-1], scores) == judge_holdout(
            request(), rows, labels, scores
        )

    @pytest.mark.parametrize("fault", ["label", "score", "twice"])
    def test_labels_of_other_photos_are_refused(self, fault: str) -> None:
        rows, labels, scores = holdout()
        if fault == "label":
            labels[3][0] = "another.png"
        elif fault == "twice":
            labels.append(labels[3])
        else:
            scores = scores[:-1]
        with pytest.raises(HoldoutError, match="one of each for the 40 photos"):
            judge_holdout(request(), rows, labels, scores)

    def test_no_damage_at_all_says_nothing_about_the_target(self) -> None:
        rows, labels, scores = holdout()
        for label in labels:
            label[1] = False
        judged = judge_holdout(request(), rows, labels, scores)
        assert judged.outcome == "INSUFFICIENT"
        assert "none damaged" in judged.sentence


class TestSameRequest:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("model", "ff" * 32),
            ("threshold", 0.4),
            ("evaluator_digest", "ff" * 32),
            ("commitment", "ff" * 32),
            ("freeze_event", "ff" * 32),
        ],
    )
    def test_a_request_that_differs_is_refused_by_the_field_s_name(
        self, field: str, value: Any
    ) -> None:
        opened = {**request().document(), "request_digest": request().digest}
        with pytest.raises(HoldoutError) as refused:
            require_same_request(opened, request(**{field: value}), "here")
        assert refused.value.facts["field"] == field

    def test_a_changed_target_is_refused_too(self) -> None:
        opened = {"request_digest": request().digest}
        with pytest.raises(HoldoutError, match="Plan, slices or target differ"):
            require_same_request(opened, request(final={"target_cost_per_1000": 1e6}), "here")
