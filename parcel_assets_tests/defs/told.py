"""The Dagster definitions over a search that was told, not trained; and chains bent on purpose."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg

from parcel_assets.core.ledger import Event, Kind, chain_event
from parcel_assets.core.ports import Ports
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.defs.assets import ASSETS
from parcel_assets.defs.checks import CHECKS
from parcel_assets.defs.partitions import SEARCH_REVISIONS
from parcel_assets.defs.resources import Listener, ParcelAssets
from parcel_assets_tests.defs.faults import Events
from parcel_assets_tests.fakes import FakeLedger
from parcel_assets_tests.release_story import REVISION, Story

_TOLD: dict[str, Ports] = {}


class ToldAssets(ParcelAssets):
    """Gives out the ports of a story, found by the story's folder."""

    def open(self, notify: Listener | None = None) -> Ports:
        return replace(_TOLD[self.data_folder], notify=notify or (lambda _kind, _facts: None))


def resource_of(ports: Ports, folder: Path) -> ToldAssets:
    """Return the resource that opens these ports."""
    (folder / "plans").mkdir(parents=True, exist_ok=True)
    _TOLD[str(folder)] = ports
    return ToldAssets(data_folder=str(folder))


def new_instance(folder: Path) -> dg.DagsterInstance:
    """Return an instance that knows the told revision and keeps its files in the folder."""
    instance = dg.DagsterInstance.ephemeral(tempdir=str(folder / "dagster"))
    instance.add_dynamic_partitions(str(SEARCH_REVISIONS.name), [REVISION])
    return instance


def run_assets(
    names: Sequence[str],
    resource: ParcelAssets,
    instance: dg.DagsterInstance,
    *,
    checks: bool = True,
    stand_in: str | None = None,
    revision: str = REVISION,
) -> dg.ExecuteInProcessResult:
    """Materialize assets for the told revision, with or without their checks.

    The asset named `stand_in` does nothing, as if its evidence had been there before.
    """
    selection: dg.AssetSelection = dg.AssetSelection.assets(*names)
    if not checks:
        selection = selection.without_checks()
    assets = [one for one in ASSETS if stand_in is None or one.key.to_user_string() != stand_in]
    definitions = dg.Definitions(
        assets=assets if stand_in is None else [*assets, _does_nothing(stand_in)],
        asset_checks=CHECKS,
        jobs=[dg.define_asset_job("told", selection=selection)],
        resources={"parcel_assets": resource},
        executor=dg.in_process_executor,
    )
    return definitions.resolve_job_def("told").execute_in_process(
        instance=instance,
        partition_key=revision,
        raise_on_error=False,
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )


def _does_nothing(name: str) -> dg.AssetsDefinition:
    @dg.asset(key=name, partitions_def=SEARCH_REVISIONS)
    def stand_in() -> None:
        return None

    return stand_in


def failure_of(result: dg.ExecuteInProcessResult, name: str) -> str:
    """Return the words with which an asset's step failed."""
    for event in result.all_events:
        if event.is_step_failure and event.step_key == name:
            data = event.step_failure_data.user_failure_data
            assert data is not None, event.step_failure_data.error
            return str(data.description)
    raise AssertionError(f"{name} did not fail: {[e.event_type_value for e in result.all_events]}")


def ran(result: dg.ExecuteInProcessResult, name: str) -> bool:
    """Say whether an asset was materialized in the run."""
    return any(
        event.event_type == dg.DagsterEventType.ASSET_MATERIALIZATION and event.step_key == name
        for event in result.all_events
    )


def bend(
    story: Story,
    stage: Stage,
    *,
    body: Callable[[dict[str, Any]], None] | None = None,
    events: Callable[[Events], Events] | None = None,
) -> Ports:
    """Return ports whose chain ends after a stage, its evidence or its events changed on purpose.

    The chain is made anew, so that it verifies: what must notice the change is the gate.
    """
    entries: Events = [(event.kind, dict(event.body)) for event in story.events]
    last = max(
        number
        for number, (kind, said) in enumerate(entries)
        if kind == Kind.STAGE_RECORDED and said["stage"] == str(stage)
    )
    entries, record = entries[:last], dict(entries[last][1])
    if events is not None:
        entries = events(entries)
    evidence = Evidence.model_validate(story.store.get_document(record["evidence"]))
    if body is not None:
        changed = dict(evidence.body)
        body(changed)
        evidence = evidence.model_copy(update={"body": changed})
        record["evidence"] = story.store.put_document(evidence.document())
    entries.append((Kind.STAGE_RECORDED, record))
    forget_anchors(story)
    return replace(story.ports, ledger=chained(entries, story.events))


def forget_anchors(story: Story) -> None:
    """Take away the anchors that another chain of this story left in its store."""
    shutil.rmtree(story.store._root / "anchors", ignore_errors=True)


def as_told(story: Story, **changes: Any) -> Ports:
    """Return ports with a copy of the told ledger, to write on."""
    ledger = FakeLedger()
    ledger.clock_seconds = story.events[-1].at_seconds
    ledger._chains[REVISION] = list(story.events)
    forget_anchors(story)
    return replace(story.ports, ledger=ledger, **changes)


def chained(entries: Events, told: Sequence[Event]) -> FakeLedger:
    """Return a ledger of exactly these entries; unchanged first ones keep time and digest."""
    ledger = FakeLedger()
    ledger.clock_seconds = told[-1].at_seconds
    previous: Event | None = None
    chain: list[Event] = []
    for number, (kind, said) in enumerate(entries):
        previous = chain_event(
            previous,
            revision=REVISION,
            at_seconds=told[min(number, len(told) - 1)].at_seconds,
            kind=kind,
            body=said,
        )
        chain.append(previous)
    ledger._chains[REVISION] = chain
    return ledger
