"""The report's first page: the verdict and the six things that a release must tell at a glance."""

from typing import Any

from parcel_assets.adapters.report_html_charts import (
    STATES,
    rerun_strip,
    share_bar,
    trial_squares,
)
from parcel_assets.adapters.report_html_parts import (
    Packet,
    card,
    chip,
    chosen_trial,
    duration,
    figure_of,
    number,
    short_code,
    shown,
    source_of,
)
from parcel_assets.adapters.report_html_tags import Markup, join, tag
from parcel_assets.core.packet import (
    ATTEMPTS_FILE,
    LINEAGE_FILE,
    PLAN_FILE,
    PURPOSES,
    SERVING_FILE,
    TRIALS_FILE,
    evidence_file,
)
from parcel_assets.core.stage import Stage
from parcel_assets.core.statistics import MISSES_FOR_A_DECIMAL

PURPOSE_WORDS = {
    "search": "search",
    "rerun": "reruns",
    "reference": "reference",
    "final": "final evaluation",
}
OUTCOME_ORDER = ("fail", "insufficient", "pass")
SLICES_SHOWN = 10


def closed_page(packet: Packet) -> Markup:
    """Return the cards of a closed search: those that it came to."""
    page = packet.page
    return tag(
        "div",
        _counts(packet),
        _compute(packet),
        _lineage(packet) if "winner" in page else None,
        _rerun(packet) if "rerun" in page else None,
        _slices(packet) if "slices" in page else None,
        class_="cards",
    )


def first_page(packet: Packet) -> Markup:
    """Return the six cards."""
    return tag(
        "div",
        _counts(packet),
        _compute(packet),
        _lineage(packet),
        _rerun(packet),
        _slices(packet),
        _serving(packet),
        class_="cards",
    )


def _counts(packet: Packet) -> Markup:
    counts = packet.page["counts"]
    trials, attempts = counts["trials"], counts["attempts"]["search"]
    present = [state for state in STATES if trials[state]["value"]]
    legend = [
        tag("li", tag("i", class_=f"b-{state}"), number(trials[state]), f" {state}")
        for state in present
    ]
    sum_words = " + ".join(f"{trials[state]['value']} {state}" for state in present)
    parts = [f"{one['value']} {state}" for state, one in attempts.items() if state != "total"]
    shown_parts = [words for words in parts if not words.startswith("0 ")]
    return card(
        "Trials and attempts",
        tag(
            "div",
            number(trials["total"]),
            tag("small", " of ", number(counts["budget_trials"]), " trial slots accounted for"),
            class_="big",
        ),
        tag("div", trial_squares(packet.trials, chosen_trial(packet)),
            style="margin:12px 0 2px"),
        tag("ul", legend, class_="legend"),
        tag("p", f"{sum_words} = {trials['total']['value']}, the whole budget. ",
            "The ringed square is the one chosen." if chosen_trial(packet) else None, class_="sum"),
        tag("p", number(counts["unstarted_trials"]), " of the slots were never started; the search "
            "ended: ", number(counts["ended"]), ".", class_="sum"),
        tag("p", tag("b", number(attempts["total"]), " attempts"), " at these trials: ",
            ", ".join(shown_parts), f" = {attempts['total']['value']}.", class_="sum",
            title=source_of(attempts["total"])),
        sources=(TRIALS_FILE, ATTEMPTS_FILE, PLAN_FILE),
    )  # fmt: skip


