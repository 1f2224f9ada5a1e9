"""What a person sees who decides about a held slice: sentences, and missed photos and parcels.

Read from evidence and stored validation scores; what the numbers mean is said by core.consequence.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from parcel_assets.core.chain import Chain
from parcel_assets.core.consequence import (
    consequence_words,
    parcels_damaged,
    parcels_missed_per_1000,
)
from parcel_assets.core.pending import Pending, pending_of
from parcel_assets.core.ports import Flags, Ports
from parcel_assets.core.slice_report import slice_photos, slice_rules
from parcel_assets.core.split import labelled_attributes
from parcel_assets.core.table import unpack_scores
from parcel_assets.core.thresholds import review_decisions
from parcel_assets.steps.admission import load_chain

_MISSED = ("name", "missed_per_1000", "reference_missed_per_1000")


def pending_decision(revision: str, ports: Ports) -> Pending | None:
    """Return what a revision asks of a person, with what accepting would mean, or None."""
    chain = load_chain(revision, ports)
    found = pending_of(chain)
    if found is None:
        return None
    return replace(found, if_accepted=str(numbers_seen(chain, ports)["consequence"]))


def numbers_seen(chain: Chain, ports: Ports) -> dict[str, Any]:
    """Return the held slices' sentences and what a release means in missed photos and parcels."""
    held = [row for row in chain.slices.slices if row["role"] == "protected" and not row["passed"]]
    candidate, reference = chain.rerun.validation, chain.rerun.reference_validation
    ours, theirs = (1000 * one["missed"] / one["photos"] for one in (candidate, reference))
    seen: dict[str, Any] = {
        "slices": [str(row["sentence"]) for row in held],
        "missed_per_1000": round(ours, 3),
        "reference_missed_per_1000": round(theirs, 3),
        **_in_parcels(chain, ports, {str(row["name"]) for row in held}),
    }
    return {**seen, "consequence": consequence_words(seen)}


def _in_parcels(chain: Chain, ports: Ports, held: set[str]) -> dict[str, Any]:
    """Return missed parcels per 1,000, of all and of each held slice, for both models."""
    part = chain.split.parts["validation"]
    rows, body = ports.store.get_document(part.rows), chain.rerun
    attributes = labelled_attributes(rows)
    damaged = np.array([row["damaged"] for row in rows], dtype=np.bool_)
    shipments = [str(row["shipment_id"]) for row in rows]
    reviews = [
        review_decisions(unpack_scores(ports.store.get(scores), part.photos), threshold)
        for scores, threshold in (
            (body.own.scores, body.threshold),
            (body.reference.scores, body.reference.threshold),
        )
    ]

    def missed(among: Flags | None = None) -> list[float]:
        return [
            round(parcels_missed_per_1000(one, damaged, shipments, among), 3) for one in reviews
        ]

    whole, by_slice = missed(), []
    for rule in slice_rules(chain.plan.slices, attributes):
        if rule.name in held:
            among = slice_photos(rule, attributes, len(rows))
            parcels = parcels_damaged(damaged, shipments, among)
            numbers = dict(zip(_MISSED, (rule.name, *missed(among)), strict=True))
            by_slice.append({**numbers, "parcels": parcels})
    return {
        "parcels_missed_per_1000": whole[0],
        "reference_parcels_missed_per_1000": whole[1],
        "slices_in_parcels": by_slice,
    }
