"""The assets in pipeline order: each calls its step and shows the evidence, and decides nothing.

`quality_decision` is the one asset that only a person materializes: it asks for who decides, and
why, and no job contains it.
"""

import enum
from collections.abc import Callable

import dagster as dg

from parcel_assets.core.approval import who_words
from parcel_assets.core.ports import Ports
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.defs.metadata import Metadata, describe
from parcel_assets.defs.metadata_values import plain
from parcel_assets.defs.partitions import SEARCH_REVISIONS
from parcel_assets.defs.resources import ParcelAssets
from parcel_assets.defs.stage_run import refusals_shown, run_stage
from parcel_assets.steps import data, decision, evaluation, release, search, selection, table
from parcel_assets.wiring import plan_file_of

PHOTO_ARCHIVE = dg.AssetKey("photo_archive")
QUALITY_DECISION = "quality_decision"
ENGINEER, QUALITY = "team:ml-engineering", "team:quality"


def _stage_asset(
    stage: Stage,
    group: str,
    kinds: set[str],
    owner: str = ENGINEER,
    further_deps: tuple[str, ...] = (),
) -> Callable[[Callable[..., dg.MaterializeResult[None]]], dg.AssetsDefinition]:
    """Return the decorator that gives a stage's asset its key, place, group, kinds and owner."""
    earlier = stage.earlier
    return dg.asset(
        key=str(stage),
        deps=[str(earlier[-1]) if earlier else PHOTO_ARCHIVE, *further_deps],
        partitions_def=SEARCH_REVISIONS,
        group_name=group,
        kinds=kinds,
        owners=[owner],
    )


photo_archive = dg.AssetSpec(
    PHOTO_ARCHIVE,
    group_name="1_data",
    kinds={"file"},
    owners=[ENGINEER],
    description="Folders of photos with a label table. The sensor `archive_versions` reports each "
    "complete new version here; a plan pins one of them.",
)


@_stage_asset(Stage.SNAPSHOT, "1_data", {"python", "pillow"})
def pinned_snapshot(
    context: dg.AssetExecutionContext, parcel_assets: ParcelAssets
) -> dg.MaterializeResult[None]:
    """Every photo of the archive, decoded once and compared with the plan's pin.

    Freezes the plan, if it is not frozen yet. **Next:** a differing digest, an image that does not
    decode or an unknown label stops the chain; the bad rows are listed below.
    """

    def step(revision: str, ports: Ports) -> Evidence:
        found = plan_file_of(revision, parcel_assets.settings())
        if found is not None:
            data.register_plan(revision, found.plan, ports)
        return data.pin_snapshot(revision, ports)

    return run_stage(context, parcel_assets, step)


@_stage_asset(Stage.SPLIT, "1_data", {"python", "numpy"})
def grouped_shipment_split(
    context: dg.AssetExecutionContext, parcel_assets: ParcelAssets
) -> dg.MaterializeResult[None]:
    """Shipments, never single frames, dealt to train, validation and a sealed holdout.

    Shipments that share a photo stay together. **Next:** a part below the plan's minimum, or a
    holdout that was opened before, stops the chain before anything trains.
    """
    return run_stage(context, parcel_assets, data.split_shipments)


@_stage_asset(Stage.SEARCH, "2_search", {"pytorch", "optuna"})
def trial_batches(
    context: dg.AssetExecutionContext, parcel_assets: ParcelAssets
) -> dg.MaterializeResult[None]:
    """The search: all trials of the budget, over a pool of warm workers.

    Stop it at any time: materializing again resumes, and trains no trial twice. The ledger, not
    this page, is the record of every attempt.
    """
    return run_stage(context, parcel_assets, search.run_trial_batches)


@_stage_asset(Stage.TABLE, "2_search", {"pandas", "greatexpectations"})
def validated_trial_table(
    context: dg.AssetExecutionContext, parcel_assets: ParcelAssets
) -> dg.MaterializeResult[None]:
    """The frozen table of all slots with its digest, held to named expectations.

    The same digest comes out of one worker or eight, undisturbed or killed and resumed.
    """
    return run_stage(context, parcel_assets, table.validate_table)


@_stage_asset(Stage.RERUN, "3_choice", {"pytorch"})
def selected_rerun(
    context: dg.AssetExecutionContext, parcel_assets: ParcelAssets
) -> dg.MaterializeResult[None]:
    """The trial that the plan's rule chose, trained again from the pinned snapshot.

    With its own seed it must give the search's scores; with further seeds it shows the spread. The
    reference, the configuration in use today, is trained beside it.
    """
    return run_stage(context, parcel_assets, selection.rerun_selected)


@_stage_asset(Stage.SLICES, "3_choice", {"numpy", "scipy"})
def slice_report(
    context: dg.AssetExecutionContext, parcel_assets: ParcelAssets
) -> dg.MaterializeResult[None]:
    """The candidate against the reference, slice by slice: PASS, FAIL or INSUFFICIENT.

    **Next:** a protected slice that does not pass holds the chain. Materialize `quality_decision`
    to accept it with a scope, to take the next trial, or to close the search.
    """
    return run_stage(context, parcel_assets, selection.report_slices)


