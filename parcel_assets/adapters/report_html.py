"""Draws a packet's report: one HTML file that needs nothing else and can be read for years.

Decides the order of the page and what each chapter says; values come from the packet's other files
alone, so the report can be drawn again from any packet. Everything shown is escaped where it is
put together (`report_html_tags`).
"""

from typing import Any

from parcel_assets.adapters import report_html_first as first
from parcel_assets.adapters.report_html_charts import (
    CostRow,
    cost_rows,
    learning_curves,
    slice_interval,
    threshold_curve,
)
from parcel_assets.adapters.report_html_parts import (
    STYLES,
    Packet,
    cell,
    chip,
    open_packet,
    picture,
    read_table,
    section,
    short_code,
    shown,
    signed,
    table,
)
from parcel_assets.adapters.report_html_style import STYLE
from parcel_assets.adapters.report_html_tags import Markup, join, raw, tag
from parcel_assets.core.packet import ATTEMPTS_FILE, CROISSANT_FILE, Files, read_json, read_rows

# nothing may be fetched, whatever an escaped text contains
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
MISHAPS_SHOWN = 12
CHAPTERS = (
    ("first-page", "First page"),
    ("cost", "Cost"),
    ("search", "Search"),
    ("slices", "Slices"),
    ("pictures", "Data and pictures"),
    ("final", "Final evaluation"),
    ("verify", "Verify"),
)


def render_report(files: Files) -> bytes:
    """Return report.html for a packet's other files; raises KeyError where one is absent."""
    packet = open_packet(files)
    body = [
        _head(packet),
        first.banner(packet),
        first.waiver(packet),
        tag("section", tag("h2", "At a glance"), _about_first(packet), first.first_page(packet),
            id="first-page"),
        _cost(packet),
        _search(packet),
        _slices(packet),
        _pictures(packet),
        _final(packet),
        _verify(packet),
        _foot(packet),
    ]  # fmt: skip
    title = f"{packet.verdict['revision']}: {packet.verdict['verdict']}"
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", title),
        tag("style", raw(STYLE)),
    ]
    page = tag("html", tag("head", head), tag("body", tag("main", body)), lang="en")
    return f"<!doctype html>\n{page}\n".encode()


def _head(packet: Packet) -> Markup:
    counts = packet.page["counts"]
    links = [tag("a", words, href=f"#{anchor}") for anchor, words in CHAPTERS]
    return tag(
        "header",
        tag("div", "Release packet of the search revision", class_="over"),
        tag("h1", packet.verdict["revision"]),
        tag("p", packet.plan["purpose"], class_="lead", style="margin:10px 0 0"),
        tag("p", f"{counts['photos']['value']:,} photos of {counts['shipments']['value']:,} "
            f"shipments in the archive {packet.plan['snapshot']['archive']}. One missed damage "
            f"costs {packet.plan['metric']['missed_damage']:g} {packet.unit}, one needless review "
            f"{packet.plan['metric']['needless_review']:g}.",
            class_="soft", style="margin-top:8px"),
        tag("nav", links),
    )  # fmt: skip


def _about_first(packet: Packet) -> Markup:
    return tag("p", _summary(packet), class_="lead", style="margin:6px 0 18px")


def _summary(packet: Packet) -> str:
    """Return the result in three sentences, claiming no difference that its interval does not."""
    numbers, paired = (
        packet.rerun["validation"],
        packet.rerun["validation"].get("against_reference"),
    )
    cost, base = numbers["cost_per_1000"], packet.rerun["reference_validation"]["cost_per_1000"]
    trivial = min(packet.rerun["trivial_cost_per_1000"].values())
    words = (
        f"On validation the released model costs {cost:.0f} {packet.unit} per 1,000 photos; the "
        f"better of reviewing everything and nothing costs {trivial:.0f}, the model in use "
        f"{base:.0f}. "
    )
    if paired:
        low, high = paired["lower"], paired["upper"]
        span = f"{signed(paired['difference'])} per 1,000 ({signed(low)} to {signed(high)})"
        if high < 0:
            words += f"Photo by photo it is cheaper than the model in use: {span}. "
        elif low > 0:
            words += f"Photo by photo it is dearer than the model in use: {span}. "
        else:
            words += f"No difference to the model in use is shown: {span}. "
    return words + "Hover a number to see the file and place it was read from."


# ---- cost ----------------------------------------------------------------------------------------


