"""How much is simulated: what is too large is refused in words, what is large is drawn less often.

A gate decides nearly the same way in every draw where it judges hundreds of thousands of photos, so
few draws tell as much there as many do of a small part.
"""

from parcel_assets.core.errors import PlanError
from parcel_assets.core.plan import Plan

PHOTOS_MAXIMUM = 1_000_000  # of one part or slice
PRUNING_WORK_MAXIMUM = 1_500_000  # trials x batches x milestones
PHOTO_DRAWS = 20_000_000  # photos x draws of one question
PRUNING_WORK = 8_000_000  # trials x batches x milestones x draws
SCORES_MAXIMUM = 2_000_000  # trials x photos of one simulated choice
DRAWS_LEAST = 20


def draws_within(draws: int, each: float, whole: int) -> int:
    """Return how often to draw so that the whole work is kept; never more often than asked."""
    return max(min(DRAWS_LEAST, draws), min(draws, int(whole / max(each, 1))))


def pruning_work(plan: Plan) -> int:
    """Return how many cuts and values one simulated search of this plan looks at."""
    batches = -(-plan.search.budget_trials // plan.search.batch_trials)
    return plan.search.budget_trials * batches * max(1, len(plan.training.milestones) - 1)


def require_photos(photos: float, what: str, where: str, remedy: str) -> None:
    """Raise PlanError for a part or slice that is larger than what is simulated."""
    if photos > PHOTOS_MAXIMUM:
        raise _too_large(f"{what} of about {photos:,.0f} photos", where, remedy)


def require_budget(plan: Plan) -> None:
    """Raise PlanError for a budget that is larger than what is simulated."""
    if pruning_work(plan) > PRUNING_WORK_MAXIMUM:
        search = plan.search
        raise _too_large(
            f"{search.budget_trials:,} trials in batches of {search.batch_trials}, with "
            f"{len(plan.training.milestones)} milestones",
            "search.budget_trials",
            "Simulate the plan with a smaller budget or larger batches; its slices, its selection "
            "and its final evaluation are the same.",
        )


def _too_large(found: str, where: str, remedy: str) -> PlanError:
    return PlanError(
        found,
        expected=f"at most {PHOTOS_MAXIMUM:,} photos in a part or slice"
        if where != "search.budget_trials"
        else f"trials x batches x milestones of at most {PRUNING_WORK_MAXIMUM:,}",
        where=where,
        remedy=remedy,
        faults=[{"path": where, "fault": f"{found}: more than is simulated"}],
    )