class Outcome(enum.Enum):
    """What a person may answer to a held candidate; names equal values, as the launchpad wants."""

    accept = "accept"
    replace = "replace"
    close = "close"


# who decides what about the held slice report, and why; in plain fields, since those of `dg.Config`
# also take `{env: NAME}`, and a decision would print whatever the server's environment holds
ANSWER = {
    "outcome": dg.Field(
        dg.Enum.from_python_enum(Outcome),  # type: ignore[no-untyped-call]
        description="accept: use it all the same, with a waiver that everybody can read. "
        "replace: turn it down and try the next best trial, once. "
        "close: turn it down and end the search; its record stays",
    ),
    "name": dg.Field(
        str,
        description="Your name. Nothing here checks it, and every page says so, unless the plan "
        "lists approvers: then one of these, with a signature",
    ),
    "role": dg.Field(str, description="In which role you decide, such as `quality owner`"),
    "reason": dg.Field(str, description="Why, in words that an auditor will read years later"),
    "slice_evidence": dg.Field(
        str,
        description="Which slice report you read: copy `slice_evidence` from the page of "
        "slice_report. A decision about any other report is refused",
    ),
    "scope": dg.Field(
        str,
        default_value="",
        description="For accept only, and needed there: where it may be used, such as `belt "
        "cameras of two sites`",
    ),
    "expires_on": dg.Field(
        str,
        default_value="",
        description="For accept only, and needed there: the last day (UTC) on which it counts, "
        "such as 2030-12-31",
    ),
    "signature": dg.Field(
        str,
        default_value="",
        description="Where the plan lists approvers: what `parcel-assets decide REVISION ... "
        "--key private.pem --sign-only` printed for exactly these answers",
    ),
}


@dg.asset(
    key=QUALITY_DECISION,
    deps=[str(Stage.SLICES)],
    partitions_def=SEARCH_REVISIONS,
    group_name="3_choice",
    kinds={"python"},
    owners=[QUALITY],
    config_schema=ANSWER,
)
def quality_decision(
    context: dg.AssetExecutionContext, parcel_assets: ParcelAssets
) -> dg.MaterializeResult[None]:
    """A person's documented answer to a held slice report. No job makes it, and no sensor.

    Read the page of `slice_report` first: what is held, and by how much. Refused once the holdout
    is open, and for a slice report other than the one on record. **Next:** after `accept`
    materialize `final_evaluation` and what follows; after `replace` materialize `selected_rerun`
    and `slice_report`; after `close` nothing: the record of the search is published.
    """
    revision, answer = context.partition_key, dict(context.op_execution_context.op_config)
    answer["outcome"] = answer["outcome"].value
    with refusals_shown(parcel_assets):
        ports, called = parcel_assets.open(), parcel_assets.called()
        recorded = decision.record_decision(revision, ports, **answer)
        published: Metadata = {}
        if answer["outcome"] == Outcome.close.value:
            published = describe(release.build_packet(revision, ports), ports, called)
    document = recorded.decision.document()
    numbers = document.pop("numbers_seen")
    shown = {
        "decided": f"{recorded.decision.outcome}, by {who_words(document)}",
        "consequence": recorded.consequence,
        "next_step": called.pasteable(recorded.next_step),
        "held_slices": " ".join(numbers["slices"]),
        **document,
    }
    record = {f"record/{name}": value for name, value in published.items()}
    return dg.MaterializeResult(
        metadata={name: plain(value) for name, value in shown.items() if value != ""} | record,
        data_version=dg.DataVersion(recorded.event.digest),
    )


@_stage_asset(Stage.FINAL, "4_release", {"python"}, QUALITY, further_deps=(QUALITY_DECISION,))
def final_evaluation(
    context: dg.AssetExecutionContext, parcel_assets: ParcelAssets
) -> dg.MaterializeResult[None]:
    """The holdout, opened once, for exactly one frozen model.

    Materializing again shows the one result; nothing opens it a second time.
    """
    return run_stage(context, parcel_assets, evaluation.evaluate_final)


@_stage_asset(Stage.PACKET, "4_release", {"python", "file"})
def release_packet(
    context: dg.AssetExecutionContext, parcel_assets: ParcelAssets
) -> dg.MaterializeResult[None]:
    """Everything a stranger needs to check this search, in one signed folder of plain files.

    Verify it with `parcel-assets packet verify REVISION`, or with sha256sum and openssl alone. Of a
    search that a person closed it is the record: all that was found, and no model.
    """
    return run_stage(context, parcel_assets, release.build_packet)


@_stage_asset(Stage.REGISTRY, "4_release", {"python", "file"})
def registry_entry(
    context: dg.AssetExecutionContext, parcel_assets: ParcelAssets
) -> dg.MaterializeResult[None]:
    """The model as a registered version. Refused unless every gate passes, the target included."""
    return run_stage(context, parcel_assets, release.register_model)


CHAIN = (
    pinned_snapshot,
    grouped_shipment_split,
    trial_batches,
    validated_trial_table,
    selected_rerun,
    slice_report,
    final_evaluation,
    release_packet,
    registry_entry,
)
ASSETS = (photo_archive, *CHAIN, quality_decision)
