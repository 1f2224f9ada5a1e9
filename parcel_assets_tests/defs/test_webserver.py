"""A small real search through a real webserver: what a person does on the pages, and cannot do.

One server, started as anybody would start it, for the whole file. The tests follow one search in
order: launched by a sensor, held, decided, released, consumed; then every gate is made to fail in a
copy of its data folder, and the four ways around a gate are tried as launches of that server.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from parcel_assets.adapters.vault_age_files import DECRYPTIONS_FILE
from parcel_assets.core.gates import GATES, gates_of
from parcel_assets.core.ledger import Kind
from parcel_assets.core.stage import Stage
from parcel_assets.defs.assets import PHOTO_ARCHIVE, QUALITY_DECISION
from parcel_assets.steps.data import pin_archive
from parcel_assets.wiring import Settings, draw_sample, open_ports, plan_file_of, write_pin
from parcel_assets_tests.defs.crafted import (
    Searched,
    craft,
    cut_after,
    events_in,
    evidence_digest,
    failing_folder,
    failing_whole,
)
from parcel_assets_tests.defs.faults import FAULTS, STAGE_OF, damage_model, next_asset
from parcel_assets_tests.defs.webserver import (
    CONSUMER,
    RefusedAtLaunch,
    Run,
    WebServer,
    serving,
    until,
)

pytestmark = pytest.mark.slow

REVISION, PINNED, AGAIN = "web-a", "web-pinned", "web-again"
STAGES = [str(stage) for stage in Stage]
AT_ONCE = 4  # runs; each is a process that imports Dagster anew
TICKS_SECONDS = 200.0
PLAN = """
purpose = "The smallest search that meets every gate but one: a slice too small to judge."

[snapshot]
archive = "web-parcels"
location = "archives/web-parcels"
columns = { damage_type = "damage_type", camera_class = "camera_class" }

[split]
key = "web parcels"

[preprocess]
image_size_pixels = 32

[metric]
missed_damage = 5.0
needless_review = 1.0

[search]
budget_trials = 6
cap_accelerator_hours = 1.0
batch_trials = 2
trial_seconds_maximum = 60.0

[training]
steps = 18
batch_photos = 16
milestones = [3, 9, 18]
checkpoint_every_steps = 9

[space]
learning_rate = { kind = "float", low = 1e-3, high = 2e-2, log = true }
width = { kind = "choice", values = [4, 8] }

[rerun]
seeds = [101, 102]
maximum_instability = 0.9

[reference]
configuration = { learning_rate = 2e-3, width = 4, depth = 2 }

[slices.crushed_corner]
dimension = "damage_type"
value = "crushed_corner"
role = "protected"

[slices.cameras]
dimension = "camera_class"

