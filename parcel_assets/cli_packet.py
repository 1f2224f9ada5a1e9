"""The commands `packet fetch|verify|show`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from parcel_assets import fetch_packet, verify_packet
from parcel_assets.cli_common import EXIT_ERROR, OPTIONS, JsonOption, print_json, print_table, say
from parcel_assets.core.errors import PacketError
from parcel_assets.core.evidence import PacketBody
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
    known = location in open_ports(settings).ledger.revisions()
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
    as_json: JsonOption = False,
) -> None:
    """Check every file of a packet against its list, and the list's signature."""
    OPTIONS.json = as_json
    folder = _folder_of(packet, OPTIONS.settings())
    found = verify_packet(folder, digest, _key(public_key))
    good = not found["faults"] and found["signature_ok"]
    if as_json:
        print_json({"folder": str(folder), "verifies": good, **found})
    else:
        say("Verifies." if good else "Does NOT verify.", style="bold green" if good else "bold red")
        say(f"  folder  {folder}")
        say(f"  digest  {found['packet_digest']}")
        say(f"  {found['signature_sentence']}")
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
            remedy="Verify the packet: `parcel-assets packet verify`.",
            file="VERDICT.json",
        ) from error
    if as_json:
        print_json(verdict)
        return
    rows = [(name, shown) for name, shown in _flat(verdict) if len(shown) <= 300]
    print_table(str(folder), ("what", "value"), rows)
    say(f"Report: {folder / 'report.html'}")


def _folder_of(packet: str, settings: Settings) -> Path:
    """Return the folder of a packet named by path or by revision."""
    if Path(packet).is_dir():
        return Path(packet)
    chain = load_chain(packet, open_ports(settings))
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


def _flat(value: Any, name: str = "") -> list[tuple[str, str]]:
    """Return nested JSON as dotted names with text; a fact shows its value, not its source."""
    if isinstance(value, dict) and "value" in value and "source" in value:
        return _flat(value["value"], name)
    if isinstance(value, dict):
        return [row for key, one in value.items() for row in _flat(one, f"{name}.{key}".strip("."))]
    return [(name, ", ".join(str(one) for one in value) if isinstance(value, list) else str(value))]
