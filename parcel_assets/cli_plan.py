"""The commands `plan new|check|show|register` and `snapshot pin|show`."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from parcel_assets.cli_bill import bill_fields, print_bill, print_plan, rows_of
from parcel_assets.cli_common import (
    OPTIONS,
    JsonOption,
    print_json,
    print_table,
    say,
)
from parcel_assets.core.codec import short
from parcel_assets.core.errors import ArchiveError, PlanError, SettingError
from parcel_assets.core.plan_bill import bill_of
from parcel_assets.core.plan_reader import check_revision_key
from parcel_assets.core.plan_template import plan_text
from parcel_assets.core.rerun_report import target_warning
from parcel_assets.core.stage import Stage
from parcel_assets.steps.admission import load_chain
from parcel_assets.wiring import (
    PlanFile,
    Settings,
    find_plan,
    open_ports,
    sketch_folder,
    write_pin,
    write_text,
)

plan_app = typer.Typer(no_args_is_help=True, help="Write, check and register search plans.")
snapshot_app = typer.Typer(no_args_is_help=True, help="Pin an archive in a plan, and look at it.")

PlanArgument = Annotated[
    str, typer.Argument(metavar="PLAN", help="A plan file, or a revision in data/plans.")
]
BAD_ROWS_SHOWN = 40


@plan_app.command(name="new")
def plan_new(
    archive: Annotated[Path, typer.Argument(help="A folder of photos with a label table.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write the plan file.")
    ] = None,
    table: Annotated[str | None, typer.Option(help="The label table's file name.")] = None,
    trials: Annotated[int, typer.Option(min=1, help="The budget of trials.")] = 82,
) -> None:
    """Write a commented plan for an archive of your own, its columns guessed from the header."""
    settings = OPTIONS.settings()
    sketch = sketch_folder(archive, table)
    name = _plain_name(archive.resolve().name)
    path = output or settings.plans / f"{name}.toml"
    check_revision_key(path.stem)
    if path.exists():
        raise SettingError(
            "a folder" if path.is_dir() else "a file that exists",
            expected="a new file name",
            where=str(path),
            remedy="Name another file with --output: a plan is never overwritten.",
        )
    text = plan_text(
        sketch, archive=name, location=_location(archive, settings), budget_trials=trials
    )
    write_text(path, text)
    say(f"Wrote {path}", style="bold")
    read = [("photo", sketch.photo), ("shipment", sketch.shipment), ("label", sketch.label)]
    read += [("damage type", sketch.damage_type or "-"), ("camera", sketch.camera_class or "-")]
    print_table(f"{sketch.table.table}: {len(sketch.table.rows)} rows", ("means", "column"), read)
    for warning in sketch.warnings:
        say(f"Look here: {warning}.", style="yellow")
    say(f"Next: read and change it, then  parcel-assets snapshot pin {_argument(path, settings)}")


@plan_app.command(name="check")
def plan_check(plan: PlanArgument, *, as_json: JsonOption = False) -> None:
    """Read a plan strictly and report every fault at once."""
    from parcel_assets.steps.data import require_parent, require_usable

    OPTIONS.json = as_json
    settings = OPTIONS.settings()
    found = find_plan(plan, settings)
    ports = open_ports(settings, creates=False)
    require_usable(found.plan, ports)
    require_parent(found.revision, found.plan, ports)
    pinned = found.plan.snapshot.digest
    warning = target_warning(found.plan)
    if as_json:
        print_json(
            {
                "revision": found.revision,
                "plan_digest": found.plan.digest,
                "pinned": bool(pinned),
                "warnings": [warning] if warning else [],
            }
        )
        return
    say(f"{found.revision}: no faults. Plan digest {short(found.plan.digest)}.")
    if warning:
        say(f"Look here: {warning}", style="yellow")
    say(f"Can its gates decide anything?  parcel-assets simulate-gates {shlex.quote(plan)}")
    if not pinned:
        say(
            f"Not pinned yet. Next:  parcel-assets snapshot pin {shlex.quote(plan)}", style="yellow"
        )


@plan_app.command(name="show")
def plan_show(plan: PlanArgument, *, as_json: JsonOption = False) -> None:
    """Print the most this search can cost, and what it will do, before anything runs."""
    OPTIONS.json = as_json
    settings = OPTIONS.settings()
    found = find_plan(plan, settings)
    bill = bill_of(found.plan, rows_of(found, settings))
    if as_json:
        document = found.plan.document()
        print_json({"revision": found.revision, "bill": bill_fields(bill), "plan": document})
        return
    print_bill(bill, settings)
    print_plan(found)


@plan_app.command(name="register")
def plan_register(plan: PlanArgument, *, as_json: JsonOption = False) -> None:
    """Freeze a pinned plan in the ledger and add its search revision to Dagster."""
    OPTIONS.json = as_json
    settings = OPTIONS.settings()
    found = find_plan(plan, settings)
    register(found, settings)
    if as_json:
        print_json({"revision": found.revision, "plan_digest": found.plan.digest})
        return
    say(f"Frozen: {found.revision}, plan digest {short(found.plan.digest)}.")
    if warning := target_warning(found.plan):
        say(f"Look here: {warning}", style="yellow")
    say(f"Next:  parcel-assets run {found.revision}")


@snapshot_app.command(name="pin")
def snapshot_pin(plan: PlanArgument, *, as_json: JsonOption = False) -> None:
    """Decode every photo of the plan's archive and write the digest into the plan file."""
    OPTIONS.json = as_json
    settings = OPTIONS.settings()
    found = find_plan(plan, settings)
    try:
        summary = pin(found, settings)
    except ArchiveError as error:
        rows = list(error.facts.get("rows") or [])
        if rows and not as_json:
            _print_bad_rows(rows)
        raise
    if as_json:
        print_json({"revision": found.revision, **_json_fields(summary)})
        return
    rows = [row.document() for row in summary.bad_rows]
    if rows:
        _print_bad_rows(rows)
    print_table(
        found.plan.snapshot.archive,
        ("photos", "shipments", "damaged photos", "left out"),
        [(summary.photos, summary.shipments, summary.damaged_photos, len(rows))],
    )
    say(f"Pinned {short(summary.snapshot_digest)} in {found.path}")
    if summary.damaged_photos in {0, summary.photos}:
        one = "damaged" if summary.damaged_photos else "intact"
        say(f"Look here: every photo is {one}; a search needs both labels.", style="yellow")
    say(f"Next:  parcel-assets plan register {shlex.quote(plan)}")


