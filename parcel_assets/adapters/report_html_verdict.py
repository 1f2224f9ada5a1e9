"""The head of a report: the verdict in words, and the person's decision that it rests on."""

from parcel_assets.adapters.report_html_parts import Packet, mark, number
from parcel_assets.adapters.report_html_tags import Markup, join, tag
from parcel_assets.core.approval import who_words
from parcel_assets.core.packet import (
    DECISION_FILE,
    HOLD_FINAL_EVIDENCE,
    REJECTED_PERFORMANCE,
    RELEASED,
    RELEASED_WITH_WAIVER,
    read_json,
)
from parcel_assets.core.packet_files import read_events
from parcel_assets.core.packet_text import reuse_words
from parcel_assets.core.selection import frozen_selections

WORDS = {
    RELEASED: ("Released", "good"),
    RELEASED_WITH_WAIVER: ("Released with a waiver", "wait"),
    REJECTED_PERFORMANCE: ("Rejected: performance", "bad"),
    HOLD_FINAL_EVIDENCE: ("Held: too little final evidence", "wait"),
}


def banner(packet: Packet) -> Markup:
    """Return the verdict in words, with what it rests on."""
    word, style = WORDS[packet.verdict["verdict"]]
    final = packet.page["final"]
    return tag(
        "div",
        tag("div", mark(style), word, class_=f"word {style}"),
        tag("p", packet.verdict["sentence"]),
        tag("p", number(final["sentence"])),
        tag(
            "p",
            f"Evidence level {packet.verdict['evidence_level']}: "
            f"{packet.verdict['evidence_level_means']}.",
            class_="soft small",
        ),
        tag("p", reused) if (reused := reuse_words(packet.final)) else None,
        class_=f"verdict {style}",
        role="status",
    )


def waiver(packet: Packet) -> Markup | None:
    """Return the quality decision as it was written, or None where nobody had to decide."""
    if DECISION_FILE not in packet.files:
        return None
    replaced = replaced_words(packet)
    decision = read_json(packet.files, DECISION_FILE)
    seen = decision["numbers_seen"]
    titles = {
        "accept": "Waiver: a held slice was accepted",
        "replace": "The first choice was replaced",
        "close": "The held candidate was turned down",
    }
    accepts = decision["outcome"] == "accept"
    rows = [("Decided by", who_words(decision))]
    if accepts:
        rows += [("Scope", decision["scope"]), ("Until", decision["expires_on"])]
    meaning = "What it means" if accepts else "If it had been accepted"
    rows.append((meaning, seen.get("consequence", "")))
    return tag(
        "div",
        tag("h3", titles.get(decision["outcome"], decision["outcome"])),
        [tag("p", words) for words in seen.get("slices", [])],
        tag("p", replaced, class_="lead") if replaced else None,
        tag("blockquote", decision["reason"]),
        tag("dl", [join(tag("dt", name), tag("dd", words)) for name, words in rows]),
        tag("p", tag("a", DECISION_FILE, href=DECISION_FILE), class_="small"),
        class_="waiver",
        id="decision",
    )


def replaced_words(packet: Packet) -> str | None:
    """Return in words that the candidate took the place of a held one, or None where it did not."""
    frozen = frozen_selections(read_events(packet.files))
    if len(frozen) < 2 or not packet.rerun:
        return None
    return (
        f"Slice-informed: {frozen[-1].trial} took the place of {frozen[0].trial}, the first choice "
        "on validation, after a person had seen that one's slices. So its own slices were no "
        "fresh look at the validation photos."
    )
