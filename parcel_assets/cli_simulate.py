"""The command `simulate-gates`: whether a plan can decide anything, before it is registered."""

from typing import Annotated

import numpy as np
import typer

from parcel_assets.cli_common import EXIT_STOPPED, OPTIONS, JsonOption, print_json, print_table, say
from parcel_assets.cli_plan import PlanArgument
from parcel_assets.cli_progress import bar
from parcel_assets.core.bootstrap import SEED
from parcel_assets.core.errors import ArchiveError
from parcel_assets.core.plan import Plan
from parcel_assets.core.simulation import Simulation, simulate
from parcel_assets.core.simulation_sizes import Sizes, rows_of_table, sizes_of_plan, sizes_of_rows
from parcel_assets.core.simulation_slices import Odds, SliceOdds
from parcel_assets.core.simulation_words import conclusion, document_of, remarks
from parcel_assets.core.simulation_world import REFERENCE_MISS_RATE, World
from parcel_assets.steps.sizing import sizes_of_split
from parcel_assets.wiring import PlanFile, Settings, find_plan, open_ports, read_labels


def simulate_gates(
    plan: PlanArgument,
    draws: Annotated[
        int, typer.Option(min=20, help="Simulated searches; fewer are quicker and rougher.")
    ] = 400,
    shipments: Annotated[
        int | None, typer.Option(min=10, help="Simulate an archive of so many shipments instead.")
    ] = None,
    damaged_share: Annotated[
        float | None, typer.Option(min=0.001, max=0.9, help="With --shipments: damaged photos.")
    ] = None,
    miss_rate: Annotated[
        float, typer.Option(min=0.01, max=0.8, help="Assumed: damage that the reference misses.")
    ] = REFERENCE_MISS_RATE,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same numbers.")] = SEED,
    *,
    as_json: JsonOption = False,
) -> None:
    """Print how often a plan's gates pass, fail and hold good and bad candidates."""
    OPTIONS.json = as_json
    settings = OPTIONS.settings()
    found = find_plan(plan, settings)
    world = World(reference_miss_rate=miss_rate)
    if shipments is not None and damaged_share is not None:
        world = World(reference_miss_rate=miss_rate, damaged_share=damaged_share)
    sizes = _sizes(found, settings, world, shipments, seed)
    with bar("simulating searches") as listener:

        def hear(done: int, total: int, words: str) -> None:
            listener("progress", {"done": done, "total": total, "stage": words})

        try:
            simulation = simulate(found.plan, sizes, draws=draws, seed=seed, progress=hear)
        except KeyboardInterrupt:
            say("\nStopped. A simulation records nothing.", error=True)
            raise typer.Exit(EXIT_STOPPED) from None
    if as_json:
        print_json({"revision": found.revision, **document_of(found.plan, simulation)})
        return
    _print_sizes(found, simulation)
    _print_tables(found.plan, simulation)
    told = remarks(found.plan, simulation)
    say(conclusion(told), style="bold")
    for one in told:
        mark, style = ("ok  ", None) if one.good else ("look", "yellow")
        if one.stops:
            mark, style = "STOP", "bold red"
        say(f"  {mark}  {one.sentence}", style=style)


def _sizes(
    found: PlanFile, settings: Settings, world: World, shipments: int | None, seed: int
) -> Sizes:
    """Return the sizes: from the split, else the label table, else what the plan asks for."""
    plan = found.plan
    if shipments is None:
        if settings.data.exists():  # before anything is registered there need be no folder
            ports = open_ports(settings, creates=False)
            counted = sizes_of_split(found.revision, plan, ports, world)
            if counted is not None:
                return counted
        try:
            table = read_labels(settings.data / plan.snapshot.location, plan.snapshot.table)
        except (ArchiveError, PermissionError):
            table = None
        if table is not None:
            rows = rows_of_table(plan, table.rows)
            return sizes_of_rows(
                plan,
                rows,
                world,
                source=f"the label table {table.table}",
                validation_share=plan.split.validation,
                holdout_share=plan.split.holdout,
            )
    return sizes_of_plan(plan, world, np.random.default_rng(seed), shipments=shipments)


def _print_sizes(found: PlanFile, simulation: Simulation) -> None:
    sizes = simulation.sizes
    rows = [
        (name, round(part.shipments_expected), round(part.damaged_expected))
        for name, part in (("validation", sizes.validation), ("holdout", sizes.holdout))
    ]
    say(f"{found.revision}: {simulation.draws} simulated searches, sizes from {sizes.source}")
    print_table("", ("part", "shipments", "damaged photos"), rows)


def _print_tables(plan: Plan, simulation: Simulation) -> None:
    unit, target = plan.metric.unit, plan.final.target_cost_per_1000
    rows = [
        (
            one.name,
            one.role,
            f"{one.shipments:.0f} / {one.damaged_photos:.0f}",
            _words(one.equal),
            f"+{one.worse_by[0]:g} {_unit(one)}: {_words(one.fairly_worse)}",
            f"+{one.worse_by[1]:g} {_unit(one)}: {_words(one.worse)}",
        )
        for one in simulation.slices
    ]
    heads = ("slice", "role", "shipments / damaged photos", "equal", "worse", "worse by the margin")
    if rows:
        print_table("slice gate: share of searches that pass / fail / hold", heads, rows)
    pruned = [
        (one.step, f"{one.keep:.0%}", one.rank_correlation, f"{one.best_is_pruned:.1%}",
         f"{one.trials_pruned:.0%}")
        for one in simulation.pruning if one.keep < 1
    ]  # fmt: skip
    if pruned:
        columns = (
            "training step", "keeps", "rank correlation with the end", "best trial lost",
            "trials stopped",
        )  # fmt: skip
        print_table("pruning: share of searches, and of trials", columns, pruned)
    chosen = simulation.selection
    if chosen.searches:
        costs = (chosen.shown_cost, chosen.true_cost, chosen.corrected_cost)
        print_table(
            f"the best of {chosen.trials} trials, {unit} per 1,000 photos",
            ("shown by itself", "true", "corrected for the choice"),
            [[f"{one:.0f}" for one in costs]],
        )
    final = [
        (
            f"{share:.0%} of the target, {share * target:.0f} per 1,000",
            f"{one.passed:.0%}",
            f"{one.failed:.0%}",
            f"{one.held:.0%}",
        )
        for share, one in simulation.final.by_share_of_target.items()
    ]
    if final:
        print_table(
            "final evaluation: share of searches",
            (f"true cost in {unit}", "PASS", "FAIL", "INSUFFICIENT"),
            final,
        )


def _unit(one: SliceOdds) -> str:
    return "points missed" if one.measure == "miss_rate" else "% cost"


def _words(odds: Odds) -> str:
    return f"{odds.passed:.0%} / {odds.failed:.0%} / {odds.held:.0%}"
