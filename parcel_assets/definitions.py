"""Dagster's entry: assets, checks, sensors, jobs, resources; nothing else."""

import warnings

import dagster as dg

# partitioned checks are a preview in Dagster 1.13; their specification says so at every load
warnings.filterwarnings("ignore", category=dg.PreviewWarning)

from parcel_assets.defs.assets import ASSETS  # noqa: E402
from parcel_assets.defs.checks import CHECKS  # noqa: E402
from parcel_assets.defs.jobs import search_job  # noqa: E402
from parcel_assets.defs.resources import NoValues, ParcelAssets  # noqa: E402
from parcel_assets.defs.sensors import archive_versions, ready_plans  # noqa: E402

defs = dg.Definitions(
    assets=ASSETS,
    asset_checks=CHECKS,
    jobs=[search_job],
    sensors=[archive_versions, ready_plans],
    resources={"parcel_assets": ParcelAssets(), "io_manager": NoValues()},
    # trials run in a pool of warm processes inside one asset; a process per step would cost seconds
    executor=dg.in_process_executor,
)
