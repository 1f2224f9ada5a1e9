"""Rows of a packet that follow from the ledger alone: attempts, cut tables, judgements, lineage.

Every function here is a fold over events, so whoever holds a packet's ledger can make the same rows
again and compare. How rows become files is left to `packet_files`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from parcel_assets.core.errors import LedgerError
from parcel_assets.core.ledger import Event, Kind

Row = dict[str, Any]

FINAL_ATTEMPT = "final-evaluation"
_FINAL: Row = {
    "attempt": FINAL_ATTEMPT,
    "subject": "holdout",
    "purpose": "final",
    "worker_id": "vault",
    "fence": None,
    "prefix": None,
    "reserved_seconds": 0.0,
    "resume_step": 0,
    "parent_checkpoint": None,
}
EVENT_FIELDS = ("revision", "sequence", "at_seconds", "kind", "body", "previous", "digest")


def event_row(event: Event) -> Row:
    """Return one ledger event as JSON fields."""
    return {
        "revision": event.revision,
        "sequence": event.sequence,
        "at_seconds": event.at_seconds,
        "kind": str(event.kind),
        "body": dict(event.body),
        "previous": event.previous,
        "digest": event.digest,
    }


def event_of_row(row: Mapping[str, Any]) -> Event:
    """Return the event that JSON fields hold; raises LedgerError where they hold none."""
    try:
        return Event(
            revision=str(row["revision"]),
            sequence=int(row["sequence"]),
            at_seconds=float(row["at_seconds"]),
            kind=Kind(row["kind"]),
            body=dict(row["body"]),
            previous=str(row["previous"]),
            digest=str(row["digest"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerError(
            f"a line that is no event ({error!r})",
            expected=f"the fields {', '.join(EVENT_FIELDS)}",
            where="ledger.jsonl",
            remedy="Fetch the packet again from where it was published.",
        ) from error


def attempt_rows(events: Iterable[Event]) -> list[Row]:
    """Return every attempt in the order of its start: purpose, state, charge and checkpoints.

    An attempt that was never settled has state `running`; a quarantine stands over any other state.
    The one look at the holdout is an attempt too: it is charged, from its opening to its result.
    """
    rows: dict[str, Row] = {}
    for event in events:
        body = event.body
        if event.kind == Kind.HOLDOUT_OPENED:
            rows[FINAL_ATTEMPT] = _started(replace(event, body=_FINAL))
        elif event.kind == Kind.HOLDOUT_EVALUATED and FINAL_ATTEMPT in rows:
            charged = float(body.get("charged_seconds", 0.0))
            end = {"state": "completed", "step": 0, "charged_seconds": charged}
            _settle(rows[FINAL_ATTEMPT], replace(event, body=end))
        row = rows.get(str(body.get("attempt")))
        if event.kind == Kind.ATTEMPT_STARTED:
            rows[str(body["attempt"])] = _started(event)
        elif row is None:
            continue
        elif event.kind == Kind.CHECKPOINT_SAVED:
            row["checkpoints"].append(
                {key: body[key] for key in ("step", "checkpoint", "parent_checkpoint", "file")}
            )
        elif event.kind == Kind.ATTEMPT_ENDED:
            _settle(row, event)
        elif event.kind == Kind.ATTEMPT_QUARANTINED:
            row |= {"state": "quarantined", "reason": str(body["reason"])}
    return list(rows.values())


def _started(event: Event) -> Row:
    body = event.body
    return {
        "attempt": body["attempt"],
        "subject": body["subject"],
        "purpose": body["purpose"],
        "state": "running",
        "worker_id": body["worker_id"],
        "fence": body["fence"],
        "prefix": body["prefix"],
        "reserved_seconds": body["reserved_seconds"],
        "charged_seconds": 0.0,
        "resume_step": body["resume_step"],
        "parent_checkpoint": body["parent_checkpoint"],
        "step": body["resume_step"],
        "own_failure": False,
        "reason": "",
        "model": None,
        "checkpoints": [],
        "started_event": event.sequence,
        "ended_event": None,
    }


def _settle(row: Row, event: Event) -> None:
    body = event.body
    state, reason = row["state"], row["reason"]
    row |= {key: body[key] for key in ("state", "step", "charged_seconds")}
    row |= {"reason": body.get("reason", ""), "own_failure": body.get("own_failure", False)}
    row |= {"model": body.get("model"), "ended_event": event.sequence}
    if state == "quarantined":
        row |= {"state": state, "reason": reason}


def cut_rows(events: Iterable[Event]) -> list[Row]:
    """Return every batch's cut tables as frozen at its opening, with the values they came from."""
    return [
        {"batch": event.body["batch"], "opened_event": event.sequence, **cut}
        for event in events
        if event.kind == Kind.BATCH_OPENED
        for cut in event.body["cut_table"]
    ]


def judgement_rows(events: Sequence[Event]) -> list[Row]:
    """Return every judgement of a trial at a milestone, naming batch and cut that judged it."""
    batches = {
        trial["trial_id"]: event.body
        for event in events
        if event.kind == Kind.BATCH_OPENED
        for trial in event.body["trials"]
    }
    rows = []
    for event in events:
        batch = batches.get(event.body.get("subject"))
        if event.kind != Kind.MILESTONE_REPORTED or batch is None:
            continue
        cut = next((one for one in batch["cut_table"] if one["step"] == event.body["step"]), None)
        if cut is not None:
            rows.append(
                {
                    "trial_id": event.body["subject"],
                    "attempt": event.body["attempt"],
                    "batch": batch["batch"],
                    "step": event.body["step"],
                    "cost_per_1000": event.body["cost_per_1000"],
                    "cut_cost": cut["cut_cost"],
                    "verdict": event.body["verdict"],
                    "reason": event.body["reason"],
                    "event": event.sequence,
                }
            )
    return rows


CURVE_COLUMNS = (
    "subject",
    "attempt",
    "step",
    "photos_seen",
    "cost_per_1000",
    "threshold",
    "verdict",
    "scores",
    "subset_digest",
)


def curve_rows(events: Iterable[Event]) -> list[Row]:
    """Return every milestone report in ledger order: the learning curves of all trainings."""
    return [
        {column: event.body[column] for column in CURVE_COLUMNS}
        for event in events
        if event.kind == Kind.MILESTONE_REPORTED
    ]


def lineage_document(
    trial: Mapping[str, Any], attempts: Sequence[Row], rerun: Mapping[str, Any]
) -> Row:
    """Return where the released weights come from: the winner's attempts, its rerun, the reference.

    `trial` is the winner's row of the trial table, `rerun` the body of `selected_rerun`.
    """
    own, reference = rerun["own"], rerun["reference"]
    return {
        "trial_id": trial["trial_id"],
        "number": trial["number"],
        "seed": trial["seed"],
        "configuration": trial["configuration"],
        "state": trial["state"],
        "lineage_ok": trial["lineage_ok"],
        "search_scores": trial["scores"],
        "attempts": [row for row in attempts if row["subject"] == trial["trial_id"]],
        "released": {
            **{key: own[key] for key in ("subject", "seed", "attempt", "model", "scores")},
            "parent_checkpoint": own.get("parent_checkpoint"),
            "attempts": [row for row in attempts if row["subject"] == own["subject"]],
        },
        "reference": {
            **{key: reference[key] for key in ("subject", "seed", "attempt", "model", "scores")},
            "configuration": reference["configuration"],
        },
    }
