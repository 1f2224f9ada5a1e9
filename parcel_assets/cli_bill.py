"""What `plan show` prints: the most that a search can cost, and what it will do."""

from typing import Any

from parcel_assets.cli_common import print_table, say
from parcel_assets.core.codec import short
from parcel_assets.core.errors import ArchiveError
from parcel_assets.core.plan import Plan
from parcel_assets.core.plan_bill import Bill
from parcel_assets.wiring import PlanFile, Settings, sketch_folder


def print_bill(bill: Bill, settings: Settings) -> None:
    """Print the most that a search can cost."""
    say(f"At most {bill.hours:.2f} accelerator-hours", style="bold")
    why = (
        f"the cap ends it; without a cap the worst case were {bill.uncapped_hours:.2f}"
        if bill.cap_binds
        else f"the worst case stays below the cap of {bill.cap_hours:.2f}"
    )
    say(f"  {why}")
    say("  one accelerator-hour is one worker slot for one hour, whether it has an accelerator")
    rows: list[tuple[str, str]] = [
        (
            "worst case",
            f"{bill.trials} trials x {bill.attempts // bill.trials} attempts, all of them slow",
        ),
        ("every trial once", f"{bill.one_attempt_each_hours:.2f} accelerator-hours"),
        ("kept for rerun, reference, final", f"{bill.after_search_hours:.2f} accelerator-hours"),
    ]
    for workers, hours in bill.wall_hours.items():
        mark = "  <- this machine's setting" if workers == settings.workers else ""
        rows.append((f"wall time, {workers} worker(s)", f"at most {hours:.2f} hours{mark}"))
    total = sum(bill.disk_bytes.values())
    rows += [(f"disk, {what}", _size(size)) for what, size in bill.disk_bytes.items()]
    rows.append(("disk, all of it", f"at most {_size(total)}"))
    print_table("", ("what", "how much"), rows)


def print_plan(found: PlanFile) -> None:
    """Print what a plan will do."""
    plan = found.plan
    slices = ", ".join(f"{name} ({one.role})" for name, one in plan.slices.items())
    rows = [
        ("purpose", plan.purpose),
        ("archive", f"{plan.snapshot.archive}, pinned {short(plan.snapshot.digest) or 'not yet'}"),
        ("budget", f"{plan.search.budget_trials} trials in batches of {plan.search.batch_trials}"),
        ("sampler", f"{plan.search.sampler}, seed {plan.search.seed}"),
        ("milestones", ", ".join(str(one) for one in plan.training.milestones)),
        ("knobs", ", ".join(plan.space)),
        ("slices", slices or "none"),
        ("holdout", _holdout_words(plan)),
        (
            "follows",
            f"{plan.parent.revision}: {plan.parent.reason}" if plan.parent else "no search",
        ),
        ("target", f"{plan.final.target_cost_per_1000:g} {plan.metric.unit} per 1,000 photos"),
        ("plan digest", plan.digest),
    ]
    print_table(found.revision, ("", ""), rows)


def _holdout_words(plan: Plan) -> str:
    share = f"{plan.split.holdout:.0%} of the shipments"
    if plan.split.holdout_tranches is not None:
        return (
            f"{share}, dealt to {plan.split.holdout_tranches} tranches: this search opens the "
            "lowest that is free, the others are sealed for later ones"
        )
    spent = "; shipments that were opened before are allowed" if plan.final.allow_spent else ""
    return f"{share}, opened whole and once{spent}"


def bill_fields(bill: Bill) -> dict[str, Any]:
    """Return the bill as JSON fields."""
    return {name: getattr(bill, name) for name in bill.__slots__} | {"cap_binds": bill.cap_binds}


def rows_of(found: PlanFile, settings: Settings) -> int | None:
    """Return how many photos the plan's table names, or None where it cannot be read yet."""
    section = found.plan.snapshot
    try:
        return len(sketch_folder(settings.data / section.location, section.table).table.rows)
    except ArchiveError:
        return None


def _size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
