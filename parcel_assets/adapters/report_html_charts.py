"""The report's charts, drawn as inline SVG: what they show, at which scale, with which words.

Every chart takes plain numbers and gives an element whose colours come from the page's style; a
title stands inside for readers who cannot see it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parcel_assets.adapters.report_html_tags import Markup, join, tag
from parcel_assets.core.statistics import cost_words

STATES = ("completed", "pruned", "failed", "quarantined", "running", "waiting")
BETTER_MARGINS, WORSE_MARGINS = 5.0, 2.5  # how far a slice's difference is drawn


@dataclass(frozen=True, slots=True)
class Scale:
    """A straight map from values to places."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the place of a value, kept inside."""
        share = (min(max(value, self.low), self.high) - self.low) / ((self.high - self.low) or 1.0)
        return round(self.start + share * (self.end - self.start), 2)


@dataclass(frozen=True, slots=True)
class CostRow:
    """One line of the cost chart: a name, a value, its interval, its colour and a remark."""

    name: str
    cost: float
    low: float | None = None
    high: float | None = None
    style: str = "quiet"
    remark: str = ""


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round values inside a range, about `count` of them."""
    span = (high - low) or 1.0
    step = 10 ** math.floor(math.log10(span / count))
    step *= next(one for one in (1, 2, 5, 10) if span / (step * one) <= count)
    first = math.ceil(low / step)
    return [round(step * (first + number), 10) for number in range(int(high / step) - first + 1)]


def trial_squares(trials: Sequence[Mapping[str, Any]], winner: str) -> Markup:
    """Return one square for each slot of the budget in its order, coloured by state."""
    columns, side, gap = 21, 20, 5
    squares = []
    for place, trial in enumerate(trials):
        x = place % columns * (side + gap) + 2
        y = place // columns * (side + gap) + 2
        cost = trial["final_cost_per_1000"]
        words = f"{trial['trial_id']}: {trial['state']}"
        words += "" if cost is None else f", {cost_words(cost, None)} per 1,000"
        squares.append(
            tag(
                "rect", tag("title", words), x=x, y=y, width=side, height=side, rx=4,
                class_=f"f-{trial['state']}",
            )
        )  # fmt: skip
        if trial["trial_id"] == winner:
            ring = {"x": x - 2, "y": y - 2, "width": side + 4, "height": side + 4, "rx": 6}
            squares.append(tag("rect", class_="ring", **ring))
    rows = math.ceil(len(trials) / columns)
    size = (columns * (side + gap) + 2, rows * (side + gap) + 2)
    return _svg(*size, "Every trial slot by number and state", squares)


def share_bar(parts: Sequence[tuple[str, float]], whole: float) -> Markup:
    """Return one bar of named shares of a whole; what is left stays pale."""
    scale, pieces, done = Scale(0, whole, 0, 500), [], 0.0
    pieces.append(tag("rect", x=0, y=0, width=500, height=18, rx=4, class_="f-left"))
    for name, value in parts:
        start, end = scale.at(done), scale.at(done + value)
        width = max(end - start, 1.5 if value else 0)
        words = f"{name}: {value:.0f} of {whole:.0f}"
        pieces.append(
            tag("rect", tag("title", words), x=start, y=0, width=width, height=18,
                class_=f"f-{name}")
        )  # fmt: skip
        done += value
    return _svg(500, 18, "Accelerator-seconds charged, by purpose, of the cap", pieces)


def cost_rows(rows: Sequence[CostRow], target: float | None) -> Markup:
    """Return costs side by side on one axis, with intervals and the plan's target."""
    top, line, left, right, width = 30, 40, 228, 66, 1000
    highest = max([*(row.high or row.cost for row in rows), *(row.cost for row in rows)])
    highest = max(highest, target or 0) * 1.04
    scale = Scale(0, highest, left, width - right)
    height = top + line * len(rows) + 26
    drawn: list[Markup] = []
    for tick in nice_ticks(0, highest, 6):
        x = scale.at(tick)
        drawn.append(tag("line", x1=x, x2=x, y1=top - 6, y2=height - 26, class_="grid"))
        drawn.append(_text(x, height - 8, f"{tick:g}", anchor="middle", class_="tiny"))
    for place, row in enumerate(rows):
        drawn.append(_cost_row(row, scale, top + line * place + line / 2))
    if target is not None:
        x = scale.at(target)
        drawn.append(tag("line", x1=x, x2=x, y1=top - 8, y2=height - 26, class_="dash"))
        drawn.append(_text(x, top - 14, f"target {target:g}", anchor="middle", class_="tiny"))
    return _svg(width, height, "Cost per 1,000 photos, side by side", drawn, class_="chart")


