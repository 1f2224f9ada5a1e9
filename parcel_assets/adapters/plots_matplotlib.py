"""Draws the charts of asset pages and reports as PNG bytes."""

import io
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

INK, QUIET, BEST = "#1f2a37", "#9aa5b1", "#0b6e4f"
OUTCOMES = {"PASS": "#b7e4c7", "FAIL": "#f4a6a0", "INSUFFICIENT": "#ffe8a3"}
DOTS_PER_INCH = 110

SliceRow = tuple[str, str, float | None, float | None]


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


def slice_heat_map(rows: Sequence[SliceRow]) -> bytes:
    """Return one line per slice (name, outcome, candidate, reference), coloured by outcome."""
    figure, axes = _blank(7, 0.6 + 0.34 * (len(rows) + 1))
    axes.set_axis_off()
    axes.set_xlim(0, 4)
    axes.set_ylim(len(rows) + 1, 0)
    for column, word in enumerate(("slice", "outcome", "candidate", "in use today")):
        axes.text(column + 0.04, 0.5, word, va="center", fontsize=9, color=INK, weight="bold")
    for number, (name, outcome, candidate, reference) in enumerate(rows, start=1):
        axes.axhspan(number, number + 0.94, color=OUTCOMES.get(outcome, "#e5e7eb"))
        for column, word in enumerate((name, outcome, _number(candidate), _number(reference))):
            axes.text(column + 0.04, number + 0.47, word, va="center", fontsize=8.5, color=INK)
    return _png(figure)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


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
