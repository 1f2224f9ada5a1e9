"""Evidence as metadata that a person wants to see: counts, tables, pictures, the next command.

What decides comes first, digests last. Numbers have four digits for reading; the evidence document
keeps them whole, and its digest is shown.
"""

from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg

from parcel_assets.core.attempts import not_counted
from parcel_assets.core.codec import digest_value
from parcel_assets.core.command_words import PLAIN, Called
from parcel_assets.core.evidence import (
    FinalBody,
    PacketBody,
    RegistryBody,
    RerunBody,
    SearchBody,
    SnapshotBody,
    SplitBody,
    TableBody,
)
from parcel_assets.core.ports import Ports
from parcel_assets.core.refusals import admitted_of, refusals_of
from parcel_assets.core.search import fold_search
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.defs.metadata_slices import after_name, slices_metadata
from parcel_assets.defs.metadata_values import (
    NO_VALUE,
    costs_shown,
    facts,
    picture,
    readable,
    table,
)
from parcel_assets.defs.plots import cost_curve_md, learning_curves_md
from parcel_assets.steps.admission import load_plan

Metadata = dict[str, Any]
ATTEMPTS_NAMED = 50
NO_QUALITY_CLAIM = (
    "cost_per_1000 is the lowest of all trials and was chosen for that: expect corrected_cost"
)


def describe(evidence: Evidence, ports: Ports, called: Called = PLAIN) -> Metadata:
    """Return the metadata of a stage's evidence, its next command as a reader must type it."""
    shown = _DESCRIPTIONS[evidence.stage](evidence, ports)
    command = shown.get("next_command", f"parcel-assets status {evidence.revision}")
    return {
        **shown,
        "next_command": called.pasteable(command),
        "evidence_digest": digest_value(evidence.document()),
        "plan_digest": evidence.plan_digest,
    }


def _counted(counts: Mapping[str, Mapping[str, int]], unit: str = "photos") -> list[dict[str, Any]]:
    return [
        {"dimension": dimension, "value": value or NO_VALUE, unit: count}
        for dimension, values in counts.items()
        for value, count in values.items()
    ]


def _snapshot(evidence: Evidence, ports: Ports) -> Metadata:
    body = SnapshotBody.model_validate(evidence.body)
    return {
        "photos": body.photos,
        "shipments": body.shipments,
        "damaged_photos": body.damaged_photos,
        "bad_rows": table([row.document() for row in body.bad_rows[:200]]),
        "contact_sheet": picture(ports.store.get(body.contact_sheet), "photos of the archive"),
        "photos_by_value": table(_counted(body.counts)),
        "dagster/row_count": body.photos,
        "snapshot_digest": body.snapshot_digest,
    }


def _split(evidence: Evidence, ports: Ports) -> Metadata:
    body = SplitBody.model_validate(evidence.body)
    parts = [
        {"part": name, "photos": one.photos, "shipments": one.shipments}
        for name, one in body.parts.items()
    ]
    counts = [
        {"part": part, **row}
        for part, dimensions in body.counts.items()
        for row in _counted(dimensions)
    ]
    tranches: Metadata = {}
    if body.tranche is not None:
        names = ("tranche", "shipments", "photos", "commitment")
        kept = [{name: one[name] for name in names} for one in body.reserved]
        tranches = {"tranche": body.tranche, "sealed_for_later_searches": table(kept)}
    return tranches | {
        "parts": table(parts),
        "minimum_support": table([dict(row) for row in body.support]),
        "components": body.components,
        "linked_components": len(body.linked_components),
        "quarantined_shipments": len(body.quarantined),
        "duplicates_across_parts": body.duplicate_pixels_across_parts,
        "near_copies_across_parts": body.near_copies_across_parts,
        "contact_sheet": picture(ports.store.get(body.contact_sheet), "training photos"),
        "photos_by_value": table(counts),
        "split_digest": body.split_digest,
        "holdout_commitment": body.holdout_commitment,
    }


def _search(evidence: Evidence, ports: Ports) -> Metadata:
    body = SearchBody.model_validate(evidence.body)
    events = ports.ledger.events(evidence.revision)
    state = fold_search(load_plan(evidence.revision, ports)[0], events)
    done = body.steps_trained + body.steps_saved_by_pruning
    hours = {name: seconds / 3600 for name, seconds in body.charged_seconds_by_purpose.items()}
    return {
        "ended": body.ended,
        "best_trial": body.best_trial or "none",
        "best_cost_per_1000": readable(body.best_cost_per_1000),
        "started_trials": body.started_trials,
        "unstarted_trials": body.unstarted_trials,
        "accelerator_hours_charged": readable(sum(hours.values())),
        "accelerator_hours_cap": readable(body.cap_seconds / 3600),
        "steps_saved_by_pruning_percent": round(
            100 * body.steps_saved_by_pruning / done if done else 0.0, 1
        ),
        "learning_curves": learning_curves_md(events),
        "cost_curve": cost_curve_md(events),
        "trials_by_state": table(
            [{"state": k, "trials": v} for k, v in body.trials_by_state.items()]
        ),
        "attempts_by_state": table(
            [{"state": k, "attempts": v} for k, v in body.attempts_by_state.items()]
        ),
        "attempts_not_counted": table(not_counted(state.attempts.values())[:ATTEMPTS_NAMED]),
        "workers_admitted": len(admitted_of(events)),
        "workers_refused": table(
            [
                {
                    "workers": len(one.workers),
                    "field": one.field,
                    "found": one.found,
                    "expected": one.expected,
                    "likely_cause": one.cause,
                }
                for one in refusals_of(events)
            ]
        ),
        "accelerator_hours": table([{"purpose": k, "hours": v} for k, v in hours.items()]),
        "ledger_head": body.ledger_head,
    }


