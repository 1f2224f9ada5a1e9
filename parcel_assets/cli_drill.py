"""The command `drill`: brings incidents about around small real searches, judges the outcome."""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from parcel_assets.cli_common import (
    EXIT_ERROR,
    EXIT_STOPPED,
    OPTIONS,
    JsonOption,
    print_json,
    print_table,
    say,
)
from parcel_assets.core.errors import ParcelAssetsError, SettingError
from parcel_assets.drills.ground import Base
from parcel_assets.drills.records import Report
from parcel_assets.drills.registry import DRILLS, Drill, run_drill

MARKS = {True: "right", False: "WRONG"}


def drill(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Which; none runs them all.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Keep data folders and Dagster's pages in this new folder.")
    ] = None,
    *,
    show_list: Annotated[bool, typer.Option("--list", help="List the drills and end.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring an incident about around a small real search, and say whether it was handled rightly.

    Workers really train; copied files, signals, changed inputs and other processes disturb them
    from outside. Exit code 0 only if every outcome is the right one. No setting reaches a drill: it
    has a folder, a SQLite ledger and two local workers of its own.
    """
    OPTIONS.json = as_json
    if show_list:
        _list()
        return
    drills = _chosen(names or [])
    _require_no_settings()
    _require_processes()
    _tell_unused(os.environ)
    reports: list[Report] = []
    with _stopped_like_ctrl_c(), _folder(keep) as root:
        base = Base(root, lambda words: say(f"  {words}", style="dim"))
        for number, one in enumerate(drills, start=1):
            say(f"[{number}/{len(drills)}] {one.name}: {one.incident}", style="bold")
            reports.append(_run(one, base))
            if not as_json:
                _tell(reports[-1], one, kept=keep is not None)
    passed = all(report.passed for report in reports)
    if as_json:
        print_json({"passed": passed, "drills": [report.document() for report in reports]})
    elif len(reports) > 1:
        rows = [(r.name, MARKS[r.passed], f"{r.seconds:.0f} s", _summary(r)) for r in reports]
        print_table("drills", ("drill", "outcome", "took", ""), rows)
    raise typer.Exit(0 if passed else EXIT_ERROR)


def _list() -> None:
    if OPTIONS.json:
        fields = [{"drill": d.name, "incident": d.incident, "right": d.right} for d in DRILLS]
        print_json({"drills": fields})
        return
    rows = [(one.name, one.incident, one.right) for one in DRILLS]
    print_table("drills", ("drill", "incident", "the right outcome"), rows)


def _chosen(names: list[str]) -> tuple[Drill, ...]:
    known = {one.name: one for one in DRILLS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SettingError(
            f"no drill {unknown[0]!r}",
            expected=f"one of: {', '.join(known)}",
            where="parcel-assets drill",
            remedy="List them with `parcel-assets drill --list`.",
        )
    return tuple(known[name] for name in dict.fromkeys(names)) or DRILLS


def _require_no_settings() -> None:
    """Refuse options that would change nothing: a drill that seems to run on Ray is a false one."""
    asked = {"--data": OPTIONS.data, "--workers": OPTIONS.workers, "--engine": OPTIONS.engine}
    given = [name for name, value in asked.items() if value is not None]
    if given:
        raise SettingError(
            f"{', '.join(given)} before `drill`",
            expected="none of them: a drill has a folder and two local workers of its own",
            where="parcel-assets drill",
            remedy="Leave it out; --keep names a folder to keep.",
        )


def _tell_unused(environment: Mapping[str, str]) -> None:
    """Say which settings are set and reach no drill: they may be set for everything else."""
    unused = sorted(
        name
        for name, value in environment.items()
        if value and (name.startswith("PARCEL_ASSETS_") or name == "DAGSTER_HOME")
    )
    if unused:
        say(
            f"Not used by a drill, which has a folder, a SQLite ledger and two local workers of "
            f"its own: {', '.join(unused)}.",
            style="yellow",
        )


def _require_processes() -> None:
    if not sys.platform.startswith("linux"):
        raise SettingError(
            f"the system {sys.platform}",
            expected="Linux: drills find and disturb processes through /proc",
            where="parcel-assets drill",
            remedy="Run it on Linux, in a container for instance.",
        )


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Give the folder that drills work in: a new one that stays, or one that goes."""
    if keep is None:
        root = Path(tempfile.mkdtemp(prefix="parcel-assets-drill-"))
        try:
            yield root
        finally:
            shutil.rmtree(root)
        return
    if keep.exists() and any(keep.iterdir()):
        raise SettingError(
            "a folder that is not empty",
            expected="a new or empty folder",
            where=str(keep),
            remedy="Name another folder; every drill starts from nothing.",
        )
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.absolute()


@contextmanager
def _stopped_like_ctrl_c() -> Iterator[None]:
    """Let a polite stop end the drill as Ctrl-C does: cleaned up, with exit code 130."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        say("\nStopped. Whatever the drill had started is ended.", error=True)
        raise typer.Exit(EXIT_STOPPED) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(one: Drill, base: Base) -> Report:
    """Run one drill; an incident that could not be brought about is a wrong outcome in words."""
    began = time.monotonic()
    try:
        return run_drill(one, base, base.tell)
    except ParcelAssetsError as error:
        report = Report(one.name, seconds=time.monotonic() - began)
        report.detected.append(f"the drill itself failed: {error}")
        return report


def _tell(report: Report, one: Drill, *, kept: bool) -> None:
    for title, lines in (
        ("injected", [f"{i.words} (after event {i.sequence})" for i in report.injections]),
        ("detected", report.detected),
        ("quarantined, lost, run again", report.settled),
    ):
        if lines:
            say(f"  {title}")
            for line in lines:
                say(f"    {line}")
    say("  outcome")
    for check in report.checks:
        style = None if check.passed else "bold red"
        say(f"    {'yes' if check.passed else 'NO '}  {check.question} {check.answer}", style=style)
    if kept:
        say("  look at it")
        for line in report.evidence:
            say(f"    {line}")
    words = f"{report.name}: {MARKS[report.passed]} outcome"
    style = "bold green" if report.passed else "bold red"
    say(f"  {words} ({one.right}), {report.seconds:.0f} s", style=style)


def _summary(report: Report) -> str:
    failed = [check.question for check in report.checks if not check.passed]
    if not report.checks:
        return report.detected[-1] if report.detected else "nothing was judged"
    return failed[0] if failed else f"{len(report.checks)} of {len(report.checks)} answers right"
