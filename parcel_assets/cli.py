"""The command line: names and groups of the commands. What they do is in the cli_* files."""

from typing import Annotated

import typer

from parcel_assets import __version__
from parcel_assets.cli_common import OPTIONS, RefusingGroup
from parcel_assets.cli_decide import close, decide
from parcel_assets.cli_demo import demo, open_ui, sample
from parcel_assets.cli_drill import drill
from parcel_assets.cli_holdout import holdout_app, revisions
from parcel_assets.cli_ledger import ledger_app
from parcel_assets.cli_packet import packet_app
from parcel_assets.cli_plan import plan_app, snapshot_app
from parcel_assets.cli_run import run, status
from parcel_assets.cli_simulate import simulate_gates

app = typer.Typer(
    cls=RefusingGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Search for a damage model under rules, from pinned photos to a release packet.",
    epilog="Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 a hold with a named reason.",
)
app.add_typer(snapshot_app, name="snapshot")
app.add_typer(plan_app, name="plan")
app.add_typer(packet_app, name="packet")
app.command(name="simulate-gates")(simulate_gates)
app.add_typer(ledger_app, name="ledger")
app.add_typer(holdout_app, name="holdout")
app.command()(revisions)
app.command()(demo)
app.command()(sample)
app.command()(run)
app.command()(status)
app.command()(decide)
app.command()(drill)
app.command()(close)
app.command(name="ui")(open_ui)


def _version(asked: bool) -> None:  # typer hands over the value
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    data: Annotated[
        str | None,
        typer.Option(help="Where everything is kept (PARCEL_ASSETS_DATA; usually ./data)."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Trials that run at once (PARCEL_ASSETS_WORKERS).")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="Where workers run: local, ray, ray:HOST:PORT (PARCEL_ASSETS_ENGINE)."),
    ] = None,
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show stack traces.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Take the options that every command shares."""
    _ = version
    OPTIONS.data, OPTIONS.workers, OPTIONS.engine = data, workers, engine
    OPTIONS.debug, OPTIONS.json = debug, False