def _trial_table(evidence: Evidence, ports: Ports) -> Metadata:
    body = TableBody.model_validate(evidence.body)
    rows = [
        {
            "trial": row["trial_id"],
            "state": row["state"],
            "cost_per_1000": row["final_cost_per_1000"],
            **row["configuration"],
            "lineage_ok": row["lineage_ok"],
        }
        for row in ports.store.get_document(body.table_document)
    ]
    rows.sort(key=lambda row: (row["cost_per_1000"] is None, row["cost_per_1000"] or 0.0))
    results = [
        {"expectation": one["name"], "passed": one["passed"], "answer": one["sentence"]}
        for one in body.expectations
    ]
    return {
        "trials_by_state": table(
            [{"state": k, "trials": v} for k, v in body.trials_by_state.items()]
        ),
        "expectations": table(results),
        "trials": table(rows),
        "dagster/row_count": body.rows,
        "table_digest": body.table_digest,
    }


def _rerun(evidence: Evidence, _ports: Ports) -> Metadata:
    body = RerunBody.model_validate(evidence.body)
    corrected = body.corrected_cost or {}
    missed = body.validation.get("missed")
    reference_missed = body.reference_validation.get("missed")
    trained = [("own seed", body.own), *(("extra seed", one) for one in body.extra)]
    trained.append(("reference", body.reference))
    return {
        "selected_trial": body.selected_trial,
        "slice_informed": body.slice_informed,
        **costs_shown({"cost_per_1000": body.selected_cost_per_1000}, missed),
        "no_quality_claim": NO_QUALITY_CLAIM,
        "corrected_cost": facts(
            costs_shown(
                {n: corrected[n] for n in ("mean", "low", "high") if n in corrected}, missed
            )
        ),
        "threshold": readable(body.threshold),
        "tie_set": ", ".join(body.tie_set),
        "scores_equal": body.scores_equal,
        "largest_score_difference": body.largest_score_difference,
        "reruns": table(
            [
                {"what": what, "seed": str(one.seed)}
                | costs_shown({"cost_per_1000": one.cost_per_1000}, missed)
                for what, one in trained
            ]
        ),
        "tolerance": str(
            body.judgement.get("tolerance_sentence", body.judgement.get("sentence", ""))
        ),
        "trivial_cost_per_1000": facts(costs_shown(body.trivial_cost_per_1000, missed)),
        "against_reference": facts(
            costs_shown(body.validation.get("against_reference", {}), missed)
        ),
        "threshold_interval": facts(body.validation.get("threshold_interval") or {}),
        "display_interval": facts(
            costs_shown(body.validation.get("display_interval") or {}, missed)
        ),
        "judgement": facts(costs_shown(body.judgement, missed)),
        "validation": facts(costs_shown(body.validation, missed)),
        "reference_validation": facts(costs_shown(body.reference_validation, reference_missed)),
    }


def _final(evidence: Evidence, _ports: Ports) -> Metadata:
    body = FinalBody.model_validate(evidence.body)
    return {
        "outcome": body.outcome,
        "sentence": body.sentence,
        "result": facts(body.result),
        "slices": table(
            [{"name": one["name"], "in_words": after_name(one)} for one in body.result["slices"]]
        ),
        "disposition": body.disposition,
        "threshold": readable(body.threshold),
        "evidence_level": body.evidence_level,
        "evidence_level_reason": body.evidence_level_reason or "not measured",
        "reused_shipments": body.reused_shipments,
        "reused_times": body.reused_times,
        "model": body.model,
        "opened_event": body.opened_event,
        "predictions_digest": body.predictions_digest,
    }


def _packet(evidence: Evidence, ports: Ports) -> Metadata:
    body = PacketBody.model_validate(evidence.body)
    folder = ports.packets / body.folder
    return {
        "verdict": body.verdict,
        "report": dg.MetadataValue.path(str(folder / "report.html")),
        "folder": dg.MetadataValue.path(str(folder)),
        "files": body.files,
        "next_command": f"parcel-assets packet verify {evidence.revision}",
        "packet_digest": body.packet_digest,
        "signed_by": body.signed_by,
    }


def _registry(evidence: Evidence, _ports: Ports) -> Metadata:
    body = RegistryBody.model_validate(evidence.body)
    return {"version": body.version, "entry": body.entry, "packet_digest": body.packet_digest}


_DESCRIPTIONS: dict[Stage, Callable[[Evidence, Ports], Metadata]] = {
    Stage.SNAPSHOT: _snapshot,
    Stage.SPLIT: _split,
    Stage.SEARCH: _search,
    Stage.TABLE: _trial_table,
    Stage.RERUN: _rerun,
    Stage.SLICES: slices_metadata,
    Stage.FINAL: _final,
    Stage.PACKET: _packet,
    Stage.REGISTRY: _registry,
}
