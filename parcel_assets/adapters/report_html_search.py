"""The report's chapters on cost and search: what the candidate costs and how it was found."""

from typing import Any

from parcel_assets.adapters.report_html_charts import (
    CostRow,
    cost_rows,
    learning_curves,
    threshold_curve,
)
from parcel_assets.adapters.report_html_parts import (
    STYLES,
    Packet,
    cell,
    chosen_trial,
    read_table,
    section,
    shown,
    table,
)
from parcel_assets.adapters.report_html_tags import Markup, join, tag
from parcel_assets.core.packet import ATTEMPTS_FILE, read_rows
from parcel_assets.core.statistics import cost_words

MISHAPS_SHOWN = 12


def cost_chapter(packet: Packet) -> Markup:
    """Return costs side by side, the tie set and the frozen threshold."""
    points = [
        (float(row["threshold"]), float(row["cost_per_1000"]))
        for row in read_table(packet.files, "selection/cost_curve.csv")
    ]
    steady = packet.rerun["validation"].get("threshold_interval")
    about = ""
    if steady is not None:
        about = (
            f"Thresholds from {steady['low']:.4g} to {steady['high']:.4g} cost the same within one "
            "paired standard error: the validation shipments do not tell them apart. "
        )
    shown_as = packet.rerun["validation"].get("display_interval")
    around = ""
    if shown_as is not None:
        around = (
            f" Resampling whole shipments puts the winner's cost on validation between "
            f"{shown_as['low']:.0f} and {shown_as['high']:.0f} (95 %), its choice not counted."
        )
    ties = packet.rerun["tie_set"]
    words = "No other trial lies within one paired standard error of the winner."
    if len(ties) > 1:
        words = (
            f"{len(ties)} trials lie within one paired standard error of each other: "
            f"{', '.join(ties[:12])}{' …' if len(ties) > 12 else ''}. The rule of the plan, not a "
            "person, took the first."
        )
    return section(
        "cost",
        "What it costs",
        f"{packet.unit.capitalize()} per 1,000 photos. The winner's own number was chosen for "
        f"being low: it is no quality claim. {_expected_words(packet)} Bars are one-sided 95 % "
        "bounds over shipments.",
        tag("figure", tag("div", cost_rows(_cost_lines(packet),
            packet.plan["final"]["target_cost_per_1000"]), class_="scroll")),
        _rates(packet),
        tag("p", words + around, class_="soft"),
        tag("h3", "Threshold", style="margin-top:26px"),
        tag("figure", tag("div", threshold_curve(points, float(packet.rerun["threshold"])),
            class_="scroll"),
            tag("figcaption", "Frozen at selection, before any slice or the holdout was looked "
                "at. Each step along the axis holds equally many photos. ", about,
                tag("a", "selection/cost_curve.csv", href="selection/cost_curve.csv"))),
    )  # fmt: skip


def _expected_words(packet: Packet) -> str:
    """Return what to expect of the winner on new shipments, or that nobody knows."""
    corrected = packet.rerun["corrected_cost"]
    if corrected is not None:
        return (
            f"The corrected one, {corrected['mean']:.0f}, is what to expect on new shipments: in "
            "each of many resamples the choice of trial and threshold was made again, and scored "
            "on the shipments left out."
        )
    if packet.rerun["slice_informed"]:
        return "It was not corrected, as a person chose this trial."
    return "The shipments are too few to correct it, so no cost can be expected from it."


def _rates(packet: Packet) -> Markup:
    """Return what both models and both plain policies miss and send to review on validation."""
    heads = [("on validation", False), ("missed, of damage", True), ("reviewed, of photos", True),
             ("missed per 1,000", True), ("reviews per 1,000", True)]  # fmt: skip
    own, reference = packet.rerun["validation"], packet.rerun["reference_validation"]
    damaged_per_1000 = 1000 * own["damaged_photos"] / own["photos"]
    lines = [
        (f"winner {packet.rerun['selected_trial']}", own),
        ("model in use", reference),
        ("review everything", {"miss_rate": 0.0, "review_rate": 1.0, "missed_per_1000": 0.0,
                               "reviewed_per_1000": 1000.0}),
        ("review nothing", {"miss_rate": 1.0, "review_rate": 0.0,
                            "missed_per_1000": damaged_per_1000, "reviewed_per_1000": 0.0}),
    ]  # fmt: skip
    rows = [
        tag("tr", cell(name), cell(_counted_rate(one), is_number=True),
            cell(f"{one['review_rate']:.1%}", is_number=True),
            cell(f"{one['missed_per_1000']:.1f}", is_number=True),
            cell(f"{one['reviewed_per_1000']:.0f}", is_number=True))
        for name, one in lines
    ]  # fmt: skip
    return tag("div", table(heads, rows), style="max-width:760px;margin:8px 0 18px")


def _counted_rate(one: dict[str, Any]) -> str:
    if "missed" not in one:
        return f"{one['miss_rate']:.0%}"
    return f"{one['miss_rate']:.1%} ({one['missed']} of {one['damaged_photos']})"