def _cost(packet: Packet) -> Markup:
    points = [
        (float(row["threshold"]), float(row["cost_per_1000"]))
        for row in read_table(packet.files, "selection/cost_curve.csv")
    ]
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
        "being "
        "low, so the corrected estimate beside it is the one to expect on new shipments; bars are "
        "one-sided 95 % bounds over shipments.",
        tag("figure", tag("div", cost_rows(_cost_lines(packet),
            packet.plan["final"]["target_cost_per_1000"]), class_="scroll")),
        tag("p", words, class_="soft"),
        tag("h3", "Threshold", style="margin-top:26px"),
        tag("figure", tag("div", threshold_curve(points, float(packet.rerun["threshold"])),
            class_="scroll"),
            tag("figcaption", "Frozen at selection, before any slice or the holdout was looked "
                "at. Each step along the axis holds equally many photos. ",
                tag("a", "selection/cost_curve.csv", href="selection/cost_curve.csv"))),
    )  # fmt: skip


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
            numbers["upper_bound_guarded"], "accent", "validation, as chosen: too good",
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
            CostRow("Released model", final["cost_per_1000"], final["lower_bound"],
                    final["upper_bound_guarded"], style, "final holdout, opened once")
        )  # fmt: skip
    return rows


# ---- search --------------------------------------------------------------------------------------


