"""The resources: how an asset gets its ports, who listens to progress, and no pickled values."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dagster as dg
from pydantic import Field

from parcel_assets.core.command_words import Called
from parcel_assets.core.ports import Ports
from parcel_assets.wiring import REPOSITORY, Settings, open_ports

Listener = Callable[[str, Mapping[str, Any]], None]

_listeners: list[Listener] = []


class ParcelAssets(dg.ConfigurableResource):  # type: ignore[type-arg]  # it provides itself
    """Opens ledger, store and the other ports under the settings of this machine."""

    data_folder: str = Field(
        default="",
        description="Where everything is kept. Empty: PARCEL_ASSETS_DATA, else ./data.",
    )
    workers: int = Field(
        default=0,
        ge=0,
        description="Trials that run at once. 0: PARCEL_ASSETS_WORKERS, else up to 2.",
    )
    engine: str = Field(
        default="",
        description="Where workers run: local, ray, ray:HOST:PORT. Empty: PARCEL_ASSETS_ENGINE.",
    )

    def settings(self) -> Settings:
        """Return the settings; raises SettingError where a variable is wrong."""
        return Settings.read(
            data=self.data_folder or None,
            workers=self.workers or None,
            engine=self.engine or None,
        )

    def called(self) -> Called:
        """Return how a reader of the pages calls the command line: with the data folder named.

        The checkout's own folder is where a command looks by itself.
        """
        data = self.settings().data
        return Called(data=None if data == REPOSITORY / "data" else str(data))

    def open(self, notify: Listener | None = None) -> Ports:
        """Return the ports; progress goes to `notify` and to everyone who is listening."""
        return open_ports(self.settings(), _to_all(notify))


class NoValues(dg.IOManager):
    """Stands where Dagster would pickle values: assets pass none, they leave evidence."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Refuse."""
        raise NotImplementedError(f"{context.step_key} returned a value")

    def load_input(self, context: dg.InputContext) -> Any:
        """Refuse."""
        raise NotImplementedError(f"{context.asset_key} is no value: read its evidence")


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Let a listener in this process hear the progress of all stages, for the length of a block."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell_listeners(kind: str, facts: Mapping[str, Any]) -> None:
    """Tell everyone who is listening."""
    for listener in tuple(_listeners):
        listener(kind, facts)


def _to_all(notify: Listener | None) -> Listener:
    def tell(kind: str, facts: Mapping[str, Any]) -> None:
        if notify is not None:
            notify(kind, facts)
        tell_listeners(kind, facts)

    return tell
