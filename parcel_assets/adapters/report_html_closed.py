"""The report of a search that a person closed: who ended it and why, and all that was found.

Chapters that a stage would have filled are left out where the search did not come so far.
"""

from parcel_assets.adapters import report_html_first as first
from parcel_assets.adapters.report_html_parts import Packet, mark, number
from parcel_assets.adapters.report_html_search import search_chapter
from parcel_assets.adapters.report_html_slices import pictures_chapter, slices_chapter
from parcel_assets.adapters.report_html_tags import Markup, tag
from parcel_assets.adapters.report_html_verdict import decisions
from parcel_assets.core.packet import CLOSING_FILE, holds
from parcel_assets.core.stage import Stage


def closed_body(packet: Packet) -> list[Markup | None]:
    """Return the page between its head and the chapter on verification."""
    reached = {stage for stage in Stage if holds(packet.files, stage)}
    return [
        _banner(packet),
        decisions(packet),
        tag("section", tag("h2", "At a glance"), _how_far(packet), first.closed_page(packet),
            id="first-page"),
        search_chapter(packet),
        slices_chapter(packet) if Stage.SLICES in reached else None,
        pictures_chapter(packet) if Stage.SPLIT in reached else None,
    ]  # fmt: skip


def _banner(packet: Packet) -> Markup:
    closing = packet.page["closing"]
    by_decision = closing["by"]["value"] == "decision"
    how = "by a quality decision" if by_decision else "by the command `close`"
    return tag(
        "div",
        tag("div", mark("wait"), "Closed without a winner", class_="word wait"),
        tag("p", packet.verdict["sentence"]),
        tag("p", f"Closed on {closing['day']['value']} {how}: ", tag("q", number(
            closing["reason"])), " ", tag("a", CLOSING_FILE, href=CLOSING_FILE)),
        class_="verdict wait",
        role="status",
    )  # fmt: skip


def _how_far(packet: Packet) -> Markup:
    trial, openings = packet.verdict["held_trial"], packet.page["holdout"]["openings"]
    chosen = (
        f"{trial} was chosen on validation and is not released. "
        if trial
        else "No trial was chosen. "
    )
    return tag(
        "p", chosen, "The holdout was never opened (", number(openings), " openings): a new "
        "search revision may still use it. Hover a number to see the file and place it was read "
        "from.",
        class_="lead", style="margin:6px 0 18px",
    )  # fmt: skip
