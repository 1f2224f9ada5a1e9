"""A real Dagster webserver and daemon for tests: started bare, asked through GraphQL, stopped.

It is what `dagster dev` gives to anybody: the workspace file of this repository, a fresh instance,
runs in processes of their own. Nothing of ours starts it.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from parcel_assets.defs.partitions import SEARCH_REVISIONS

REPOSITORY = Path(__file__).parents[2]
LOCATION, CONSUMER = "parcel_assets", "packet_consumer"
START_SECONDS, RUN_SECONDS = 180.0, 400.0
ENDED = {"SUCCESS", "FAILURE", "CANCELED"}

Found = TypeVar("Found")

LAUNCH = """
mutation ($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename
  ... on LaunchRunSuccess { run { runId } }
  ... on RunConfigValidationInvalid { errors { message } }
  ... on PythonError { message }
  ... on InvalidSubsetError { message }
} }"""
RUN = """
query ($id: ID!) { runOrError(runId: $id) { ... on Run { status tags { key value } } } }"""
EVENTS = """
query ($id: ID!, $after: String) { logsForRun(runId: $id, afterCursor: $after) {
  ... on EventConnection { cursor hasMore events {
    __typename
    ... on StepEvent { stepKey }
    ... on MessageEvent { message }
    ... on ExecutionStepFailureEvent {
      error { message causes { message } errorChain { error { message } } }
      failureMetadata { description metadataEntries { label ... on TextMetadataEntry { text } } }
    }
    ... on MaterializationEvent { assetKey { path } partition }
    ... on AssetCheckEvaluationEvent {
      evaluation { checkName success severity description }
    }
  } }
} }"""
PARTITIONS = """
query ($where: RepositorySelector!) { repositoryOrError(repositorySelector: $where) {
  ... on Repository { assetNodes { assetKey { path } partitionKeys } } } }"""
ADD_PARTITION = """
mutation ($where: RepositorySelector!, $name: String!, $key: String!) {
  addDynamicPartition(repositorySelector: $where, partitionsDefName: $name, partitionKey: $key) {
    __typename ... on PythonError { message } } }"""
START_SENSOR = """
mutation ($sensor: SensorSelector!) { startSensor(sensorSelector: $sensor) {
  __typename ... on Sensor { sensorState { status } } ... on PythonError { message } } }"""
SENSOR = """
query ($sensor: SensorSelector!) { sensorOrError(sensorSelector: $sensor) {
  ... on Sensor { defaultStatus sensorState { status ticks(limit: 100) {
    status skipReason cursor runIds error { message }
    dynamicPartitionsRequestResults { type partitionKeys }
  } } } } }"""
ASSET_EVENTS = """
query ($key: AssetKeyInput!) { assetOrError(assetKey: $key) {
  ... on Asset { assetMaterializations(limit: 100) { partition description } } } }"""
RUNS = """
query ($tag: ExecutionTag!) { runsOrError(filter: { tags: [$tag] }) {
  ... on Runs { results { runId status tags { key value } } } } }"""
LOCATIONS = """
{ workspaceOrError { ... on Workspace { locationEntries {
  name loadStatus locationOrLoadError {
    __typename ... on PythonError { message }
  } } } } }"""


@dataclass
class Run:
    """How a run ended: what it materialized, which checks answered what, which step failed how."""

    run_id: str
    status: str
    materialized: list[str] = field(default_factory=list)
    checks: dict[str, tuple[bool, str]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    facts: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """All failures in one text."""
        return "\n".join(f"{step}: {words}" for step, words in self.failures.items())


class RefusedAtLaunch(Exception):  # noqa: N818  # a refusal, as the product says it
    """A launch that Dagster turned away before any run began."""


class WebServer:
    """A running server, asked as a browser would ask it."""

    def __init__(self, address: str, process: subprocess.Popen[bytes]) -> None:
        self.address = address
        self.process = process

    # ---- asking ----------------------------------------------------------------------------------

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        request = urllib.request.Request(
            f"{self.address}{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def ask(self, query: str, **variables: Any) -> Any:
        answer = self.post("/graphql", {"query": query, "variables": variables})
        assert not answer.get("errors"), answer["errors"]
        return answer["data"]

    def locations(self) -> dict[str, str]:
        """Return, by code location, how loading it went."""
        entries = self.ask(LOCATIONS)["workspaceOrError"]["locationEntries"]
        return {
            one["name"]: one["locationOrLoadError"]["__typename"]
            if one["locationOrLoadError"]
            else "loading"
            for one in entries
        }

    def processes(self) -> dict[int, str]:
        """Return the command of every process of this server, by process id."""
        found = {}
        for place in Path("/proc").glob("[0-9]*"):
            try:
                words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if os.getpgid(int(place.name)) == self.process.pid:
                    found[int(place.name)] = words.strip()
            except (OSError, ProcessLookupError):
                continue
        return found

    # ---- runs ------------------------------------------------------------------------------------

    def partitions(self, asset: str) -> list[str]:
        """Return the keys of an asset's partitions."""
        nodes = self.ask(PARTITIONS, where=_repository(LOCATION))["repositoryOrError"]["assetNodes"]
        return next(
            list(one["partitionKeys"]) for one in nodes if one["assetKey"]["path"] == [asset]
        )

    def add_partition(self, key: str) -> None:
        """Add a search revision, as the page's dialogue does."""
        named = {"where": _repository(LOCATION), "name": str(SEARCH_REVISIONS.name), "key": key}
        answer = self.ask(ADD_PARTITION, **named)["addDynamicPartition"]
        assert answer["__typename"] == "AddDynamicPartitionSuccess", answer

    def launch(
        self,
        assets: Sequence[str],
        partition: str,
        *,
        checks: Sequence[tuple[str, str]] | None = None,
        config: Mapping[str, Any] | None = None,
        location: str = LOCATION,
    ) -> str:
        """Launch a run as the page does and return its id; `checks` are (asset, name) pairs.

        Raises RefusedAtLaunch where Dagster turns it away.
        """
        selector = {
            "repositoryLocationName": location,
            "repositoryName": "__repository__",
            "pipelineName": "__ASSET_JOB",
            "assetSelection": [{"path": [name]} for name in assets],
            "assetCheckSelection": [
                {"assetKey": {"path": [asset]}, "name": name} for asset, name in checks or ()
            ],
        }
        params = {
            "selector": selector,
            "runConfigData": dict(config or {}),
            "executionMetadata": {"tags": [{"key": "dagster/partition", "value": partition}]},
        }
        answer = self.ask(LAUNCH, params=params)["launchRun"]
        if answer["__typename"] != "LaunchRunSuccess":
            raise RefusedAtLaunch(json.dumps(answer))
        return str(answer["run"]["runId"])

    def wait(self, run_id: str, seconds: float = RUN_SECONDS) -> Run:
        """Wait until a run has ended and return what its events say."""

        def ended() -> str | None:
            status = str(self.ask(RUN, id=run_id)["runOrError"]["status"])
            return status if status in ENDED else None

        return self._read(Run(run_id, until(ended, seconds, f"end of run {run_id}", pause=1.5)))

    def run(self, assets: Sequence[str], partition: str, **options: Any) -> Run:
        """Launch a run and wait for its end."""
        return self.wait(self.launch(assets, partition, **options))

    def runs_with(self, key: str, value: str) -> list[dict[str, Any]]:
        """Return all runs that carry a tag."""
        found = self.ask(RUNS, tag={"key": key, "value": value})["runsOrError"]["results"]
        return list(found)

    def _read(self, run: Run) -> Run:
        cursor: str | None = None
        while True:
            page = self.ask(EVENTS, id=run.run_id, after=cursor)["logsForRun"]
            for event in page["events"]:
                _take(event, run)
            cursor = page["cursor"]
            if not page["hasMore"]:
                return run

    # ---- checks, sensors, events -----------------------------------------------------------------

    def report_check(self, asset: str, name: str, partition: str, *, passed: bool) -> None:
        """Report an evaluation by hand, as the page's menu and any script can."""
        body = {"check_name": name, "passed": passed, "partition": partition, "metadata": {}}
        self.post(f"/report_asset_check/{asset}", body)

    def start_sensor(self, name: str) -> None:
        answer = self.ask(START_SENSOR, sensor=_sensor(name))["startSensor"]
        assert answer["__typename"] == "Sensor", answer

    def sensor(self, name: str) -> dict[str, Any]:
        """Return a sensor's default status, its status, and its ticks, oldest first."""
        found = self.ask(SENSOR, sensor=_sensor(name))["sensorOrError"]
        state = found["sensorState"]
        ended = [one for one in state["ticks"] if one["status"] != "STARTED"]
        return {
            "default": found["defaultStatus"],
            "status": state["status"],
            "ticks": list(reversed(ended)),
        }

    def materializations(self, asset: str) -> list[dict[str, Any]]:
        """Return the asset's materializations, newest first."""
        found = self.ask(ASSET_EVENTS, key={"path": [asset]})["assetOrError"]
        return list(found.get("assetMaterializations", []))


