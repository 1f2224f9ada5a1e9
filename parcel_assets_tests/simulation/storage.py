"""Clock, ledger and the doors through which a coordinator reaches its ports in a simulation."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from parcel_assets.core.errors import StorageError
from parcel_assets.core.ledger import Event, Kind, Lease
from parcel_assets_tests.fakes import FakeLedger

STORE_WRITES = frozenset(
    {
        "put",
        "put_many",
        "put_file",
        "put_document",
        "claim_prefix",
        "leave_anchor",
        "set_aside",
    }
)


class CoordinatorKilledError(BaseException):
    """The simulated end of a coordinator's process: nothing of it runs any more."""


class Clock:
    """A machine's clock, which may be stepped, and the ledger's, which never runs backwards."""

    def __init__(self) -> None:
        self.machine_seconds = 1_000.0
        self._told = 0.0

    def read(self) -> float:
        """Return the ledger's time."""
        self._told = max(self._told, self.machine_seconds)
        return self._told


class WatchedLedger(FakeLedger):
    """A ledger in memory that shows every event, with its writer's fence, to a watcher."""

    def __init__(
        self,
        clock: Clock,
        watch: Callable[[Event, int], None],
        *,
        owner: str,
        shared: FakeLedger,
    ) -> None:
        super().__init__(owner=owner, lives=lambda one: one != "dead", shared=shared)
        self._clock = clock
        self._watch = watch

    def now(self) -> float:
        return self._clock.read()

    def append(
        self, lease: Lease, entries: Sequence[tuple[Kind, Mapping[str, Any]]]
    ) -> tuple[Event, ...]:
        events = super().append(lease, entries)
        for event in events:
            self._watch(event, lease.fence)
        return events

    def bury(self, revision: str) -> None:
        """Let this owner's process be dead, unless somebody else has the lease."""
        if revision in self._leases and self._leases[revision][0].owner == self.owner:
            super().bury(revision)


class Moments:
    """The calls of one coordinator, counted; at some of them something happens."""

    def __init__(self, moments: dict[int, str], happen: Callable[[str, str], None]) -> None:
        self._moments = moments
        self._happen = happen
        self.trace: list[str] = []  # every moment that was reached
        self.dead = False
        self.disk_full = False

    def at(self, place: str) -> None:
        """Count a moment before or after a call; nothing passes here once the process is dead."""
        if self.dead:
            raise CoordinatorKilledError
        self.trace.append(place)
        fault = self._moments.get(len(self.trace))
        if fault is not None:
            self._happen(fault, place)

    def door(self, name: str, port: Any) -> Any:
        """Return a port as this coordinator reaches it."""
        return cast("Any", _Door(name, port, self))

    def call(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function as this coordinator reaches it."""
        before, after = f"before {name}", f"after {name}"
        writes = name.removeprefix("store.") in STORE_WRITES

        def through(*values: Any, **named: Any) -> Any:
            self.at(before)
            if writes and self.disk_full:
                self.disk_full = False
                raise StorageError(
                    "no space left", expected="room", where="simulation", remedy="Free some."
                )
            result = function(*values, **named)
            self.at(after)
            return result

        return through


class _Door:
    def __init__(self, name: str, port: Any, moments: Moments) -> None:
        self._name = name
        self._port = port
        self._through = moments

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if callable(found):
            found = self._through.call(f"{self._name}.{name}", found)
            self.__dict__[name] = found  # the next call finds it at once
        return found
