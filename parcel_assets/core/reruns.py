"""Decides whether reruns of the chosen configuration tell the same story as the search did."""

import functools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scipy.integrate import quad
from scipy.special import log_ndtr

from parcel_assets.core.columns import finite
from parcel_assets.core.statistics import cost_words, student_quantile

MAXIMUM_INSTABILITY = 0.10
SEED_DEVIATIONS = 2.0  # of the reruns' spread, beside what luck explains


@dataclass(frozen=True)
class RerunJudgement:
    """How the chosen configuration repeats over seeds; None says that a quantity is not known.

    A flag is None where there were too few runs to judge it: that is not a pass. `luck_deviations`
    is what the best of `trials` gains by luck alone, in standard deviations between trials;
    evidence without it was judged by that of 82, 2.43, whatever the number of trials.
    """

    extra_seeds: int
    mean: float | None
    standard_deviation: float | None
    tolerance: float | None
    within_tolerance: bool | None
    not_reproduced: bool | None
    unstable: bool | None
    own_seed_difference: float
    trials: int
    luck_deviations: float | None
    sentence: str

    @property
    def judged(self) -> bool:
        """Whether there were enough runs to judge all three questions."""
        return None not in (self.within_tolerance, self.not_reproduced, self.unstable)

    def as_document(self) -> dict[str, Any]:
        """Return the numbers as a JSON value."""
        return asdict(self)


@functools.cache
def expected_best(trials: int) -> float | None:
    """Return the expected largest of so many standard normal values; None of none.

    The integral over x of n x phi(x) Phi(x)^(n-1) (David and Nagaraja, Order Statistics, 3rd
    edition, section 3.1), by quadrature to nine digits.
    """
    if trials < 1:
        return None

    def density(x: float) -> float:
        tail = (trials - 1) * float(log_ndtr(x))
        return trials * x * math.exp(tail - x * x / 2) / math.sqrt(2 * math.pi)

    # beyond twelve deviations lies nothing of fewer than 1e30 values
    return float(quad(density, -12.0, 12.0, points=(0.0, 3.0), epsabs=1e-10, limit=200)[0])


def judge_reruns(
    search_cost: float,
    own_seed_cost: float,
    extra_costs: Sequence[float],
    completed_trial_costs: Sequence[float],
    *,
    maximum_instability: float = MAXIMUM_INSTABILITY,
    missed: int | None = None,
    unit: str = "of cost",
) -> RerunJudgement:
    """Return how the rerun compares with the declared extra seeds.

    The tolerance is a prediction interval for one more normal value: t(.975, R-1) s sqrt(1 + 1/R)
    around the mean of the R extra seeds, not around the search's own number, which was chosen for
    being low. `not_reproduced`: the mean exceeds the search's cost by more than the best of the
    completed trials gains by luck (`expected_best` of their number, in standard deviations between
    them) plus two of seeds. `unstable`: seeds spread by more than `maximum_instability` of their
    mean. Fewer than two extra seeds: no flag. `missed` says whether the words may print a decimal,
    `unit` follows the tolerance in them.

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
    luck = expected_best(len(trials))
    tolerance = within = not_reproduced = unstable = None
    if mean is not None and sd is not None:
        tolerance = student_quantile(0.975, count - 1) * sd * math.sqrt(1 + 1 / count)
        within = abs(own_seed_cost - mean) <= tolerance
        unstable = sd > maximum_instability * mean
        if sd_trials is not None and luck is not None:
            not_reproduced = mean - search_cost > luck * sd_trials + SEED_DEVIATIONS * sd
    return RerunJudgement(
        extra_seeds=count,
        mean=mean,
        standard_deviation=sd,
        tolerance=tolerance,
        within_tolerance=within,
        not_reproduced=not_reproduced,
        unstable=unstable,
        own_seed_difference=own_seed_cost - search_cost,
        trials=len(trials),
        luck_deviations=luck,
        sentence=_rerun_sentence(
            count,
            None
            if tolerance is None
            else f"{cost_words(tolerance, missed)} {unit} per 1,000 photos",
            within,
            not_reproduced,
            unstable,
        ),
    )


def _rerun_sentence(
    count: int,
    tolerance: str | None,
    within: bool | None,
    not_reproduced: bool | None,
    unstable: bool | None,
) -> str:
    if tolerance is None:
        ran = "No extra seed ran" if count == 0 else "Only one extra seed ran"
        return f"{ran}: the spread between seeds is not known, so no tolerance can be stated."
    place = "within" if within else "outside"
    parts = [f"{count} extra seeds: the rerun is {place} {tolerance} of their mean."]
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
