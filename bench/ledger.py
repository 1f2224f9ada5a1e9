"""`python -m bench.ledger`: a durable report, and a ledger of 10,000 trials read, verified, folded.

A report is one transaction that is on the disk when it returns; the disk's own flush is printed
beside it, since nothing durable is quicker.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.core.ledger import Kind
from parcel_assets.core.ledger_audit import read_chain
from parcel_assets.core.ledger_fold import fold_faults
from parcel_assets.core.search import fold_search
from parcel_assets_tests.core.search_story import Story, story_plan

REPORTS = 500
BATCH_TRIALS = 10


def flush_ms(folder: Path, data: bytes = b"x" * 4096) -> float:
    """Return the median time of a bare write and flush."""
    taken = []
    with (folder / "flush").open("wb") as file:
        for _ in range(REPORTS):
            began = time.perf_counter()
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e3


def report_ms(ledger: SqlLedger) -> list[float]:
    """Return the times of durable reports, in milliseconds, sorted."""
    lease = ledger.acquire("reports", "bench")
    ledger.append(lease, [(Kind.PLAN_FROZEN, {"plan": {}, "plan_digest": "0" * 64})])
    body: dict[str, Any] = {
        "subject": "parcel-01",
        "step": 9,
        "photos_seen": 576,
        "subset_digest": "a" * 64,
        "scores": "b" * 64,
        "cost_per_1000": 312.5,
        "threshold": 0.41,
        "verdict": "continue",
        "reason": "",
    }
    taken = []
    for number in range(REPORTS):
        began = time.perf_counter()
        entry = (Kind.MILESTONE_REPORTED, body | {"attempt": f"parcel-01/{number}"})
        ledger.append(lease, [entry])
        taken.append((time.perf_counter() - began) * 1e3)
    return sorted(taken)


def told(trials: int) -> Story:
    """Return a search of so many trials, with three reports and two checkpoints each."""
    plan = story_plan(search__budget_trials=trials, search__batch_trials=BATCH_TRIALS)
    story = Story(plan)
    frozen = {"plan": plan.document(), "plan_digest": plan.digest}
    story.tell(Kind.PLAN_FROZEN, **frozen)
    for batch, first in enumerate(range(1, trials + 1, BATCH_TRIALS), start=1):
        story.batch(batch, list(range(first, min(first + BATCH_TRIALS, trials + 1))))
        for trial in range(first, min(first + BATCH_TRIALS, trials + 1)):
            name = story.start(trial)
            parent = None
            for step in (2, 5):
                story.report(name, step, 400.0 + trial % 7)
                story.checkpoint(name, step, f"{trial:060d}{step:04d}", parent)
                parent = f"{trial:060d}{step:04d}"
            story.report(name, 10, 300.0 + trial % 11)
            story.end(name)
        story.close(batch)
    story.tell(Kind.SEARCH_ENDED, reason="budget")
    return story


def timed(trials: int, url: str) -> Iterator[tuple[str, float]]:
    """Yield what was done with a ledger of so many trials, and how long it took, in seconds."""
    story = told(trials)
    ledger = SqlLedger(url)
    lease = ledger.acquire("spring", "bench")
    entries = [(event.kind, event.body) for event in story.events]
    began = time.perf_counter()
    ledger.append(lease, entries)
    yield f"append {len(entries)} events at once", time.perf_counter() - began
    began = time.perf_counter()
    events = ledger.events("spring")
    yield "read", time.perf_counter() - began
    began = time.perf_counter()
    _, fault = read_chain("spring", ledger.record_of("spring").rows)
    assert fault is None
    yield "read as an audit, chain recomputed", time.perf_counter() - began
    began = time.perf_counter()
    state = fold_search(story.plan, events)
    yield "fold", time.perf_counter() - began
    began = time.perf_counter()
    assert not list(fold_faults(events))
    yield "fold with its rules", time.perf_counter() - began
    began = time.perf_counter()
    assert not state.lineage_faults
    yield "every lineage", time.perf_counter() - began
    ledger.close()


def main(words: Sequence[str] | None = None) -> None:
    """Measure and print; `words` are the command line's."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--trials", type=int, default=10_000)
    arguments.add_argument("--url", help="another database than a new SQLite file")
    asked = arguments.parse_args(words)
    with tempfile.TemporaryDirectory() as name:
        url = asked.url or f"sqlite:///{name}/ledger.sqlite"
        ledger = SqlLedger(url)
        before, taken, after = flush_ms(Path(name)), report_ms(ledger), flush_ms(Path(name))
        ledger.close()
        print(
            f"durable report: median {statistics.median(taken):.2f} ms, "
            f"95 % below {taken[int(0.95 * REPORTS)]:.2f} ms; "
            f"bare flush {min(before, after):.2f} ms",
            flush=True,
        )
        for what, seconds in timed(asked.trials, url):
            print(f"{asked.trials} trials, {what}: {seconds:.2f} s", flush=True)


if __name__ == "__main__":
    main()
