"""The release packet: its layout and the words of its verdict.

A packet is a folder of plain files, here a mapping of relative path to bytes. What its first page
says is decided in `packet_page`; folders, signatures and drawing are left to others.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parcel_assets.core.codec import digest_bytes
from parcel_assets.core.stage import Stage

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
CLOSING_FILE = "closing.json"
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
CLOSED = "closed"  # the record of a search that a person ended: no model, holdout untouched
USABLE = frozenset({RELEASED, RELEASED_WITH_WAIVER})

PURPOSES = ("search", "rerun", "reference", "final")
LEVELS = {
    "L1": "a consistent record of one opening",
    "L2": "a consistent record of one opening, whose split and choice were fixed by the times that "
    "a timestamp authority signed",
    "L3": "a record of one opening with a key that the search could not use",
}

Files = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a packet: the file and, in words, why."""

    file: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


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


def holds(files: Files, stage: Stage) -> bool:
    """Say whether the packet holds a stage's evidence; a closed search's record may lack some."""
    return evidence_file(stage) in files


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
