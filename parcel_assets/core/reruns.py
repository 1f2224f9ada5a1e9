"""Decides whether reruns of the chosen configuration tell the same story as the search did."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from parcel_assets.core.columns import finite
from parcel_assets.core.statistics import student_quantile

# the expected best of 82 draws from a standard normal distribution
BEST_OF_82_SD = 2.43


MAXIMUM_INSTABILITY = 0.10


@dataclass(frozen=True)
class RerunJudgement:
    """How the chosen configuration repeats over seeds; None says that a quantity is not known.

    A flag is None where there were too few runs to judge it: that is not a pass.
    """

    extra_seeds: int
    mean: float | None
    standard_deviation: float | None
    tolerance: float | None
    within_tolerance: bool | None
    not_reproduced: bool | None
    unstable: bool | None
    own_seed_difference: float
    sentence: str

    @property
    def judged(self) -> bool:
        """Whether there were enough runs to judge all three questions."""
        return None not in (self.within_tolerance, self.not_reproduced, self.unstable)

    def as_document(self) -> dict[str, Any]:
        """Return the numbers as a JSON value."""
        return asdict(self)


def judge_reruns(
    search_cost: float,
    own_seed_cost: float,
    extra_costs: Sequence[float],
    completed_trial_costs: Sequence[float],
    *,
    maximum_instability: float = MAXIMUM_INSTABILITY,
) -> RerunJudgement:
    """Return how the rerun compares with the declared extra seeds.

    The tolerance is a prediction interval for one more normal value: t(.975, R-1) s sqrt(1 + 1/R)
    around the mean of the R extra seeds, not around the search's own number, which was chosen for
    being low. `not_reproduced`: the mean exceeds the search's cost by more than the best of 82
    gains by luck (2.43 standard deviations between trials) plus two of seeds. `unstable`: seeds
    spread by more than `maximum_instability` of their mean. Fewer than two extra seeds: no flag.

    `within_tolerance` describes, the two flags hold: an honest winner was itself chosen for being
    low, and lies outside the tolerance of five seeds in 11 to 29 % of simulated searches (a quarter
    to three quarters of the spread between trials due to seeds).
    """
    finite([search_cost, own_seed_cost], "search_cost and own_seed_cost")
    extra = finite(extra_costs, "extra_costs").tolist() if len(extra_costs) else []
    trials = finite(completed_trial_costs, "completed_trial_costs").tolist()
    count = len(extra)
    mean = math.fsum(extra) / count if count else None
    sd, sd_trials = _standard_deviation(extra), _standard_deviation(trials)
    tolerance = within = not_reproduced = unstable = None
    if mean is not None and sd is not None:
        tolerance = student_quantile(0.975, count - 1) * sd * math.sqrt(1 + 1 / count)
        within = abs(own_seed_cost - mean) <= tolerance
        unstable = sd > maximum_instability * mean
        if sd_trials is not None:
            not_reproduced = mean - search_cost > BEST_OF_82_SD * sd_trials + 2 * sd
    return RerunJudgement(
        extra_seeds=count,
        mean=mean,
        standard_deviation=sd,
        tolerance=tolerance,
        within_tolerance=within,
        not_reproduced=not_reproduced,
        unstable=unstable,
        own_seed_difference=own_seed_cost - search_cost,
        sentence=_rerun_sentence(count, tolerance, within, not_reproduced, unstable),
    )


def _rerun_sentence(
    count: int,
    tolerance: float | None,
    within: bool | None,
    not_reproduced: bool | None,
    unstable: bool | None,
) -> str:
    if tolerance is None:
        ran = "No extra seed ran" if count == 0 else "Only one extra seed ran"
        return f"{ran}: the spread between seeds is not known, so no tolerance can be stated."
    place = "within" if within else "outside"
    parts = [f"{count} extra seeds: the rerun is {place} {tolerance:.1f} of their mean."]
    if count == 2:
        parts.append("Two seeds give a tolerance so wide that it rules out little.")
    if not_reproduced is None:
        parts.append("Too few completed trials to judge whether the search's cost was reproduced.")
    elif not_reproduced:
        parts.append("The search's cost was not reproduced.")
    if unstable:
        parts.append("Training is unstable over seeds.")
    return " ".join(parts)


def _standard_deviation(values: list[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
