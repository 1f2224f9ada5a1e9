"""The commands `packet fetch|verify|show`."""

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from parcel_assets import fetch_packet, verify_packet
from parcel_assets.cli_common import EXIT_ERROR, OPTIONS, JsonOption, print_json, print_table, say
from parcel_assets.core.errors import PacketError
from parcel_assets.core.evidence import PacketBody
from parcel_assets.core.packet_text import reuse_words
from parcel_assets.core.stage import Stage
from parcel_assets.steps.admission import load_chain
from parcel_assets.wiring import Settings, open_ports

packet_app = typer.Typer(no_args_is_help=True, help="Fetch, verify and read release packets.")

PacketArgument = Annotated[
    str, typer.Argument(metavar="PACKET", help="A packet's folder, or a search revision.")
]
DigestOption = Annotated[
    str | None, typer.Option("--digest", help="The packet digest that you were told.")
]
KeyOption = Annotated[
    Path | None,
    typer.Option("--public-key", help="The release key in PEM, as its owner gave it to you."),
]


@packet_app.command(name="fetch")
def packet_fetch(
    location: Annotated[str, typer.Argument(help="A path, a revision, or any fsspec URL.")],
    target: Annotated[Path, typer.Argument(help="The folder to make.")],
    digest: DigestOption = None,
    public_key: KeyOption = None,
    *,
    usable_only: Annotated[
        bool, typer.Option("--usable-only", help="Refuse a packet that releases no model.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy a packet and verify it; nothing appears at the target unless it verifies."""
    OPTIONS.json = as_json
    settings = OPTIONS.settings()
    known = location in open_ports(settings, creates=False).ledger.revisions()
    source = str(_folder_of(location, settings)) if known else location
    fetched = fetch_packet(
        source,
        target,
        expected_digest=digest,
        public_key=_key(public_key),
        usable_only=usable_only,
    )
    if as_json:
        print_json(
            {
                "folder": str(fetched.folder),
                "digest": fetched.digest,
                "verdict": fetched.verdict,
                "signature": fetched.signature_sentence,
            }
        )
        return
    say(f"Verified packet in {fetched.folder}", style="bold")
    say(f"  digest  {fetched.digest}")
    say(f"  {fetched.signature_sentence}")


@packet_app.command(name="verify")
def packet_verify(
    packet: PacketArgument,
    digest: DigestOption = None,
    public_key: KeyOption = None,
    *,
    timestamp_root: Annotated[
        Path | None,
        typer.Option(
            "--timestamp-root",
            help="Roots in PEM that you trust: split and choice must be timestamped under one.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check every file of a packet against its list, and the list's signature."""
    OPTIONS.json = as_json
    folder = _folder_of(packet, OPTIONS.settings())
    found = verify_packet(folder, digest, _key(public_key), _key(timestamp_root))
    good = not found["faults"] and found["signature_ok"]
    if as_json:
        print_json({"folder": str(folder), "verifies": good, **found})
    else:
        say("Verifies." if good else "Does NOT verify.", style="bold green" if good else "bold red")
        say(f"  folder  {folder}")
        say(f"  digest  {found['packet_digest']}")
        say(f"  {found['signature_sentence']}")
        for sentence in found["timestamp_sentences"]:
            say(f"  {sentence}")
        for fault in found["faults"]:
            say(f"  - {fault}", style="red")
    if not good:
        raise typer.Exit(EXIT_ERROR)


@packet_app.command(name="show")
def packet_show(packet: PacketArgument, *, as_json: JsonOption = False) -> None:
    """Print a packet's first page."""
    OPTIONS.json = as_json
    folder = _folder_of(packet, OPTIONS.settings())
    path = folder / "VERDICT.json"
    try:
        verdict = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise PacketError(
            f"a first page that cannot be read ({error})",
            expected="a packet with VERDICT.json",
            where=str(folder),
            remedy=f"Verify the packet: `parcel-assets packet verify {shlex.quote(packet)}`.",
            file="VERDICT.json",
        ) from error
    if as_json:
        print_json(verdict)
        return
    found = verify_packet(folder)
    if found["faults"] or not found["signature_ok"]:
        say(f"This packet does NOT verify: {found['signature_sentence']}", style="bold red")
        for fault in found["faults"]:
            say(f"  - {fault}", style="red")
        raise typer.Exit(EXIT_ERROR)
    say(str(verdict["sentence"]), style="bold")
    page = _values(verdict["first_page"])
    print_table(
        "",
        (),
        _closed_rows(verdict, page)
        if "closing" in page
        else _first_page_rows(page, verdict["evidence_level_means"]),
    )
    slices = page.get("slices", {}).get("slices", [])
    rows = [(one["outcome"].upper(), one["role"], one["sentence"]) for one in slices]
    print_table("slices", ("outcome", "role", "what was found"), rows)
    say(f"Every number and its source: parcel-assets packet show {shlex.quote(packet)} --json")
    say(f"Report: {folder / 'report.html'}")


def _folder_of(packet: str, settings: Settings) -> Path:
    """Return the folder of a packet named by path or by revision."""
    if Path(packet).is_dir():
        return Path(packet)
    chain = load_chain(packet, open_ports(settings, creates=False))
    if Stage.PACKET not in chain.evidence:
        raise PacketError(
            f"no packet of {packet}",
            expected="a revision whose packet is published",
            where="ledger",
            remedy=f"Run `parcel-assets run {packet}`.",
            file="",
        )
    body = PacketBody.model_validate(chain.evidence[Stage.PACKET].body)
    return settings.packets / body.folder


def _key(path: Path | None) -> bytes | None:
    return path.read_bytes() if path is not None else None


def _values(fact: Any) -> Any:
    """Return facts with their values in place of (value, source) pairs."""
    if isinstance(fact, dict):
        return (
            _values(fact["value"]) if "source" in fact else {k: _values(v) for k, v in fact.items()}
        )
    return [_values(one) for one in fact] if isinstance(fact, list) else fact


def _first_page_rows(page: dict[str, Any], level: str) -> list[tuple[str, str]]:
    """Return the first page for a terminal, a line for each thing that it must tell."""
    counts, compute, winner = page["counts"], page["compute"], page["winner"]
    rerun, final, charged = page["rerun"], page["final"], page["compute"]["charged_seconds"]
    used = ", ".join(f"{seconds:.0f} s {name}" for name, seconds in charged.items())
    knobs = ", ".join(f"{knob} {_short(value)}" for knob, value in winner["configuration"].items())
    corrected = winner["corrected_cost"]
    parent, review = (
        winner["released_parent_checkpoint"] or "none",
        winner["review_all_cost_per_1000"],
    )
    in_use = winner["reference_cost_per_1000"]
    mended = "no correction could be computed"
    if corrected:
        low, high = corrected["low"], corrected["high"]
        mended = f"corrected for the choice {corrected['mean']:.0f} ({low:.0f} to {high:.0f})"
    cost = f"{winner['search_cost_per_1000']:.0f} per 1,000, chosen for being low"
    return [
        ("trials", f"{_sum(counts['trials'])}, of {counts['budget_trials']} slots"),
        ("attempts", _sum(counts["attempts"]["search"])),
        ("compute", f"{used}; cap {compute['cap_accelerator_hours']:g} accelerator-hours"),
        ("pruning saved", f"{compute['steps_saved_by_pruning']} training steps"),
        ("winner", f"{winner['trial_id']}, seed {winner['seed']}"),
        ("configuration", knobs),
        ("lineage", f"{'intact' if winner['lineage_ok'] else 'BROKEN'}; rerun's parent: {parent}"),
        ("model", f"{winner['model']} at threshold {winner['threshold']:g}"),
        ("validation cost", f"{cost}, so no quality claim; {mended}"),
        ("beside it", f"model in use {in_use:.0f}, reviewing everything {review:.0f}"),
        ("rerun", f"{rerun['sentence']} Same scores as in the search: {rerun['scores_equal']}."),
        ("final evaluation", f"{final['sentence']} {reuse_words(final)}".strip()),
        ("evidence level", f"{final['evidence_level']}: {level}"),
        ("serving", page["serving"]["sentence"]),
    ]  # fmt: skip


def _closed_rows(verdict: dict[str, Any], page: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the first page of a closed search for a terminal."""
    counts, charged = page["counts"], page["compute"]["charged_seconds"]
    closing = page["closing"]
    return [
        ("closed", f"on {closing['day']}: {closing['reason']}"),
        ("holdout", f"opened {page['holdout']['openings']} times"),
        ("trials", f"{_sum(counts['trials'])}, of {counts['budget_trials']} slots"),
        ("compute", ", ".join(f"{seconds:.0f} s {name}" for name, seconds in charged.items())),
        ("turned down", str(verdict["held_trial"] or "no trial was chosen")),
    ]


def _sum(counts: dict[str, int]) -> str:
    """Return counts by state as a sum that a reader can check."""
    parts = [f"{number} {state}" for state, number in counts.items() if number and state != "total"]
    return f"{' + '.join(parts)} = {counts['total']}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
