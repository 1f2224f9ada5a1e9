"""Sensors: each new archive version and each ready plan does its work once, and repeats say so."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from parcel_assets.defs.partitions import SEARCH_REVISIONS
from parcel_assets.defs.resources import ParcelAssets
from parcel_assets.defs.sensors import archive_versions, ready_plans
from parcel_assets_tests.adapters.test_plan_folder import TEXT


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as one:
        yield one


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("plans", "archives"):
        (tmp_path / name).mkdir()
    return tmp_path


def tick(
    sensor: dg.SensorDefinition, data: Path, instance: dg.DagsterInstance, cursor: str | None
) -> dg.SensorResult:
    context = dg.build_sensor_context(
        instance=instance,
        cursor=cursor,
        resources={"parcel_assets": ParcelAssets(data_folder=str(data))},
    )
    result: Any = sensor(context)
    assert isinstance(result, dg.SensorResult)
    return result


def events_of(result: dg.SensorResult) -> list[Any]:
    return list(result.asset_events or ())


def reason(result: dg.SensorResult) -> str:
    skip: Any = result.skip_reason
    return str(getattr(skip, "skip_message", skip))


def drop_archive(data: Path, photo: bytes = b"a") -> Path:
    folder = data / "archives" / "belt"
    folder.mkdir(exist_ok=True)
    (folder / "a.jpg").write_bytes(photo)
    (folder / "labels.csv").write_text("path,label\na.jpg,intact\n")
    return folder


def write_plan(data: Path, name: str, *, ready: bool = False, text: str = TEXT) -> None:
    flag = "ready = true\n" if ready else ""
    (data / "plans" / f"{name}.toml").write_text(flag + text)


def test_sensors_are_off_until_a_person_turns_them_on() -> None:
    for sensor in (archive_versions, ready_plans):
        assert sensor.default_status == dg.DefaultSensorStatus.STOPPED


def test_a_new_archive_version_is_reported_once_it_rests(
    data: Path, instance: dg.DagsterInstance
) -> None:
    drop_archive(data)
    first = tick(archive_versions, data, instance, None)
    assert not first.asset_events
    assert "waiting one tick" in reason(first)
    second = tick(archive_versions, data, instance, first.cursor)
    (event,) = events_of(second)
    assert event.asset_key == dg.AssetKey("photo_archive")
    third = tick(archive_versions, data, instance, second.cursor)
    assert not third.asset_events
    assert "version known" in reason(third)


def test_a_lost_cursor_reports_no_version_twice(data: Path, instance: dg.DagsterInstance) -> None:
    drop_archive(data)
    cursor: str | None = None
    for _ in range(2):
        cursor = tick(archive_versions, data, instance, cursor).cursor
    again = tick(archive_versions, data, instance, None)
    again = tick(archive_versions, data, instance, again.cursor)
    assert not again.asset_events
    assert "is known" in reason(again)


def test_a_changed_photo_is_a_new_version(data: Path, instance: dg.DagsterInstance) -> None:
    drop_archive(data)
    cursor: str | None = None
    for _ in range(2):
        cursor = tick(archive_versions, data, instance, cursor).cursor
    drop_archive(data, b"another photo")
    events = []
    for _ in range(2):
        result = tick(archive_versions, data, instance, cursor)
        cursor = result.cursor
        events += events_of(result)
    assert len(events) == 1


def test_a_half_copied_archive_waits(data: Path, instance: dg.DagsterInstance) -> None:
    (drop_archive(data) / "a.jpg").unlink()
    result = tick(archive_versions, data, instance, None)
    assert "1 of 1 files not there yet" in reason(result)


def test_a_plan_becomes_a_search_revision(data: Path, instance: dg.DagsterInstance) -> None:
    write_plan(data, "parcels-a")
    result = tick(ready_plans, data, instance, None)
    (request,) = result.dynamic_partitions_requests or ()
    assert list(request.partition_keys) == ["parcels-a"]
    assert not result.run_requests
    instance.add_dynamic_partitions(str(SEARCH_REVISIONS.name), ["parcels-a"])
    assert "Nothing new" in reason(tick(ready_plans, data, instance, result.cursor))


def test_a_ready_plan_is_launched_once(data: Path, instance: dg.DagsterInstance) -> None:
    write_plan(data, "parcels-a", ready=True)
    first = tick(ready_plans, data, instance, None)
    (request,) = first.run_requests or ()
    assert (request.run_key, request.partition_key) == ("parcels-a", "parcels-a")
    instance.add_dynamic_partitions(str(SEARCH_REVISIONS.name), ["parcels-a"])
    second = tick(ready_plans, data, instance, first.cursor)
    assert not second.run_requests
    assert "parcels-a was launched before" in reason(second)
    assert json.loads(second.cursor or "") == ["parcels-a"]


def test_a_faulty_plan_is_a_sentence_and_stops_no_other(
    data: Path, instance: dg.DagsterInstance
) -> None:
    write_plan(data, "bad", text=TEXT.replace("budget_trials", "budget_trails"))
    write_plan(data, "Not A Revision")
    assert "bad.toml is not a plan" in reason(tick(ready_plans, data, instance, None))
    assert "budget_trails" in reason(tick(ready_plans, data, instance, None))
    write_plan(data, "good", ready=True)
    (request,) = tick(ready_plans, data, instance, None).run_requests or ()
    assert request.partition_key == "good"