def _compute(packet: Packet) -> Markup:
    compute = packet.page["compute"]
    charged = compute["charged_seconds"]
    cap = float(compute["cap_accelerator_hours"]["value"]) * 3600
    total = float(charged["total"]["value"])
    parts = [(name, float(charged[name]["value"])) for name in PURPOSES]
    legend = [
        tag("li", tag("i", class_=f"b-{name}"),
            tag("data", duration(seconds), value=str(seconds), title=source_of(charged[name])),
            f" {PURPOSE_WORDS[name]}")
        for name, seconds in parts
    ]  # fmt: skip
    left = max(cap - total, 0.0)
    legend.append(tag("li", tag("i", class_="b-left"), f"{duration(left)} not used"))
    listed = " + ".join(f"{seconds:.1f}" for _, seconds in parts)
    saved, done = compute["steps_saved_by_pruning"], compute["steps_trained"]
    undone, trained = float(saved["value"] or 0), float(done["value"] or 0)
    saving = undone / ((undone + trained) or 1.0)
    return card(
        "Compute, charged against the cap",
        tag("div", tag("data", duration(total), value=str(total),
            title=source_of(charged["total"])),
            tag("small", " accelerator time of ", number(compute["cap_accelerator_hours"], "g"),
                f" h allowed ({100 * total / cap:.0f} %)"), class_="big"),
        tag("div", share_bar(parts, cap), style="margin:14px 0 4px"),
        tag("ul", legend, class_="legend"),
        tag("p", f"{listed} = {total:.1f} accelerator-seconds.", class_="sum"),
        tag("p", "Pruning left ", number(saved), f" of {undone + trained:.0f} training "
            f"steps undone, a saving of {100 * saving:.0f} %. An accelerator-second is one worker "
            "slot for "
            "one second of the ledger's clock.", class_="sum soft"),
        sources=(ATTEMPTS_FILE, evidence_file(Stage.SEARCH), PLAN_FILE),
    )  # fmt: skip


def _lineage(packet: Packet) -> Markup:
    winner = packet.page["winner"]
    steps = [
        tag("li", tag("b", number(winner["trial_id"])), ", seed ", number(winner["seed"]),
            tag("div", _configuration(winner["configuration"]["value"]), class_="small soft"))
    ]  # fmt: skip
    steps += [_attempt(one) for one in winner["attempts"]]
    steps += [
        tag("li", "Rerun from the pinned snapshot, fresh process: ",
            tag("code", number(winner["released_attempt"])),
            tag("div", "parent checkpoint: ",
                shown(winner["released_parent_checkpoint"]["value"] or "none"),
                ", as it must be", class_="small soft")),
        tag("li", "Weights ", short_code(winner["model"]["value"]),
            " at threshold ", number(winner["threshold"], ".4f"), class_="end"),
    ]  # fmt: skip
    intact = winner["lineage_ok"]["value"] is True
    return card(
        "Winner lineage" if packet.verdict["selected_trial"] else "Lineage of the one turned down",
        tag("ol", steps, class_="chain"),
        tag("p", "Lineage intact." if intact else "Lineage NOT intact.",
            class_=f"sum {'good' if intact else 'bad'}"),
        sources=(LINEAGE_FILE, evidence_file(Stage.RERUN)),
    )  # fmt: skip


def _attempt(attempt: dict[str, Any]) -> Markup:
    saved = [
        join(", " if place else "", f"step {one['step']['value']} ", short_code(
            one["checkpoint"]["value"]))
        for place, one in enumerate(attempt["checkpoints"])
    ]  # fmt: skip
    resumed = attempt["resume_step"]["value"]
    words = f"resumed at step {resumed} from " if resumed else "started from nothing"
    parent = short_code(attempt["parent_checkpoint"]["value"]) if resumed else None
    return tag(
        "li", "Attempt ", tag("code", number(attempt["attempt"])), ": ",
        number(attempt["state"]), ", ", words, parent,
        tag("div", "checkpoints: ", saved or "none", class_="small soft"),
    )  # fmt: skip


def _configuration(values: dict[str, Any]) -> str:
    return " · ".join(
        f"{name.replace('_', ' ')} {shown(one, '.4g')}" for name, one in values.items()
    )


