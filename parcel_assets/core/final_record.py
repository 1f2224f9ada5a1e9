"""What the evidence of the final evaluation must say, since opening and result on record say it.

Evidence is written from the ledger, and admission and packets hold it to the ledger again: a number
that was edited on the way is found without a label.
"""

from collections.abc import Sequence
from typing import Any

from parcel_assets.core.evidence import FinalBody
from parcel_assets.core.ledger import Event, Kind, last_of
from parcel_assets.core.timestamps import level_of


def recorded_final(events: Sequence[Event]) -> dict[str, Any]:
    """Return the evidence's fields that the ledger's opening and result decide, or {}."""
    opened, evaluated = (last_of(events, k) for k in (Kind.HOLDOUT_OPENED, Kind.HOLDOUT_EVALUATED))
    if opened is None or evaluated is None:
        return {}
    reused = opened.body.get("reused", {})
    return {
        "holdout_digest": opened.body["holdout_digest"],
        "model": opened.body["model"],
        "evaluator_digest": opened.body["evaluator_digest"],
        "threshold": opened.body["threshold"],
        "opened_event": opened.digest,
        "predictions_digest": evaluated.body["predictions_digest"],
        "result": dict(evaluated.body["result"]),
        "outcome": evaluated.body["outcome"],
        "sentence": evaluated.body["sentence"],
        "evidence_level": level_of(str(evaluated.body.get("evidence_level", "L1")), events),
        "evidence_level_reason": evaluated.body.get("evidence_level_reason"),
        "reused_shipments": reused.get("shipments", 0),
        "reused_times": len(reused.get("by", ())),
    }


def final_contradictions(body: FinalBody, events: Sequence[Event]) -> tuple[str, ...]:
    """Return the fields in which the evidence is not what the ledger says."""
    told = body.document()
    recorded = recorded_final(events)
    return tuple(field for field, value in recorded.items() if told[field] != value)