[final]
target_cost_per_1000 = 5000.0
minimum_shipments = 5
minimum_damaged_photos = 2
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with an archive, a ready plan, two waiting ones and a faulty one."""
    folder = tmp_path_factory.mktemp("data")
    settings = Settings.read({}, data=folder)
    draw_sample(
        folder / "archives" / "web-parcels", seed=82, shipments=120, processes=1, progress=None
    )
    settings.plans.mkdir()
    first = settings.plans / f"{PINNED}.toml"
    first.write_text(PLAN)
    found = plan_file_of(PINNED, settings)
    assert found is not None
    body = pin_archive(found.plan.snapshot, 32, open_ports(settings))
    write_pin(first, body.snapshot_digest)
    (settings.plans / f"{AGAIN}.toml").write_text(first.read_text())
    (settings.plans / f"{REVISION}.toml").write_text("ready = true\n" + first.read_text())
    (settings.plans / "faulty.toml").write_text(PLAN.replace("budget_trials", "budget_trails"))
    drop_archive(folder, photos=1)
    return folder


def drop_archive(data: Path, *, photos: int) -> None:
    """Leave an archive of so many photos in the archives folder, as a person would copy it."""
    folder = data / "archives" / "belt-9"
    folder.mkdir(exist_ok=True)
    names = [f"{number}.jpg" for number in range(photos)]
    for shade, name in enumerate(names):
        Image.new("L", (32, 32), 40 * shade).save(folder / name)
    (folder / "labels.csv").write_text(
        "\n".join(["path,label", *(f"{name},intact" for name in names)]) + "\n"
    )


@pytest.fixture(scope="module")
def server(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    with serving(tmp_path_factory.mktemp("dagster-home"), data) as one:
        yield one


@pytest.fixture(scope="module")
def searched(data: Path) -> Searched:
    return Searched(data, REVISION)


def in_folder(folder: Path) -> dict[str, Any]:
    """Return the launch config that points the one resource at another data folder."""
    return {"resources": {"parcel_assets": {"config": {"data_folder": str(folder)}}}}


def checks_of(*stages: str) -> list[tuple[str, str]]:
    return [(stage, gate.name) for stage in stages for gate in gates_of(Stage(stage))]


def attempts(data: Path) -> int:
    return sum(one.kind == Kind.ATTEMPT_STARTED for one in events_in(data, REVISION))


def decryptions(data: Path) -> int:
    return sum(
        len(path.read_text().splitlines())
        for path in (data / "vault").glob(f"*/{DECRYPTIONS_FILE}")
    )


# ---- what loads, and what waits -----------------------------------------------------------------


def test_both_code_locations_load_and_none_of_the_servers_loads_torch(server: WebServer) -> None:
    assert server.locations() == dict.fromkeys(("parcel_assets", CONSUMER), "RepositoryLocation")
    processes = server.processes()
    assert sum("code-server" in words or "api grpc" in words for words in processes.values()) >= 2
    for number, words in processes.items():
        loaded = Path(f"/proc/{number}/maps").read_text()
        for heavy in ("torch", "pyarrow", "matplotlib"):
            assert heavy not in loaded, words


def test_nothing_starts_by_itself(server: WebServer) -> None:
    for name in ("ready_plans", "archive_versions"):
        sensor = server.sensor(name)
        assert (sensor["default"], sensor["status"], sensor["ticks"]) == ("STOPPED", "STOPPED", [])
    assert server.partitions("trial_batches") == []


# ---- a sensor launches the search; it is held ---------------------------------------------------


def test_a_ready_plan_is_launched_and_its_search_is_held(server: WebServer) -> None:
    server.start_sensor("ready_plans")
    server.start_sensor("archive_versions")
    launched = until(
        lambda: server.runs_with("parcel_assets/launched_by", "ready_plans") or None,
        TICKS_SECONDS,
        "the sensor's run",
    )
    assert [one["tags"] for one in launched if _tag(one, "dagster/partition") != REVISION] == []
    run = server.wait(launched[0]["runId"])
    assert run.status == "FAILURE"
    assert run.materialized == STAGES[: STAGES.index("final_evaluation")]
    failed = {name: words for name, (passed, words) in run.checks.items() if not passed}
    assert list(failed) == ["protected_slices"]
    assert "crushed_corner" in failed["protected_slices"]
    assert sorted(server.partitions("trial_batches")) == sorted([REVISION, PINNED, AGAIN])


def _tag(run: dict[str, Any], key: str) -> str | None:
    return next((one["value"] for one in run["tags"] if one["key"] == key), None)


def test_the_final_evaluation_of_a_held_search_is_refused(server: WebServer, data: Path) -> None:
    run = server.run(["final_evaluation"], REVISION)
    assert "gate protected_slices not passed" in run.words
    assert run.facts["final_evaluation"]["hold"] == "hold:slice-quality"
    assert decryptions(data) == 0


# ---- a person decides in the launchpad ----------------------------------------------------------


def decide(slice_evidence: str, **changed: str) -> dict[str, Any]:
    answer = {
        "outcome": "accept",
        "name": "Ada Example",
        "role": "quality owner",
        "reason": "Belt 9 sees few crushed corners and a person lifts each of them.",
        "scope": "belt 9",
        "expires_on": "2099-12-31",
        "slice_evidence": slice_evidence,
    }
    return {"ops": {QUALITY_DECISION: {"config": answer | changed}}}


@pytest.mark.parametrize("config", [{}, {"ops": {QUALITY_DECISION: {"config": {"name": "Ada"}}}}])
def test_a_decision_without_its_answers_is_refused_at_launch(
    server: WebServer, config: dict[str, Any]
) -> None:
    with pytest.raises(RefusedAtLaunch, match="Missing required config"):
        server.launch([QUALITY_DECISION], REVISION, config=config)


def test_a_decision_with_an_unknown_outcome_is_refused_at_launch(
    server: WebServer, searched: Searched
) -> None:
    config = decide(evidence_digest(searched, Stage.SLICES), outcome="ignore")
    with pytest.raises(RefusedAtLaunch, match="ignore"):
        server.launch([QUALITY_DECISION], REVISION, config=config)


def test_a_decision_about_another_report_is_refused(server: WebServer) -> None:
    run = server.run([QUALITY_DECISION], REVISION, config=decide("0" * 64))
    assert run.status == "FAILURE"
    assert "a decision about slice report 00000000" in run.words


def test_a_decision_lifts_the_hold_and_the_packet_tells_it(
    server: WebServer, searched: Searched
) -> None:
    config = decide(evidence_digest(searched, Stage.SLICES))
    assert server.run([QUALITY_DECISION], REVISION, config=config).status == "SUCCESS"
    last = STAGES[STAGES.index("final_evaluation") :]
    run = server.run(last, REVISION, checks=checks_of(*last[:-1]))
    assert run.status == "SUCCESS", run.words
    assert run.materialized == last
    assert all(passed for passed, _ in run.checks.values())
    packet = searched.data / "packets" / REVISION
    assert json.loads((packet / "VERDICT.json").read_text())["verdict"] == "released-with-waiver"
    for name in ("decision.json", "report.html"):
        assert "Ada Example" in (packet / name).read_text()


def test_every_asset_was_materialized_for_the_revision(server: WebServer) -> None:
    for name in (*STAGES, QUALITY_DECISION):
        keys = {one["partition"] for one in server.materializations(name)}
        assert REVISION in keys, name


def test_materializing_everything_again_trains_nothing_and_opens_nothing(
    server: WebServer, data: Path, searched: Searched
) -> None:
    before, final = attempts(data), evidence_digest(searched, Stage.FINAL)
    run = server.run(STAGES, REVISION, checks=checks_of(*STAGES))
    assert run.status == "SUCCESS", run.words
    assert run.materialized == STAGES
    assert {name for name, (passed, _) in run.checks.items() if passed} == set(FAULTS)
    assert attempts(data) == before
    assert evidence_digest(searched, Stage.FINAL) == final
    assert decryptions(data) == 1


# ---- the holdout --------------------------------------------------------------------------------


def test_another_revision_over_the_same_holdout_does_not_start_its_search(
    server: WebServer, data: Path
) -> None:
    run = server.run([*STAGES[:3], "final_evaluation"], AGAIN)
    assert run.materialized == STAGES[:2]
    assert "gate holdout_unspent not passed" in run.words
    assert f"opened by {REVISION}" in run.words
    assert not any(one.kind == Kind.ATTEMPT_STARTED for one in events_in(data, AGAIN))


def test_a_ledger_that_forgot_the_opening_gets_the_one_result_again(
    server: WebServer, searched: Searched, tmp_path: Path
) -> None:
    told = searched.told
    opened = next(number for number, (kind, _) in enumerate(told) if kind == Kind.HOLDOUT_OPENED)
    folder = craft(searched, tmp_path / "forgot", told[:opened], looked=True)
    run = server.run(["final_evaluation"], REVISION, config=in_folder(folder))
    assert run.status == "SUCCESS", run.words
    result = Searched(folder, REVISION).told[-1][1]["evidence"]
    first = searched.store.get_document(evidence_digest(searched, Stage.FINAL))["body"]
    again = searched.store.get_document(result)["body"]
    assert again["predictions_digest"] == first["predictions_digest"]
    assert again["result"] == first["result"]
    assert decryptions(folder) == 1


# ---- the consumer -------------------------------------------------------------------------------


def test_the_consumer_loads_the_packet_and_refuses_one_flipped_byte(
    server: WebServer, data: Path
) -> None:
    asset = "belt_camera_settings"
    sound = server.run([asset], REVISION, location=CONSUMER)
    assert sound.materialized == [asset]
    model = data / "packets" / REVISION / "model" / "model.safetensors"
    whole = model.read_bytes()
    damage_model(data / "packets" / REVISION)
    flipped = server.run([asset], REVISION, location=CONSUMER)
    model.write_bytes(whole)
    assert flipped.status == "FAILURE"
    assert flipped.materialized == []
    assert f"The packet {REVISION} does not verify" in flipped.words
    assert "model.safetensors" in flipped.words


# ---- archives -----------------------------------------------------------------------------------


def reports(server: WebServer, number: int) -> list[str] | None:
    """Return the archives whose versions were reported, once there are so many reports."""
    said = [str(one["description"]) for one in server.materializations(str(PHOTO_ARCHIVE.path[-1]))]
    return [one.partition(" is complete")[0] for one in said] if len(said) >= number else None


def test_the_sensor_reports_each_complete_archive(server: WebServer, data: Path) -> None:
    first = until(lambda: reports(server, 2), TICKS_SECONDS, "two archives")
    assert sorted(first) == ["belt-9", "web-parcels"]
    drop_archive(data, photos=2)  # a new version of one of them; what comes of it, at the end


# ---- each gate, failed --------------------------------------------------------------------------


class Tried:
    """What came of one gate that fails: an earlier run with its check, then three ways around."""

    def __init__(self, name: str, server: WebServer, folder: Path, revision: str) -> None:
        stage, self.after = str(STAGE_OF[name]), next_asset(name)
        config = in_folder(folder)
        way = stage_to(name)
        # a spoiled packet is refused by its own stage, so there the check runs by itself
        shown = [] if stage == "release_packet" else way
        self.earlier = server.run(shown, revision, checks=checks_of(stage), config=config)
        self.alone = server.run([self.after], revision, config=config)
        server.report_check(stage, name, revision, passed=True)
        self.reported = server.run([self.after], revision, config=config)
        self.unchecked = server.run(way, revision, config=config)

    @property
    def runs(self) -> tuple[Run, ...]:
        return self.earlier, self.alone, self.reported, self.unchecked


def stage_to(name: str) -> list[str]:
    """Return the assets from a gate's stage to the first one that it stops."""
    stage, after = str(STAGE_OF[name]), next_asset(name)
    return STAGES[STAGES.index(stage) : STAGES.index(after) + 1]


