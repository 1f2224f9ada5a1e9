"""What all commands share: options, how a refusal is printed, exit codes, tables.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 a hold with a named reason, 130 stopped.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from parcel_assets.core.command_words import NAME, Called
from parcel_assets.core.errors import ParcelAssetsError, SettingError, refused_by_the_system
from parcel_assets.wiring import Settings

EXIT_ERROR, EXIT_HOLD, EXIT_STOPPED = 1, 3, 130
PLAIN_WIDTH = 160

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@dataclass(slots=True)
class Options:
    """What was asked for before the command's name, and whether the command prints JSON."""

    data: str | None = None
    workers: int | None = None
    engine: str | None = None
    debug: bool = False
    json: bool = False

    def settings(self) -> Settings:
        """Return the settings under these options."""
        return Settings.read(data=self.data, workers=self.workers, engine=self.engine)


OPTIONS = Options()


class RefusingGroup(TyperGroup):
    """Prints a refusal as found, expected, where and what to do, without a stack trace."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a refusal ends it with exit code 1, or 3 where it is a hold."""
        try:
            return super().invoke(ctx)
        except ParcelAssetsError as error:
            if OPTIONS.debug:
                raise
            raise typer.Exit(print_refusal(error.as_fields())) from None
        except OSError as error:
            if OPTIONS.debug or isinstance(error, BrokenPipeError):
                raise
            raise typer.Exit(print_refusal(refused_by_the_system(error).as_fields())) from None
        except UnicodeError as error:
            if OPTIONS.debug:
                raise
            raise typer.Exit(print_refusal(_no_text(error).as_fields())) from None
        except KeyboardInterrupt:
            say("\nStopped. Nothing is lost: the same command goes on from here.", error=True)
            raise typer.Exit(EXIT_STOPPED) from None


def _no_text(error: UnicodeError) -> SettingError:
    return SettingError(
        f"bytes that are no text ({error.reason})"
        if isinstance(error, UnicodeDecodeError | UnicodeEncodeError)
        else f"what is no text ({error})",
        expected="UTF-8 in every argument and file",
        where=NAME,
        remedy="Type the argument again, or save the file as UTF-8. Nothing of it was recorded.",
    )


def console(*, error: bool = False) -> Console:
    """Return a console; where there is no terminal it writes plain, unwrapped lines."""
    stream = sys.stderr if error else sys.stdout
    terminal = stream.isatty()
    return Console(
        emoji=False,  # a slice is called cameras:top, which is no pictogram
        file=stream,
        width=None if terminal else PLAIN_WIDTH,
        no_color=not terminal or "NO_COLOR" in os.environ,
        highlight=False,
        soft_wrap=not terminal,
    )


def pasteable(text: str) -> str:
    """Return the text with every command in it as it must be typed here: path, data folder."""
    program = Path(sys.argv[0])
    own = program.name == NAME and program.is_file() and not shutil.which(NAME)
    called = Called(
        program=os.path.relpath(program) if own else NAME,
        data=OPTIONS.data,
        workers=OPTIONS.workers,
        engine=OPTIONS.engine,
    )
    return called.pasteable(text)


def say(text: str = "", *, style: str | None = None, error: bool = False) -> None:
    """Print one line for people; with --json it goes to the error stream."""
    line = pasteable(text)
    console(error=error or OPTIONS.json).print(line, style=style, markup=False, soft_wrap=True)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a small table."""
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.show_header = any(columns)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_shown(one) for one in row))
    console(error=OPTIONS.json).print(table)


def print_refusal(fields: Mapping[str, Any]) -> int:
    """Print a refusal and return the exit code that it means."""
    hold = fields.get("hold")
    if OPTIONS.json:
        print_json({**fields, "remedy": pasteable(str(fields["remedy"]))})
        return EXIT_HOLD if hold else EXIT_ERROR
    head = str(hold) if hold else _words(str(fields["error"]))
    say(f"{head}: {fields['where']}", style="bold yellow" if hold else "bold red", error=True)
    faults = [
        one if isinstance(one, str) else f"{one['path'] or 'plan'}: {one['fault']}"
        for one in fields.get("faults") or []
    ]
    found = str(fields["found"])
    if faults and all(one in found for one in faults):
        found = found.partition(":")[0]  # each has a line of its own below
    for word, text in (
        ("found", found),
        ("expected", fields["expected"]),
        ("do", fields["remedy"]),
    ):
        say(f"  {word:<9} {text}", error=True)
    for one in faults:
        say(f"  - {one}", error=True)
    return EXIT_HOLD if hold else EXIT_ERROR


def _words(error: str) -> str:
    kind = error.removesuffix("Error")
    return "".join(f" {one.lower()}" if one.isupper() else one for one in kind).strip() + " refused"


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else pasteable(str(value))
