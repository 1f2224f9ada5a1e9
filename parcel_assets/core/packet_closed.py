"""The record of a search that a person closed: its first page and its verdict.

It is laid out and verified like a packet, as far as the search came: all trials, and, where they
were reached, choice, reruns and slices. It holds no model, and the holdout is untouched.
"""

from typing import Any

from parcel_assets.core.codec import digest_bytes, digest_value
from parcel_assets.core.packet import (
    CLOSED,
    CLOSING_FILE,
    DECISION_FILE,
    FORMAT,
    HEAD_FILE,
    KEY_FILE,
    LEDGER_FILE,
    PLAN_FILE,
    Files,
    evidence_file,
    holds,
    key_fingerprint,
    read_json,
)
from parcel_assets.core.packet_page import (
    counted,
    fact,
    first_page_compute,
    first_page_counts,
    first_page_rerun,
    first_page_slices,
    first_page_winner,
)
from parcel_assets.core.stage import Stage

SENTENCE = (
    "Closed without a winner: a person ended this search. Nothing is released, the registry "
    "refuses it, and the holdout was not opened."
)


def closed_first_page(files: Files) -> dict[str, Any]:
    """Return what stands on the first page, every value with its source."""
    page: dict[str, Any] = {
        "closing": {key: fact(files, CLOSING_FILE, key) for key in ("by", "reason", "day")},
        "holdout": {"openings": counted(files, LEDGER_FILE, kind="holdout_opened")},
        "counts": first_page_counts(files),
        "compute": first_page_compute(files),
    }
    if holds(files, Stage.RERUN):
        page |= {"winner": first_page_winner(files), "rerun": first_page_rerun(files)}
    if holds(files, Stage.SLICES):
        page["slices"] = first_page_slices(files)
    return page


def closed_verdict(files: Files) -> dict[str, Any]:
    """Return VERDICT.json as it follows from the record's other files; raises KeyError, ValueError.

    `held_trial` is the candidate that was turned down; None where the search came to no choice.
    """
    head, is_chosen = read_json(files, HEAD_FILE), holds(files, Stage.RERUN)
    trial = fact(files, evidence_file(Stage.RERUN), "body", "selected_trial") if is_chosen else None
    return {
        "format": FORMAT,
        "revision": head["revision"],
        "verdict": CLOSED,
        "sentence": SENTENCE,
        "usable": False,
        "plan_digest": digest_value(read_json(files, PLAN_FILE)),
        "selected_trial": None,
        "held_trial": trial["value"] if trial else None,
        "decision": DECISION_FILE if DECISION_FILE in files else None,
        "evidence": {
            str(stage): digest_bytes(files[evidence_file(stage)])
            for stage in Stage
            if holds(files, stage)
        },
        "ledger_head": head,
        "signed_by": key_fingerprint(files[KEY_FILE]),
        "first_page": closed_first_page(files),
    }
