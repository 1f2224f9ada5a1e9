"""A worker turned away is seen: in the run's log and events, in status, in the ledger."""

import json
import sys
from typing import Any

import dagster as dg
import pytest
from typer.testing import CliRunner

from parcel_assets import cli_run
from parcel_assets.adapters.engine_local import LocalEngine
from parcel_assets.cli import app
from parcel_assets.core.gate_rules import lineage_verified
from parcel_assets.core.ledger import Kind
from parcel_assets.core.refusals import refusals_of
from parcel_assets.core.stage import Stage
from parcel_assets.defs.metadata import describe
from parcel_assets.defs.partitions import SEARCH_REVISIONS
from parcel_assets.steps.admission import load_chain
from parcel_assets_tests.defs import told
from parcel_assets_tests.search_world import REVISION, World, small_plan


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Any, dg.DagsterInstance]:
    """Run the search in Dagster with workers that read a newer archive."""
    folder = tmp_path_factory.mktemp("refused")
    world = World(folder)
    world.freeze(small_plan(search__budget_trials=2))
    module = "parcel_assets_tests.other_worker"
    command = [sys.executable, "-m", module, "newer_archive"]
    ports = world.ports(workers=2, engine=lambda: LocalEngine(folder / "logs", command))
    instance = dg.DagsterInstance.ephemeral(tempdir=str(folder / "dagster"))
    instance.add_dynamic_partitions(str(SEARCH_REVISIONS.name), [REVISION])
    resource = told.resource_of(ports, folder)
    result = told.run_assets([str(Stage.SEARCH)], resource, instance, revision=REVISION)
    return world, result, instance


def test_the_run_fails_in_words_that_name_field_values_and_cause(refused: Any) -> None:
    _, result, _ = refused
    assert not result.success
    words = told.failure_of(result, str(Stage.SEARCH))
    assert "archive" in words
    assert "photos 102" in words
    assert "photos 88" in words
    assert "an archive with 14 newer photos" in words


def test_every_refusal_is_in_the_runs_events(refused: Any) -> None:
    _, result, instance = refused
    entries = [one.event_log_entry for one in instance.get_records_for_run(result.run_id).records]
    observed = [
        one.dagster_event.asset_observation_data.asset_observation.metadata
        for one in entries
        if one.dagster_event_type == dg.DagsterEventType.ASSET_OBSERVATION
    ]
    named = "worker_refused/field"
    assert [one[named].value for one in observed if named in one] == ["archive", "archive"]
    logged = [one.user_message for one in entries]
    warnings = [one for one in logged if "refused for archive" in one]
    assert len(warnings) == 2
    assert "No slot was spent" in warnings[0]


def test_the_ledger_tells_who_and_why_and_no_slot_was_spent(refused: Any) -> None:
    world, _, _ = refused
    events = world.ledger.events(REVISION)
    (one,) = refusals_of(events)
    assert len(one.workers) == 2
    assert Kind.ATTEMPT_STARTED not in {event.kind for event in events}


def test_status_shows_it(refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world, _, _ = refused
    monkeypatch.setattr(cli_run, "open_ports", lambda _settings, **_: world.ports())
    shown = CliRunner().invoke(app, ["status", REVISION, "--json"])
    workers = json.loads(shown.stdout)["workers"]
    assert workers["admitted"] == 0
    assert workers["refused"][0]["field"] == "archive"
    assert "14 newer photos" in workers["refused"][0]["cause"]
    text = CliRunner().invoke(app, ["status", REVISION], env={"COLUMNS": "200"}).stdout
    assert "workers refused before step 1" in text
    assert "14 newer photos" in text


def test_a_search_that_others_finish_shows_it_in_its_metadata_and_lineage_check(
    refused: Any,
) -> None:
    world, _, _ = refused
    evidence = world.search(workers=2)
    ports = world.ports()
    metadata = describe(evidence, ports)
    (row,) = metadata["workers_refused"].records
    assert (row.data["workers"], row.data["field"]) == (2, "archive")
    assert metadata["workers_admitted"] in {1, 2}  # the quicker may do all there is to do
    facts = lineage_verified(load_chain(REVISION, ports)).facts
    assert facts["workers_admitted"] == metadata["workers_admitted"]
    assert "refused for archive" in facts["workers_refused"][0]
