"""Charts for asset pages, from ledger events and slice results; drawing itself is an adapter's."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from parcel_assets.core.ledger import Event, Kind
from parcel_assets.core.trial import MilestoneReported
from parcel_assets.defs.metadata_values import picture
from parcel_assets.wiring import open_charts

TRIAL_PREFIX = "parcel-"


def learning_curves_md(events: Sequence[Event]) -> dg.MarkdownMetadataValue:
    """Return every trial's cost per 1,000 over training steps, as a picture."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for report in _trial_reports(events):
        if report.cost_per_1000 is not None:
            points = curves.setdefault(report.subject, [])
            points[:] = [one for one in points if one[0] != report.step]
            points.append((report.step, report.cost_per_1000))
    ordered = [sorted(points) for points in curves.values()]
    return picture(open_charts().learning_curves(ordered), "learning curves")


def cost_curve_md(events: Sequence[Event]) -> dg.MarkdownMetadataValue:
    """Return finished trials' costs and the best so far, in order of finishing, as a picture."""
    reports = _trial_reports(events)
    last = max((one.step for one in reports), default=0)
    costs = [
        one.cost_per_1000 for one in reports if one.step == last and one.cost_per_1000 is not None
    ]
    return picture(open_charts().cost_curve(costs), "cost over the search")


def slice_heat_map_md(slices: Sequence[Mapping[str, Any]]) -> dg.MarkdownMetadataValue:
    """Return outcome, candidate, reference and their difference per slice, as a picture."""
    return picture(open_charts().slice_heat_map(slices), "slices")


def _trial_reports(events: Sequence[Event]) -> list[MilestoneReported]:
    found = [
        MilestoneReported.model_validate(dict(event.body))
        for event in events
        if event.kind == Kind.MILESTONE_REPORTED
    ]
    return [one for one in found if one.subject.startswith(TRIAL_PREFIX)]
