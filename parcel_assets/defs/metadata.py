"""Evidence as metadata that a person wants to see: counts, tables, pictures, the next command.

Numbers are rounded for reading; the evidence document keeps them whole, and its digest is shown.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg

from parcel_assets.core.codec import digest_value
from parcel_assets.core.evidence import (
    FinalBody,
    PacketBody,
    RegistryBody,
    RerunBody,
    SearchBody,
    SliceBody,
    SnapshotBody,
    SplitBody,
    TableBody,
)
from parcel_assets.core.ports import Ports
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.defs.plots import cost_curve_md, learning_curves_md, slice_heat_map_md

Metadata = dict[str, Any]
DIGITS = 4


def describe(evidence: Evidence, ports: Ports) -> Metadata:
    """Return the metadata of a stage's evidence."""
    shown = _DESCRIPTIONS[evidence.stage](evidence, ports)
    return {
        **shown,
        "evidence_digest": digest_value(evidence.document()),
        "plan_digest": evidence.plan_digest,
        "next_command": f"parcel-assets status {evidence.revision}",
    } | ({"next_command": shown["next_command"]} if "next_command" in shown else {})


def plain(value: Any) -> Any:
    """Return a JSON value as Dagster shows it: text and numbers inline, the rest as JSON."""
    if isinstance(value, Mapping):
        return dg.MetadataValue.json({str(key): one for key, one in value.items()})
    if isinstance(value, list | tuple | set | frozenset):
        return dg.MetadataValue.json(list(value))
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, str):
        return dg.MetadataValue.text(str(value))  # an enum's member reads as its word
    if value is None or isinstance(value, bool | int):
        return value
    return dg.MetadataValue.text(str(value))