def _rerun(packet: Packet) -> Markup:
    rerun = packet.page["rerun"]
    extra = [float(one["cost_per_1000"]) for one in packet.rerun["extra"]]
    mean, reach = rerun["mean"]["value"], rerun["tolerance"]["value"]
    equal = rerun["scores_equal"]["value"] is True
    # a decimal only where the candidate's misses carry one
    form = f".{int(packet.rerun['validation']['missed'] >= MISSES_FOR_A_DECIMAL)}f"
    words = "Same seed, same scores: the rerun repeats the search to the last digit."
    if not equal:
        words = "The rerun's scores differ from the search's by at most "
        words += f"{rerun['largest_score_difference']['value']:.2g}."
    return card(
        "Rerun tolerance",
        tag(
            "div",
            figure_of("candidate", number(rerun["own_cost_per_1000"], form)),
            figure_of(f"mean of {len(extra)} extra seeds", number(rerun["mean"], form)),
            figure_of("tolerance", join("± ", number(rerun["tolerance"], form))),
            class_="figures",
        ),
        rerun_strip(
            float(rerun["own_cost_per_1000"]["value"]),
            extra,
            float(packet.rerun["selected_cost_per_1000"]),
            mean,
            reach,
        ),
        tag("p", words, class_="sum", title=rerun["scores_equal"]["source"]),
        tag("p", number(rerun["sentence"]), class_="sum soft"),
        tag("p", "Cost per 1,000 photos on validation.", class_="small soft"),
        sources=(evidence_file(Stage.RERUN), "rerun/rerun.json"),
    )


def _slices(packet: Packet) -> Markup:
    page = packet.page["slices"]
    ordered = sorted(
        page["slices"],
        key=lambda one: (
            one["role"]["value"] != "protected",
            OUTCOME_ORDER.index(one["outcome"]["value"]),
        ),
    )
    items = [
        tag("li", chip(str(one["outcome"]["value"])),
            tag("div", number(one["sentence"]),
                tag("span", " · protected", class_="soft small")
                if one["role"]["value"] == "protected" else None))
        for one in ordered[:SLICES_SHOWN]
    ]  # fmt: skip
    rest = len(ordered) - len(items)
    passed = page["protected_passed"]["value"] is True
    is_any = any(one["role"]["value"] == "protected" for one in ordered)
    words = "Every protected slice passes." if passed else "A protected slice does not pass."
    style = "good" if passed else "bad"
    if not is_any:
        words, style = "The plan protects no slice: all are monitored, none can hold.", "soft"
    return card(
        "Slices against the model in use",
        tag("p", words,
            class_=f"lead {style}", title=page["protected_passed"]["source"]),
        tag("ul", items, class_="slices"),
        tag("p", tag("a", f"and {rest} more monitored slices" if rest > 0 else "all in detail",
            href="#slices"), class_="small"),
        sources=(evidence_file(Stage.SLICES),),
        wide=True,
    )  # fmt: skip


def _serving(packet: Packet) -> Markup:
    serving = packet.page["serving"]
    conditions = serving["conditions"]["value"]
    memory = float(serving["peak_memory_bytes"]["value"]) / 2**20
    listed = (
        f"{conditions['request']}. {conditions['processor']}, {conditions['threads']} thread of "
        f"{conditions['processors']} processors, load {conditions['load_average_at_start']} at the "
        f"start, torch {conditions['torch']}; {serving['requests']['value']} requests."
    )
    noisy = serving["noisy"]["value"] is True
    return card(
        "Serving estimate",
        tag(
            "div",
            figure_of("one photo, median", number(serving["latency_p50_ms"]), "ms"),
            figure_of("95 % within", number(serving["latency_p95_ms"]), "ms"),
            figure_of("in batches of 16", number(serving["batch_photos_per_second"], ".0f"), "/s"),
            figure_of("peak memory", tag("data", f"{memory:.0f}", value=str(memory),
                title=serving["peak_memory_bytes"]["source"]), "MiB"),
            figure_of("model file", f"{serving['model_bytes']['value'] / 1024:.0f}", "KiB"),
            figure_of("load", number(serving["load_seconds"], ".2f"), "s"),
            class_="figures",
        ),
        tag("p", number(serving["sentence"]), title=serving["replicas"]["source"]),
        tag("p", "The reading was noisy: its thirds differ by more than 10 %.", class_="wait sum")
        if noisy else None,
        tag("p", listed, class_="small soft"),
        sources=(SERVING_FILE, "environment.json"),
        wide=True,
    )  # fmt: skip
