"""The commands `sample`, `demo` and `ui`: a search to watch without data of one's own."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from parcel_assets.cli_common import OPTIONS, JsonOption, print_json, print_table, say
from parcel_assets.core.codec import short
from parcel_assets.core.standing import HOLD, standing_of
from parcel_assets.steps.admission import load_chain
from parcel_assets.wiring import (
    PlanFile,
    Settings,
    copy_plan,
    draw_sample,
    open_ports,
    shipped_plan,
)

SAMPLE_SEED, SAMPLE_SHIPMENTS = 82, 4000
UI_PORT = 3000

SeedOption = Annotated[int | None, typer.Option(min=0, help="Draw other photos.")]
ShipmentsOption = Annotated[int | None, typer.Option(min=1, help="Draw so many shipments.")]


@dataclass(frozen=True, slots=True)
class Show:
    """One demonstration: a shipped plan and the archive it was made for."""

    plan: str
    seed: int
    shipments: int


FULL = Show("sample-undecided", SAMPLE_SEED, SAMPLE_SHIPMENTS)
HELD = Show("sample-corners-lost", 83, SAMPLE_SHIPMENTS)
FEW = Show("sample-too-few", 85, 1200)
QUICK = Show("small-kill-test", 84, 300)  # no photo of the full sample: a holdout opens once


def sample(
    folder: Annotated[Path, typer.Argument(help="The folder to draw into.")],
    seed: Annotated[int, typer.Option(min=0)] = SAMPLE_SEED,
    shipments: Annotated[int, typer.Option(min=1)] = SAMPLE_SHIPMENTS,
    *,
    as_json: JsonOption = False,
) -> None:
    """Draw the sample archive: photos of parcels, the same bytes for the same seed."""
    OPTIONS.json = as_json
    summary = _draw(folder, seed, shipments)
    if as_json:
        print_json({"folder": str(folder), **summary})
        return
    print_table(str(folder), ("what", "how much"), [(k, str(v)) for k, v in summary.items()])


def demo(
    seed: SeedOption = None,
    shipments: ShipmentsOption = None,
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="All 82 trials, but small: a few minutes.")
    ] = False,
    held: Annotated[
        bool, typer.Option("--held", help="The search whose winner is held for a decision.")
    ] = False,
    few: Annotated[
        bool, typer.Option("--few", help="The search with too few shipments to judge a crossing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Draw the sample archive and run a whole search on it, to a packet or to a hold."""
    OPTIONS.json = as_json
    from parcel_assets.cli_run import run_revision

    if quick + held + few > 1:
        raise typer.BadParameter("--quick, --held and --few are searches of their own: give one.")
    settings = OPTIONS.settings()
    show = QUICK if quick else HELD if held else FEW if few else FULL
    shipped = shipped_plan(show.plan, settings)
    wanted = Show(show.plan, _or(seed, show.seed), _or(shipments, show.shipments))
    folder = _archive_folder(shipped, show, wanted, settings)
    say(f"Sample archive: {folder}")
    _draw(folder, wanted.seed, wanted.shipments)
    found = _pinned(shipped, folder, settings)
    say(f"Search revision {found.revision}: {found.plan.purpose}")
    code = run_revision(str(found.path), settings)
    standing = standing_of(load_chain(found.revision, open_ports(settings)))
    if not as_json:
        if standing.state == HOLD:
            say("A hold is a proper end: it says what is missing, and waits for a person.")
        say("See it in Dagster:  parcel-assets ui", style="bold")
    raise typer.Exit(0 if standing.state == HOLD else code)


def open_ui(port: Annotated[int, typer.Option(help="The port on this machine.")] = UI_PORT) -> None:
    """Serve Dagster's pages on this machine, with the searches that were run from here."""
    from parcel_assets.cli_ui import serve_ui

    raise typer.Exit(serve_ui(OPTIONS.settings(), port))


def _or(value: int | None, usual: int) -> int:
    return usual if value is None else value


def _archive_folder(shipped: PlanFile, show: Show, wanted: Show, settings: Settings) -> Path:
    usual = settings.data / shipped.plan.snapshot.location
    if wanted == show:
        return usual
    return usual.with_name(f"{usual.name}-{wanted.seed}-{wanted.shipments}")


def _draw(folder: Path, seed: int, shipments: int) -> dict[str, object]:
    from parcel_assets.cli_progress import bar

    with bar("drawing shipments") as listener:

        def tell(done: int, total: int) -> None:
            listener("progress", {"done": done, "total": total})

        processes = min(4, os.cpu_count() or 1)
        summary = draw_sample(
            folder, seed=seed, shipments=shipments, processes=processes, progress=tell
        )
    return dict(summary)


def _pinned(shipped: PlanFile, folder: Path, settings: Settings) -> PlanFile:
    """Return the shipped plan where it pins this archive, else a copy of it that does."""
    from parcel_assets.cli_progress import bar
    from parcel_assets.steps.data import pin_archive

    plan = shipped.plan
    location = folder.relative_to(settings.data).as_posix()
    section = plan.snapshot.model_copy(update={"location": location})
    with bar("decoding photos") as listener:
        summary = pin_archive(
            section, plan.preprocess.image_size_pixels, open_ports(settings, listener)
        )
    if summary.snapshot_digest == plan.snapshot.digest:
        return shipped
    name = f"{shipped.revision}-{short(summary.snapshot_digest)}"
    fields = {
        # an archive of its own: shipments of another drawing share numbers, not parcels
        "archive": f"{section.archive}-{short(summary.snapshot_digest)}",
        "location": location,
        "digest": summary.snapshot_digest,
    }
    return copy_plan(shipped, name, fields, settings)