def _search(packet: Packet) -> Markup:
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
    levels = [("model in use", float(packet.rerun["reference"]["cost_per_1000"]))]
    search = packet.plan["search"]
    about = (
        f"{search['budget_trials']} trials by the sampler {search['sampler']}, seed "
        f"{search['seed']}, in batches of {search['batch_trials']}. Values are compared only at "
        "the "
        f"same milestone; {len(pruned)} trials were stopped there (crosses), against cut tables "
        "frozen before their batch began."
    )
    return section(
        "search",
        "The search",
        about,
        tag("figure", tag("div", learning_curves(
            curves, winner=packet.verdict["selected_trial"], pruned=pruned,
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
            class_="won" if trial["trial_id"] == packet.verdict["selected_trial"] else None,
        )
        for trial in packet.trials
    ]  # fmt: skip
    return table(heads, rows)


def _cost_words(cost: float | None) -> str:
    return "" if cost is None else f"{cost:.1f}"


# ---- slices and pictures -------------------------------------------------------------------------


def _slices(packet: Packet) -> Markup:
    heads = [("slice", False), ("role", False), ("outcome", False), ("shipments", True),
             ("damaged", True), ("released", True), ("in use", True), ("difference", True),
             ("in margins: better ← 0 → worse", False)]  # fmt: skip
    rows: list[Markup] = []
    for one in packet.slices["slices"]:
        style = STYLES[one["outcome"]]
        unit = " %" if one["measure"] == "miss_rate" else ""
        rows.append(
            tag("tr", tag("td", tag("b", one["name"])), cell(one["role"]), tag("td",
                chip(one["outcome"])), cell(one["shipments"], is_number=True),
                cell(one["damaged_photos"], is_number=True),
                cell(_amount(one["candidate"], unit), is_number=True),
                cell(_amount(one["reference"], unit), is_number=True),
                _difference_cell(one, " pp" if unit else ""),
                tag("td", tag("div", slice_interval(one, style), style="width:200px")),
                class_="joined")
        )  # fmt: skip
        rows.append(
            tag(
                "tr",
                tag("td", one["sentence"].removeprefix(f"{one['name']}: "), colspan=len(heads)),
                class_="words",
            )
        )
    return section(
        "slices",
        "Slice by slice",
        "The released model against the model in use, on the same validation shipments, each at "
        "its "
        "own threshold: missed damage where the slice is a kind of damage, else cost per 1,000. "
        "PASS needs proof of being no worse within the margin (shaded); too little evidence is "
        "INSUFFICIENT, which is not a pass.",
        table(heads, rows),
    )


def _difference_cell(one: dict[str, Any], unit: str) -> Markup:
    """Return the difference on a tint: greener the better, redder the worse, full at one margin."""
    value, tint = one["difference"], None
    if value is not None and one["margin"]:
        share = min(abs(value) / one["margin"], 1.0)
        colour = "bad" if value > 0 else "good"
        tint = f"background:color-mix(in srgb, var(--{colour}) {30 * share:.0f}%, transparent)"
    words = _amount(value, unit, sign=True)
    return tag("td", words, class_="number", style=tint)


def _amount(value: float | None, unit: str, *, sign: bool = False) -> str:
    if value is None:
        return "not known"
    return f"{signed(value, 1) if sign else format(value, '.1f')}{unit}"


def _pictures(packet: Packet) -> Markup:
    worst = picture(
        packet.files, "slices/worst_sheet.png",
        "Missed damage on validation, most confidently missed first.",
    )  # fmt: skip
    contact = picture(
        packet.files, "data/contact_sheet.png", "Training photos by type of damage, as the model "
        "sees them.",
    )  # fmt: skip
    return section(
        "pictures",
        "Data and pictures",
        "Shipments, not photos, were assigned to the parts, so no shipment is seen twice. Of the "
        "holdout nothing is shown: no picture and no label.",
        _parts(packet),
        tag(
            "div",
            tag("div", tag("h3", "Worst pictures"), worst or tag("p", "No damage was missed.")),
            tag("div", tag("h3", "Contact sheet"), contact),
            class_="pair",
        ),
    )


def _parts(packet: Packet) -> Markup:
    parts = read_json(packet.files, CROISSANT_FILE)["parcel_assets"]["parts"]
    heads = [("part", False), ("shipments", True), ("photos", True)]
    rows = [
        tag("tr", cell(name), cell(f"{one['shipments']:,}", is_number=True),
            cell(f"{one['photos']:,}", is_number=True))
        for name in ("train", "validation", "holdout")
        for one in [parts[name]]
    ]  # fmt: skip
    return tag("div", table(heads, rows), style="max-width:420px;margin-bottom:24px")


# ---- final and verification ----------------------------------------------------------------------


def _final(packet: Packet) -> Markup:
    final, result = packet.final, packet.final["result"]
    levels = packet.verdict["evidence_level_means"]
    rows: list[tuple[str, Any]] = [
        ("Outcome", join(chip(str(final["outcome"]).lower()), " ", final["sentence"])),
        ("Model judged", short_code(final["model"])),
        ("Threshold", f"{final['threshold']:.6g}"),
        ("Opening", join("event ", short_code(final["opened_event"]), " · ",
            tag("a", "final/opening.json", href="final/opening.json"))),
        ("Predictions", short_code(final["predictions_digest"])),
        ("Holdout", join(short_code(final["holdout_digest"]),
            f", {final['reused_shipments']} shipments of it opened before")),
        ("Evidence level", f"{final['evidence_level']}: {levels}. Whoever holds the keys of this "
            "machine could have looked earlier; names in decisions are self-declared."
            if final["evidence_level"] == "L1" else f"{final['evidence_level']}: {levels}."),
    ]  # fmt: skip
    if result.get("area_under_curve") is not None:
        rows.insert(1, ("Area under curve", f"{result['area_under_curve']:.3f}"))
    sentences = [tag("li", one["sentence"]) for one in result.get("slices", [])]
    return section(
        "final",
        "The final evaluation",
        "The holdout was sealed at the split and opened once, after the selection was frozen, for "
        "exactly one model. Its result chooses nothing: it only meets the target or does not.",
        tag("dl", [join(tag("dt", name), tag("dd", words)) for name, words in rows]),
        tag("details", tag("summary", "The slices on the holdout"), tag("ul", sentences),
            open="") if sentences else None,
    )  # fmt: skip


def _verify(packet: Packet) -> Markup:
    commands = (
        "openssl dgst -sha256 -verify release_key.pem -signature SHA256SUMS.sig SHA256SUMS\n"
        "sha256sum --check --strict --quiet SHA256SUMS\n"
        "openssl pkey -pubin -in release_key.pem -outform DER | sha256sum"
    )
    head = packet.verdict["ledger_head"]
    rows = [
        ("Release key", tag("code", packet.verdict["signed_by"])),
        ("Plan", tag("code", packet.verdict["plan_digest"])),
        ("Snapshot", tag("code", _snapshot_digest(packet))),
        ("Model", tag("code", packet.verdict["model_digest"])),
        ("Ledger", join(f"event {head['sequence']}, ", tag("code", head["digest"]))),
    ]
    return section(
        "verify",
        "Verify this packet",
        "With no tool of ours, in the packet's folder. The last line prints the fingerprint of the "
        "key; compare it with the one you were given on another way.",
        tag("pre", commands),
        tag("p", "With ours, also everything that must agree inside: ",
            tag("code", "parcel-assets packet verify FOLDER"), "."),
        tag("dl", [join(tag("dt", name), tag("dd", words)) for name, words in rows]),
    )  # fmt: skip


def _snapshot_digest(packet: Packet) -> str:
    described = read_json(packet.files, CROISSANT_FILE)
    return str(described["parcel_assets"]["snapshot_digest"])


def _foot(packet: Packet) -> Markup:
    links = ("VERDICT.json", "README.md", "model_card.md", "plan.json", "environment.json")
    listed = [
        join(" · " if place else "", tag("a", one, href=one)) for place, one in enumerate(links)
    ]
    return tag("footer", f"{packet.verdict['format']} · ", listed)