@pytest.fixture(scope="module")
def tried(
    server: WebServer, searched: Searched, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Tried]:
    """Every gate's fault, tried in a folder of its own, a few gates at once."""
    room = tmp_path_factory.mktemp("gates")
    pinned = Searched(searched.data, PINNED)  # its custodian has not forgotten the labels' salt
    assert server.run([STAGES[0]], PINNED, checks=checks_of(STAGES[0])).status == "SUCCESS"

    def try_gate(name: str) -> tuple[str, Tried]:
        source = pinned if STAGE_OF[name] == Stage.SNAPSHOT else searched
        folder = failing_folder(name, source, room / name)
        return name, Tried(name, server, folder, source.revision)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(pool.map(try_gate, FAULTS))


@pytest.mark.parametrize("name", [gate.name for gate in GATES])
def test_a_failed_gate_stops_the_next_asset_however_it_is_launched(
    name: str, tried: dict[str, Tried]
) -> None:
    found, words = tried[name], FAULTS[name].words
    passed, said = found.earlier.checks[name]
    assert not passed
    assert words in said or words == f"gate {name}"
    for run in found.runs:
        assert run.status == "FAILURE"
        assert found.after not in run.materialized
    for run in (found.alone, found.reported):
        refusal = run.failures[found.after]
        assert f"gate {name} not passed" in refusal
        assert words in refusal
        assert run.facts[found.after]["gate"] == name
    if STAGE_OF[name] != Stage.PACKET:
        assert f"gate {name} not passed" in found.unchecked.failures[found.after]
    else:
        assert "release_packet" in found.unchecked.failures


