"""`parcel-assets holdout` and `revisions`: what was opened by whom, and what follows what."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from parcel_assets.cli_common import OPTIONS, JsonOption, print_json, print_table, say
from parcel_assets.core.errors import SettingError
from parcel_assets.wiring import make_label_key, open_ports

holdout_app = typer.Typer(
    no_args_is_help=True, help="Say what of the holdout is left, and open it."
)

Revision = Annotated[str, typer.Argument(metavar="REVISION", help="The search revision.")]
ABSENT = "-"


@holdout_app.command(name="status")
def holdout_status(
    archive: Annotated[str | None, typer.Option(help="Only of this archive.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Show unseen, sealed, opened and spent shipments, by tranche, with revision and date."""
    from parcel_assets.steps import holdouts

    OPTIONS.json = as_json
    ports = open_ports(OPTIONS.settings(), creates=False)
    found = holdouts.holdout_status(ports, archive)
    if archive is not None and not found:
        known = sorted({one.archive for one in holdouts.revision_lines(ports)})
        raise SettingError(
            f"no archive {archive!r}",
            expected="an archive that a registered plan names",
            where="ledger",
            remedy=f"Pick one of: {', '.join(known) or 'none yet'}.",
        )
    for one in found:
        for row in one["rows"]:
            row["opened_on"] = _day(row.pop("opened_at"))
    if as_json:
        print_json({"archives": found})
        return
    if not found:
        say("No plan is registered yet, so no holdout was dealt.")
    for one in found:
        rows = [
            (
                row["tranche"] or "whole",
                row["state"],
                row["shipments"],
                row["revision"] or "nobody",
                row["opened_on"] or ABSENT,
                ", ".join(row["first"]) + (", …" if row["shipments"] > len(row["first"]) else ""),
            )
            for row in one["rows"]
        ]
        columns = ("tranche", "state", "shipments", "search revision", "opened on", "first")
        print_table(f"holdout of {one['archive']}", columns, rows)
        for unread in one["faults"]:
            say(f"What {unread['revision']} has is not known: {unread['fault']}", style="bold red")


@holdout_app.command(name="key")
def holdout_key(
    out: Annotated[Path, typer.Option(help="A new file of the key-holder's own, for the key.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Make a key-holder's key; its recipient is set before a search's split, for level L3."""
    OPTIONS.json = as_json
    recipient = make_label_key(out)
    if as_json:
        print_json({"recipient": recipient, "key": str(out)})
        return
    typer.echo(f"PARCEL_ASSETS_HOLDOUT_RECIPIENT={recipient}")
    say(
        f"Whoever searches sets this before the split; {out} stays with the key-holder.", error=True
    )


@holdout_app.command(name="open")
def holdout_open(
    revision: Revision,
    key: Annotated[Path, typer.Option(help="The private key that the labels were sealed to.")],
    *,
    without_l3: Annotated[
        bool,
        typer.Option(
            "--without-l3",
            help="Open although the packet can then not claim L3, such as with a key that others "
            "could read. Once and for good.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Open a search's holdout once, as the key-holder, for the model that was frozen."""
    from parcel_assets.core.timestamps import level_words
    from parcel_assets.steps.evaluation import evaluate_final

    OPTIONS.json = as_json
    if not os.access(key, os.R_OK):
        raise SettingError(
            "no such file, or none that this user may read",
            expected="the key-holder at work, with the file that `parcel-assets holdout key --out "
            "PATH` wrote",
            where=str(key),
            remedy="Name the file with --key. Nothing was opened.",
        )
    settings = replace(
        OPTIONS.settings(), holdout_key=key.absolute(), holdout_without_l3=without_l3
    )
    ports = open_ports(settings, creates=False)
    body = evaluate_final(revision, ports).body
    if as_json:
        print_json({"revision": revision, **body})
        return
    say(f"{revision}: {body['outcome']}", style="bold")
    say(f"  {body['sentence']}")
    words = level_words(body, ports.ledger.events(revision))
    say(f"  Evidence level {body['evidence_level']}: {words}.")
    say(f"  next:  parcel-assets run {revision}")


@holdout_app.command(name="release")
def holdout_release(
    revision: Revision,
    to: Annotated[Path, typer.Option("--to", help="A folder for the auditor; made if need be.")],
    reason: Annotated[str, typer.Option(help="For whom and why; the ledger keeps it.")],
    key: Annotated[Path | None, typer.Option(help="The key-holder's private key.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Hand labels, salt and predictions of a judged holdout to an auditor, and record it."""
    from parcel_assets.steps.disclosure import release_holdout

    OPTIONS.json = as_json
    settings = replace(OPTIONS.settings(), holdout_key=None if key is None else key.absolute())
    told = release_holdout(revision, open_ports(settings, creates=False), reason=reason, folder=to)
    if as_json:
        print_json({"revision": revision, "folder": str(to), **told})
        return
    say(f"{told['photos']} labels, their salt and predictions are in {to}", style="bold")
    say("  The labels are those of the commitment, and give the result on record.")


def revisions(*, as_json: JsonOption = False) -> None:
    """List every search revision, abandoned ones too: what it follows, why, and where it stands."""
    from parcel_assets.cli_run import standing_or_fault
    from parcel_assets.steps.holdouts import revision_lines

    OPTIONS.json = as_json
    ports = open_ports(OPTIONS.settings(), creates=False)
    rows: list[dict[str, Any]] = []
    for one in revision_lines(ports):
        standing = standing_or_fault(one.revision, ports)
        rows.append(
            {
                "revision": one.revision,
                "archive": one.archive,
                "began_on": _day(one.began_at),
                "parent": one.parent.revision if one.parent else None,
                "reason": one.parent.reason if one.parent else None,
                "state": standing.hold or standing.state,
                "tranche": one.claim.tranche,
                "holdout": one.claim.state,
                "holdout_shipments": len(one.claim.shipments),
                "opened_on": _day(one.claim.opened_at),
                "packet_digest": one.packet_digest,
                "verdict": standing.facts.get("verdict"),
            }
        )
    if as_json:
        print_json({"revisions": rows})
        return
    columns = ("revision", "began", "follows", "why", "stands", "tranche", "holdout", "packet")
    print_table(
        "search revisions",
        columns,
        [
            (
                row["revision"],
                row["began_on"],
                row["parent"] or ABSENT,
                row["reason"] or ABSENT,
                row["verdict"] or row["state"],
                row["tranche"] or ABSENT,
                row["holdout"] + (f" {row['opened_on']}" if row["opened_on"] else ""),
                str(row["packet_digest"])[:12] if row["packet_digest"] else ABSENT,
            )
            for row in rows
        ],
    )


def _day(at_seconds: float | None) -> str | None:
    if at_seconds is None:
        return None
    return datetime.fromtimestamp(at_seconds, UTC).date().isoformat()