def _cost_row(row: CostRow, scale: Scale, y: float) -> Markup:
    x = scale.at(row.cost)
    drawn = [
        _text(0, y - 2, row.name, class_="strong"),
        _text(0, y + 13, row.remark, class_="tiny"),
        tag("rect", x=scale.start, y=y - 7, width=max(x - scale.start, 0), height=14, rx=3,
            class_=f"fill-{row.style}", opacity="0.28"),
    ]  # fmt: skip
    if row.low is not None and row.high is not None:
        low, high = scale.at(row.low), scale.at(row.high)
        drawn.append(tag("path", d=f"M{low} {y}H{high}M{low} {y - 5}v10M{high} {y - 5}v10",
                         class_=f"stroke-{row.style}"))  # fmt: skip
    drawn.append(tag("circle", cx=x, cy=y, r=5.5, class_=f"fill-{row.style}"))
    end = max(x, scale.at(row.high) if row.high is not None else x)
    drawn.append(_text(end + 12, y + 4, f"{row.cost:.0f}", class_="strong"))
    return join(drawn)


def learning_curves(
    curves: Mapping[str, Sequence[tuple[int, float]]],
    *,
    winner: str,
    pruned: Mapping[str, int],
    milestones: Sequence[int],
    levels: Sequence[tuple[str, float]],
) -> Markup:
    """Return every trial's cost at its milestones; a cross marks where a trial was stopped."""
    width, height, left, right, top, bottom = 1000, 400, 52, 132, 14, 40
    costs = sorted(cost for curve in curves.values() for _, cost in curve)
    if not costs:
        return tag("p", "No trial reported a value.", class_="soft")
    high = max(costs[int(0.98 * (len(costs) - 1))], *(level for _, level in levels)) * 1.03
    y = Scale(max(0.0, costs[0] * 0.9), high, height - bottom, top)
    x = Scale(0, milestones[-1], left, width - right)
    drawn = [*_cost_axis(y, left, width - right)]
    for step in milestones:
        place = x.at(step)
        drawn.append(tag("line", x1=place, x2=place, y1=top, y2=height - bottom, class_="grid"))
        drawn.append(_text(place, height - bottom + 18, f"step {step}", anchor="middle"))
    for name, level in levels:
        place = y.at(level)
        drawn.append(tag("line", x1=left, x2=width - right, y1=place, y2=place, class_="dash"))
        drawn.append(_text(width - right + 8, place + 4, name, class_="tiny"))
    for subject in sorted(curves, key=lambda one: one == winner):
        style = "won" if subject == winner else "cut" if subject in pruned else ""
        drawn.append(_curve(subject, curves[subject], x, y, style))
        if subject in pruned and curves[subject]:
            step, cost = curves[subject][-1]
            drawn.append(_cross(x.at(step), y.at(cost), f"{subject} stopped at step {step}"))
    if curves.get(winner):
        step, cost = curves[winner][-1]
        drawn.append(tag("circle", cx=x.at(step), cy=y.at(cost), r=5, class_="fill-accent"))
        drawn.append(
            _text(x.at(step) + 10, y.at(cost) + 4, f"{winner}  {cost:.0f}", class_="accent")
        )
    title = "Learning curves of all trials, cost per 1,000 photos at each milestone"
    return _svg(width, height, title, drawn, class_="chart")


def _curve(name: str, curve: Sequence[tuple[int, float]], x: Scale, y: Scale, style: str) -> Markup:
    points = " ".join(f"{x.at(step)},{y.at(cost)}" for step, cost in curve)
    words = ", ".join(f"step {step}: {cost:.0f}" for step, cost in curve)
    dots = [
        tag("circle", cx=x.at(step), cy=y.at(cost), r=1.8, class_="fill-quiet", opacity="0.7")
        for step, cost in curve
        if style != "won"
    ]
    line = tag("polyline", tag("title", f"{name}: {words}"), points=points, class_=f"curve {style}")
    return join(line, dots)


def _cross(x: float, y: float, words: str) -> Markup:
    path = f"M{x - 3.5} {y - 3.5}l7 7m0 -7l-7 7"
    return tag("path", tag("title", words), d=path, class_="stroke-wait", stroke_width="1.6")


def threshold_curve(points: Sequence[tuple[float, float]], threshold: float) -> Markup:
    """Return cost over the share of grid steps, with the frozen threshold marked.

    The grid follows the scores' quantiles, so the axis is even in photos and not in scores.
    """
    width, height, left, right, top, bottom = 1000, 300, 52, 30, 22, 42
    costs = [cost for _, cost in points]
    x = Scale(0, len(points) - 1, left, width - right)
    y = Scale(0, max(costs) * 1.05, height - bottom, top)
    line = " ".join(f"{x.at(place)},{y.at(cost)}" for place, cost in enumerate(costs))
    chosen = min(range(len(points)), key=lambda place: abs(points[place][0] - threshold))
    drawn = [*_cost_axis(y, left, width - right)]
    for share in (0, 0.25, 0.5, 0.75, 1):
        place = round(share * (len(points) - 1))
        drawn.append(
            _text(x.at(place), height - bottom + 18, f"{points[place][0]:.3f}", anchor="middle")
        )
    drawn += [
        tag("polyline", points=line, class_="curve cost"),
        tag("line", x1=x.at(chosen), x2=x.at(chosen), y1=top, y2=height - bottom, class_="dash"),
        tag("circle", cx=x.at(chosen), cy=y.at(costs[chosen]), r=5.5, class_="fill-accent"),
        _text(x.at(chosen) + 10, top + 12,
              f"frozen threshold {threshold:.4f}, cost {costs[chosen]:.0f}", class_="accent"),
        _text(left, height - 6, "← lower threshold: more review", class_="tiny"),
        _text(width - right, height - 6, "higher threshold: more missed damage →",
              anchor="end", class_="tiny"),
    ]  # fmt: skip
    title = "Validation cost per 1,000 photos by threshold"
    return _svg(width, height, title, drawn, class_="chart")


