"""The three decisions in the launchpad of a real webserver, about real searches that are held.

Two searches run once, to their hold: one whose plan lists nobody, one whose plan lists an approver.
Every decision is made in a copy of their data folder, as a person would launch it from the page.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parcel_assets import verify_packet
from parcel_assets.core.ledger import Kind
from parcel_assets.core.stage import Stage
from parcel_assets.defs.assets import QUALITY_DECISION
from parcel_assets.steps.data import pin_archive
from parcel_assets.wiring import Settings, draw_sample, open_ports, plan_file_of, write_pin
from parcel_assets_tests.commands import command, document
from parcel_assets_tests.defs.crafted import Searched, events_in, evidence_digest
from parcel_assets_tests.defs.test_webserver import PLAN
from parcel_assets_tests.defs.webserver import Run, WebServer, serving
from parcel_assets_tests.test_approvers import base64_of, key_pair

pytestmark = pytest.mark.slow

PLAIN, LISTED = "held-plain", "held-listed"
CHOICE = [str(Stage.RERUN), str(Stage.SLICES)]
RELEASE = [str(Stage.FINAL), str(Stage.PACKET), str(Stage.REGISTRY)]
WHO = {
    "name": "Ada Example",
    "role": "quality owner",
    "reason": "Belt 9 sees few crushed corners and a person lifts each of them.",
}
BOUNDS = {"scope": "belt 9", "expires_on": "2099-12-31"}


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    private, public = key_pair(tmp_path_factory.mktemp("keys"))
    return private, base64_of(public)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory, key: tuple[Path, str]) -> Path:
    """Return a data folder with both searches, run at the command line to their hold."""
    data = tmp_path_factory.mktemp("held")
    settings = Settings.read({}, data=data)
    archive = data / "archives" / "web-parcels"
    draw_sample(archive, seed=82, shipments=120, processes=1, progress=None)
    settings.plans.mkdir()
    place = settings.plans / f"{PLAIN}.toml"
    place.write_text(PLAN)
    found = plan_file_of(PLAIN, settings)
    assert found is not None
    write_pin(place, pin_archive(found.plan.snapshot, 32, open_ports(settings)).snapshot_digest)
    approver = f'[approvers."Ada Example"]\nrole = "quality owner"\npublic_key = "{key[1]}"\n'
    (settings.plans / f"{LISTED}.toml").write_text(f"{place.read_text()}\n{approver}")
    for revision in (PLAIN, LISTED):
        done = command(data, "run", revision)
        assert done.returncode == 3, done.stdout + done.stderr
    return data


@pytest.fixture(scope="module")
def server(held: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    with serving(tmp_path_factory.mktemp("dagster-home"), held) as one:
        for revision in (PLAIN, LISTED):
            one.add_partition(revision)
        yield one


@pytest.fixture
def copy(held: Path, tmp_path: Path) -> Path:
    """Return the whole data folder at another place."""
    return Path(shutil.copytree(held, tmp_path / "copied"))


class Person:
    """Somebody at the launchpad, who works on one revision in one data folder."""

    def __init__(self, server: WebServer, data: Path, revision: str) -> None:
        self.server, self.data, self.revision = server, data, revision

    @property
    def report(self) -> str:
        return evidence_digest(Searched(self.data, self.revision), Stage.SLICES)

    def decide(self, outcome: str, **changed: str) -> Run:
        """Fill in the form and launch it."""
        bounds = BOUNDS if outcome == "accept" else {}
        form = {"outcome": outcome, **WHO, **bounds, "slice_evidence": self.report} | changed
        return self._run([QUALITY_DECISION], {"ops": {QUALITY_DECISION: {"config": form}}})

    def materialize(self, assets: list[str]) -> Run:
        return self._run(assets, {})

    def _run(self, assets: list[str], config: dict[str, Any]) -> Run:
        at = {"resources": {"parcel_assets": {"config": {"data_folder": str(self.data)}}}}
        return self.server.run(assets, self.revision, config=config | at)

    def decisions(self) -> list[str]:
        return [
            str(one.body["outcome"])
            for one in events_in(self.data, self.revision)
            if one.kind == Kind.DECISION_RECORDED
        ]

    def packet(self) -> tuple[str, str]:
        """Return the verdict of the packet, which verifies, and the words of its report."""
        folder = self.data / "packets" / self.revision
        assert verify_packet(folder)["faults"] == []
        verdict = json.loads((folder / "VERDICT.json").read_text())["verdict"]
        return str(verdict), (folder / "report.html").read_text()


@pytest.fixture
def person(server: WebServer, copy: Path) -> Person:
    return Person(server, copy, PLAIN)


def test_accepted_it_is_released_with_the_waiver_and_nothing_is_decided_after(
    person: Person,
) -> None:
    for changed, words in (
        ({"expires_on": ""}, "no expiry"),
        ({"expires_on": "2020-01-01"}, "expired on 2020-01-01"),
        ({"scope": ""}, "no scope"),
        ({"slice_evidence": "0" * 64}, "a decision about slice report 00000000"),
    ):
        refused = person.decide("accept", **changed)
        assert (refused.status, words in refused.words) == ("FAILURE", True), refused.words
    assert person.decisions() == []
    assert person.decide("accept").status == "SUCCESS"
    assert person.materialize(RELEASE).status == "SUCCESS"
    verdict, report = person.packet()
    assert verdict == "released-with-waiver"
    for words in ("Waiver: a held slice was accepted", "Of 1,000 parcels", "self-declared"):
        assert words in report
    late = person.decide("close")
    assert "found an opened holdout" in late.words
    assert person.decisions() == ["accept"]


def test_replaced_the_next_one_is_rerun_and_reported_and_marked(person: Person) -> None:
    first = person.report
    assert person.decide("replace").status == "SUCCESS"
    assert "not carried out yet" in person.decide("accept").words
    again = person.materialize(CHOICE)
    assert again.materialized == CHOICE, again.words
    assert person.report != first
    assert "a second replacement" in person.decide("replace").words
    assert "The evidence has changed since" in person.decide("accept", slice_evidence=first).words
    assert person.decide("accept").status == "SUCCESS"
    assert person.materialize(RELEASE).status == "SUCCESS"
    verdict, report = person.packet()
    assert verdict == "released-with-waiver"
    for words in ("Slice-informed", "The first choice was replaced", "Waiver: a held slice"):
        assert words in report


def test_closed_its_record_is_published_and_it_stays_closed(person: Person) -> None:
    assert person.decide("close").status == "SUCCESS"
    verdict, report = person.packet()
    assert verdict == "closed"
    for words in ("Closed without a winner", "Belt 9 sees few", "If it had been accepted"):
        assert words in report
    assert not (person.data / "packets" / PLAIN / "model").exists()
    assert "a closed search" in person.decide("accept").words
    assert "closed without a winner" in person.materialize(RELEASE[:1]).words


def test_with_approvers_the_form_takes_the_signature_of_exactly_this_answer(
    server: WebServer, copy: Path, key: tuple[Path, str]
) -> None:
    person = Person(server, copy, LISTED)

    def signed(outcome: str, revision: str = LISTED, **changed: str) -> str:
        bounds = {"scope": "belt 9", "expires": "2099-12-31"} if outcome == "accept" else {}
        answer = {"outcome": outcome, **WHO, **bounds} | changed
        flags = [word for name, text in answer.items() for word in (f"--{name}", text)]
        line = ("decide", revision, *flags, "--key", str(key[0]), "--sign-only", "--json")
        return str(document(command(copy, *line))["signature"])

    accept = signed("accept")
    for told, signature, words in (
        ("nobody's", "", "a decision without a signature"),
        ("of another outcome", signed("close"), "and over accept of slice report"),
        ("of another plan", signed("accept", PLAIN), f"of {LISTED}"),
        ("of another scope", signed("accept", scope="all belts"), "does not hold"),
    ):
        refused = person.decide("accept", signature=signature)
        assert refused.status == "FAILURE", told
        assert words in refused.words, told
    replace = signed("replace")
    assert person.decide("replace", signature=replace).status == "SUCCESS"
    assert person.materialize(CHOICE).materialized == CHOICE
    of_the_first = person.decide("accept", signature=accept)
    assert "a signature that does not hold" in of_the_first.words
    assert person.decide("accept", signature=signed("accept")).status == "SUCCESS"
    assert person.materialize(RELEASE).status == "SUCCESS"
    assert "signed with the key that the plan lists" in person.packet()[1]
