"""A run whose process was killed is marked as failed; one that lives, or lives elsewhere, not."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import dagster as dg
import pytest

from parcel_assets.cli_dagster import PROCESS_TAG, fail_dead_runs
from parcel_assets.wiring import host_name, process_start


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as one:
        yield one


def started(instance: dg.DagsterInstance, host: str, process: int, since: str | None) -> str:
    mark = json.dumps({"host": host, "id": process, "started": since})
    run = dg.DagsterRun(
        job_name="search_job", status=dg.DagsterRunStatus.STARTED, tags={PROCESS_TAG: mark}
    )
    return instance.add_run(run).run_id


def test_only_runs_of_dead_processes_of_this_host_fail(instance: dg.DagsterInstance) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    since = process_start(child.pid)
    child.kill()
    child.communicate()
    dead = started(instance, host_name(), child.pid, since)
    living = started(instance, host_name(), os.getpid(), process_start(os.getpid()))
    elsewhere = started(instance, "another-host", child.pid, since)
    fail_dead_runs(instance)
    states = {
        name: instance.get_runs(dg.RunsFilter(run_ids=[run]))[0].status
        for name, run in {"dead": dead, "living": living, "elsewhere": elsewhere}.items()
    }
    assert states == {
        "dead": dg.DagsterRunStatus.FAILURE,
        "living": dg.DagsterRunStatus.STARTED,
        "elsewhere": dg.DagsterRunStatus.STARTED,
    }
