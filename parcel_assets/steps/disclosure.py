"""Hand a judged holdout's labels to an auditor, who can then recompute commitment and result.

Who may have them is a matter of policy, so a person asks for it with a reason, which the ledger
keeps. Nothing is disclosed before the one look; afterwards the shipments are spent either way.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parcel_assets.core.codec import canonical_json, keyed_digest
from parcel_assets.core.errors import HoldoutError
from parcel_assets.core.final import FinalRequest, judge_holdout
from parcel_assets.core.ledger import Kind, last_of
from parcel_assets.core.packet import pretty_json
from parcel_assets.core.packet_text import csv_table
from parcel_assets.core.plain_words import odd_character
from parcel_assets.core.ports import Ports, Scores
from parcel_assets.core.stage import Stage
from parcel_assets.core.table import unpack_scores
from parcel_assets.steps.admission import leased, load_chain

COLUMNS = ("photo_id", "shipment_id", "damaged", "damage_type", "score", "review")
WORDS = """\
commitment.json  salt, commitment, and what the search put on record
labels.json      the labels as they were sealed: [photo id, damaged, damage type]
predictions.csv  the same beside the one model's scores

The commitment is HMAC-SHA256, under the salt's 32 bytes, of labels.json's bytes. The result follows
from predictions.csv: a photo with a score at or above the threshold was sent to review.
"""


def require_room(folder: Path, revision: str) -> None:
    """Make the folder; raises HoldoutError where it is a file or holds anything already."""
    found = "a file" if os.path.lexists(folder) and not folder.is_dir() else None
    if found is None and folder.is_dir() and any(folder.iterdir()):
        found = "a folder that holds something already"
    if found is not None:
        raise HoldoutError(
            f"{found} at {folder}",
            expected="a new or an empty folder",
            where=f"holdout of {revision}",
            remedy="Name another one with --to. Nothing was released.",
        )
    folder.mkdir(parents=True, exist_ok=True)


def release_holdout(revision: str, ports: Ports, *, reason: str, folder: Path) -> dict[str, Any]:
    """Write labels, salt and predictions of a judged holdout into a folder, and record it.

    Raises HoldoutError where the final evaluation has left no result, or where what comes out of
    the vault is not what the ledger says: then nothing is written.
    """
    chain = load_chain(revision, ports)
    evaluated = last_of(chain.events, Kind.HOLDOUT_EVALUATED)
    if evaluated is None or Stage.FINAL not in chain.evidence:
        raise HoldoutError(
            "no final result",
            expected="a holdout that was opened and judged",
            where=f"holdout of {revision}",
            remedy=f"Labels are disclosed after the one look: `parcel-assets run {revision}`.",
        )
    fault = odd_character(reason.strip())
    if fault or not reason.strip():
        raise HoldoutError(
            f"a reason with {fault}" if fault else "no reason",
            expected="for whom and why the labels are released",
            where=f"holdout of {revision}",
            remedy="Say it with --reason; the ledger keeps it.",
        )
    require_room(folder, revision)
    split = chain.split
    told = ports.vault.disclose(split.holdout_digest, revision)
    commitment = keyed_digest(bytes.fromhex(told["salt"]), told["labels"])
    request = FinalRequest.model_validate(told["request"])
    rows = ports.store.get_document(request.rows)
    packed = ports.store.get(str(evaluated.body["predictions_digest"]))
    scores = unpack_scores(packed, len(rows))
    judged = judge_holdout(request, rows, told["labels"], scores).document()
    said = {name: evaluated.body[name] for name in judged}
    if commitment != split.holdout_commitment or _numbers(judged) != _numbers(said):
        raise HoldoutError(
            "labels that do not give commitment and result",
            expected="those of the ledger",
            where=f"holdout of {revision}",
            remedy="The record is not what the sealed labels say. Keep both and find out why.",
        )
    table = _predictions(rows, told["labels"], scores, request.threshold)
    record = {
        "revision": revision,
        "commitment": commitment,
        "salt": told["salt"],
        "threshold": request.threshold,
        "opened_event": chain.final.opened_event,
        "result": said,
    }
    with leased(ports, revision, "release the holdout") as lease:
        # on record first: a release that failed half-way was one all the same
        entry = {"reason": reason.strip(), "photos": len(rows), "commitment": commitment}
        ports.ledger.append(lease, [(Kind.HOLDOUT_RELEASED, entry)])
    (folder / "commitment.json").write_bytes(pretty_json(record))
    (folder / "labels.json").write_bytes(canonical_json(told["labels"]))
    (folder / "predictions.csv").write_bytes(csv_table(COLUMNS, table))
    (folder / "README.txt").write_text(WORDS, encoding="utf-8")
    return {"photos": len(rows), "commitment": commitment}


def _numbers(result: Any) -> Any:
    """Return a result without its sentences: an earlier version may have put them otherwise."""
    if isinstance(result, Mapping):
        return {name: _numbers(one) for name, one in result.items() if name != "sentence"}
    return [_numbers(one) for one in result] if isinstance(result, list | tuple) else result


def _predictions(
    rows: Sequence[Mapping[str, Any]],
    labels: Sequence[tuple[str, bool, str | None]],
    scores: Scores,
    threshold: float,
) -> list[dict[str, Any]]:
    """Return the lines of predictions.csv."""
    known = {photo: (damaged, kind) for photo, damaged, kind in labels}
    return [
        {
            "photo_id": row["photo_id"],
            "shipment_id": row["shipment_id"],
            "damaged": known[row["photo_id"]][0],
            "damage_type": known[row["photo_id"]][1],
            "score": float(score),
            "review": bool(score >= threshold),
        }
        for row, score in zip(rows, scores, strict=True)
    ]