@snapshot_app.command(name="show")
def snapshot_show(plan: PlanArgument, *, as_json: JsonOption = False) -> None:
    """Show the snapshot that a search revision pinned."""
    OPTIONS.json = as_json
    settings = OPTIONS.settings()
    revision = Path(plan).stem if plan.endswith(".toml") else plan
    ports = open_ports(settings, creates=False)
    chain = load_chain(revision, ports) if revision in ports.ledger.revisions() else None
    if chain is None or Stage.SNAPSHOT not in chain.evidence:
        raise _no_snapshot_yet(plan, revision, settings)
    body = chain.snapshot
    if as_json:
        print_json(_json_fields(body))
        return
    print_table(
        f"{body.archive}, digest {body.snapshot_digest}",
        ("photos", "shipments", "damaged photos", "left out"),
        [(body.photos, body.shipments, body.damaged_photos, len(body.bad_rows))],
    )
    rows = [(k, v, n) for k, values in body.counts.items() for v, n in values.items()]
    print_table("photos by value", ("dimension", "value", "photos"), rows)
    if body.bad_rows:
        _print_bad_rows([row.document() for row in body.bad_rows])


def _no_snapshot_yet(plan: str, revision: str, settings: Settings) -> ArchiveError:
    """Return the refusal to show a snapshot that no run has kept, with what the plan file says."""
    pinned = find_plan(plan, settings).plan.snapshot.digest
    return ArchiveError(
        f"digest {short(pinned)} in the plan file, and no run yet" if pinned else "no pin",
        expected="a snapshot that a run of the search revision kept",
        where=f"snapshot of {revision}",
        remedy="Next: "
        + (
            f"`parcel-assets run {shlex.quote(plan)}`."
            if pinned
            else f"`parcel-assets snapshot pin {shlex.quote(plan)}`."
        ),
    )


def register(found: PlanFile, settings: Settings) -> None:
    """Freeze a plan and add its revision to Dagster; raises PlanError where it is not pinned."""
    from parcel_assets.cli_dagster import add_partition
    from parcel_assets.steps.data import register_plan

    if not found.plan.snapshot.digest:
        raise PlanError(
            "no pinned digest",
            expected="a plan whose archive is pinned",
            where=str(found.path),
            remedy=f"Run `parcel-assets snapshot pin {_argument(found.path, settings)}` first.",
            faults=[{"path": "snapshot.digest", "fault": "empty"}],
        )
    register_plan(found.revision, found.plan, open_ports(settings))
    add_partition(found.revision, settings)


def pin(found: PlanFile, settings: Settings) -> Any:
    """Decode the plan's archive, write its digest into the plan file, and return what was found."""
    from parcel_assets.cli_progress import bar
    from parcel_assets.steps.data import pin_archive

    with bar("decoding photos") as listener:
        side = found.plan.preprocess.image_size_pixels
        summary = pin_archive(found.plan.snapshot, side, open_ports(settings, listener))
    if summary.snapshot_digest != found.plan.snapshot.digest:
        write_pin(found.path, summary.snapshot_digest)
    return summary


def _print_bad_rows(rows: list[dict[str, Any]]) -> None:
    shown = rows[:BAD_ROWS_SHOWN]
    print_table(
        f"{len(rows)} bad row(s)" + (f", the first {len(shown)}" if len(shown) < len(rows) else ""),
        ("file", "row", "column", "found", "expected", "do"),
        [(r["file"], r["row"], r["column"], r["found"], r["expected"], r["remedy"]) for r in shown],
    )


def _json_fields(summary: Any) -> dict[str, Any]:
    fields: dict[str, Any] = summary.model_dump(mode="json")
    return fields


def _plain_name(text: str) -> str:
    kept = "".join(one if one.isascii() and one.isalnum() else "-" for one in text.lower())
    return kept.strip("-")[:60] or "archive"


def _location(archive: Path, settings: Settings) -> str:
    whole = archive.resolve()
    if whole.is_relative_to(settings.data.resolve()):
        return whole.relative_to(settings.data.resolve()).as_posix()
    return str(whole)


def _argument(path: Path, settings: Settings) -> str:
    is_known = path.parent.resolve() == settings.plans.resolve()
    return path.stem if is_known else shlex.quote(str(path))
