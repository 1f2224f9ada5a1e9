"""Which files of a packet follow from its ledger, its plan and its evidence, and what they say.

A builder writes what `derived_files` returns; a verifier asks the same function and compares. The
other files (primary ones) are named by digests in the evidence, or are readings of their own.
"""

from collections.abc import Sequence
from typing import Any

from parcel_assets.core.codec import canonical_json, digest_bytes
from parcel_assets.core.ledger import Event, Kind, last_of
from parcel_assets.core.packet import (
    ATTEMPTS_FILE,
    CLOSING_FILE,
    CURVES_FILE,
    CUTS_FILE,
    DECISION_FILE,
    HEAD_FILE,
    JUDGEMENTS_FILE,
    LEDGER_FILE,
    LINEAGE_FILE,
    OPENING_FILE,
    PLAN_FILE,
    PREPROCESS_FILE,
    THRESHOLD_FILE,
    TRIALS_FILE,
    UNLISTED,
    Files,
    body_of,
    holds,
    pretty_json,
    read_json,
    read_rows,
)
from parcel_assets.core.packet_rows import (
    CURVE_COLUMNS,
    attempt_rows,
    curve_rows,
    cut_rows,
    event_of_row,
    event_row,
    judgement_rows,
    lineage_document,
)
from parcel_assets.core.packet_text import csv_table
from parcel_assets.core.selection import closing_event, day_of
from parcel_assets.core.stage import Stage
from parcel_assets.core.timestamps import stamped_bytes

HOLDOUT_FILE = "data/holdout.json"
SELECTION_FILE = "selection/selection.json"
RERUN_FILE = "rerun/rerun.json"
SLICES_FILE = "slices/slices.json"
RESULT_FILE = "final/result.json"
SCORE_COLUMNS = ("photo_id", "shipment_id", "damaged", "damage_type", "score", "reference_score")

# what of `selected_rerun` tells the choice, and what tells how it repeated
CHOSEN = (
    "selected_trial",
    "selected_cost_per_1000",
    "threshold",
    "ranking",
    "tie_set",
    "corrected_cost",
    "slice_informed",
    "trivial_cost_per_1000",
)
REPEATED = (
    "own",
    "extra",
    "reference",
    "judgement",
    "scores_equal",
    "largest_score_difference",
    "validation",
    "reference_validation",
)


def json_lines(rows: Sequence[Any]) -> bytes:
    """Return rows as JSON Lines in canonical form."""
    return b"".join(canonical_json(row) + b"\n" for row in rows)


def ledger_lines(events: Sequence[Event]) -> bytes:
    """Return a chain as JSON Lines."""
    return json_lines([event_row(event) for event in events])


def read_events(files: Files) -> tuple[Event, ...]:
    """Return the packet's ledger; raises LedgerError for a line that is no event."""
    return tuple(event_of_row(row) for row in read_rows(files, LEDGER_FILE))


def digest_list(files: Files) -> bytes:
    """Return SHA256SUMS over the files, as sha256sum writes and checks it."""
    names = sorted(files.keys() - UNLISTED)
    return "".join(f"{digest_bytes(files[name])}  {name}\n" for name in names).encode()


def worst_sheet_file(name: str) -> str:
    """Return where the packet keeps the missed damage of a slice; its name is a plain one."""
    return f"slices/worst_{name}.png"


def pictures_of(files: Files) -> dict[str, str]:
    """Return the packet's pictures and the digests under which the evidence names them."""
    named: dict[str, Any] = {}
    if holds(files, Stage.SPLIT):
        named["data/contact_sheet.png"] = body_of(files, Stage.SPLIT)["contact_sheet"]
    if holds(files, Stage.SNAPSHOT):
        named["data/snapshot_sheet.png"] = body_of(files, Stage.SNAPSHOT)["contact_sheet"]
    if holds(files, Stage.SLICES):
        slices = body_of(files, Stage.SLICES)
        named["slices/worst_sheet.png"] = slices["worst_sheet"]
        for name, digest in slices.get("worst_sheets", {}).items():
            named[worst_sheet_file(name)] = digest
    return {path: str(digest) for path, digest in named.items() if digest}


