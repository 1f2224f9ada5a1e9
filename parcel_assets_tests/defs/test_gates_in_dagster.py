"""For each gate, failed: nothing that Dagster offers takes the next asset past it.

Four ways are tried: the next asset alone, a run without checks, an evaluation reported as passed,
and a failure that lies in an earlier run.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from parcel_assets.core.gates import GATES
from parcel_assets.core.ledger import Kind
from parcel_assets.core.ports import Ports
from parcel_assets.core.stage import Stage
from parcel_assets.steps.release import build_packet
from parcel_assets_tests.defs.told import (
    Events,
    as_told,
    bend,
    failure_of,
    new_instance,
    ran,
    resource_of,
    run_assets,
)
from parcel_assets_tests.release_story import REVISION, FakeVault, Story, tell

Body = dict[str, Any]


@dataclass
class Fault:
    """How to make one gate fail, and a few words that its refusal must say."""

    words: str
    body: Callable[[Body, Story], None] | None = None
    events: Callable[[Events], Events] | None = None
    ports: Callable[[Ports, Story], Ports] | None = None
    outcome: str = "PASS"
    corners: str = "kept"
    further: dict[str, Any] = field(default_factory=dict)


def put(name: str, value: Any) -> Callable[[Body, Story], None]:
    def change(body: Body, _story: Story) -> None:
        body[name] = value

    return change


def add_bad_row(column: str) -> Callable[[Body, Story], None]:
    def change(body: Body, _story: Story) -> None:
        row = {"file": "a.jpg", "row": 2, "column": column, "found": "?", "expected": "!"}
        body["bad_rows"] = [*body["bad_rows"], {**row, "remedy": "mend"}]

    return change


def tear_a_component(body: Body, story: Story) -> None:
    assignment = copy.deepcopy(story.store.get_document(body["assignment_document"]))
    parts = assignment["parts"]
    parts["validation"] = [*parts["validation"], parts["train"][0]]
    body["assignment_document"] = story.store.put_document(assignment)


def miss_the_minimum(body: Body, _story: Story) -> None:
    row = {"part": "train", "met": False, "sentence": "train holds 3 shipments of 20."}
    body["support"] = [row]


def spend_the_holdout(ports: Ports, story: Story) -> Ports:
    vault = FakeVault()
    told = vars(story.ports.vault)["receipts"][0]
    vault.receipts = [{**told, "revision": "an-earlier-search"}]
    return replace(ports, vault=vault)  # type: ignore[arg-type]  # as the story's own


def double_the_receipt(ports: Ports, story: Story) -> Ports:
    vault = FakeVault()
    told = vars(story.ports.vault)["receipts"][0]
    vault.receipts = [told, copy.deepcopy(told)]
    return replace(ports, vault=vault)  # type: ignore[arg-type]  # as the story's own


def without(kind: Kind) -> Callable[[Events], Events]:
    return lambda entries: [one for one in entries if one[0] != kind]


def overcharge(entries: Events) -> Events:
    return change_first(entries, Kind.ATTEMPT_ENDED, charged_seconds=1e6)


def leave_one_open(entries: Events) -> Events:
    """Forget how the first completed trial's attempt ended."""
    ended = next(
        number
        for number, (kind, said) in enumerate(entries)
        if kind == Kind.ATTEMPT_ENDED and said["purpose"] == "search"
    )
    return entries[:ended] + entries[ended + 1 :]


def quarantine_late(entries: Events) -> Events:
    attempt = next(
        said
        for kind, said in entries
        if kind == Kind.ATTEMPT_ENDED and said["state"] == "completed"
    )
    late = {
        "attempt": attempt["attempt"],
        "trial": attempt["subject"],
        "reason": "a checkpoint of another trial lies below its prefix",
    }
    return [*entries, (Kind.ATTEMPT_QUARANTINED, late)]


def change_first(entries: Events, kind: Kind, **fields: Any) -> Events:
    changed = list(entries)
    number = next(n for n, one in enumerate(changed) if one[0] == kind)
    changed[number] = (kind, changed[number][1] | fields)
    return changed


def fail_an_expectation(body: Body, _story: Story) -> None:
    first = {**body["expectations"][0], "passed": False, "sentence": "parcel-07 appears twice."}
    body["expectations"] = [first, *body["expectations"][1:]]


def lose_a_slot(body: Body, _story: Story) -> None:
    body["trials_by_state"] = body["trials_by_state"] | {"completed": 1}


def judge(**fields: Any) -> Callable[[Body, Story], None]:
    def change(body: Body, _story: Story) -> None:
        body["judgement"] = body["judgement"] | fields

    return change


def damage_packet(ports: Ports, _story: Story) -> Ports:
    path = ports.packets / REVISION / "model" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))
    return ports


def unsign_packet(ports: Ports, _story: Story) -> Ports:
    path = ports.packets / REVISION / "SHA256SUMS.sig"
    path.chmod(0o644)
    path.write_bytes(b"no signature")
    return ports


