"""Draws the charts of asset pages and reports as PNG bytes."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

INK, QUIET, BEST = "#1f2a37", "#9aa5b1", "#0b6e4f"
OUTCOMES = {"PASS": "#b7e4c7", "FAIL": "#f4a6a0", "INSUFFICIENT": "#ffe8a3"}
WORSE, BETTER, NOTHING = (222, 87, 79), (82, 168, 122), "#e5e7eb"
COLUMNS = (0.0, 1.75, 2.65, 3.6, 4.55, 5.5)  # where each column of a heat map starts, and its end
DOTS_PER_INCH = 110


def learning_curves(curves: Sequence[Sequence[tuple[int, float]]]) -> bytes:
    """Return each trial's (step, cost per 1,000) as a line; the lowest end is drawn in colour."""
    figure, axes = _blank(7, 4)
    ends = [curve[-1] for curve in curves if curve]
    longest = max((step for step, _ in ends), default=0)
    finished = [cost for step, cost in ends if step == longest]
    best = min(finished, default=None)
    for curve in curves:
        if not curve:
            continue
        steps, costs = zip(*curve, strict=True)
        won = curve[-1] == (longest, best)
        axes.plot(
            steps,
            costs,
            color=BEST if won else QUIET,
            linewidth=2 if won else 0.8,
            marker="o",
            markersize=4 if won else 2,
            zorder=3 if won else 2,
        )
    axes.set_xlabel("training step")
    axes.set_ylabel("cost per 1,000 photos")
    axes.set_title(f"{len(curves)} trials, lowest at the last step in colour", fontsize=10)
    return _png(figure)


def cost_curve(costs: Sequence[float]) -> bytes:
    """Return finished trials' costs in order of finishing, with the lowest so far as a line."""
    figure, axes = _blank(7, 3.2)
    lowest = [min(costs[: number + 1]) for number in range(len(costs))]
    numbers = range(1, len(costs) + 1)
    axes.scatter(numbers, costs, s=14, color=QUIET, zorder=2)
    axes.step(numbers, lowest, where="post", color=BEST, linewidth=2, zorder=3)
    axes.set_xlabel("trials finished")
    axes.set_ylabel("cost per 1,000 photos")
    axes.set_title("each finished trial, and the best so far", fontsize=10)
    return _png(figure)


def slice_heat_map(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return one line per slice: its outcome, and in colour how far it is from the reference.

    A row is a slice result's fields; red is worse than the reference, green better, and the colour
    is full at twice the margin that the plan allows.
    """
    figure, axes = _blank(8, 0.6 + 0.34 * (len(rows) + 1))
    axes.set_axis_off()
    axes.set_xlim(0, COLUMNS[-1])
    axes.set_ylim(len(rows) + 1, 0)
    for place, word in zip(
        COLUMNS, ("slice", "outcome", "candidate", "reference", "difference"), strict=False
    ):
        axes.text(place + 0.04, 0.5, word, va="center", fontsize=9, color=INK, weight="bold")
    for number, row in enumerate(rows, start=1):
        outcome = str(row["outcome"]).upper()
        _fill(axes, number, (COLUMNS[1], COLUMNS[2]), OUTCOMES[outcome])
        _fill(axes, number, (COLUMNS[4], COLUMNS[5]), _warmth(row))
        measured = [_measured(row, name) for name in ("candidate", "reference", "difference")]
        for place, word in zip(COLUMNS, (str(row["name"]), outcome, *measured), strict=False):
            axes.text(place + 0.04, number + 0.47, word, va="center", fontsize=8.5, color=INK)
    return _png(figure)


def _fill(axes: Axes, line: int, columns: tuple[float, float], colour: str) -> None:
    start, end = columns
    axes.fill_between([start, end], line, line + 0.94, color=colour, linewidth=0)


def _warmth(row: Mapping[str, Any]) -> str:
    """Return a colour from green over white to red for a slice's difference to the reference."""
    difference, margin = row.get("difference"), row.get("margin")
    if difference is None or not margin:
        return NOTHING
    reach = max(-1.0, min(1.0, difference / (2 * margin)))
    full = WORSE if reach > 0 else BETTER
    channels = (round(255 + (one - 255) * abs(reach)) for one in full)
    return "#" + "".join(f"{one:02x}" for one in channels)


def _measured(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None:
        return "-"
    sign = "+" if name == "difference" else ""
    if row["measure"] == "cost":
        return f"{value:{sign}.0f} per 1,000"
    return f"{value:{sign}.1f} {'pp' if name == 'difference' else '% missed'}"


def _blank(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return figure, axes


def _png(figure: Figure) -> bytes:
    FigureCanvasAgg(figure)
    data = io.BytesIO()
    # no software version in the file: equal charts have equal bytes
    figure.savefig(data, format="png", metadata={"Software": None})
    return data.getvalue()
