"""What a simulation means for the author of a plan: whether it can decide anything, and what to do.

Numbers come from `simulation`; here they become sentences, each with what would change it.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from parcel_assets.core.plan import Plan
from parcel_assets.core.simulation import Simulation
from parcel_assets.core.simulation_slices import WANTED_PASSES, SliceOdds
from parcel_assets.core.statistics import MISSES_FOR_A_DECIMAL, PER, counted

MISSES_WANTED, MISSES_LEAST = 20, MISSES_FOR_A_DECIMAL
STOPPING_PASSES = 0.50  # of equal candidates; below it a gate decides nothing but to hold
TARGET_SHARE_WANTED = 0.80  # of the target; a model that must be better still is asked too much
LOSS_NOTED = 0.05
LIKELY_CORRELATION = 0.6


@dataclass(frozen=True, slots=True)
class Remark:
    """One sentence for the author; `good` says that nothing need change for it.

    `stops` says that the search cannot decide unless something does.
    """

    good: bool
    sentence: str
    stops: bool = False


def remarks(plan: Plan, simulation: Simulation) -> tuple[Remark, ...]:
    """Return what the author should know before registering, the most important first."""
    found = [
        *_about_slices(plan, simulation),
        _about_final(plan, simulation),
        *_about_target(plan, simulation),
        *_about_pruning(simulation),
        _about_selection(simulation),
    ]
    return tuple(sorted(found, key=lambda one: (not one.stops, one.good)))


def conclusion(found: tuple[Remark, ...]) -> str:
    """Return in one sentence whether the plan can decide."""
    stops = sum(one.stops for one in found)
    if stops:
        return (
            f"This plan cannot decide: for {stops} reason{'s' * (stops != 1)} a search by it "
            "mostly ends in a hold or without an answer, however good its best trial is. Change it "
            "before this plan is registered:"
        )
    open_points = sum(not one.good for one in found)
    if not open_points:
        return "This plan can decide: its gates mostly let good candidates pass and stop bad ones."
    return (
        f"This plan can decide, with {open_points} thing{'s' * (open_points != 1)} to change or to "
        "accept knowingly before this plan is registered:"
    )


def document_of(plan: Plan, simulation: Simulation) -> dict[str, Any]:
    """Return the simulation as a JSON value; shares are of the simulated searches."""
    found = remarks(plan, simulation)
    sizes = simulation.sizes
    return {
        "draws": simulation.draws,
        "seed": simulation.seed,
        "sizes": {
            "source": sizes.source,
            "validation_shipments": sizes.validation.shipments_expected,
            "validation_damaged_photos": sizes.validation.damaged_expected,
            "holdout_shipments": sizes.holdout.shipments_expected,
            "holdout_damaged_photos": sizes.holdout.damaged_expected,
        },
        "assumed": asdict(sizes.world),
        "slices": [asdict(one) for one in simulation.slices],
        "all_equal_protected_slices_pass": simulation.all_equal_pass,
        "pruning": [asdict(one) for one in simulation.pruning],
        "selection": _finite(
            asdict(simulation.selection) | {"optimism": simulation.selection.optimism}
        ),
        "final": asdict(simulation.final)
        | {
            "by_share_of_target": {
                f"{share:g}": asdict(odds)
                for share, odds in simulation.final.by_share_of_target.items()
            }
        },
        "remarks": [asdict(one) for one in found],
        "conclusion": conclusion(found),
    }


def _finite(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in fields.items()
    }


def _about_slices(plan: Plan, simulation: Simulation) -> Iterator[Remark]:
    protected = [one for one in simulation.slices if one.role == "protected"]
    if not protected:
        yield Remark(
            good=False,
            sentence="No slice is protected: a candidate that fails on one is reported, not held. "
            "Name the slices that must not get worse.",
        )
        return
    for one in protected:
        yield from _about_slice(plan, one)
    together = simulation.all_equal_pass
    if len(protected) > 1 and together is not None:
        yield Remark(
            good=together >= WANTED_PASSES,
            stops=together < STOPPING_PASSES,
            sentence=f"All {len(protected)} protected slices pass together in {together:.0%} of "
            "searches whose candidate equals the reference in each.",
        )


def _about_slice(plan: Plan, one: SliceOdds) -> Iterator[Remark]:
    support = (
        f"with {counted(round(one.shipments), 'shipment')} and "
        f"{counted(round(one.damaged_photos), 'damaged photo')} in "
        f"validation{' (assumed)' if one.assumed else ''}"
    )
    unit = "points" if one.measure == "miss_rate" else "percent"
    worse = (
        f"one truly {one.worse_by[1]:g} {unit} worse passes in {one.worse.passed:.0%}, "
        f"one {one.worse_by[0]:g} worse in {one.fairly_worse.passed:.0%}"
    )
    if one.growth == 1:
        yield Remark(
            good=True,
            sentence=f"{one.name}, {support}: an equal candidate passes in {one.equal.passed:.0%} "
            f"of searches, {worse}.",
        )
        return
    if one.below_floor:
        yield Remark(
            good=False,
            stops=True,
            sentence=f"{one.name}, {support}: below the plan's own floor of "
            f"{' and '.join(one.below_floor)}, so it is INSUFFICIENT and holds every candidate. "
            "Ask for that much in `split.minimum`, collect it, or only monitor the slice.",
        )
        return
    stopped = one.equal.held + one.equal.failed
    words = (
        f"{one.name}, {support}: an equal candidate is stopped in {stopped:.0%} of searches (held "
        f"{one.equal.held:.0%}, failed {one.equal.failed:.0%}); {worse}. "
    )
    if one.growth is None:
        words += "Even 16 times as much would not do: widen the margin, or only monitor it."
    else:
        more = one.damaged_photos * (one.growth - 1)
        words += (
            f"It needs about {more:.0f} damaged photos more in validation, which is "
            f"{more / plan.split.validation:.0f} in the archive."
        )
        if one.assumed:
            wanted = one.damaged_photos + more
            words += f" Ask for {wanted:.0f} of them there in `split.minimum`, or expect to decide."
    yield Remark(good=False, stops=one.equal.passed < STOPPING_PASSES, sentence=words)


def _about_final(plan: Plan, simulation: Simulation) -> Remark:
    final = simulation.final
    size = (
        f"The holdout holds about {counted(round(final.shipments), 'shipment')} and "
        f"{counted(round(final.damaged_photos), 'damaged photo')}; a model somewhat better "
        f"than the target misses about {final.misses_expected:.0f} of them"
    )
    short = [
        f"{least} {words}"
        for found, least, words in (
            (final.shipments, plan.final.minimum_shipments, "shipments"),
            (final.damaged_photos, plan.final.minimum_damaged_photos, "damaged photos"),
        )
        if found < least
    ]
    if short:
        return Remark(
            good=False,
            stops=True,
            sentence=f"{size}. That is below the plan's own minimum ({', '.join(short)}), so the "
            "final evaluation would be INSUFFICIENT whatever it finds.",
        )
    if final.misses_expected < MISSES_LEAST:
        words = f"{size}: too few for a cost with a decimal, at least {MISSES_LEAST} are needed."
    elif final.misses_expected < MISSES_WANTED:
        words = f"{size}: usable, though {MISSES_WANTED} are better."
    else:
        words = f"{size}."
    return Remark(good=final.misses_expected >= MISSES_LEAST, sentence=words)


def _about_target(plan: Plan, simulation: Simulation) -> Iterator[Remark]:
    odds = simulation.final.by_share_of_target
    target, damaged = plan.final.target_cost_per_1000, simulation.sizes.world.damaged_share
    trivial, name = min(
        (PER * plan.metric.needless_review * (1 - damaged), "everything"),
        (PER * plan.metric.missed_damage * damaged, "nothing"),
    )
    beside = (
        f"the target is {target:g} {plan.metric.unit} per 1,000 photos, and where {damaged:.0%} "
        f"are damaged reviewing {name} costs {trivial:.0f}"
    )
    if target >= trivial:
        words = f"The target asks nothing of a model: {beside}. Set it below."
        yield Remark(good=False, stops=not odds, sentence=words)
    elif not odds:
        words = f"No model can cost near the target, which is too near to nothing: {beside}."
        yield Remark(good=False, stops=True, sentence=words)
    if not odds:
        return
    verdicts = ", ".join(f"at {share:.0%} of it {one.passed:.0%}" for share, one in odds.items())
    enough = [share for share, one in odds.items() if one.passed >= WANTED_PASSES]
    words = f"By true cost, a model meets the target in the final evaluation: {verdicts}. "
    if enough:
        words += f"So a model must truly cost at most about {max(enough):.0%} of the target."
    else:
        words += "Even a much better model mostly cannot show it: the holdout is too small."
    yield Remark(
        good=bool(enough) and max(enough) >= TARGET_SHARE_WANTED, stops=not enough, sentence=words
    )


def _about_pruning(simulation: Simulation) -> Iterator[Remark]:
    for step in dict.fromkeys(one.step for one in simulation.pruning):
        at = [one for one in simulation.pruning if one.step == step]
        if at[0].keep >= 1:
            yield Remark(good=True, sentence=f"At step {step} nothing is pruned.")
            continue
        likely = next(one for one in at if one.rank_correlation == LIKELY_CORRELATION)
        losses = ", ".join(
            f"{one.best_is_pruned:.1%} at {one.rank_correlation:g} ({one.trials_pruned:.0%} of "
            "trials stopped)"
            for one in at
        )
        yield Remark(
            good=likely.best_is_pruned <= LOSS_NOTED,
            sentence=f"Pruning at step {step} loses the eventual best trial, by rank correlation "
            f"with the end: {losses}.",
        )


def _about_selection(simulation: Simulation) -> Remark:
    odds = simulation.selection
    if not odds.searches:
        return Remark(
            good=False,
            sentence="Validation holds too little damage for any correction of the winner's cost.",
        )
    return Remark(
        good=odds.optimism <= 0.25,
        sentence=f"On {odds.shipments:.0f} shipments the best of {odds.trials} trials shows a cost "
        f"{odds.optimism:.0%} below its true one: its own 95 % bound covers the truth in "
        f"{odds.shown_bound_covers:.0%} of searches, the selection-corrected bound in "
        f"{odds.corrected_bound_covers:.0%}. Never quote the winner's own number.",
    )
