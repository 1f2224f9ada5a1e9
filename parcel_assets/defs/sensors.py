"""Sensors, off until a person turns them on: new archive versions, and plan files.

A sensor reports, adds partitions and launches; whether a version or a plan is any good is decided
by the stages. A faulty plan is a sentence in the tick, never a crash of the other plans.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from parcel_assets.core.codec import short
from parcel_assets.core.errors import ParcelAssetsError
from parcel_assets.defs.assets import PHOTO_ARCHIVE
from parcel_assets.defs.jobs import search_job
from parcel_assets.defs.partitions import SEARCH_REVISIONS
from parcel_assets.defs.resources import ParcelAssets
from parcel_assets.wiring import (
    PlanFile,
    Settings,
    TableRules,
    archive_version,
    list_plans,
    look_at_archive,
    plan_file_of,
)

TICK_SECONDS = 30


@dg.sensor(
    asset_selection=dg.AssetSelection.assets(PHOTO_ARCHIVE),
    minimum_interval_seconds=TICK_SECONDS,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Registers and reports each complete new version of a folder in data/archives. "
    "Complete: the label table and every file it names are there, and unchanged since last tick.",
)
def archive_versions(
    context: dg.SensorEvaluationContext, parcel_assets: ParcelAssets
) -> dg.SensorResult:
    """Report complete new archive versions."""
    settings = parcel_assets.settings()
    ledger = parcel_assets.open().ledger
    seen: dict[str, str] = json.loads(context.cursor or "{}")
    marks: dict[str, str] = {}
    events: list[dg.AssetMaterialization] = []
    sentences: list[str] = []
    for folder in _folders(settings.archives):
        rules = _rules_of(folder, settings)
        look = look_at_archive(folder, rules)
        marks[folder.name] = look.mark
        if not look.complete:
            sentences.append(look.sentence)
        elif seen.get(folder.name) == f"known {look.mark}":
            marks[folder.name] = f"known {look.mark}"
            sentences.append(f"{look.sentence}, version known")
        elif seen.get(folder.name) != look.mark:
            sentences.append(f"{look.sentence}, waiting one tick to see that it rests")
        else:
            version = archive_version(folder, rules, look)
            marks[folder.name] = f"known {look.mark}"
            facts = {"files": len(look.files), "table": rules.table}
            if ledger.note_archive_version(folder.name, version, facts):
                events.append(_reported(folder, version, len(look.files)))
            else:
                sentences.append(f"{look.sentence}, version {short(version)} is known")
    words = "; ".join(sentences) or f"no archives in {settings.archives}"
    return dg.SensorResult(
        skip_reason=None if events else f"Nothing new. {words}",
        asset_events=events,
        cursor=json.dumps(marks, sort_keys=True),
    )


@dg.sensor(
    job=search_job,
    minimum_interval_seconds=TICK_SECONDS,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Adds a search revision for each sound plan in data/plans, and launches those "
    "marked `ready = true`, each once for ever: to run one again, materialize it by hand.",
)
def ready_plans(
    context: dg.SensorEvaluationContext, parcel_assets: ParcelAssets
) -> dg.SensorResult:
    """Add search revisions, and launch those marked ready."""
    known = set(context.instance.get_dynamic_partitions(str(SEARCH_REVISIONS.name)))
    launched: list[str] = json.loads(context.cursor or "[]")
    added: list[str] = []
    requests: list[dg.RunRequest] = []
    sentences: list[str] = []
    for path in list_plans(parcel_assets.settings()):
        try:
            found = plan_file_of(path.stem, parcel_assets.settings())
        except ParcelAssetsError as error:
            sentences.append(f"{path.name} is not a plan: {error.found}")
            continue
        if found is None:  # removed since the folder was listed
            continue
        if found.revision not in known:
            added.append(found.revision)
        if found.plan.ready and found.revision not in launched:
            requests.append(_request(found))
            launched.append(found.revision)
        elif found.plan.ready:
            sentences.append(f"{found.revision} was launched before")
    if sentences:
        context.log.info("; ".join(sentences))
    words = "; ".join(sentences) or f"{len(known)} search revisions known"
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests or added else f"Nothing new. {words}.",
        dynamic_partitions_requests=[SEARCH_REVISIONS.build_add_request(added)] if added else [],
        cursor=json.dumps(launched),
    )


def _request(found: PlanFile) -> dg.RunRequest:
    # Dagster remembers a run key for ever, so that a failed search is never restarted by a sensor
    return dg.RunRequest(
        run_key=found.revision,
        partition_key=found.revision,
        tags={"parcel_assets/launched_by": "ready_plans"},
    )


def _reported(folder: Path, version: str, files: int) -> dg.AssetMaterialization:
    return dg.AssetMaterialization(
        PHOTO_ARCHIVE,
        description=f"{folder.name} is complete: {files} files, version {short(version)}",
        metadata={
            "archive": folder.name,
            "version": version,
            "files": files,
            "folder": dg.MetadataValue.path(str(folder)),
        },
    )


def _folders(archives: Path) -> Iterator[Path]:
    if archives.is_dir():
        for folder in sorted(archives.iterdir()):
            if folder.is_dir() and not folder.name.startswith("."):
                yield folder


def _rules_of(folder: Path, settings: Settings) -> TableRules:
    """Return how an archive's table reads: as a plan that names the folder says, else as usual."""
    for path in list_plans(settings):
        try:
            found = plan_file_of(path.stem, settings)
        except ParcelAssetsError:
            continue  # the other sensor reports it
        if found and (settings.data / found.plan.snapshot.location).resolve() == folder.resolve():
            section = found.plan.snapshot
            return TableRules(
                section.table, section.columns.photo, section.encoding, section.delimiter
            )
    return TableRules()
