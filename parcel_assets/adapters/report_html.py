"""Draws a packet's report: one HTML file that needs nothing else and can be read for years.

Decides the order of the page and what each chapter says; values come from the packet's other files
alone, so the report can be drawn again from any packet. Everything shown is escaped where it is
put together (`report_html_tags`).
"""

from typing import Any

from parcel_assets.adapters import report_html_first as first
from parcel_assets.adapters.report_html_closed import closed_body
from parcel_assets.adapters.report_html_parts import (
    Packet,
    chip,
    open_packet,
    section,
    short_code,
    signed,
)
from parcel_assets.adapters.report_html_search import cost_chapter, search_chapter
from parcel_assets.adapters.report_html_slices import pictures_chapter, slices_chapter
from parcel_assets.adapters.report_html_style import STYLE
from parcel_assets.adapters.report_html_tags import Markup, join, raw, tag
from parcel_assets.adapters.report_html_verdict import banner, decisions
from parcel_assets.core.packet import CLOSED, CROISSANT_FILE, Files, read_json
from parcel_assets.core.packet_text import reuse_words

# nothing may be fetched, whatever an escaped text contains
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
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
    body = [_head(packet), *_chapters(packet), _verify(packet), _foot(packet)]
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


def _chapters(packet: Packet) -> list[Markup | None]:
    if packet.verdict["verdict"] == CLOSED:
        return closed_body(packet)
    return [
        banner(packet),
        decisions(packet),
        tag("section", tag("h2", "At a glance"), _about_first(packet), first.first_page(packet),
            id="first-page"),
        cost_chapter(packet),
        search_chapter(packet),
        slices_chapter(packet),
        pictures_chapter(packet),
        _final(packet),
    ]  # fmt: skip


def _head(packet: Packet) -> Markup:
    counts = packet.page["counts"]
    is_closed = packet.verdict["verdict"] == CLOSED
    chapters = [one for one in CHAPTERS if not is_closed or one[0] in _closed_chapters(packet)]
    links = [tag("a", words, href=f"#{anchor}") for anchor, words in chapters]
    over = (
        "Record of the closed search revision"
        if is_closed
        else "Release packet of the search revision"
    )
    return tag(
        "header",
        tag("div", over, class_="over"),
        tag("h1", packet.verdict["revision"]),
        tag("p", packet.plan["purpose"], class_="lead", style="margin:10px 0 0"),
        tag("p", f"{counts['photos']['value'] or 0:,} photos of "
            f"{counts['shipments']['value'] or 0:,} shipments in the archive "
            f"{packet.plan['snapshot']['archive']}. One missed damage costs "
            f"{packet.plan['metric']['missed_damage']:g} {packet.unit}, one needless review "
            f"{packet.plan['metric']['needless_review']:g}.",
            class_="soft", style="margin-top:8px"),
        tag("nav", links),
    )  # fmt: skip


def _closed_chapters(packet: Packet) -> set[str]:
    reached = {"first-page", "search", "verify"}
    reached |= {"slices"} if packet.slices else set()
    return reached | ({"pictures"} if CROISSANT_FILE in packet.files else set())


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
    corrected = packet.rerun["corrected_cost"]
    mended = (
        f" as chosen, {corrected['mean']:.0f} once corrected for having been chosen"
        if corrected
        else ""
    )
    words = (
        f"On validation the candidate costs {cost:.0f} {packet.unit} per 1,000 photos{mended}; the "
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
            words += f"Whether it costs less than the model in use is not shown: {span}. "
    return words + "Hover a number to see the file and place it was read from."


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
            f", {final['reused_shipments']} shipments of it opened before. ", reuse_words(final))),
        ("Evidence level", f"{final['evidence_level']}: {levels}. Whoever holds the keys of this "
            f"machine could have looked earlier; {_names(packet)}."
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


def _names(packet: Packet) -> str:
    if packet.plan.get("approvers"):
        return "decisions are signed with keys that the plan lists"
    return "names in decisions are self-declared"


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
        ("Model", tag("code", packet.verdict.get("model_digest", "none is released"))),
        ("Ledger", join(f"event {head['sequence']}, ", tag("code", head["digest"]))),
    ]
    return section(
        "verify",
        "Verify this packet",
        "With no tool of ours, in the packet's folder. The last line prints the fingerprint of the "
        "key; compare it with the one you were given on another way.",
        tag("pre", commands),
        tag("p", "Its timestamps are checked with openssl too: ", tag("a", "README.md",
            href="README.md"), " has the lines.") if "timestamps" in packet.verdict else None,
        tag("p", "With ours, also everything that must agree inside: ",
            tag("code", "parcel-assets packet verify FOLDER"), "."),
        tag("dl", [join(tag("dt", name), tag("dd", words)) for name, words in rows]),
    )  # fmt: skip


def _snapshot_digest(packet: Packet) -> str:
    if CROISSANT_FILE not in packet.files:
        return str(packet.plan["snapshot"]["digest"])
    described = read_json(packet.files, CROISSANT_FILE)
    return str(described["parcel_assets"]["snapshot_digest"])


def _foot(packet: Packet) -> Markup:
    links = ("VERDICT.json", "README.md", "model_card.md", "plan.json", "environment.json")
    present = [one for one in links if one == "VERDICT.json" or one in packet.files]
    listed = [
        join(" · " if place else "", tag("a", one, href=one)) for place, one in enumerate(present)
    ]
    return tag("footer", f"{packet.verdict['format']} · ", listed)