FAULTS: dict[str, Fault] = {
    "digest_equals_pin": Fault("the plan pins", body=put("snapshot_digest", "0" * 64)),
    "images_decode": Fault("1 left out", body=add_bad_row("photo")),
    "labels_known": Fault("0 damaged", body=put("damaged_photos", 0)),
    "no_contradictory_duplicates": Fault("opposite labels", body=add_bad_row("duplicate")),
    "no_component_in_two_parts": Fault("lie in two parts", body=tear_a_component),
    "no_duplicate_across_parts": Fault(
        "identical twin", body=put("duplicate_pixels_across_parts", 3)
    ),
    "minimum_support": Fault("3 shipments of 20", body=miss_the_minimum),
    "holdout_unspent": Fault("opened by an-earlier-search", ports=spend_the_holdout),
    "budget_exact": Fault("ended: not yet", events=without(Kind.SEARCH_ENDED)),
    "cap_kept": Fault("accelerator-hours charged", events=overcharge),
    "lineage_verified": Fault("parcel-", events=quarantine_late),
    "no_lease_open": Fault("still open", events=leave_one_open),
    "expectations": Fault("parcel-07 appears twice", body=fail_an_expectation),
    "slots_accounted": Fault("of 82 slots", body=lose_a_slot),
    "ledger_folds_to_table": Fault("the frozen table is", body=put("table_digest", "0" * 64)),
    "reproduced": Fault("largest score difference", body=put("largest_score_difference", 0.5)),
    "stable_over_seeds": Fault("gate stable_over_seeds", body=judge(unstable=True)),
    "within_tolerance": Fault("gate within_tolerance", body=judge(not_reproduced=True)),
    "protected_slices": Fault("crushed_corner", corners="lost"),
    "holdout_once": Fault("2 receipt", ports=double_the_receipt),
    "evaluated_model_identity": Fault("frozen model", body=put("model", "0" * 64)),
    "target": Fault("target", outcome="FAIL"),
    "packet_digests": Fault("model.safetensors", ports=damage_packet),
    "packet_signature": Fault("gate packet_signature", ports=unsign_packet),
}
STAGES = {gate.name: gate.stage for gate in GATES}


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Story]:
    told: dict[tuple[str, str], Story] = {}

    def story_of(outcome: str, corners: str) -> Story:
        if (outcome, corners) not in told:
            folder = tmp_path_factory.mktemp("story")
            told[outcome, corners] = tell(
                folder, outcome=outcome, corners=corners, decided=corners == "lost"
            )
        return told[outcome, corners]

    return story_of


def failing(name: str, story: Story, folder: Path) -> Ports:
    """Return ports whose chain ends at the gate's stage, with this one gate failing."""
    fault, stage = FAULTS[name], STAGES[name]
    if stage == Stage.PACKET or name == "target":
        ports = as_told(story, packets=folder / "packets")
        build_packet(REVISION, ports)
    else:
        change = fault.body
        ports = bend(
            story,
            stage,
            body=(lambda body: change(body, story)) if change is not None else None,
            events=fault.events,
        )
    return fault.ports(ports, story) if fault.ports is not None else ports


def next_asset(name: str) -> str:
    """Return the first asset that the gate stops."""
    gate = next(one for one in GATES if one.name == name)
    return str(next(stage for stage in Stage if gate.stops(stage)))


def test_every_gate_has_its_fault() -> None:
    assert set(FAULTS) == {gate.name for gate in GATES}


@pytest.mark.parametrize("name", FAULTS)
def test_a_failed_gate_stops_the_next_asset_however_it_is_started(
    name: str, stories: Callable[[str, str], Story], tmp_path: Path
) -> None:
    fault, stage = FAULTS[name], str(STAGES[name])
    ports = failing(name, stories(fault.outcome, fault.corners), tmp_path)
    resource, instance, after = resource_of(ports, tmp_path), new_instance(), next_asset(name)

    # in one run: the check says why, in the gate's own words, and the next asset does not run
    together = run_assets([stage, after], resource, instance, stand_in=stage)
    shown = {one.check_name: one for one in together.get_asset_check_evaluations()}
    assert not together.success
    assert not ran(together, after)
    assert not shown[name].passed
    assert shown[name].severity == dg.AssetCheckSeverity.ERROR
    others = {other for other, one in shown.items() if other != name and not one.passed}
    assert others <= set(WITH.get(name, ()))

    # the next asset alone, after that failed run
    alone = run_assets([after], resource, instance)
    assert not ran(alone, after)
    words = failure_of(alone, after)
    assert f"gate {name}" in words
    assert fault.words in words

    # an evaluation reported as passed
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey(stage), check_name=name, passed=True, metadata={}, blocking=True
        )
    )
    reported = run_assets([after], resource, instance)
    assert f"gate {name}" in failure_of(reported, after)

    # checks deselected
    unchecked = run_assets([stage, after], resource, instance, checks=False, stand_in=stage)
    assert f"gate {name}" in failure_of(unchecked, after)
    instance.dispose()


# gates that fail together: a fault in the data of one is a fault in the data of the other
WITH = {"packet_digests": ("packet_signature",), "packet_signature": ("packet_digests",)}
