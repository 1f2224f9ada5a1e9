"""Small pieces of the report that every section uses: numbers with their source, cards, chips.

Here stands how a value is shown; which values stand where is decided by the sections.
"""

import base64
import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parcel_assets.adapters.report_html_tags import Child, Markup, join, tag
from parcel_assets.core.packet import (
    CURVES_FILE,
    PLAN_FILE,
    TRIALS_FILE,
    VERDICT_FILE,
    Files,
    body_of,
    holds,
    read_json,
    read_rows,
)
from parcel_assets.core.stage import Stage

STYLES = {"pass": "good", "fail": "bad", "insufficient": "wait"}
MARKS = {
    "good": "M20 6L9 17l-5-5",
    "bad": "M18 6L6 18M6 6l12 12",
    "wait": "M12 6v7M12 17.5v.5",
}

Fact = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet as the report reads it, each document read once.

    Empty is what a search did not reach before a person closed it.
    """

    files: Files
    verdict: dict[str, Any]
    plan: dict[str, Any]
    rerun: dict[str, Any]
    slices: dict[str, Any]
    final: dict[str, Any]
    trials: list[dict[str, Any]]
    curves: list[dict[str, str]]

    @property
    def page(self) -> dict[str, Any]:
        """The first page's facts."""
        page: dict[str, Any] = self.verdict["first_page"]
        return page

    @property
    def unit(self) -> str:
        """What a cost is counted in."""
        return str(self.plan["metric"]["unit"])


def open_packet(files: Files) -> Packet:
    """Return a packet's documents; raises KeyError or ValueError where one is absent."""
    return Packet(
        files=files,
        verdict=read_json(files, VERDICT_FILE),
        plan=read_json(files, PLAN_FILE),
        rerun=body_of(files, Stage.RERUN) if holds(files, Stage.RERUN) else {},
        slices=body_of(files, Stage.SLICES) if holds(files, Stage.SLICES) else {},
        final=body_of(files, Stage.FINAL) if holds(files, Stage.FINAL) else {},
        trials=read_rows(files, TRIALS_FILE),
        curves=read_table(files, CURVES_FILE),
    )


def chosen_trial(packet: Packet) -> str:
    """Return the released trial, or the one that was turned down; empty where none was chosen."""
    verdict = packet.verdict
    return str(verdict["selected_trial"] or verdict.get("held_trial") or "")


def read_table(files: Files, path: str) -> list[dict[str, str]]:
    """Return a CSV file's rows."""
    return list(csv.DictReader(io.StringIO(files[path].decode())))


def number(fact: Fact, form: str = ".1f") -> Markup:
    """Return a fact's value with its source as the tooltip; absent values are said in words."""
    return tag("data", shown(fact["value"], form), value=str(fact["value"]), title=source_of(fact))


def shown(value: Any, form: str = ".1f") -> str:
    """Return a value as people read it."""
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return format(value, form)
    return str(value)


def signed(value: float, digits: int = 0) -> str:
    """Return a difference with a true minus or a plus."""
    return f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")


def source_of(fact: Fact) -> str:
    """Return in words where a fact was read, or how it was computed."""
    if "rule" not in fact:
        return str(fact["source"])
    where = " and ".join(f"{key} = {value}" for key, value in fact["where"].items()) or "all rows"
    what = f"sum of {fact['field']}" if fact["rule"] == "sum" else "count"
    return f"{what} in {fact['source']}, {where}"


def card(
    title: str, *children: Child | Markup, sources: tuple[str, ...], wide: bool = False
) -> Markup:
    """Return a card of the first page; its foot links the files its numbers were read from."""
    links = [
        join(" · " if place else "", tag("a", one, href=one)) for place, one in enumerate(sources)
    ]
    return tag(
        "div",
        tag("h3", title),
        *children,
        tag("div", "from ", links, class_="foot"),
        class_="card wide" if wide else "card",
    )


def figure_of(label: str, value: Child, note: str = "") -> Markup:
    """Return one figure: a small label above a large value."""
    return tag(
        "div",
        tag("div", label, class_="label"),
        tag(
            "div", value, tag("small", f" {note}", class_="soft") if note else None, class_="value"
        ),
        class_="figure",
    )


def chip(outcome: str) -> Markup:
    """Return an outcome as a coloured word; its letters say the same as its colour."""
    return tag("span", outcome.upper(), class_=f"chip {STYLES.get(outcome, 'plain')}")


def mark(style: str) -> Markup:
    """Return the sign of a style: tick, cross or exclamation mark."""
    return tag(
        "svg",
        tag("circle", cx=12, cy=12, r=11, fill="none", stroke="currentColor", stroke_width=1.6),
        tag("path", d=MARKS[style], fill="none", stroke="currentColor", stroke_width=2.2,
            stroke_linecap="round", stroke_linejoin="round",
            transform="translate(3.6 3.6) scale(.7)"),
        viewBox="0 0 24 24", class_="mark", aria_hidden="true",
    )  # fmt: skip


def picture(files: Files, path: str, words: str) -> Markup | None:
    """Return a PNG of the packet as part of the page, or None where the packet has none."""
    if path not in files:
        return None
    data = base64.b64encode(files[path]).decode()
    return tag(
        "figure",
        tag("img", src=f"data:image/png;base64,{data}", alt=words),
        tag("figcaption", words, " ", tag("a", path, href=path)),
    )


def section(anchor: str, title: str, about: str, *children: Child | Markup) -> Markup:
    """Return a section with its heading and what it is about."""
    return tag(
        "section",
        tag("h2", title),
        tag("p", about, class_="about") if about else None,
        *children,
        id=anchor,
    )


def table(heads: list[tuple[str, bool]], rows: list[Markup]) -> Markup:
    """Return a table that scrolls by itself; heads are (words, whether a column of numbers)."""
    cells = [tag("th", words, class_="number" if is_number else None) for words, is_number in heads]
    return tag(
        "div",
        tag("table", tag("thead", tag("tr", cells)), tag("tbody", rows)),
        class_="scroll",
    )


def cell(value: Child, *, is_number: bool = False) -> Markup:
    """Return a table cell."""
    return tag("td", value, class_="number" if is_number else None)


def duration(seconds: float) -> str:
    """Return accelerator-seconds in the unit that people read."""
    if seconds >= 3600:
        return f"{seconds / 3600:.2f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def short_code(digest: Any) -> Markup:
    """Return the start of a digest, whole in the tooltip."""
    return tag("code", str(digest)[:12] if digest else "none", title=str(digest))
