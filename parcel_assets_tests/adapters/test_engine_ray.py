"""Workers on Ray: the contract of engines on a cluster of this machine, and none outlives anything.

One cluster serves the whole file: starting one takes seconds.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.adapters import engine_ray
from parcel_assets.adapters.engine_cluster import OWN, Cluster
from parcel_assets.adapters.engine_ray import RayEngine
from parcel_assets.core.errors import SettingError
from parcel_assets_tests.contracts.engine_contract import (
    CONTRACT,
    SEARCH,
    EngineContract,
    SearchEngineContract,
    hear,
    is_gone,
    setup_file,
    wait_until,
)
from parcel_assets_tests.search_world import World, small_plan

SLOTS = 4


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Cluster]:
    """Keep a cluster of our own alive from engine to engine."""
    joined = Cluster.join(OWN, SLOTS)
    yield joined
    joined.leave()


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def actor_process(engine: RayEngine, worker_id: str) -> int:
    import ray

    return int(ray.get(engine._kept[worker_id].keeper.process.remote()))


def end_actor(engine: RayEngine, worker_id: str) -> None:
    os.kill(actor_process(engine, worker_id), signal.SIGKILL)


class OnRay:
    """How the contract opens an engine on the cluster and ends a worker: with its actor."""

    def open_engine(self, logs: Path, command: tuple[str, ...]) -> RayEngine:
        return RayEngine(logs, command=command)

    def end_worker(self, engine: Any, worker_id: str) -> None:
        end_actor(engine, worker_id)


@pytest.mark.slow
class TestRayEngine(OnRay, EngineContract):
    """Every behaviour of a worker, kept by an actor."""


class TestRayEngineInTheSearch(OnRay, SearchEngineContract):
    """Real workers with the fake trainer."""


def test_a_killed_actor_takes_its_worker_with_it_and_is_named_as_the_reason(
    logs: Path, tmp_path: Path
) -> None:
    with closing(RayEngine(logs, command=CONTRACT)) as engine:
        engine.start("w1", setup_file(tmp_path, "has_children"))
        hello = hear(engine, "hello")
        end_actor(engine, "w1")
        assert "its Ray actor ended" in hear(engine, "lost")["reason"]
        wait_until(lambda: all(map(is_gone, (hello["pid"], *hello["children"]))), 10)


@pytest.mark.slow
def test_a_paused_actor_is_stopped_by_force(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_ray, "STOP_SECONDS", 1.0)
    with closing(RayEngine(logs, command=CONTRACT)) as engine:
        engine.start("w1", setup_file(tmp_path, "has_children"))
        hello = hear(engine, "hello")
        actor = actor_process(engine, "w1")
        os.kill(actor, signal.SIGSTOP)
        engine.stop("w1")
        gone = (actor, hello["pid"], *hello["children"])
        wait_until(lambda: all(map(is_gone, gone)), 10)


def test_a_path_that_the_worker_s_host_does_not_have_is_named(logs: Path, tmp_path: Path) -> None:
    with closing(RayEngine(logs, command=CONTRACT)) as engine:
        engine.start("w1", tmp_path / "nowhere.json")
        reason = hear(engine, "lost")["reason"]
        assert f"no file {tmp_path / 'nowhere.json'}" in reason
        assert "under the same path on every host" in reason


def test_a_worker_that_finds_no_room_is_lost_with_what_it_wanted(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_ray, "PLACE_SECONDS", 0.5)
    with closing(RayEngine(logs, command=CONTRACT, accelerators=0.5)) as engine:
        engine.start("w1", setup_file(tmp_path, "echo"))
        assert "no room for {'num_cpus': 1.0, 'num_gpus': 0.5}" in hear(engine, "lost")["reason"]


def test_one_process_has_one_cluster() -> None:
    with pytest.raises(SettingError, match="another Ray cluster: local"):
        Cluster.join("192.0.2.1:6379")


def test_the_search_finds_on_ray_what_it_finds_on_local_processes(tmp_path: Path) -> None:
    digests = []
    for name in ("local", "ray"):
        world = World(tmp_path / name)
        world.freeze(small_plan())
        if name == "local":
            world.search(workers=2)
        else:
            logs = world.folder / "logs"
            world.search(workers=2, engine=lambda logs=logs: RayEngine(logs, command=SEARCH))
        digests.append(world.table_digest())
    assert digests[0] == digests[1]


COORDINATOR = """
import json, os, sys, time
from pathlib import Path
import parcel_assets.settings
from parcel_assets.adapters.engine_ray import RayEngine
folder = Path(sys.argv[1])
command = (sys.executable, "-m", "parcel_assets_tests.contract_worker")
engine = RayEngine(folder / "logs", command=command, workers=3)
for behaviour in ("stuck", "has_children"):
    (folder / f"{behaviour}.json").write_text(json.dumps({"behaviour": behaviour}))
    engine.start(behaviour, folder / f"{behaviour}.json")
heard = []
while len(heard) < 2:
    heard += [message for _, message in engine.receive(1.0) if message["kind"] == "hello"]
import ray
actors = [ray.get(kept.keeper.process.remote()) for kept in engine._kept.values()]
workers = [p for one in heard for p in (one["pid"], *one.get("children", []))]
print(json.dumps({"workers": workers, "actors": actors}), flush=True)
if sys.argv[2] == "close":
    os.kill(actors[0], 9)
    while not engine.receive(1.0):
        pass
    time.sleep(1.0)  # what Ray prints of it comes on another way
    engine.close()
    sys.exit(0)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "close"])
def test_neither_actor_nor_worker_outlives_the_process_that_wanted_them(
    tmp_path: Path, how: str
) -> None:
    """However it ends, and though one actor is paused."""
    words = [sys.executable, "-c", COORDINATOR, str(tmp_path), how]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    facts = json.loads(line)
    if how == "kill":
        os.kill(facts["actors"][0], signal.SIGSTOP)
        process.kill()
    gone = [*facts["workers"], *facts["actors"]]
    wait_until(lambda: all(map(is_gone, gone)), 30 if how == "close" else 10)
    words_of_ray, _ = process.communicate()
    assert words_of_ray == ""  # what a command prints may be one JSON document
