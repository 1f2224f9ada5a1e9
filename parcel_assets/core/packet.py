"""The release packet: its layout, its verdict and its first page, each a function of its files.

A packet is a folder of plain files, here a mapping of relative path to bytes. The first page names
for every number the file and place it was read from, so that `packet_check` and any stranger can
read it again. Writing folders, signing and drawing the report are left to others.
"""

import base64
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from parcel_assets.core.codec import digest_bytes
from parcel_assets.core.stage import Stage
from parcel_assets.core.trial import AttemptState, TrialState

FORMAT = "parcel-packet/1"

VERDICT_FILE = "VERDICT.json"
PLAN_FILE = "plan.json"
LEDGER_FILE = "ledger.jsonl"
HEAD_FILE = "ledger.head"
TRIALS_FILE = "search/trials.jsonl"
ATTEMPTS_FILE = "search/attempts.jsonl"
CUTS_FILE = "search/cut_tables.jsonl"
JUDGEMENTS_FILE = "search/prune_decisions.jsonl"
CURVES_FILE = "search/curves.csv"
LINEAGE_FILE = "selection/winner_lineage.json"
DECISION_FILE = "decision.json"
OPENING_FILE = "final/opening.json"
RECEIPTS_FILE = "final/receipts.json"
MANIFEST_FILE = "data/split_manifest.csv"
CROISSANT_FILE = "data/croissant.json"
SCORES_FILE = "selection/validation_scores.csv"
MODEL_FILE = "model/model.safetensors"
THRESHOLD_FILE = "model/threshold.json"
PREPROCESS_FILE = "model/preprocess.json"
SERVING_FILE = "serving/estimate.json"
REPORT_FILE = "report.html"
KEY_FILE = "release_key.pem"
SUMS_FILE = "SHA256SUMS"
SIGNATURE_FILE = "SHA256SUMS.sig"
UNLISTED = frozenset({SUMS_FILE, SIGNATURE_FILE})  # a list cannot hold its own digest

RELEASED = "released"
RELEASED_WITH_WAIVER = "released-with-waiver"
REJECTED_PERFORMANCE = "rejected:performance"
HOLD_FINAL_EVIDENCE = "hold:final-evidence"
USABLE = frozenset({RELEASED, RELEASED_WITH_WAIVER})

PURPOSES = ("search", "rerun", "reference", "final")
LEVELS = {
    "L1": "a consistent record of one opening",
    "L2": "a record of one opening whose order and content an outside clock fixed",
    "L3": "a record of one opening with a key that the search could not use",
}

Files = Mapping[str, bytes]
Fact = dict[str, Any]  # value, source and, where the value is computed, rule, field, where


def evidence_file(stage: Stage | str) -> str:
    """Return where a packet keeps a stage's evidence."""
    return f"evidence/{stage}.json"


def pretty_json(value: Any) -> bytes:
    """Return a JSON value as text for people and tools: UTF-8, two blanks, a last line end."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def read_json(files: Files, path: str) -> Any:
    """Return the JSON value of one file of the packet; raises KeyError or ValueError."""
    return json.loads(files[path])


def read_rows(files: Files, path: str) -> list[dict[str, Any]]:
    """Return the rows of a JSON Lines file; raises KeyError or ValueError."""
    return [json.loads(line) for line in files[path].splitlines()]


def body_of(files: Files, stage: Stage) -> dict[str, Any]:
    """Return the body of a stage's evidence as the packet holds it."""
    body: dict[str, Any] = read_json(files, evidence_file(stage))["body"]
    return body


def key_fingerprint(pem: bytes) -> str:
    """Return the SHA-256 of a PEM public key's DER bytes: what people compare aloud."""
    lines = [line for line in pem.decode("ascii").split("\n") if line and "-----" not in line]
    return digest_bytes(base64.b64decode("".join(lines), validate=True))


def verdict_word(outcome: str, *, protected_passed: bool, accepted: bool) -> str:
    """Return the packet's verdict from the final outcome and what let the slice gate through."""
    if outcome == "FAIL":
        return REJECTED_PERFORMANCE
    if outcome != "PASS":
        return HOLD_FINAL_EVIDENCE
    return RELEASED if protected_passed or not accepted else RELEASED_WITH_WAIVER


VERDICT_SENTENCES = {
    RELEASED: "Released: every gate passed and the final result meets the plan's target.",
    RELEASED_WITH_WAIVER: "Released with a waiver: a person accepted a held slice, in writing; "
    "every other gate passed and the final result meets the plan's target.",
    REJECTED_PERFORMANCE: "Rejected: the final result misses the plan's target. "
    "The packet is published, the registry refuses the model.",
    HOLD_FINAL_EVIDENCE: "Held: the final evaluation has too little evidence to judge the target. "
    "The registry refuses the model.",
}


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
        "counts": _counts(files),
        "compute": _compute(files),
        "winner": _winner(files),
        "rerun": _rerun(files),
        "slices": _slices(files),
        "final": _final(files),
        "serving": _serving(files),
    }


def _counts(files: Files) -> dict[str, Any]:
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
        "unstarted_trials": fact(files, evidence_file(Stage.SEARCH), "body", "unstarted_trials"),
        "ended": fact(files, evidence_file(Stage.SEARCH), "body", "ended"),
        "photos": fact(files, evidence_file(Stage.SNAPSHOT), "body", "photos"),
        "shipments": fact(files, evidence_file(Stage.SNAPSHOT), "body", "shipments"),
    }


def _compute(files: Files) -> dict[str, Any]:
    by_purpose = {
        purpose: summed(files, ATTEMPTS_FILE, "charged_seconds", purpose=purpose)
        for purpose in PURPOSES
    }
    return {
        "charged_seconds": by_purpose | {"total": summed(files, ATTEMPTS_FILE, "charged_seconds")},
        "cap_accelerator_hours": fact(files, PLAN_FILE, "search", "cap_accelerator_hours"),
        "steps_trained": fact(files, evidence_file(Stage.SEARCH), "body", "steps_trained"),
        "steps_saved_by_pruning": fact(
            files, evidence_file(Stage.SEARCH), "body", "steps_saved_by_pruning"
        ),
    }


def _winner(files: Files) -> dict[str, Any]:
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


def _rerun(files: Files) -> dict[str, Any]:
    path = evidence_file(Stage.RERUN)
    judged = ("mean", "standard_deviation", "tolerance", "within_tolerance", "not_reproduced")
    return {
        "own_cost_per_1000": fact(files, path, "body", "own", "cost_per_1000"),
        "scores_equal": fact(files, path, "body", "scores_equal"),
        "largest_score_difference": fact(files, path, "body", "largest_score_difference"),
        **{key: fact(files, path, "body", "judgement", key) for key in (*judged, "unstable")},
        "sentence": fact(files, path, "body", "judgement", "sentence"),
    }


def _slices(files: Files) -> dict[str, Any]:
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
    level = str(final["evidence_level"])
    return {
        "format": FORMAT,
        "revision": head["revision"],
        "verdict": word,
        "sentence": VERDICT_SENTENCES[word],
        "usable": word in USABLE,
        "evidence_level": level,
        "evidence_level_means": LEVELS.get(level, "unknown"),
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
