"""The one partition of every asset and check: the search revision."""

import dagster as dg

# keys are added by the plan sensor, by `parcel-assets plan register` and `run`, or by hand in the
# UI; a key proves nothing: what exists is in the ledger
SEARCH_REVISIONS = dg.DynamicPartitionsDefinition(name="search_revision")
