"""The code location: what it holds, and what it must not."""

import itertools

import dagster as dg
import pytest

from parcel_assets.core.gates import GATES
from parcel_assets.core.stage import Stage
from parcel_assets.definitions import defs
from parcel_assets.defs.assets import ASSETS, CHAIN, QUALITY_DECISION
from parcel_assets.defs.jobs import SEARCH_JOB
from parcel_assets.defs.resources import NoValues

STAGES = [str(stage) for stage in Stage]


def test_the_definitions_load() -> None:
    dg.Definitions.validate_loadable(defs)


def test_the_assets_are_the_stages_in_their_order() -> None:
    assert [one.key.to_user_string() for one in CHAIN] == STAGES


def test_every_stage_depends_on_the_one_before() -> None:
    graph = defs.resolve_asset_graph()
    for before, after in itertools.pairwise(STAGES):
        assert dg.AssetKey(before) in graph.get(dg.AssetKey(after)).parent_keys


def test_the_job_runs_the_chain_without_the_decision() -> None:
    selected = defs.resolve_job_def(SEARCH_JOB).asset_layer.executable_asset_keys
    assert {one.to_user_string() for one in selected} == set(STAGES)
    assert QUALITY_DECISION not in STAGES


def test_every_gate_is_a_partitioned_check_that_blocks_what_the_gate_stops() -> None:
    graph = defs.resolve_asset_graph()
    checks = {key: graph.get(key) for key in graph.asset_check_keys}
    found = {(key.asset_key.to_user_string(), key.name): node for key, node in checks.items()}
    assert set(found) == {(str(gate.stage), gate.name) for gate in GATES}
    for gate in GATES:
        node = found[str(gate.stage), gate.name]
        assert node.blocking is gate.stops_packet
        assert isinstance(node.partitions_def, dg.DynamicPartitionsDefinition)


def test_a_page_is_never_empty() -> None:
    graph = defs.resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description, f"{key} has no description"
        assert node.group_name != "default"
        assert node.kinds
        assert node.owners


def test_dagster_retries_nothing_by_itself() -> None:
    for asset in ASSETS:
        if isinstance(asset, dg.AssetsDefinition):
            assert asset.op.retry_policy is None, asset.key


def test_nothing_is_pickled_between_assets() -> None:
    assert isinstance((defs.resources or {})["io_manager"], NoValues)


def test_steps_run_in_one_process() -> None:
    assert defs.resolve_job_def(SEARCH_JOB).executor_def is dg.in_process_executor


@pytest.mark.parametrize("field", ["name", "role", "reason", "scope", "expires_on", "signature"])
def test_a_decision_never_prints_the_environment_of_the_server(field: str) -> None:
    answers = dict.fromkeys(("name", "role", "reason", "slice_evidence"), "words")
    job = defs.resolve_implicit_global_asset_job_def().get_subset(
        asset_selection={dg.AssetKey(QUALITY_DECISION)}
    )

    def launch(**changes: object) -> None:
        form = {"outcome": "accept", **answers, **changes}
        dg.validate_run_config(job, {"ops": {QUALITY_DECISION: {"config": form}}})

    launch()
    with pytest.raises(dg.DagsterInvalidConfigError, match=field):
        launch(**{field: {"env": "PARCEL_ASSETS_LEDGER_URL"}})