@contextmanager
def serving(home: Path, data: Path) -> Iterator[WebServer]:
    """Start bare `dagster dev` on this checkout's workspace; stop it, whatever happens."""
    home.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PARCEL_ASSETS_", "DAGSTER_"))}
    environment = kept | {
        "DAGSTER_HOME": str(home),
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "PARCEL_ASSETS_DATA": str(data),
        "PARCEL_ASSETS_WORKERS": "2",
    }
    port = free_port()
    command = [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml"]
    with (home / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "-h", "127.0.0.1", "-p", str(port)],
            cwd=REPOSITORY,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            server = WebServer(f"http://127.0.0.1:{port}", process)
            until(lambda: _loaded(server), START_SECONDS, f"server; see {home / 'server.log'}")
            yield server
        finally:
            _stop(process)


def until(
    question: Callable[[], Found | None], seconds: float, what: str, *, pause: float = 0.5
) -> Found:
    """Return the first answer that is not None; raises TimeoutError after so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = question()
        if answer is not None:
            return answer
        time.sleep(pause)
    raise TimeoutError(f"waited {seconds:.0f} s for {what}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _loaded(server: WebServer) -> bool | None:
    assert server.process.poll() is None, "the server ended by itself"
    try:
        found = server.locations()
    except (OSError, urllib.error.URLError):
        return None
    return True if found and "loading" not in found.values() else None


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the server with all that it started, at once where it does not go by itself."""
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=20)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _repository(location: str) -> dict[str, str]:
    return {"repositoryLocationName": location, "repositoryName": "__repository__"}


def _sensor(name: str) -> dict[str, str]:
    return {**_repository(LOCATION), "sensorName": name}


def _take(event: Mapping[str, Any], run: Run) -> None:
    kind = event["__typename"]
    if kind == "MaterializationEvent":
        run.materialized.append("/".join(event["assetKey"]["path"]))
    elif kind == "AssetCheckEvaluationEvent":
        said = event["evaluation"]
        run.checks[said["checkName"]] = (said["success"], str(said["description"]))
    elif kind == "ExecutionStepFailureEvent":
        step, shown = str(event["stepKey"]), event["failureMetadata"]
        error = event["error"] or {}
        chain = [error.get("message", ""), *(one["message"] for one in error.get("causes", []))]
        run.failures[step] = str(shown["description"]) if shown else "\n".join(chain)
        run.facts[step] = {
            one["label"]: str(one.get("text")) for one in (shown or {}).get("metadataEntries", [])
        }