def _cost_lines(packet: Packet) -> list[CostRow]:
    rerun, final = packet.rerun, packet.final["result"]
    trivial, numbers = rerun["trivial_cost_per_1000"], rerun["validation"]
    reference = rerun["reference_validation"]
    rows = [
        CostRow("Review nothing", trivial["review_none"], remark="validation"),
        CostRow("Review everything", trivial["review_all"], remark="validation"),
        CostRow(
            "Model in use", reference["cost_per_1000"], reference["lower_bound"],
            reference["upper_bound_guarded"],
            remark=f"validation · {packet.plan['reference']['name']}",
        ),
        CostRow(
            f"Winner {rerun['selected_trial']}", numbers["cost_per_1000"], numbers["lower_bound"],
            numbers["upper_bound_guarded"], "accent", "validation, no quality claim",
        ),
    ]  # fmt: skip
    corrected = rerun["corrected_cost"]
    if corrected is not None:
        rows.append(
            CostRow("Winner, corrected", corrected["mean"], corrected["low"], corrected["high"],
                    "accent", "for having been chosen, 5 to 95 %")
        )  # fmt: skip
    if "cost_per_1000" in final:
        style = STYLES[str(packet.final["outcome"]).lower()]
        rows.append(
            CostRow("Candidate", final["cost_per_1000"], final["lower_bound"],
                    final["upper_bound_guarded"], style, "final holdout, opened once")
        )  # fmt: skip
    return rows


def search_chapter(packet: Packet) -> Markup:
    """Return all learning curves, what went wrong on the way, and every trial."""
    known = {trial["trial_id"]: trial for trial in packet.trials}
    curves = {
        name: sorted((int(step), float(cost)) for step, cost in trial["costs"].items()
                     if cost is not None)
        for name, trial in known.items() if trial["costs"]
    }  # fmt: skip
    pruned = {
        name: max(int(step) for step in trial["costs"])
        for name, trial in known.items()
        if trial["state"] == "pruned" and trial["costs"]
    }
    levels = []
    if packet.rerun:
        levels.append(("model in use", float(packet.rerun["reference"]["cost_per_1000"])))
    search = packet.plan["search"]
    about = (
        f"{search['budget_trials']} trials by the sampler {search['sampler']}, seed "
        f"{search['seed']}, in batches of {search['batch_trials']}. Values are compared only at "
        "the same milestone, against cut tables frozen before the batch began; "
    )
    stopped = (
        f"{len(pruned)} trials were stopped there (crosses)." if pruned else "none was stopped."
    )
    about += stopped
    return section(
        "search",
        "The search",
        about,
        tag("figure", tag("div", learning_curves(
            curves, winner=chosen_trial(packet), pruned=pruned,
            milestones=packet.plan["training"]["milestones"], levels=levels), class_="scroll"),
            tag("figcaption", "Each line is one trial; the winner is drawn strong. ",
                tag("a", "search/curves.csv", href="search/curves.csv"), " · ",
                tag("a", "search/prune_decisions.jsonl", href="search/prune_decisions.jsonl"))),
        _mishaps(packet),
        tag("details", tag("summary", f"All {len(packet.trials)} trials"), _trial_table(packet)),
    )  # fmt: skip


def _mishaps(packet: Packet) -> Markup | None:
    """Return the attempts that did not end as a trial should, and why."""
    rows = [
        row
        for row in read_rows(packet.files, ATTEMPTS_FILE)
        if row["state"] not in {"completed", "pruned"}
    ]
    if not rows:
        return None
    items = [
        tag("li", tag("b", row["state"]), " ", tag("code", row["attempt"]),
            f" at step {row['step']}: {row['reason'] or 'no reason given'}")
        for row in rows[:MISHAPS_SHOWN]
    ]  # fmt: skip
    rest = len(rows) - len(items)
    return join(
        tag("h3", "What went wrong on the way", style="margin-top:22px"),
        tag("ul", items, tag("li", f"and {rest} more") if rest else None, class_="small"),
    )


def _trial_table(packet: Packet) -> Markup:
    knobs = sorted({name for trial in packet.trials for name in trial["configuration"]})
    steps = [str(step) for step in packet.plan["training"]["milestones"]]
    heads = [("trial", False), ("state", False), *((f"step {step}", True) for step in steps)]
    heads += [(name.replace("_", " "), True) for name in knobs]
    rows = [
        tag(
            "tr",
            cell(trial["trial_id"]),
            cell(trial["state"]),
            [cell(_cost_words(trial["costs"].get(step)), is_number=True) for step in steps],
            [cell(shown(trial["configuration"].get(name, ""), ".3g"), is_number=True)
             for name in knobs],
            class_="won" if trial["trial_id"] == chosen_trial(packet) else None,
        )
        for trial in packet.trials
    ]  # fmt: skip
    return table(heads, rows)


def _cost_words(cost: float | None) -> str:
    return "" if cost is None else cost_words(cost, None)  # a trial's misses are not on record