def rerun_strip(
    own: float, extra: Sequence[float], searched: float, mean: float | None, reach: float | None
) -> Markup:
    """Return the reruns' costs on one line: extra seeds, their tolerance, the candidate's run."""
    width, height, left, right, middle = 520, 92, 14, 14, 46
    values = [own, searched, *extra]
    if mean is not None and reach is not None:
        values += [mean - reach, mean + reach]
    pad = (max(values) - min(values)) * 0.08 or 1.0
    x = Scale(min(values) - pad, max(values) + pad, left, width - right)
    drawn: list[Markup] = []
    if mean is not None and reach is not None:
        start, end = x.at(mean - reach), x.at(mean + reach)
        words = f"mean {mean:.1f} ± {reach:.1f}"
        drawn.append(tag("rect", tag("title", words), x=start, y=middle - 18,
                         width=end - start, height=36, rx=6, class_="fill-band"))  # fmt: skip
        drawn.append(tag("line", x1=x.at(mean), x2=x.at(mean), y1=middle - 18, y2=middle + 18,
                         class_="dash"))  # fmt: skip
        drawn.append(_text(x.at(mean), middle - 26, f"mean {mean:.0f}", anchor="middle",
                           class_="tiny"))  # fmt: skip
    drawn.append(tag("line", x1=left, x2=width - right, y1=middle, y2=middle, class_="axis"))
    drawn += [
        tag("circle", tag("title", f"extra seed: {cost_words(cost, None)}"), cx=x.at(cost),
            cy=middle, r=5, class_="fill-quiet")
        for cost in extra
    ]  # fmt: skip
    drawn.append(tag("circle", tag("title", f"candidate: {own:.1f}"), cx=x.at(own), cy=middle,
                     r=7, class_="fill-accent"))  # fmt: skip
    anchor = "start" if x.at(own) < 90 else "end" if x.at(own) > width - 90 else "middle"
    drawn.append(_text(x.at(own), middle + 34, f"candidate {own:.0f}", anchor=anchor,
                       class_="accent"))  # fmt: skip
    return _svg(width, height, "Cost of the reruns over seeds", drawn)


def slice_interval(row: Mapping[str, Any], style: str) -> Markup:
    """Return a slice's difference and interval in units of its margin; left is better."""
    width, height = 220, 26
    x = Scale(-BETTER_MARGINS, WORSE_MARGINS, 8, width - 8)
    margin = row.get("margin")
    bounds = [row.get(key) for key in ("difference", "lower", "upper")]
    drawn = [
        tag("rect", x=x.at(0), y=3, width=x.at(1) - x.at(0), height=height - 6,
            class_="fill-band"),
        tag("line", x1=x.at(0), x2=x.at(0), y1=1, y2=height - 1, class_="axis"),
    ]  # fmt: skip
    if margin and None not in bounds:
        difference, low, high = (float(value or 0) / float(margin) for value in bounds)
        drawn.append(tag("line", x1=x.at(low), x2=x.at(high), y1=13, y2=13,
                         class_=f"stroke-{style}"))  # fmt: skip
        drawn.append(tag("circle", cx=x.at(difference), cy=13, r=4.5, class_=f"fill-{style}"))
        if low < -BETTER_MARGINS:
            drawn.append(tag("path", d="M8 8l-6 5l6 5", class_=f"stroke-{style}"))
        if high > WORSE_MARGINS:
            drawn.append(tag("path", d=f"M{width - 8} 8l6 5l-6 5", class_=f"stroke-{style}"))
    return _svg(width, height, "Difference to the reference in margins", drawn)


def _cost_axis(y: Scale, left: float, right: float) -> Iterable[Markup]:
    for tick in nice_ticks(y.low, y.high):
        place = y.at(tick)
        yield tag("line", x1=left, x2=right, y1=place, y2=place, class_="grid")
        yield _text(left - 8, place + 4, f"{tick:g}", anchor="end", class_="tiny")


def _text(x: float, y: float, words: str, *, anchor: str = "start", class_: str = "") -> Markup:
    return tag("text", words, x=round(x, 1), y=round(y, 1), text_anchor=anchor,
               class_=class_ or None)  # fmt: skip


def _svg(
    width: float, height: float, title: str, drawn: Iterable[Markup], class_: str | None = None
) -> Markup:
    box = f"0 0 {width:g} {height:g}"
    return tag("svg", tag("title", title), list(drawn), viewBox=box, role="img", aria_label=title,
               class_=class_)  # fmt: skip
