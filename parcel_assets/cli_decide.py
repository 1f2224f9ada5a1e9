"""The commands `decide` and `close`: a person answers a held search, or ends one for good."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from parcel_assets.cli_common import OPTIONS, JsonOption, print_json, say
from parcel_assets.cli_run import tell_standing
from parcel_assets.core.approval import who_words
from parcel_assets.core.errors import ParcelAssetsError
from parcel_assets.core.pending import Pending
from parcel_assets.core.ports import Ports
from parcel_assets.core.standing import standing_of
from parcel_assets.steps.admission import load_chain
from parcel_assets.wiring import open_ports, sign_with

NEEDED = ("revision", "outcome", "name", "role", "reason")


def close(
    revision: Annotated[str, typer.Argument(metavar="REVISION", help="The search to end.")],
    reason: Annotated[str, typer.Option(help="Why; the ledger keeps it.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """End a search for good, before its holdout is opened; its record is published."""
    OPTIONS.json = as_json
    from parcel_assets.steps.release import build_packet
    from parcel_assets.steps.search import close_search

    settings = OPTIONS.settings()
    ports = open_ports(settings, creates=False)
    close_search(revision, ports, reason=reason)
    build_packet(revision, ports)
    tell_standing(standing_of(load_chain(revision, ports)), settings)


def decide(
    revision: Annotated[
        str | None, typer.Argument(metavar="[REVISION]", help="The held revision.")
    ] = None,
    outcome: Annotated[
        Literal["accept", "replace", "close"] | None,
        typer.Option(help="accept with a scope; replace by the next trial; close without a winner"),
    ] = None,
    name: Annotated[
        str, typer.Option(help="Who decides. Self-declared, unless the plan lists approvers.")
    ] = "",
    role: Annotated[str, typer.Option(help="In which role, such as 'quality owner'.")] = "",
    reason: Annotated[str, typer.Option(help="Why; the packet prints it.")] = "",
    scope: Annotated[str, typer.Option(help="Where an acceptance holds.")] = "",
    expires: Annotated[str, typer.Option(help="Last day of an acceptance, YYYY-MM-DD (UTC).")] = "",
    slice_evidence: Annotated[
        str | None, typer.Option(help="Digest of the slice report seen; usually the current one.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Your private key (PEM), where the plan lists approvers.",
        ),
    ] = None,
    *,
    sign_only: Annotated[
        bool,
        typer.Option("--sign-only", help="Print the signature for Dagster's form; record nothing."),
    ] = False,
    pending: Annotated[
        bool, typer.Option("--pending", help="List what waits for whom, and change nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Record a person's decision about a held slice report, or list what waits for one."""
    OPTIONS.json = as_json
    ports = open_ports(OPTIONS.settings(), creates=False)
    if pending:
        _tell_pending(ports, revision)
        return
    given = dict(
        zip(NEEDED, (revision, outcome or "", name, role, reason), strict=True),
        scope=scope,
        expires_on=expires,
        slice_evidence=slice_evidence,
    )
    absent = [one for one in NEEDED if not given[one]]
    if absent or (sign_only and key is None):
        asked = ["--key"] if not absent else [f"--{one}" for one in absent]
        asked = [one if one != "--revision" else "REVISION" for one in asked]
        raise typer.BadParameter(f"give {', '.join(asked)}, or --pending to see what waits")
    _record(str(given.pop("revision")), ports, given, key, sign_only=sign_only)


def _record(
    revision: str, ports: Ports, given: dict[str, Any], key: Path | None, *, sign_only: bool
) -> None:
    from parcel_assets.steps.decision import Answer, record_decision, sign_answer
    from parcel_assets.steps.release import build_packet

    signature = ""
    if key is not None:
        signature = sign_answer(revision, ports, Answer(**given), partial(sign_with, key))
    if sign_only:
        if OPTIONS.json:
            print_json({"revision": revision, "signature": signature})
        else:
            typer.echo(signature)
        return
    recorded = record_decision(revision, ports, **given, signature=signature)
    outcome = recorded.decision.outcome
    record = build_packet(revision, ports) if outcome == "close" else None
    decision = recorded.decision.document()
    goes_on = f"parcel-assets packet show {revision}" if record else f"parcel-assets run {revision}"
    if OPTIONS.json:
        print_json(
            {
                "decision": decision,
                "who": who_words(decision),
                "consequence": recorded.consequence,
                "next": recorded.next_step,
                "next_command": goes_on,
            }
        )
        return
    say(f"Recorded: {outcome}, by {who_words(decision)}.", style="bold")
    say(f"  {recorded.consequence}")
    say(f"  {recorded.next_step}")
    say(f"  next:  {goes_on}")


def _tell_pending(ports: Ports, revision: str | None) -> None:
    """Print what waits, of one revision or of all; one that cannot be read hides no other."""
    from parcel_assets.steps.decision_numbers import pending_decision

    waiting: list[Pending] = []
    unread: list[Mapping[str, Any]] = []
    for one in (revision,) if revision is not None else ports.ledger.revisions():
        try:
            found = pending_decision(one, ports)
        except ParcelAssetsError as error:
            if revision is not None:
                raise
            unread.append({"revision": one, **error.as_fields()})
            continue
        waiting += [found] if found is not None else []
    if OPTIONS.json:
        print_json({"pending": [one.document() for one in waiting], "unreadable": unread})
        return
    if not waiting:
        say("Nothing waits for a decision.")
    for found in waiting:
        say(f"{found.revision}: {found.hold}, since {found.since}", style="bold yellow")
        informed = " (slice-informed: in the place of a held one)" * found.is_slice_informed
        say(f"  candidate  {found.candidate}{informed}")
        for words in (*found.slices, *found.notes):
            say(f"  - {words}")
        say(f"  if accepted: {found.if_accepted}")
        say(f"  who may decide: {'; '.join(found.may_decide)}")
        for outcome, line in found.commands.items():
            say(f"  {outcome:<8} {line}")
    for fault in unread:
        say(f"{fault['revision']}: cannot be read: {fault['found']}", style="bold red", error=True)
