"""Workers on Ray: each is the same process as a local one, kept by an actor of its own.

Decides where workers run and how their messages travel. An actor holds a `LocalEngine` with one
worker, so a worker's program, environment, limits and end are those of this machine's workers, and
Ray itself never loads what is trained. Messages cross as JSON lines; one call waits at each actor
for the next of them. Ray restarts nothing and retries nothing: the ledger owns that.
"""

import asyncio
import json
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnschedulableError, GetTimeoutError, RayActorError, RayError

from parcel_assets.adapters.engine_cluster import OWN, Cluster
from parcel_assets.adapters.engine_local import COMMAND, LocalEngine
from parcel_assets.adapters.engine_process import die_with_parent
from parcel_assets.adapters.engine_words import require_known, require_new
from parcel_assets.core.errors import SettingError
from parcel_assets.core.ports import Message

LISTEN_SECONDS = 5.0
PLACE_SECONDS = 100.0  # for an actor to find room; above the seconds that Ray takes to start one
STOP_SECONDS = 10.0

Lines = list[str]


class Keeper:
    """The actor: keeps one worker, in a process that ends when its node or its driver does."""

    def __init__(self, log_folder: str, command: Sequence[str] | None) -> None:
        die_with_parent()  # of the node's raylet; the worker in turn dies with this process
        self._engine = LocalEngine(Path(log_folder), command or COMMAND)
        self._worker_id = ""
        self._unsent: dict[int, str] = {}  # calls at an asyncio actor may overtake each other
        self._sent = 0

    async def start(self, worker_id: str, setup: str) -> Lines:
        """Start the worker; what keeps it from starting is its loss."""
        try:
            if not Path(setup).exists():
                raise _absent(setup)
            self._engine.start(worker_id, Path(setup))
        except SettingError as error:
            return [json.dumps({"kind": "lost", "reason": str(error)})]
        self._worker_id = worker_id
        self._pass_on()
        return []

    async def send(self, number: int, line: str) -> None:
        """Pass a message on to the worker, once those with lower numbers were."""
        self._unsent[number] = line
        self._pass_on()

    def _pass_on(self) -> None:
        while self._worker_id and self._sent in self._unsent:
            self._engine.send(self._worker_id, json.loads(self._unsent.pop(self._sent)))
            self._sent += 1

    async def receive(self) -> Lines:
        """Wait a while for the worker's next messages."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LISTEN_SECONDS
        while True:
            said = [json.dumps(message) for _, message in self._engine.receive(0.0)]
            if said or loop.time() >= deadline:
                return said
            await _readable(self._engine.fileno(), 0.5)

    async def process(self) -> int:
        """Return this actor's process id."""
        return os.getpid()

    async def stop(self) -> None:
        """End the worker, and wait until it is gone."""
        self._engine.close()


