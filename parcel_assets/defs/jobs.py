"""The jobs: the whole chain without the decision that only a person makes."""

import dagster as dg

from parcel_assets.core.stage import Stage

SEARCH_JOB = "search_job"

search_job = dg.define_asset_job(
    SEARCH_JOB,
    selection=dg.AssetSelection.assets(*(str(stage) for stage in Stage)),
    description="One search revision from photos to registry. Launch it again after a stop, a hold "
    "or a decision: finished stages keep their evidence and no trial runs twice.",
)
