"""`parcel-assets ledger`: verify, show and export what a search revision's chain says."""

import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from parcel_assets.cli_common import (
    EXIT_ERROR,
    OPTIONS,
    JsonOption,
    print_json,
    print_table,
    say,
)
from parcel_assets.core.codec import DIGEST_LENGTH, canonical_json, short
from parcel_assets.core.errors import LedgerError, SettingError
from parcel_assets.core.ledger import Event, Kind, verify_chain
from parcel_assets.core.ledger_audit import LedgerAudit
from parcel_assets.core.packet_rows import event_row
from parcel_assets.core.replay import ReplayedDecision, replay_decisions
from parcel_assets.wiring import open_ports

ledger_app = typer.Typer(no_args_is_help=True, help="Verify, show and export a ledger.")

FOLLOW_SECONDS = 1.0
SHOWN_CHARACTERS = 110
FAULTS_SHOWN = 20
HEX = "0123456789abcdef"

Revision = Annotated[str, typer.Argument(help="The search revision.")]


@ledger_app.command()
def verify(
    revision: Annotated[str | None, typer.Argument(help="The search revision.")] = None,
    file: Annotated[
        Path | None, typer.Option(help="An exported chain; needs no database and no store.")
    ] = None,
    head: Annotated[
        str | None, typer.Option(help="The digest at which the chain must end, known otherwise.")
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Recompute the chain, fold it, compare it with tables, evidence and anchors."""
    OPTIONS.json = as_json
    if (revision is None) == (file is None):
        raise typer.BadParameter("name either a search revision or --file")
    audit = _audit_revision(str(revision)) if file is None else _audit_file(file)
    ends_at = audit.events[-1].digest if audit.events else ""
    other_head = head is not None and not (len(head) >= 8 and ends_at.startswith(head))
    if as_json:
        print_json(audit.document() | ({"head_as_given": not other_head} if head else {}))
    elif other_head and not audit.faults:
        say(f"{file or f'ledger of {revision}'}: not at the head given", style="bold red")
        say(f"  found     a chain that ends at event {len(audit.events)}, {ends_at}")
        say(f"  expected  {head}")
    else:
        _tell(audit, file, head)
    if audit.faults or other_head:
        raise typer.Exit(EXIT_ERROR)


def _audit_revision(revision: str) -> LedgerAudit:
    from parcel_assets.steps.ledger import audit_ledger

    return audit_ledger(revision, open_ports(OPTIONS.settings(), creates=False))


def _audit_file(file: Path) -> LedgerAudit:
    from parcel_assets.steps.ledger import audit_lines

    if not file.is_file():
        raise SettingError(
            "a folder" if file.is_dir() else "no such file",
            expected="a chain written by `parcel-assets ledger export REVISION`",
            where=str(file),
            remedy="Name the exported file.",
        )
    return audit_lines(file.read_bytes().split(b"\n"))  # other line ends may stand in a reason


def _tell(audit: LedgerAudit, file: Path | None, head: str | None) -> None:
    place = f"ledger of {audit.revision}" if file is None else str(file)
    first = audit.first
    if first is None:
        newest = audit.events[-1]
        against = f"; tables, evidence and {audit.anchors} anchors agree" if file is None else ""
        say(f"{place}: sound", style="bold green")
        say(f"  {len(audit.events)} events, folded{against}")
        say(f"  head {newest.digest} (event {newest.sequence})")
        if file is not None and head is None:
            say("  whether its end was cut off, only --head with a digest kept elsewhere says")
        return
    at = f"event {first.sequence}" + (f" ({first.kind})" if first.kind else "")
    say(f"{place}: first fault at {at if first.sequence else first.place}", style="bold red")
    say(f"  found     {first.found}")
    say(f"  expected  {first.expected}")
    rows = [(one.place, one.sequence, one.kind, one.found, one.expected) for one in audit.faults]
    shown = rows[:FAULTS_SHOWN]
    print_table(f"{len(rows)} faults", ("place", "event", "kind", "found", "expected"), shown)
    say("Restore the ledger from a copy; `packet verify` says whether a packet still holds.")


@ledger_app.command()
def show(
    revision: Revision,
    kind: Annotated[str | None, typer.Option(help="Only events of this kind.")] = None,
    trial: Annotated[
        str | None, typer.Option(help="Only of this trial, rerun or reference.")
    ] = None,
    attempt: Annotated[str | None, typer.Option(help="Only of this attempt.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 50,
    *,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as events come.")] = False,
    prunes: Annotated[
        bool, typer.Option("--prunes", help="Every prune decision, replayed from its cut table.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the events of a revision, or its prune decisions, replayed."""
    OPTIONS.json = as_json
    ledger = open_ports(OPTIONS.settings(), creates=False).ledger
    events = _known(ledger.events(revision), revision, ledger.revisions())
    broken = _broken(events)
    if prunes:
        if broken is not None:  # a replay of it would say nothing
            raise broken
        _show_prunes(events)
        return
    _warn(broken)
    chosen = [one for one in events if _asked(one, _kind(kind), trial, attempt)]
    if as_json:
        fault = {"chain_fault": broken.as_fields()} if broken is not None else {}
        print_json(
            {"revision": revision, "events": [event_row(one) for one in chosen[-limit:]], **fault}
        )
        raise typer.Exit(_code(broken))
    began = events[0].at_seconds
    rows = [_row(one, began) for one in chosen[-limit:]]
    title = f"{revision}: {len(rows)} of {len(chosen)} events"
    print_table(title, ("event", "after s", "kind", "of", "what it says"), rows)
    newest = events[-1].sequence
    while follow:
        time.sleep(FOLLOW_SECONDS)
        for event in ledger.events(revision, newest):
            newest = event.sequence
            if _asked(event, _kind(kind), trial, attempt):
                say("  ".join(str(one) for one in _row(event, began)))
    raise typer.Exit(_code(broken))


def _known(events: tuple[Event, ...], revision: str, revisions: Sequence[str]) -> tuple[Event, ...]:
    if not events:
        known = f"Pick one of: {', '.join(revisions)}."
        raise SettingError(
            f"no event of search revision {revision!r}",
            expected="a revision whose plan is registered",
            where="ledger",
            remedy=known if revisions else "Register a plan first.",
        )
    return events


def _broken(events: tuple[Event, ...]) -> LedgerError | None:
    """Return what is wrong with the chain, or None."""
    try:
        verify_chain(events)
    except LedgerError as error:
        return error
    return None


def _warn(broken: LedgerError | None) -> None:
    """Say that the chain is shown or exported as it is, but not as if it were sound."""
    if broken is not None:
        say(f"warning: {broken}", style="bold red", error=True)


def _code(broken: LedgerError | None) -> int:
    return 0 if broken is None else EXIT_ERROR


def _kind(name: str | None) -> Kind | None:
    if name is None:
        return None
    name = name.replace(" ", "_")  # as `show` prints it
    if name not in set(Kind):
        raise typer.BadParameter(f"no kind {name!r}; there are {', '.join(sorted(Kind))}")
    return Kind(name)


def _asked(event: Event, kind: Kind | None, trial: str | None, attempt: str | None) -> bool:
    body = event.body
    trials = {body.get("subject"), body.get("trial")}
    if event.kind == Kind.BATCH_OPENED:
        trials |= {one.get("trial_id") for one in body.get("trials", ())}
    return (
        (kind is None or event.kind == kind)
        and (trial is None or trial in trials)
        and (attempt is None or body.get("attempt") == attempt)
    )


def _row(event: Event, began: float) -> tuple[Any, ...]:
    body = event.body
    of = body.get("attempt") or body.get("subject") or body.get("trial") or body.get("stage") or ""
    told = {of, str(body.get("subject"))}
    rest = {n: one for n, one in body.items() if one not in (None, "", False, [], {})}
    words = ", ".join(f"{n} {_words(one)}" for n, one in rest.items() if str(one) not in told)
    if len(words) > SHOWN_CHARACTERS:
        words = words[: SHOWN_CHARACTERS - 1] + "…"
    after = f"{event.at_seconds - began:.1f}"
    return event.sequence, after, str(event.kind).replace("_", " "), of, words


def _words(value: Any) -> str:
    """Return a value for people: digests short, large things by their size."""
    if isinstance(value, str) and len(value) == DIGEST_LENGTH and not value.strip(HEX):
        return short(value)
    if isinstance(value, Mapping | list):
        return f"({len(value)})"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _why(decision: ReplayedDecision) -> str:
    aside = f"QUARANTINED: {decision.quarantined}" if decision.quarantined else ""
    return ". ".join(one for one in (aside, decision.reason) if one)


def _show_prunes(events: tuple[Event, ...]) -> None:
    from parcel_assets.core.plan_reader import plan_from_fields

    plan = plan_from_fields(events[0].body["plan"], where="frozen plan")
    decisions = replay_decisions(plan, events)
    differ = [one for one in decisions if not one.agrees]
    if OPTIONS.json:
        print_json(
            {
                "revision": events[0].revision,
                "decisions": [asdict(one) | {"agrees": one.agrees} for one in decisions],
                "all_agree": not differ,
            }
        )
    else:
        print_table(
            f"{len(decisions)} decisions, {len(decisions) - len(differ)} replay as recorded",
            ("attempt", "step", "cost", "cut", "values", "verdict", "replayed", "why"),
            [
                (
                    one.attempt,
                    one.step,
                    one.cost,
                    one.cut,
                    len(one.values),
                    one.verdict,
                    one.replayed_verdict,
                    one.fault or _why(one),
                )
                for one in decisions
            ],
        )
    if differ:
        raise typer.Exit(EXIT_ERROR)


@ledger_app.command()
def export(
    revision: Revision,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file; usually the standard output.")
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Write the chain as canonical JSON lines, and print its head."""
    OPTIONS.json = as_json
    ledger = open_ports(OPTIONS.settings(), creates=False).ledger
    events = _known(ledger.events(revision), revision, ledger.revisions())
    broken = _broken(events)
    _warn(broken)
    if output is None:
        sys.stdout.writelines(_lines(events))
        raise typer.Exit(_code(broken))
    output.write_text("".join(_lines(events)), encoding="utf-8")
    head = events[-1]
    if as_json:
        print_json(
            {
                "revision": revision,
                "file": str(output),
                "events": len(events),
                "head": {"sequence": head.sequence, "digest": head.digest},
                **({"chain_fault": broken.as_fields()} if broken is not None else {}),
            }
        )
        raise typer.Exit(_code(broken))
    say(f"{len(events)} events of {revision} in {output}")
    say(f"head {head.digest} (event {head.sequence}): keep it where the file's owner cannot write")
    say(f"parcel-assets ledger verify --file {shlex.quote(str(output))} --head {head.digest}")
    raise typer.Exit(_code(broken))


def _lines(events: tuple[Event, ...]) -> Iterator[str]:
    return (canonical_json(event_row(event)).decode() + "\n" for event in events)