def table(rows: Sequence[Mapping[str, Any]]) -> dg.TableMetadataValue:
    """Return rows as an inline table; a row may lack columns, as a slot that never started does."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    records = [dg.TableRecord({name: _cell(row.get(name)) for name in names}) for row in rows]
    columns = [dg.TableColumn(name, _kind(name, records)) for name in names]
    return dg.MetadataValue.table(records, schema=dg.TableSchema(columns=columns))


def picture(png: bytes, words: str) -> dg.MarkdownMetadataValue:
    """Return a PNG that opens in the page itself."""
    return dg.MetadataValue.md(
        f"![{words}](data:image/png;base64,{base64.b64encode(png).decode()})"
    )


def _cell(value: Any) -> str | int | float | bool | None:
    if isinstance(value, float):
        return round(value, DIGITS)
    return value if value is None or isinstance(value, bool | int) else str(value)


def _kind(name: str, records: Sequence[dg.TableRecord]) -> str:
    values = [one.data[name] for one in records if one.data.get(name) is not None]
    if values and all(isinstance(one, int | float) and not isinstance(one, bool) for one in values):
        return "float" if any(isinstance(one, float) for one in values) else "int"
    return "string"


def _counted(counts: Mapping[str, Mapping[str, int]], unit: str = "photos") -> list[dict[str, Any]]:
    return [
        {"dimension": dimension, "value": value, unit: count}
        for dimension, values in counts.items()
        for value, count in values.items()
    ]


def _snapshot(evidence: Evidence, ports: Ports) -> Metadata:
    body = SnapshotBody.model_validate(evidence.body)
    return {
        "dagster/row_count": body.photos,
        "photos": body.photos,
        "shipments": body.shipments,
        "damaged_photos": body.damaged_photos,
        "snapshot_digest": body.snapshot_digest,
        "bad_rows": table([row.document() for row in body.bad_rows[:200]]),
        "photos_by_value": table(_counted(body.counts)),
        "contact_sheet": picture(ports.store.get(body.contact_sheet), "photos of the archive"),
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
    return {
        "split_digest": body.split_digest,
        "parts": table(parts),
        "photos_by_value": table(counts),
        "minimum_support": table([dict(row) for row in body.support]),
        "components": body.components,
        "linked_components": len(body.linked_components),
        "quarantined_shipments": len(body.quarantined),
        "duplicates_across_parts": body.duplicate_pixels_across_parts,
        "holdout_commitment": body.holdout_commitment,
        "contact_sheet": picture(ports.store.get(body.contact_sheet), "training photos"),
    }


def _search(evidence: Evidence, ports: Ports) -> Metadata:
    body = SearchBody.model_validate(evidence.body)
    events = ports.ledger.events(evidence.revision)
    done = body.steps_trained + body.steps_saved_by_pruning
    hours = {name: seconds / 3600 for name, seconds in body.charged_seconds_by_purpose.items()}
    return {
        "ended": body.ended,
        "best_trial": body.best_trial or "none",
        "best_cost_per_1000": plain(body.best_cost_per_1000),
        "started_trials": body.started_trials,
        "unstarted_trials": body.unstarted_trials,
        "trials_by_state": table(
            [{"state": k, "trials": v} for k, v in body.trials_by_state.items()]
        ),
        "attempts_by_state": table(
            [{"state": k, "attempts": v} for k, v in body.attempts_by_state.items()]
        ),
        "accelerator_hours": table([{"purpose": k, "hours": v} for k, v in hours.items()]),
        "accelerator_hours_charged": round(sum(hours.values()), DIGITS),
        "accelerator_hours_cap": round(body.cap_seconds / 3600, DIGITS),
        "steps_saved_by_pruning_percent": round(
            100 * body.steps_saved_by_pruning / done if done else 0.0, 1
        ),
        "learning_curves": learning_curves_md(events),
        "cost_curve": cost_curve_md(events),
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
        "dagster/row_count": body.rows,
        "table_digest": body.table_digest,
        "trials": table(rows),
        "expectations": table(results),
        "trials_by_state": table(
            [{"state": k, "trials": v} for k, v in body.trials_by_state.items()]
        ),
    }


def _rerun(evidence: Evidence, _ports: Ports) -> Metadata:
    body = RerunBody.model_validate(evidence.body)
    trained = [("own seed", body.own), *(("extra seed", one) for one in body.extra)]
    trained.append(("reference", body.reference))
    return {
        "selected_trial": body.selected_trial,
        "cost_per_1000": round(body.selected_cost_per_1000, DIGITS),
        "threshold": round(body.threshold, DIGITS),
        "tie_set": ", ".join(body.tie_set),
        "corrected_cost": plain(body.corrected_cost),
        "scores_equal": body.scores_equal,
        "largest_score_difference": body.largest_score_difference,
        "reruns": table(
            [
                {"what": what, "seed": str(one.seed), "cost_per_1000": one.cost_per_1000}
                for what, one in trained
            ]
        ),
        "tolerance": str(
            body.judgement.get("tolerance_sentence", body.judgement.get("sentence", ""))
        ),
        "judgement": plain(body.judgement),
        "trivial_cost_per_1000": plain(body.trivial_cost_per_1000),
        "validation": plain(body.validation),
        "reference_validation": plain(body.reference_validation),
        "slice_informed": body.slice_informed,
    }


def _slices(evidence: Evidence, ports: Ports) -> Metadata:
    body = SliceBody.model_validate(evidence.body)
    names = ("name", "role", "outcome", "measure", "candidate", "reference", "difference", "lower")
    further = ("upper", "margin", "shipments", "damaged_photos", "sentence")
    rows = [{name: one.get(name) for name in (*names, *further)} for one in body.slices]
    shown: Metadata = {
        "disposition": body.disposition,
        "protected_passed": body.protected_passed,
        "slices": table(rows),
        "heat_map": slice_heat_map_md(body.slices),
    }
    if body.worst_sheet is not None:
        shown["missed_damage"] = picture(ports.store.get(body.worst_sheet), "missed damage")
    if not body.protected_passed:
        shown["next_command"] = decide_command(evidence.revision)
    return shown


def decide_command(revision: str) -> str:
    """Return the command that answers a held slice report."""
    return (
        f"parcel-assets decide {revision} --outcome accept --name NAME --role ROLE --reason TEXT "
        "--scope TEXT --expires YYYY-MM-DD"
    )


def _final(evidence: Evidence, _ports: Ports) -> Metadata:
    body = FinalBody.model_validate(evidence.body)
    return {
        "outcome": body.outcome,
        "sentence": body.sentence,
        "disposition": body.disposition,
        "threshold": round(body.threshold, DIGITS),
        "model": body.model,
        "opened_event": body.opened_event,
        "predictions_digest": body.predictions_digest,
        "evidence_level": body.evidence_level,
        "reused_shipments": body.reused_shipments,
        "result": plain(body.result),
    }


def _packet(evidence: Evidence, ports: Ports) -> Metadata:
    body = PacketBody.model_validate(evidence.body)
    folder = ports.packets / body.folder
    return {
        "verdict": body.verdict,
        "packet_digest": body.packet_digest,
        "folder": dg.MetadataValue.path(str(folder)),
        "report": dg.MetadataValue.path(str(folder / "report.html")),
        "files": body.files,
        "signed_by": body.signed_by,
        "next_command": f"parcel-assets packet verify {evidence.revision}",
    }


def _registry(evidence: Evidence, _ports: Ports) -> Metadata:
    body = RegistryBody.model_validate(evidence.body)
    return {"entry": body.entry, "version": body.version, "packet_digest": body.packet_digest}


_DESCRIPTIONS: dict[Stage, Callable[[Evidence, Ports], Metadata]] = {
    Stage.SNAPSHOT: _snapshot,
    Stage.SPLIT: _split,
    Stage.SEARCH: _search,
    Stage.TABLE: _trial_table,
    Stage.RERUN: _rerun,
    Stage.SLICES: _slices,
    Stage.FINAL: _final,
    Stage.PACKET: _packet,
    Stage.REGISTRY: _registry,
}
