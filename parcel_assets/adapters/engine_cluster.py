"""Ray itself: one connection for each process, to a cluster of its own or to a named one.

Decides how Ray is started and that no cluster is joined which the settings do not name; that it
reports to nobody and prints nothing is in `settings`. What runs on it is the engine's.
"""

import logging
import os
import shutil
import tempfile
from typing import Any

import ray

from parcel_assets.core.errors import SettingError

OWN = "local"  # Ray's word for a cluster that the caller starts; it never looks for another
OBJECT_STORE_BYTES = 80 << 20  # Ray's least: messages are small, arrays are files


class Cluster:
    """A connection of this process to a cluster: one at a time, shared by its engines."""

    _joined: "Cluster | None" = None

    def __init__(self, address: str) -> None:
        self.address = address
        self._users = 0
        self._folder: str | None = None

    @classmethod
    def join(cls, address: str, workers: int = 1) -> "Cluster":
        """Return the connection, made if need be; raises SettingError where that is not possible.

        Without a cluster of that address none is started in its place.
        """
        joined = cls._joined
        if joined is None:
            joined = cls(address)
            joined._connect(workers)
            cls._joined = joined
        elif joined.address != address:
            raise _busy(joined.address)
        joined._users += 1
        return joined

    def _connect(self, workers: int) -> None:
        if ray.is_initialized():
            raise _busy("one of another program's choice")
        own: dict[str, Any] = {}
        if self.address == OWN:
            # sockets lie in it, and their paths must be short
            self._folder = tempfile.mkdtemp(prefix="parcel-ray-")
            own = {
                "num_cpus": max(workers, os.cpu_count() or 1),
                "object_store_memory": OBJECT_STORE_BYTES,
                "include_dashboard": False,
                "_temp_dir": self._folder,
            }
        try:
            ray.init(
                address=self.address, log_to_driver=False, logging_level=logging.CRITICAL, **own
            )
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            self._forget()
            raise SettingError(
                f"no Ray cluster ({str(error).strip().splitlines()[0]})",
                expected="room to start one"
                if self.address == OWN
                else "a cluster of which this host is a node, with the same versions",
                where=f"PARCEL_ASSETS_ENGINE, cluster {self.address}",
                remedy="Start it (`ray start`) or name its address as ray:HOST:PORT; "
                "PARCEL_ASSETS_ENGINE=local needs none.",
            ) from error

    def leave(self) -> None:
        """Give the connection up; the last user ends it, and with it a cluster of our own."""
        self._users -= 1
        if self._users == 0:
            type(self)._joined = None
            ray.shutdown()
            self._forget()

    def _forget(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)  # Ray's own logs of a closed cluster


def _busy(address: str) -> SettingError:
    return SettingError(
        f"a process that is connected to another Ray cluster: {address}",
        expected="one cluster for each process",
        where="PARCEL_ASSETS_ENGINE",
        remedy="Run the search in a process of its own.",
    )
