"""The first page of a packet and its verdict, each a function of the packet's other files.

Every value names the file and place it was read from, so that `packet_check` and any stranger can
read it again.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from parcel_assets.core.codec import digest_bytes
from parcel_assets.core.packet import (
    ATTEMPTS_FILE,
    DECISION_FILE,
    FORMAT,
    HEAD_FILE,
    KEY_FILE,
    LINEAGE_FILE,
    MODEL_FILE,
    PLAN_FILE,
    PURPOSES,
    SERVING_FILE,
    TRIALS_FILE,
    USABLE,
    VERDICT_SENTENCES,
    Files,
    body_of,
    evidence_file,
    holds,
    key_fingerprint,
    read_json,
    read_rows,
    verdict_word,
)
from parcel_assets.core.packet_files import read_events
from parcel_assets.core.stage import Stage
from parcel_assets.core.timestamps import counting_timestamps, level_words, told_timestamps
from parcel_assets.core.trial import AttemptState, TrialState

Fact = dict[str, Any]  # value, source and, where the value is computed, rule, field, where


# ---- facts: a value and where it was read -------------------------------------------------------


def fact(files: Files, path: str, *places: str | int) -> Fact:
    """Return the value at a place in a JSON file, with the pointer to it (None where absent)."""
    value: Any = read_json(files, path)
    for place in places:
        if isinstance(value, Mapping):
            value = value.get(str(place))
        elif isinstance(value, list) and isinstance(place, int) and place < len(value):
            value = value[place]
        else:
            value = None
    pointer = "".join(f"/{str(one).replace('~', '~0').replace('/', '~1')}" for one in places)
    return {"value": value, "source": f"{path}#{pointer}"}


def evidence_fact(files: Files, stage: Stage, place: str) -> Fact:
    """Return a value of a stage's evidence; None where a search was closed before that stage."""
    if not holds(files, stage):
        return {"value": None, "source": f"{evidence_file(stage)}, not reached"}
    return fact(files, evidence_file(stage), "body", place)


def counted(files: Files, path: str, **where: str) -> Fact:
    """Return how many rows of a JSON Lines file have the given fields."""
    return {
        "value": len(_matching(read_rows(files, path), where)),
        "source": path,
        "rule": "count",
        "where": where,
    }


def summed(files: Files, path: str, field: str, **where: str) -> Fact:
    """Return the sum of one field over the rows of a JSON Lines file that have the given fields."""
    total = math.fsum(float(row[field]) for row in _matching(read_rows(files, path), where))
    return {
        "value": round(total, 6),
        "source": path,
        "rule": "sum",
        "field": field,
        "where": where,
    }


def _matching(rows: Iterable[dict[str, Any]], where: Mapping[str, str]) -> list[dict[str, Any]]:
    return [row for row in rows if all(row[key] == value for key, value in where.items())]


# ---- the first page -----------------------------------------------------------------------------


def first_page(files: Files) -> dict[str, Any]:
    """Return what stands on a packet's first page, every value with its source."""
    return {
        "counts": first_page_counts(files),
        "compute": first_page_compute(files),
        "winner": first_page_winner(files),
        "rerun": first_page_rerun(files),
        "slices": first_page_slices(files),
        "final": _final(files),
        "serving": _serving(files),
    }


def first_page_counts(files: Files) -> dict[str, Any]:
    """Return slots, trials and attempts by state, photos and shipments."""
    trials = {str(one): counted(files, TRIALS_FILE, state=str(one)) for one in TrialState}
    attempts = {
        purpose: {
            str(one): counted(files, ATTEMPTS_FILE, purpose=purpose, state=str(one))
            for one in AttemptState
        }
        | {"total": counted(files, ATTEMPTS_FILE, purpose=purpose)}
        for purpose in PURPOSES
    }
    return {
        "budget_trials": fact(files, PLAN_FILE, "search", "budget_trials"),
        "trials": trials | {"total": counted(files, TRIALS_FILE)},
        "attempts": attempts,
        "unstarted_trials": evidence_fact(files, Stage.SEARCH, "unstarted_trials"),
        "ended": evidence_fact(files, Stage.SEARCH, "ended"),
        "photos": evidence_fact(files, Stage.SNAPSHOT, "photos"),
        "shipments": evidence_fact(files, Stage.SNAPSHOT, "shipments"),
    }


def first_page_compute(files: Files) -> dict[str, Any]:
    """Return charges by purpose against the cap, and what pruning saved."""
    by_purpose = {
        purpose: summed(files, ATTEMPTS_FILE, "charged_seconds", purpose=purpose)
        for purpose in PURPOSES
    }
    return {
        "charged_seconds": by_purpose | {"total": summed(files, ATTEMPTS_FILE, "charged_seconds")},
        "cap_accelerator_hours": fact(files, PLAN_FILE, "search", "cap_accelerator_hours"),
        "steps_trained": evidence_fact(files, Stage.SEARCH, "steps_trained"),
        "steps_saved_by_pruning": evidence_fact(files, Stage.SEARCH, "steps_saved_by_pruning"),
    }


