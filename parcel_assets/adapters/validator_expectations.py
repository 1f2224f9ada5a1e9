"""Validate the frozen trial table with Great Expectations, in a context that lives in memory.

Decides what a sound table is, as named expectations over its rows. Which rows there are is the
ledger's; whether a failed expectation stops the chain is the gate's. The library is imported when
a table is validated, not before: it takes seconds.
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from parcel_assets.core.codec import DIGEST_LENGTH
from parcel_assets.core.plan import Plan
from parcel_assets.core.rerun_report import costs_of
from parcel_assets.core.statistics import trivial_cost_maximum
from parcel_assets.core.trial import TrialState, trial_id_of, trial_seed

UNEXPECTED_MAXIMUM = 200
ROUNDING = 1e-9
KNOWN_STATES = tuple(str(state) for state in TrialState)


class ExpectationsValidator:
    """The TableValidator port on Great Expectations."""

    def validate(self, rows: Sequence[Mapping[str, Any]], plan: Plan) -> list[dict[str, Any]]:
        """Return one result per expectation: name, passed, sentence, unexpected (at most 200).

        An expectation that cannot be evaluated has failed, and its sentence says why. `unexpected`
        lists rows as `trial id: what was found`.
        """
        table = [_columns(row, plan) for row in rows]
        with _quiet():
            import pandas as pd  # noqa: PLC0415

            frame = pd.DataFrame(table, dtype=object)
            return _results(frame, _expectations(plan))


@dataclass(frozen=True, slots=True)
class _Expectation:
    """A name, the library's class and arguments, and the rule in words."""

    name: str
    rule: str
    kind: str
    arguments: Mapping[str, Any]


def _expectations(plan: Plan) -> list[_Expectation]:
    """Return what must hold of a plan's frozen table, in the order a person would check it."""
    budget = plan.search.budget_trials
    steps = ", ".join(map(str, plan.training.milestones))
    bound = trivial_bound(plan)

    def holds(name: str, rule: str) -> _Expectation:
        arguments = {"column": name, "value_set": ["yes"]}
        return _Expectation(name, rule, "ExpectColumnValuesToBeInSet", arguments)

    return [
        _Expectation(
            "one_row_per_slot",
            f"The table has one row for each of the {budget} slots.",
            "ExpectTableRowCountToEqual",
            {"value": budget},
        ),
        _Expectation(
            "numbers_unique",
            "No trial number occurs twice.",
            "ExpectColumnValuesToBeUnique",
            {"column": "number"},
        ),
        _Expectation(
            "numbers_within_budget",
            f"Every trial number lies in 1 … {budget}.",
            "ExpectColumnValuesToBeInSet",
            {"column": "number", "value_set": list(range(1, budget + 1))},
        ),
        holds("ids_match_numbers", "Every trial id is the one of its number."),
        _Expectation(
            "seeds_unique",
            "No two trials share a seed.",
            "ExpectColumnValuesToBeUnique",
            {"column": "seed"},
        ),
        holds("seeds_derived", "Every seed is the hash of plan seed and trial number."),
        _Expectation(
            "states_known",
            f"Every state is one of {', '.join(KNOWN_STATES)}.",
            "ExpectColumnValuesToBeInSet",
            {"column": "state", "value_set": list(KNOWN_STATES)},
        ),
        _Expectation(
            "nothing_running",
            "No trial is still running.",
            "ExpectColumnValuesToNotBeInSet",
            {"column": "state", "value_set": [str(TrialState.RUNNING)]},
        ),
        holds("completed_has_final_cost", "Every completed trial has a finite final cost."),
        holds("only_completed_has_final", "No other trial has final cost, threshold or scores."),
        _Expectation(
            "threshold_in_unit_interval",
            "Every threshold lies in 0 … 1.",
            "ExpectColumnValuesToBeBetween",
            # review-none lies one float above the highest score
            {"column": "threshold", "min_value": 0.0, "max_value": 1.0 + ROUNDING},
        ),
        holds("threshold_present", "Every completed trial has a threshold."),
        _Expectation(
            "scores_digest",
            f"A scores digest has {DIGEST_LENGTH} hexadecimal digits.",
            "ExpectColumnValuesToMatchRegex",
            {"column": "scores", "regex": f"^[0-9a-f]{{{DIGEST_LENGTH}}}$"},
        ),
        holds("scores_present", "Every completed trial names its validation scores."),
        *(
            _Expectation(
                f"cost_at_{step}_plausible",
                f"Every cost at milestone {step} lies between 0 and {bound:g}, which reviewing "
                "everything or nothing never exceeds.",
                "ExpectColumnValuesToBeBetween",
                {"column": f"cost_{step}", "min_value": 0.0, "max_value": bound},
            )
            for step in plan.training.milestones
        ),
        holds("final_cost_is_last_milestone", "The final cost is the one at the last milestone."),
        holds("milestones_exact", f"Costs stand at milestones {steps}, in order and without gaps."),
        holds("configuration_in_space", "Every configuration lies in the plan's space."),
        holds("completed_lineage_intact", "Every completed trial has an intact lineage."),
    ]


