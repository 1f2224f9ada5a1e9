"""Runs one stage inside an asset: progress becomes observations, evidence becomes metadata.

A refusal becomes a Dagster failure with the same words and fields. What a stage does is left to
the steps, and whether it may run to admission inside them.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dagster as dg

from parcel_assets.core.codec import digest_value
from parcel_assets.core.command_words import PLAIN
from parcel_assets.core.errors import ParcelAssetsError, SettingError, refused_by_the_system
from parcel_assets.core.ports import Ports
from parcel_assets.core.refusals import refusal_sentence
from parcel_assets.core.stage import Evidence
from parcel_assets.defs.metadata import describe
from parcel_assets.defs.metadata_values import plain
from parcel_assets.defs.resources import Listener, ParcelAssets, tell_listeners

OBSERVE_EVERY_SECONDS = 2.0  # an observation costs some 10 ms of CPU, and nobody reads faster

Step = Callable[[str, Ports], Evidence]


def run_stage(
    context: dg.AssetExecutionContext, parcel_assets: ParcelAssets, step: Step
) -> dg.MaterializeResult[None]:
    """Run a step for the run's search revision and return what a person wants to see of it."""
    revision = context.partition_key
    tell_listeners("stage", {"stage": context.asset_key.to_user_string()})
    with refusals_shown(parcel_assets):
        ports = parcel_assets.open(observer(context))
        evidence = step(revision, ports)
        metadata = describe(evidence, ports, parcel_assets.called())
    tell_listeners("recorded", {"stage": str(evidence.stage)})
    version = dg.DataVersion(digest_value(evidence.document()))
    return dg.MaterializeResult(metadata=metadata, data_version=version)


@contextmanager
def refusals_shown(parcel_assets: ParcelAssets) -> Iterator[None]:
    """Turn a refusal inside the block into a Dagster failure, and tell it to every listener.

    What the operating system refuses is one as well: a full disk is no fault of the program.
    """
    try:
        yield
    except (ParcelAssetsError, OSError) as error:
        refusal = refused_by_the_system(error) if isinstance(error, OSError) else error
        tell_listeners("refused", refusal.as_fields())
        raise failure(refusal, parcel_assets) from error


def failure(error: ParcelAssetsError, parcel_assets: ParcelAssets) -> dg.Failure:
    """Return the Dagster failure that shows a refusal; Dagster must not try again by itself."""
    try:
        called = parcel_assets.called()
    except SettingError:  # the refusal may be this very one
        called = PLAIN
    told = error.as_fields() | {"remedy": called.pasteable(error.remedy)}
    fields = {name: plain(value) for name, value in told.items() if value is not None}
    return dg.Failure(
        description=called.pasteable(str(error)), metadata=fields, allow_retries=False
    )


def observer(context: dg.AssetExecutionContext) -> Listener:
    """Return a listener that writes progress as observations, at most one in two seconds.

    A worker that is refused at the door is a warning in the run's log, and an observation at once.
    """
    last = -OBSERVE_EVERY_SECONDS

    def observe(kind: str, facts: Mapping[str, Any]) -> None:
        nonlocal last
        if kind == "worker_refused":
            context.log.warning(refusal_sentence(facts))
            observed("worker_refused", facts)
            return
        now = time.monotonic()
        if kind != "progress" or now - last < OBSERVE_EVERY_SECONDS:
            return
        last = now
        observed("progress", facts)

    def observed(prefix: str, facts: Mapping[str, Any]) -> None:
        # named apart from the materialization's numbers: Dagster plots both in one chart
        metadata = {f"{prefix}/{name}": plain(value) for name, value in facts.items()}
        context.log_event(
            dg.AssetObservation(
                context.asset_key, partition=context.partition_key, metadata=metadata
            )
        )

    return observe