def first_page_winner(files: Files) -> dict[str, Any]:
    """Return the winner's lineage, weights and costs."""
    rerun = evidence_file(Stage.RERUN)
    lineage = {
        key: fact(files, LINEAGE_FILE, key)
        for key in ("trial_id", "number", "seed", "configuration", "state", "lineage_ok")
    }
    attempts = read_json(files, LINEAGE_FILE)["attempts"]
    lineage["attempts"] = [  # type: ignore[assignment]  # a list among facts
        {
            key: fact(files, LINEAGE_FILE, "attempts", place, key)
            for key in ("attempt", "state", "resume_step", "parent_checkpoint", "step", "model")
        }
        | {
            "checkpoints": [
                {
                    key: fact(files, LINEAGE_FILE, "attempts", place, "checkpoints", number, key)
                    for key in ("step", "checkpoint", "parent_checkpoint")
                }
                for number in range(len(attempt["checkpoints"]))
            ]
        }
        for place, attempt in enumerate(attempts)
    ]
    return lineage | {
        "released_attempt": fact(files, LINEAGE_FILE, "released", "attempt"),
        "released_parent_checkpoint": fact(files, LINEAGE_FILE, "released", "parent_checkpoint"),
        "model": fact(files, rerun, "body", "model"),
        "threshold": fact(files, rerun, "body", "threshold"),
        "search_cost_per_1000": fact(files, rerun, "body", "selected_cost_per_1000"),
        "corrected_cost": fact(files, rerun, "body", "corrected_cost"),
        "tie_set": fact(files, rerun, "body", "tie_set"),
        "slice_informed": fact(files, rerun, "body", "slice_informed"),
        "reference_cost_per_1000": fact(files, rerun, "body", "reference", "cost_per_1000"),
        "review_all_cost_per_1000": fact(
            files, rerun, "body", "trivial_cost_per_1000", "review_all"
        ),
        "review_none_cost_per_1000": fact(
            files, rerun, "body", "trivial_cost_per_1000", "review_none"
        ),
    }


def first_page_rerun(files: Files) -> dict[str, Any]:
    """Return how the choice repeated."""
    path = evidence_file(Stage.RERUN)
    judged = ("mean", "standard_deviation", "tolerance", "within_tolerance", "not_reproduced")
    return {
        "own_cost_per_1000": fact(files, path, "body", "own", "cost_per_1000"),
        "scores_equal": fact(files, path, "body", "scores_equal"),
        "largest_score_difference": fact(files, path, "body", "largest_score_difference"),
        **{key: fact(files, path, "body", "judgement", key) for key in (*judged, "unstable")},
        "sentence": fact(files, path, "body", "judgement", "sentence"),
    }


def first_page_slices(files: Files) -> dict[str, Any]:
    """Return every slice with its outcome and sentence."""
    path = evidence_file(Stage.SLICES)
    body = read_json(files, path)["body"]
    keys = ("name", "role", "outcome", "sentence", "difference", "lower", "upper", "unit")
    return {
        "protected_passed": fact(files, path, "body", "protected_passed"),
        "disposition": fact(files, path, "body", "disposition"),
        "slices": [
            {key: fact(files, path, "body", "slices", place, key) for key in keys}
            for place in range(len(body["slices"]))
        ],
    }


def _final(files: Files) -> dict[str, Any]:
    path = evidence_file(Stage.FINAL)
    keys = ["outcome", "sentence", "evidence_level", "predictions_digest", "reused_shipments"]
    if read_json(files, path)["body"]["reused_shipments"]:
        keys.append("reused_times")  # a packet without reuse has no word of it
    return {
        **{key: fact(files, path, "body", key) for key in (*keys, "disposition")},
        "result": fact(files, path, "body", "result"),
        "target_cost_per_1000": fact(files, PLAN_FILE, "final", "target_cost_per_1000"),
    }


def _serving(files: Files) -> dict[str, Any]:
    estimate = read_json(files, SERVING_FILE)
    return {key: fact(files, SERVING_FILE, key) for key in estimate}


# ---- the verdict --------------------------------------------------------------------------------


def verdict_document(files: Files) -> dict[str, Any]:
    """Return VERDICT.json as it follows from the packet's other files; raises KeyError, ValueError.

    Nothing here is typed in by hand: a verifier makes the document again and compares.
    """
    final, slices = body_of(files, Stage.FINAL), body_of(files, Stage.SLICES)
    decision = read_json(files, DECISION_FILE) if DECISION_FILE in files else None
    seen = digest_bytes(files[evidence_file(Stage.SLICES)])
    word = verdict_word(
        str(final["outcome"]),
        protected_passed=slices["protected_passed"] is True,
        accepted=decision is not None
        and (decision["outcome"], decision["slice_evidence"]) == ("accept", seen),
    )
    head = read_json(files, HEAD_FILE)
    events = read_events(files)
    stamped = counting_timestamps(events)
    return {
        "format": FORMAT,
        "revision": head["revision"],
        "verdict": word,
        "sentence": VERDICT_SENTENCES[word],
        "usable": word in USABLE,
        "evidence_level": str(final["evidence_level"]),
        "evidence_level_means": level_words(final, events),
        # a packet without timestamps has no word of them
        **({"timestamps": told_timestamps(events)} if stamped else {}),
        "plan_digest": read_json(files, evidence_file(Stage.FINAL))["plan_digest"],
        "model_digest": digest_bytes(files[MODEL_FILE]),
        "threshold": repr(float(final["threshold"])),
        "selected_trial": body_of(files, Stage.RERUN)["selected_trial"],
        "decision": DECISION_FILE if decision is not None else None,
        "evidence": {
            str(stage): digest_bytes(files[evidence_file(stage)]) for stage in Stage.PACKET.earlier
        },
        "ledger_head": head,
        "signed_by": key_fingerprint(files[KEY_FILE]),
        "first_page": first_page(files),
    }