def derived_files(files: Files) -> dict[str, bytes]:
    """Return the files that follow from the primary ones; raises KeyError, ValueError, LedgerError.

    Of the evidence only bodies are looked at: whether it is the recorded one is asked elsewhere.
    The record of a closed search has what its stages left, no model, and how it was closed.
    """
    events = read_events(files)
    found = _from_ledger(events)
    if holds(files, Stage.SPLIT):
        found |= _about_data(files)
    if holds(files, Stage.RERUN):
        found |= _about_selection(files, events)
    if holds(files, Stage.SLICES):
        found[SLICES_FILE] = pretty_json(body_of(files, Stage.SLICES))
    if holds(files, Stage.FINAL):
        return found | _preprocess(files) | _about_final(files, events)
    closing = closing_event(events)
    return found if closing is None else found | {CLOSING_FILE: pretty_json(closing_of(closing))}


def closing_of(event: Event) -> dict[str, Any]:
    """Return how a search was closed: by a decision about a held slice, or by a person's command.

    Raises KeyError where the event closes nothing.
    """
    by_decision = event.kind == Kind.DECISION_RECORDED
    return {
        "by": "decision" if by_decision else "close",
        "reason": event.body["reason" if by_decision else "words"],
        "day": day_of(event.at_seconds).isoformat(),
        "event": event.sequence,
        "event_digest": event.digest,
    }


def _from_ledger(events: Sequence[Event]) -> dict[str, bytes]:
    head = events[-1]
    fields = ("revision", "sequence", "digest", "at_seconds")
    found = {
        HEAD_FILE: pretty_json({field: getattr(head, field) for field in fields}),
        ATTEMPTS_FILE: json_lines(attempt_rows(events)),
        CUTS_FILE: json_lines(cut_rows(events)),
        JUDGEMENTS_FILE: json_lines(judgement_rows(events)),
        CURVES_FILE: csv_table(CURVE_COLUMNS, curve_rows(events)),
    }
    found |= stamped_bytes(events)
    decision = last_of(events, Kind.DECISION_RECORDED)
    if decision is not None:
        found[DECISION_FILE] = pretty_json(dict(decision.body))
    return found


def _preprocess(files: Files) -> dict[str, bytes]:
    """Return what a photo goes through; a winner may look at a smaller side than the plan's."""
    rules = read_json(files, PLAN_FILE)["preprocess"]
    configuration = body_of(files, Stage.RERUN)["own"]["configuration"]
    side = int(configuration.get("image_size", rules["image_size_pixels"]))
    return {PREPROCESS_FILE: pretty_json({**rules, "network_side_pixels": side})}


def _about_data(files: Files) -> dict[str, bytes]:
    split = body_of(files, Stage.SPLIT)
    holdout = split["parts"]["holdout"]
    return {
        HOLDOUT_FILE: pretty_json(
            {
                "holdout_digest": split["holdout_digest"],
                "label_commitment": split["holdout_commitment"],
                "sealed_file": split["holdout_ciphertext"],
                "photos": holdout["photos"],
                "shipments": holdout["shipments"],
                "declared_counts": split["counts"].get("holdout", {}),
            }
        )
    }


def _about_selection(files: Files, events: Sequence[Event]) -> dict[str, bytes]:
    rerun = body_of(files, Stage.RERUN)
    frozen = last_of(events, Kind.SELECTION_FROZEN)
    trials = {row["trial_id"]: row for row in read_rows(files, TRIALS_FILE)}
    trial = trials[rerun["selected_trial"]]
    return {
        SELECTION_FILE: pretty_json(
            {
                "rule": read_json(files, PLAN_FILE)["selection"],
                "frozen_event": None if frozen is None else frozen.sequence,
                **{key: rerun[key] for key in CHOSEN},
            }
        ),
        LINEAGE_FILE: pretty_json(lineage_document(trial, attempt_rows(events), rerun)),
        RERUN_FILE: pretty_json({key: rerun[key] for key in REPEATED}),
    }


def _about_final(files: Files, events: Sequence[Event]) -> dict[str, bytes]:
    final = body_of(files, Stage.FINAL)
    opened = [event_row(one) for one in events if one.kind == Kind.HOLDOUT_OPENED]
    return {
        OPENING_FILE: pretty_json({"openings": opened}),
        RESULT_FILE: pretty_json(final),
        THRESHOLD_FILE: pretty_json(
            {"threshold": repr(float(final["threshold"])), "review": "score >= threshold"}
        ),
    }
