"""Shows a running search: one live panel on a terminal, plain lines elsewhere.

What has happened is folded from the ledger; the stages' own progress only says what is going on.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from parcel_assets.cli_common import OPTIONS, console, say
from parcel_assets.core.ports import Ports
from parcel_assets.core.refusals import refusal_sentence
from parcel_assets.core.search import SearchState
from parcel_assets.core.stage import Stage
from parcel_assets.steps.admission import load_plan

Listener = Callable[[str, Mapping[str, Any]], None]

LIVE_EVERY_SECONDS = 0.5
PLAIN_EVERY_SECONDS = 10.0


class SearchView:
    """What there is to see of one revision; `hear` takes in what stages say."""

    def __init__(self, revision: str, ports: Ports) -> None:
        self.revision = revision
        self._ledger = ports.ledger
        self.plan, _ = load_plan(revision, ports)
        self.state = SearchState(self.plan)
        self._sequence = 0
        self.stage: str | None = None
        self.done, self.total = 0, 0
        self.recorded: list[str] = []
        self._began = 0.0
        self._began_ended_trials: int | None = None

    def hear(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Take in a stage's word."""
        if kind == "stage":
            self.stage, self.done, self.total = str(facts["stage"]), 0, 0
        elif kind == "recorded":
            self.recorded.append(str(facts["stage"]))
        elif kind == "progress":
            self.done = int(facts.get("done", self.done) or 0)
            self.total = int(facts.get("total", self.total) or 0)

    def refresh(self) -> None:
        """Fold what the ledger has got since last time."""
        for event in self._ledger.events(self.revision, self._sequence):
            self.state.apply(event)
            self._sequence = event.sequence
        # the pace counts from the first trial that ends while we look: workers start up before it
        if self._began_ended_trials is None or self.ended_trials <= self._began_ended_trials:
            self._began, self._began_ended_trials = time.monotonic(), self.ended_trials

    @property
    def counts(self) -> dict[str, int]:
        """Trials by state, those not proposed yet counted as waiting."""
        return {str(state): count for state, count in self.state.trials_by_state.items() if count}

    @property
    def ended_trials(self) -> int:
        """How many trials need no more training."""
        return sum(n for state, n in self.counts.items() if state not in {"waiting", "running"})

    @property
    def charged_hours(self) -> float:
        """Accelerator-hours charged for every purpose."""
        return sum(self.state.charged_seconds_by_purpose.values()) / 3600

    @property
    def seconds_left(self) -> float | None:
        """How long the trials will still take at the pace since this view began, or None."""
        ended = self.ended_trials - (self._began_ended_trials or 0)
        if ended < 2 or self.stage != str(Stage.SEARCH):
            return None
        pace = (time.monotonic() - self._began) / ended
        return pace * (self.plan.search.budget_trials - self.ended_trials)

    @property
    def stage_number(self) -> int:
        """The stage at work, counted from 1; 0 before the first."""
        return 1 + [str(one) for one in Stage].index(self.stage) if self.stage else 0

    def line(self) -> str:
        """Return everything in one plain line."""
        head = f"[{self.stage_number}/{len(Stage)}] {self.stage or 'starting'}"
        if self.stage != str(Stage.SEARCH):
            return head + (f" {self.done}/{self.total}" if self.total else "")
        counts = ", ".join(f"{count} {state}" for state, count in self.counts.items())
        cap = self.plan.search.cap_accelerator_hours
        parts = [
            f"batch {len(self.state.batches)}",
            f"{self.ended_trials}/{self.plan.search.budget_trials} trials ({counts})",
            f"best {self.best}",
            f"{self.charged_hours:.3f} of {cap:g} accelerator-hours",
        ]
        if self.seconds_left is not None:
            parts.append(f"{_duration(self.seconds_left)} left")
        return f"{head}: {', '.join(parts)}"

    @property
    def best(self) -> str:
        """The best completed trial so far, in words."""
        cost = self.state.best_cost_per_1000
        return "none yet" if cost is None else f"{self.state.best_trial} at {cost:.0f} per 1,000"


@contextmanager
def watching(revision: str, ports: Ports) -> Iterator[Listener]:
    """Show the search while a block runs; yields what stages should be told to call."""
    view = SearchView(revision, ports)
    view.refresh()
    if OPTIONS.json or not sys.stdout.isatty():
        yield _plain_listener(view)
        return
    with Live(_panel(view), console=console(), refresh_per_second=4, transient=True) as live:
        last = 0.0

        def hear(kind: str, facts: Mapping[str, Any]) -> None:
            nonlocal last
            view.hear(kind, facts)
            if kind == "worker_refused":
                live.console.print(refusal_sentence(facts), style="yellow", markup=False)
            now = time.monotonic()
            if kind != "progress" or now - last >= LIVE_EVERY_SECONDS:
                last = now
                view.refresh()
                live.update(_panel(view))

        yield hear


def _plain_listener(view: SearchView) -> Listener:
    last = 0.0

    def hear(kind: str, facts: Mapping[str, Any]) -> None:
        nonlocal last
        view.hear(kind, facts)
        if kind == "worker_refused":
            say(refusal_sentence(facts))
        now = time.monotonic()
        due = kind == "stage" or (kind == "progress" and now - last >= PLAIN_EVERY_SECONDS)
        if due:
            last = now
            view.refresh()
            say(view.line())

    return hear


def _panel(view: SearchView) -> RenderableType:
    cap = view.plan.search.cap_accelerator_hours
    budget = view.plan.search.budget_trials
    stages = Text()
    for stage in Stage:
        name = str(stage)
        mark, style = ("·", "dim")
        if name == view.stage:
            mark, style = ("▶", "bold cyan")
        elif name in view.recorded:
            mark, style = ("✓", "green")
        stages.append(f"{mark} {name}  ", style=style)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", justify="right")
    grid.add_column()
    bar = ProgressBar(total=budget, completed=view.ended_trials, width=40)
    grid.add_row("trials", Group(bar, Text(f"{view.ended_trials} of {budget} ended")))
    counts = "  ".join(f"{count} {state}" for state, count in view.counts.items())
    grid.add_row("by state", f"batch {len(view.state.batches)}   {counts}")
    grid.add_row("best so far", view.best)
    grid.add_row("accelerator-hours", f"{view.charged_hours:.3f} of {cap:g}")
    left = view.seconds_left
    grid.add_row("time left", _duration(left) if left is not None else "-")
    if view.total and view.stage != str(Stage.SEARCH):
        grid.add_row("this stage", f"{view.done} of {view.total}")
    return Panel(Group(stages, Text(), grid), title=view.revision, title_align="left")


@contextmanager
def bar(words: str) -> Iterator[Listener]:
    """Show one stage's done and total while a block runs."""
    last = time.monotonic()
    terminal = sys.stderr.isatty() and not OPTIONS.json

    def hear(kind: str, facts: Mapping[str, Any]) -> None:
        nonlocal last
        now = time.monotonic()
        every = LIVE_EVERY_SECONDS if terminal else PLAIN_EVERY_SECONDS
        if kind != "progress" or now - last < every:
            return
        last = now
        line = f"{words}: {facts.get('done', 0)} of {facts.get('total', '?')}"
        line += f" ({facts['stage']})" if "stage" in facts else ""
        if terminal:
            sys.stderr.write(f"\r{line}\x1b[K")
            sys.stderr.flush()
        else:
            say(line)

    try:
        yield hear
    finally:
        if terminal:
            sys.stderr.write("\r\x1b[K")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