def test_a_copied_folder_without_a_fault_goes_on(
    server: WebServer, searched: Searched, tmp_path: Path
) -> None:
    folder = craft(searched, tmp_path / "sound", cut_after(searched.told, Stage.FINAL))
    last = ["release_packet", "registry_entry"]
    run = server.run(last, REVISION, config=in_folder(folder))
    assert run.status == "SUCCESS", run.words
    assert run.materialized == last


@pytest.mark.parametrize("name", ["labels_known", "target", "protected_slices"])
def test_the_registry_refuses_a_failed_data_performance_or_slice_gate(
    name: str, server: WebServer, searched: Searched, tmp_path: Path
) -> None:
    folder = failing_whole(name, searched, tmp_path / "whole")
    run = server.run(["registry_entry"], REVISION, config=in_folder(folder))
    assert run.materialized == []
    assert f"gate {name} not passed" in run.failures["registry_entry"]
    assert not (folder / "registry").exists()


# ---- the sensors, at the end --------------------------------------------------------------------


def test_a_new_archive_version_is_reported_once_and_then_known(server: WebServer) -> None:
    until(lambda: reports(server, 3), TICKS_SECONDS, "a new version")
    told = until(lambda: skipped(server, "archive_versions", "belt-9"), TICKS_SECONDS, "repeats")
    assert "Nothing new" in told
    assert "version known" in told
    assert sorted(reports(server, 3) or []) == ["belt-9", "belt-9", "web-parcels"]


def test_a_ready_plan_is_never_launched_again(server: WebServer) -> None:
    told = until(
        lambda: skipped(server, "ready_plans", REVISION), TICKS_SECONDS, "a tick that repeats"
    )
    assert "Nothing new" in told
    assert f"{REVISION} was launched before" in told
    assert "faulty.toml is not a plan" in told
    assert len(server.runs_with("parcel_assets/launched_by", "ready_plans")) == 1
    assert all(one["status"] != "FAILURE" for one in server.sensor("ready_plans")["ticks"])


def skipped(server: WebServer, sensor: str, word: str) -> str | None:
    """Return why the newest tick did nothing, or None where it did something."""
    newest = server.sensor(sensor)["ticks"][-1]
    reason = str(newest["skipReason"])
    return reason if newest["status"] == "SKIPPED" and word in reason else None
