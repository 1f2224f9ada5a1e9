"""The head of a report: the verdict in words, and the people's decisions that it rests on."""

from parcel_assets.adapters.report_html_parts import Packet, mark, number
from parcel_assets.adapters.report_html_tags import Markup, join, tag
from parcel_assets.core.approval import who_words
from parcel_assets.core.ledger import Event, Kind
from parcel_assets.core.packet import (
    DECISION_FILE,
    HOLD_FINAL_EVIDENCE,
    LEDGER_FILE,
    REJECTED_PERFORMANCE,
    RELEASED,
    RELEASED_WITH_WAIVER,
)
from parcel_assets.core.packet_files import read_events
from parcel_assets.core.packet_text import reuse_words
from parcel_assets.core.selection import day_of, frozen_selections

WORDS = {
    RELEASED: ("Released", "good"),
    RELEASED_WITH_WAIVER: ("Released with a waiver", "wait"),
    REJECTED_PERFORMANCE: ("Rejected: performance", "bad"),
    HOLD_FINAL_EVIDENCE: ("Held: too little final evidence", "wait"),
}

TITLES = {
    "accept": "Waiver: a held slice was accepted",
    "replace": "The first choice was replaced",
    "close": "The held candidate was turned down",
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


def decisions(packet: Packet) -> Markup | None:
    """Return every quality decision as it was written, oldest first; None where nobody decided."""
    if DECISION_FILE not in packet.files:
        return None
    told = [one for one in read_events(packet.files) if one.kind == Kind.DECISION_RECORDED]
    return tag("div", [_decision(one, packet, is_last=one is told[-1]) for one in told],
        id="decision")  # fmt: skip


def _decision(event: Event, packet: Packet, *, is_last: bool) -> Markup:
    decision = event.body
    outcome, seen = str(decision["outcome"]), decision["numbers_seen"]
    accepts = outcome == "accept"
    title = TITLES[outcome]
    if accepts and not is_last:
        title = "An earlier acceptance, which counts no more: a later decision took its place"
    rows = [("Decided by", who_words(decision)), ("On", day_of(event.at_seconds).isoformat())]
    if accepts:
        rows += [("Scope", decision["scope"]), ("Until", f"{decision['expires_on']} (UTC)")]
    meaning = "What it means" if accepts else "If it had been accepted"
    rows.append((meaning, seen.get("consequence", "")))
    replaced = replaced_words(packet) if outcome == "replace" else None
    source, name = (
        (DECISION_FILE, DECISION_FILE)
        if is_last
        else (LEDGER_FILE, f"{LEDGER_FILE}, event {event.sequence}")
    )
    return tag(
        "div",
        tag("h3", title),
        [tag("p", words) for words in seen.get("slices", [])],
        tag("p", replaced, class_="lead") if replaced else None,
        tag("blockquote", decision["reason"]),
        tag("dl", [join(tag("dt", one), tag("dd", words)) for one, words in rows]),
        tag("p", tag("a", name, href=source), class_="small"),
        class_="waiver",
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