async def _readable(descriptor: int, seconds: float) -> None:
    """Wait until a descriptor is readable, at most some seconds."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        async with asyncio.timeout(seconds):
            await ready.wait()
    except TimeoutError:
        return
    finally:
        loop.remove_reader(descriptor)


@dataclass(slots=True)
class _Kept:
    keeper: Any  # an actor's handle; Ray makes its methods up
    waiting: "ray.ObjectRef[Lines]"  # the one call that waits for its next words
    started_at: float
    placed: bool = False
    sent: int = 0


class RayEngine:
    """The engine port on Ray: on a cluster of its own, or on one that this host belongs to.

    `address` is OWN or the cluster's `HOST:PORT`; `accelerators` of one worker may be a fraction.
    """

    def __init__(
        self,
        log_folder: Path,
        *,
        address: str = OWN,
        workers: int = 1,
        accelerators: float = 0.0,
        command: Sequence[str] | None = None,
    ) -> None:
        self._logs = log_folder
        self._address = address
        self._wants = {"num_cpus": 1.0, "num_gpus": accelerators}
        self._workers = workers
        self._command = tuple(command) if command else None
        self._cluster: Cluster | None = None
        self._kept: dict[str, _Kept] = {}
        self._known: set[str] = set()
        self._inbox: list[tuple[str, dict[str, Any]]] = []
        self._closed = False

    def start(self, worker_id: str, setup: Path) -> None:
        """Ask for a worker; raises SettingError where there is no cluster, else `lost` says why."""
        require_new(worker_id, self._known, closed=self._closed)
        if self._cluster is None:
            self._cluster = Cluster.join(self._address, self._workers)
        make: Any = ray.remote(Keeper)
        placed = make.options(max_restarts=0, max_task_retries=0, **self._wants)
        keeper = placed.remote(str(self._logs), self._command)
        self._known.add(worker_id)
        waiting = keeper.start.remote(worker_id, str(setup))
        self._kept[worker_id] = _Kept(keeper, waiting, time.monotonic())

    def send(self, worker_id: str, message: Message) -> None:
        """Send a message without waiting; a worker that is gone is lost in `receive`, not here."""
        require_known(worker_id, self._known)
        if worker_id in self._kept:
            kept = self._kept[worker_id]
            kept.keeper.send.remote(kept.sent, json.dumps(dict(message)))
            kept.sent += 1

    def receive(self, timeout_seconds: float) -> list[tuple[str, dict[str, Any]]]:
        """Return the messages that have come, waiting at most `timeout_seconds` for the first."""
        deadline = time.monotonic() + timeout_seconds
        while not self._inbox:
            left = max(0.0, deadline - time.monotonic())
            calls = {kept.waiting: worker_id for worker_id, kept in self._kept.items()}
            if not calls:
                time.sleep(left)
                break
            if ray.wait(list(calls), num_returns=1, timeout=left)[0]:
                for call in ray.wait(list(calls), num_returns=len(calls), timeout=0)[0]:
                    self._hear(calls[call])
            self._give_up_unplaced()
            if time.monotonic() >= deadline:
                break
        found, self._inbox = self._inbox, []
        return found

    def _hear(self, worker_id: str) -> None:
        kept = self._kept[worker_id]
        try:
            lines = ray.get(kept.waiting)
        except RayError as error:
            self._lose(worker_id, _why(error))
            return
        kept.placed = True
        messages = [json.loads(line) for line in lines]
        self._inbox += [(worker_id, message) for message in messages]
        if any(message["kind"] == "lost" for message in messages):
            self._end(worker_id)
        else:
            kept.waiting = kept.keeper.receive.remote()

    def _give_up_unplaced(self) -> None:
        """Lose workers for which the cluster has found no room."""
        latest = time.monotonic() - PLACE_SECONDS
        for worker_id, kept in tuple(self._kept.items()):
            if not kept.placed and kept.started_at < latest:
                free = ray.available_resources()  # type: ignore[no-untyped-call]
                free = {name: free.get(name, 0.0) for name in ("CPU", "GPU")}
                self._lose(
                    worker_id,
                    f"it does not start: within {PLACE_SECONDS:.0f} s the cluster had no room for "
                    f"{self._wants}, free were {free}; use fewer workers or a larger cluster",
                )

    def _lose(self, worker_id: str, reason: str) -> None:
        self._end(worker_id)
        self._inbox.append((worker_id, {"kind": "lost", "reason": reason}))

    def stop(self, worker_id: str) -> None:
        """End a worker at once and wait until it is gone; what it still says is not heard."""
        require_known(worker_id, self._known)
        if worker_id in self._kept:
            self._end(worker_id)
        self._inbox = [one for one in self._inbox if one[0] != worker_id]

    def close(self) -> None:
        """End all workers, and the cluster where it is this process's own."""
        self._closed = True
        ending: list[Any] = [kept.keeper.stop.remote() for kept in self._kept.values()]
        if ending:
            ray.wait(ending, num_returns=len(ending), timeout=STOP_SECONDS)
        for worker_id in tuple(self._kept):
            self._end(worker_id)
        self._inbox.clear()
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.leave()

    def _end(self, worker_id: str) -> None:
        """End the worker and its actor in order, or by force where the actor does not answer."""
        kept = self._kept.pop(worker_id)
        try:
            ray.get(kept.keeper.stop.remote(), timeout=STOP_SECONDS if kept.placed else 0.0)
            kept.keeper.__ray_terminate__.remote()
        except (RayActorError, ActorUnschedulableError, GetTimeoutError):
            ray.kill(kept.keeper, no_restart=True)  # its worker dies with it


def _absent(setup: str) -> SettingError:
    return SettingError(
        f"a worker that does not start: no file {setup}",
        expected="the store's folder, under the same path on every host of the cluster",
        where=f"host {socket.gethostname()}",
        remedy="Mount the data folder there, or use a cluster of this host alone.",
    )


def _why(error: RayError) -> str:
    """Return in one line why a call at an actor failed."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, RayActorError):
        told = [one for one in lines if "dead because" in one or "Worker exit" in one]
        return f"its Ray actor ended: {' '.join(told or lines[:1])[:600]}"
    return f"its Ray actor failed: {lines[-1][:600]}"
