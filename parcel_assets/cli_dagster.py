"""Runs searches and serves pages through Dagster, in one instance: the one that the UI shows."""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg

from parcel_assets.core.errors import SettingError
from parcel_assets.core.stage import Stage
from parcel_assets.defs.partitions import SEARCH_REVISIONS
from parcel_assets.wiring import (
    REPOSITORY,
    Settings,
    host_name,
    process_lives,
    process_start,
)

PROCESS_TAG = ".dagster/parcel_assets_process"  # Dagster's pages leave out tags named so
WORKSPACE = REPOSITORY / "workspace.yaml"
SERVER_START_SECONDS = 90.0

Listener = Callable[[str, Mapping[str, Any]], None]


@contextmanager
def storage_refusals(settings: Settings) -> Iterator[None]:
    """Turn what Dagster's own storage refuses inside the block into a SettingError.

    Dagster's log decides nothing: the ledger and the store keep what was reached.
    """
    # its storage speaks SQLAlchemy; imported here, since most commands do without
    from sqlalchemy.exc import DatabaseError

    try:
        yield
    except DatabaseError as error:
        raise _storage_refusal(str(error.orig), settings) from error


def _storage_refusal(words: str, settings: Settings) -> SettingError:
    return SettingError(
        f"Dagster's storage refusing to work ({words.strip().splitlines()[0]})",
        expected="room, and the right to write",
        where=str(settings.dagster_home),
        remedy="Free space or mend the folder, then run again: it goes on from the ledger. A "
        "broken Dagster folder may be deleted; it only holds the pages' history.",
    )


def open_instance(settings: Settings) -> dg.DagsterInstance:
    """Return the Dagster instance of the settings, made on first use with our `dagster.yaml`."""
    home = settings.dagster_home
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists():
        shutil.copyfile(Path(__file__).parent / "defs" / "dagster.yaml", home / "dagster.yaml")
    os.environ.update(settings.environment())  # what Dagster and the stages read
    return dg.DagsterInstance.get()


def add_partition(revision: str, settings: Settings) -> None:
    """Let Dagster know a search revision; knowing it twice is fine."""
    with storage_refusals(settings), open_instance(settings) as instance:
        instance.add_dynamic_partitions(str(SEARCH_REVISIONS.name), [revision])


def run_search_job(
    revision: str, settings: Settings, listener: Listener, *, until: Stage | None = None
) -> tuple[bool, dict[str, Any] | None]:
    """Run the chain for a revision; return whether every stage ran, and the refusal if one did not.

    With `until`, no stage after it runs. Progress goes to the listener. A stop by signal ends the
    run as cancelled and is raised on.
    """
    from parcel_assets.defs.resources import listening

    refusals: list[dict[str, Any]] = []

    def hear(kind: str, facts: Mapping[str, Any]) -> None:
        if kind == "refused":
            refusals.append(dict(facts))
        listener(kind, facts)

    try:
        with storage_refusals(settings), listening(hear):
            result = _execute(revision, settings, until)
    except SettingError:
        if not refusals:
            raise
        return False, refusals[0]  # the same full disk: what was lost first says more
    if result.success or refusals:
        return result.success, refusals[0] if refusals else None
    return False, _unexpected(result, settings)


def _execute(revision: str, settings: Settings, until: Stage | None) -> dg.ExecuteInProcessResult:
    """Run the job in this process, in the instance that the pages show."""
    from parcel_assets.definitions import defs
    from parcel_assets.defs.jobs import SEARCH_JOB

    # the resource reads the settings from the environment that opening the instance sets
    with open_instance(settings) as instance:
        instance.add_dynamic_partitions(str(SEARCH_REVISIONS.name), [revision])
        fail_dead_runs(instance)
        return defs.resolve_job_def(SEARCH_JOB).execute_in_process(
            instance=instance,
            partition_key=revision,
            asset_selection=None
            if until is None
            else [dg.AssetKey(str(one)) for one in (*until.earlier, until)],
            raise_on_error=False,
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            tags={PROCESS_TAG: _this_process()},
        )


def fail_dead_runs(instance: dg.DagsterInstance) -> None:
    """Mark as failed those runs of this host whose process is gone: killed, it could not say so."""
    active = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING]
    for run in instance.get_runs(filters=dg.RunsFilter(statuses=active)):
        mark = json.loads(run.tags.get(PROCESS_TAG) or "{}")
        if mark.get("host") == host_name() and not process_lives(mark["id"], mark["started"]):
            instance.report_run_failed(run, "Its process was killed; running again resumes it.")


def _this_process() -> str:
    mark = {"host": host_name(), "id": os.getpid(), "started": process_start(os.getpid())}
    return json.dumps(mark)


def _unexpected(result: dg.ExecuteInProcessResult, settings: Settings) -> dict[str, Any] | None:
    """Return an error that was no refusal, or None where only a gate's check stopped the run."""
    for event in result.all_events:
        if event.is_step_failure:
            error = event.step_failure_data.error
            if error is not None and "DagsterAssetCheckFailedError" not in str(error.cls_name):
                if error.cls_name == "DagsterExecutionInterruptedError":
                    raise KeyboardInterrupt
                cause = error.cause or error
                if cause.cls_name == "OperationalError":  # Dagster's storage: not of our ledger
                    return _storage_refusal(cause.message, settings).as_fields()
                return {
                    "error": cause.cls_name or "Error",
                    "found": cause.message.strip().splitlines()[-1],
                    "expected": "a stage that ends or refuses in words",
                    "where": event.step_key or "a stage",
                    "remedy": "This is a fault of the program. Read it with "
                    f"`dagster debug export {result.run_id}`, or on the run's page.",
                    "stack": cause.to_string(),
                }
    return None
