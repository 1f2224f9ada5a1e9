"""A held search and the two places where a person answers it: the command line and the launchpad.

Statistics are real over drawn photos: the winner is cheaper in all and loses on crushed corners, or
there are too few of them to say. Nothing of the answer is set by hand.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from typer.testing import CliRunner

from parcel_assets import cli_decide
from parcel_assets.adapters.approval_keys import signature_holds
from parcel_assets.adapters.packet_folder import verify_packet
from parcel_assets.adapters.registry_file import FileRegistry
from parcel_assets.adapters.report_html import render_report
from parcel_assets.adapters.signer_ecdsa import EcdsaSigner
from parcel_assets.cli import app
from parcel_assets.core.plan import Plan
from parcel_assets.core.stage import Stage
from parcel_assets.defs.assets import quality_decision
from parcel_assets.defs.partitions import SEARCH_REVISIONS
from parcel_assets.steps import selection
from parcel_assets.steps.admission import load_chain
from parcel_assets.steps.selection import report_slices, rerun_selected
from parcel_assets.steps.table import validate_table
from parcel_assets_tests.defs.told import failure_of, ran, resource_of
from parcel_assets_tests.release_story import FakeServing
from parcel_assets_tests.steps.desk import REVISION, Desk, desk_plan, make_desk, with_ports

ANSWER = {
    "name": "Ada Example",
    "role": "quality owner",
    "reason": "Belt 9 sees few crushed corners, and each is lifted by hand.",
}
BOUNDS = {"scope": "belt 9", "expires_on": "2030-01-01"}
Decide = Callable[..., str]  # the words that the place answered; raises RefusedError


class RefusedError(Exception):
    """The place refused, in these words."""


def held_desk(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, plan: Plan | None = None, **drawn: Any
) -> Desk:
    """Return a desk up to its slice report, held, with everything that a packet needs."""
    usual: dict[str, Any] = {"weak_corners": (2,), "corner_share": 0.15}
    made = make_desk(folder, plan=plan, **usual | drawn)
    desk = with_ports(
        made,
        signer=EcdsaSigner(folder / "keys"),
        registry=FileRegistry(folder / "registry"),
        serving=FakeServing(),
        verify_packet=verify_packet,
        render_report=render_report,
        signature_holds=signature_holds,
    )
    monkeypatch.setattr(selection, "run_tasks", desk.run_tasks)
    for step in (validate_table, rerun_selected, report_slices):
        step(REVISION, desk.ports)
    return desk


def few_corners(**changes: Any) -> Plan:
    """Return a plan that asks for more crushed corners than there are: INSUFFICIENT."""
    return desk_plan(slices__crushed_corner__minimum_damaged_photos=5000, **changes)


def answer_of(outcome: str, **changes: str) -> dict[str, str]:
    """Return a whole answer; an acceptance has its bounds."""
    bounds = BOUNDS if outcome == "accept" else {}
    return {"outcome": outcome, **ANSWER, **bounds, **changes}


def at_the_command_line(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Decide:
    """Return how a decision is made with `parcel-assets decide`."""
    monkeypatch.setattr(cli_decide, "open_ports", lambda _settings, **_: desk.ports)

    def decide(outcome: str, **changes: str) -> str:
        return command("decide", REVISION, *flags(answer_of(outcome, **changes)))

    return decide


def flags(answer: dict[str, str]) -> list[str]:
    names = {"expires_on": "expires", "slice_evidence": "slice-evidence"}
    return [
        word
        for name, text in answer.items()
        for word in (f"--{names.get(name, name)}", text)
    ]  # fmt: skip


def command(*words: str) -> str:
    """Return what a command prints; raises RefusedError with it where the exit code is not 0."""
    result = CliRunner().invoke(app, list(words))
    if result.exit_code != 0:
        raise RefusedError(result.output)
    return result.output


def in_the_launchpad(desk: Desk, folder: Path) -> Decide:
    """Return how a decision is made by materializing `quality_decision` with its form."""
    resource = resource_of(desk.ports, folder)

    def decide(outcome: str, **changes: str) -> str:
        seen = load_chain(REVISION, desk.ports).digests.get(Stage.SLICES, "0" * 64)
        form = {"slice_evidence": seen, **answer_of(outcome, **changes)}
        instance = dg.DagsterInstance.ephemeral(tempdir=str(folder / "dagster"))
        instance.add_dynamic_partitions(str(SEARCH_REVISIONS.name), [REVISION])
        result = dg.materialize(
            [quality_decision],
            instance=instance,
            resources={"parcel_assets": resource},
            partition_key=REVISION,
            run_config={
                "ops": {"quality_decision": {"config": form}},
                "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
            },
            raise_on_error=False,
            selection=[quality_decision],
        )
        instance.dispose()
        if not ran(result, "quality_decision"):
            raise RefusedError(failure_of(result, "quality_decision"))
        (event,) = result.asset_materializations_for_node("quality_decision")
        shown = {name: str(value.value) for name, value in event.metadata.items()}
        return "\n".join(shown.values())

    return decide


def packet_of(desk: Desk) -> dict[str, Any]:
    """Return the published VERDICT.json."""
    path = desk.ports.packets / REVISION / "VERDICT.json"
    verdict: dict[str, Any] = json.loads(path.read_bytes())
    return verdict


def report_of(desk: Desk) -> str:
    """Return the published report's text."""
    return (desk.ports.packets / REVISION / "report.html").read_text()