def trivial_bound(plan: Plan) -> float:
    """Return the cost per 1,000 that no fitted threshold exceeds: that of the trivial policies."""
    return trivial_cost_maximum(costs_of(plan)) * (1 + ROUNDING)


# ---- rows to columns ----------------------------------------------------------------------------


def _columns(row: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """Return a row's own fields, its costs by milestone, and a yes or a reason for each rule.

    Values are texts and floats only, so that no column changes its type with its content.
    """
    costs = row.get("costs") or {}
    number, state = row.get("number"), row.get("state")
    slot = number if isinstance(number, int) and not isinstance(number, bool) else 0
    own = {
        "number": number,
        "trial_id": row.get("trial_id"),
        "seed": str(row.get("seed")),
        "state": None if state is None else str(state),
        "threshold": row.get("threshold"),
        "scores": row.get("scores"),
    }
    by_step = {f"cost_{step}": _value_of(costs.get(str(step))) for step in plan.training.milestones}
    return own | by_step | _yes_or_reason(row, costs, slot, str(state), plan)


def _yes_or_reason(
    row: Mapping[str, Any], costs: Mapping[str, Any], slot: int, state: str, plan: Plan
) -> dict[str, str]:
    completed = state == TrialState.COMPLETED
    final = row.get("final_cost_per_1000")
    results = {key: row.get(key) for key in ("final_cost_per_1000", "threshold", "scores")}
    extra = [key for key, value in results.items() if value is not None]
    expected_seed = trial_seed(plan.search.seed, slot)
    last = costs.get(str(plan.training.steps))
    answers = {
        "ids_match_numbers": (row.get("trial_id") == trial_id_of(slot), row.get("trial_id")),
        "seeds_derived": (row.get("seed") == expected_seed, row.get("seed")),
        "completed_has_final_cost": (not completed or _is_finite(final), final),
        "only_completed_has_final": (completed or not extra, f"{state} with {extra}"),
        "threshold_present": (not completed or row.get("threshold") is not None, "none"),
        "scores_present": (not completed or row.get("scores") is not None, "none"),
        "final_cost_is_last_milestone": (not completed or final == last, f"{final} and {last}"),
        "milestones_exact": (_milestones_exact(costs, state, plan), f"{state} at {list(costs)}"),
        "completed_lineage_intact": (not completed or row.get("lineage_ok") is True, "broken"),
    }
    words = {name: "yes" if good else str(found) for name, (good, found) in answers.items()}
    return words | {
        "configuration_in_space": _configuration_fault(row.get("configuration"), state, plan)
    }


def _milestones_exact(costs: Mapping[str, Any], state: str, plan: Plan) -> bool:
    """Say whether costs stand at the first milestones without a gap, as many as the state needs."""
    declared = [str(step) for step in plan.training.milestones]
    reached = [step for step in declared if step in costs]
    if len(reached) != len(costs) or reached != declared[: len(reached)]:
        return False
    if state == TrialState.COMPLETED:
        return len(reached) == len(declared)
    if state == TrialState.PRUNED:
        return 0 < len(reached) < len(declared)
    return state != TrialState.WAITING or not reached


def _configuration_fault(configuration: Any, state: str, plan: Plan) -> str:
    """Return `yes`, or what is wrong with a configuration; a slot never proposed has none."""
    if not isinstance(configuration, Mapping):
        return f"{configuration!r} is no configuration"
    if not configuration and state == TrialState.WAITING:
        return "yes"
    faults = [f"{name} = {value!r}" for name, value in configuration.items()
              if name not in plan.space or not plan.space[name].holds(value)]  # fmt: skip
    faults += [f"no {name}" for name in plan.space if name not in configuration]
    return "; ".join(faults) or "yes"


def _value_of(cost: Any) -> Any:
    """Return a cost as the table shows it: NaN is a value of its own, not an absent one."""
    return "not a number" if isinstance(cost, float) and math.isnan(cost) else cost


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


# ---- the library --------------------------------------------------------------------------------


def _results(frame: Any, expectations: Sequence[_Expectation]) -> list[dict[str, Any]]:
    """Return the verdict of each expectation over the frame."""
    import great_expectations as gx  # noqa: PLC0415
    import great_expectations.expectations as library  # noqa: PLC0415
    from great_expectations.data_context.types.base import ProgressBarsConfig  # noqa: PLC0415

    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
    asset = context.data_sources.add_pandas("ledger").add_dataframe_asset("trial_table")
    definition = asset.add_batch_definition_whole_dataframe("frozen")
    suite = gx.ExpectationSuite(
        name="trial_table",
        expectations=[
            getattr(library, one.kind)(**one.arguments, meta={"name": one.name})
            for one in expectations
        ],
    )
    validated = definition.get_batch({"dataframe": frame}).validate(
        suite, result_format={"result_format": "COMPLETE"}
    )
    by_name = {_name_of(result): result for result in validated.results}
    return [_result(one, by_name.get(one.name), frame) for one in expectations]


def _name_of(result: Any) -> str:
    return str(result.expectation_config.meta["name"])


def _result(expectation: _Expectation, result: Any, frame: Any) -> dict[str, Any]:
    passed = result is not None and result.success is True
    places = [] if passed or result is None else result.result.get("unexpected_index_list") or []
    column = expectation.arguments.get("column")
    unexpected = [
        f"{frame.at[place, 'trial_id']}: {frame.at[place, column]}"
        for place in places[:UNEXPECTED_MAXIMUM]
    ]
    sentence = expectation.rule
    if not passed:
        sentence = f"Not so: {sentence} {_found(result, len(places), len(frame))}"
    return {
        "name": expectation.name,
        "passed": passed,
        "sentence": sentence,
        "unexpected": unexpected,
    }


def _found(result: Any, unexpected: int, rows: int) -> str:
    """Return in words what was found instead."""
    if result is None:
        return "It was not evaluated."
    if unexpected:
        return f"{unexpected} of {rows} rows differ."
    if "observed_value" in result.result:
        return f"Found {result.result['observed_value']}."
    return f"It could not be evaluated: {_raised(result.exception_info)}."


def _raised(information: Any) -> str:
    """Return the first message in the library's record of what was raised."""
    if not isinstance(information, Mapping):
        return "no reason given"
    if information.get("exception_message"):
        return str(information["exception_message"])
    messages = (_raised(one) for one in information.values() if isinstance(one, Mapping))
    return next(messages, "no reason given")


@contextmanager
def _quiet() -> Iterator[None]:
    """Let the library's own outdated calls pass; they are no concern of a search."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        yield
