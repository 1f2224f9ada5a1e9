"""The vault's own process: `python -m parcel_assets.vault REQUEST.json` looks at a holdout once.

It alone reads the label key. It looks only where a receipt allows this very request, checks every
digest before it decrypts, notes each decryption, and keeps the result beside the sealed labels, so
that a caller who dies before hearing it asks again without a second look. A kept result carries a
proof under the label key: whoever may write beside the labels and has no key changes nothing in it.
"""

import fcntl
import hashlib
import hmac
import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyrage  # type: ignore[import-untyped]  # ships no types

from parcel_assets.adapters.store_files import FileStore
from parcel_assets.adapters.vault_age_files import (
    DECRYPTIONS_FILE,
    LABELS_FILE,
    PREDICTIONS_FILE,
    RECEIPT_FILE,
    RESULT_FILE,
    SEAL_FILE,
    again_folder,
    create_file,
    evaluator_digest,
    read_record,
)
from parcel_assets.core.codec import canonical_json, digest_bytes, keyed_digest
from parcel_assets.core.errors import HoldoutError, ParcelAssetsError
from parcel_assets.core.final import FinalRequest, judge_holdout, require_same_request
from parcel_assets.core.holdout import Claim, claimable_level, holdout_digest, holdout_keys
from parcel_assets.core.ports import Scores, Store
from parcel_assets.core.table import pack_scores


def main(arguments: list[str]) -> int:
    """Print the answer to the order in a file as one JSON line; return 0, or 3 for a refusal."""
    order = json.loads(Path(arguments[0]).read_bytes())
    try:
        if "claim" in order:
            answer = claim_before(order)
        else:
            answer = disclose(order) if "disclose" in order else look_once(order)
    except ParcelAssetsError as error:
        sys.stdout.write(json.dumps(error.as_fields(), default=str) + "\n")
        return 3
    sys.stdout.write(canonical_json(answer).decode() + "\n")
    return 0


def claim_before(order: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a look with the order's key could claim; nothing is opened or decrypted.

    Raises HoldoutError for a file that is no key, or another one than the labels were sealed to.
    """
    request = FinalRequest.model_validate(order["claim"])
    place = Path(order["folder"])
    found = str(_label_key(Path(order["key"])).to_public())
    sealed_to = read_record(place / SEAL_FILE).get("recipient")
    if sealed_to not in {None, found}:  # None: sealed before this was noted
        raise HoldoutError(
            f"the private key of {found}",
            expected=f"that of {sealed_to}, to which the labels were sealed",
            where=str(order["key"]),
            remedy="Name that key's file. Nothing was opened.",
        )
    claim = _claim(place, order, request, FileStore(Path(order["store"])))
    return {"level": claim.level, "reason": claim.reason}


def look_once(order: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kept result of the order's request, or look, keep the result and return it.

    Raises HoldoutError where no receipt allows this request or anything is not what it names.
    """
    request = FinalRequest.model_validate(order["request"])
    place = Path(order["folder"])
    again = again_folder(place, request.revision)
    folder = again if (again / RECEIPT_FILE).exists() else place
    _require_receipt(folder, request)
    with _alone(folder):
        kept = folder / RESULT_FILE
        if kept.exists():
            result = read_record(kept)
            require_same_request(result["request"], request, f"result of {request.revision}")
            _require_unchanged(result, _label_key(Path(order["key"])), str(kept))
            return dict(result["answer"])
        _require_equal(
            "evaluator", evaluator_digest(str(order["trainer"])), request.evaluator_digest
        )
        store = FileStore(Path(order["store"]))
        rows = store.get_document(request.rows)
        keys = holdout_keys(request.archive, rows)
        _require_equal("holdout rows", holdout_digest(keys), request.holdout_digest)
        ciphertext = (place / LABELS_FILE).read_bytes()
        _require_equal("sealed file", digest_bytes(ciphertext), request.ciphertext_digest)
        scores = _score(request, store, str(order["trainer"]), len(rows))
        predictions = _keep_predictions(folder, store, scores)
        key = _label_key(Path(order["key"]))
        content = _decrypt(ciphertext, key, folder, request)
        judged = judge_holdout(request, rows, content["labels"], scores)
        claim = _claim(place, order, request, store)
        answer = {
            **judged.document(),
            "predictions_digest": predictions,
            "evidence_level": claim.level,
            "evidence_level_reason": claim.reason,
            "decryptions": len((folder / DECRYPTIONS_FILE).read_text().splitlines()),
        }
        identity = {**request.document(), "request_digest": request.digest}
        result = {"request": identity, "answer": answer}
        create_file(kept, canonical_json(result | {"proof": _proof(result, key)}))
        return answer


def disclose(order: Mapping[str, Any]) -> dict[str, Any]:
    """Return salt, labels and request of a holdout that was judged, for an auditor.

    Raises HoldoutError where no result is kept beside the sealed labels.
    """
    place, revision = Path(order["folder"]), str(order["disclose"])
    again = again_folder(place, revision)
    folder = again if (again / RECEIPT_FILE).exists() else place
    kept = folder / RESULT_FILE
    told = read_record(kept)["request"] if kept.exists() else {}
    if told.get("revision") != revision:
        raise HoldoutError(
            "no result of this search",
            expected="a final evaluation whose result is kept",
            where=f"vault, {revision}",
            remedy="Labels are disclosed after the one look, never before.",
        )
    asked = {name: value for name, value in told.items() if name != "request_digest"}
    request = FinalRequest.model_validate(asked)
    with _alone(folder):
        ciphertext = (place / LABELS_FILE).read_bytes()
        _require_equal("sealed file", digest_bytes(ciphertext), request.ciphertext_digest)
        content = _decrypt(ciphertext, _label_key(Path(order["key"])), folder, request)
    return {"salt": content["salt"], "labels": content["labels"], "request": asked}


def _require_receipt(folder: Path, request: FinalRequest) -> None:
    path = folder / RECEIPT_FILE
    if not path.exists():
        raise HoldoutError(
            "no receipt of an opening",
            expected=f"{RECEIPT_FILE} beside the sealed labels",
            where=f"vault, holdout {request.holdout_digest[:8]}",
            remedy="The vault opens through final_evaluation only: materialize it.",
        )
    receipt = read_record(path)
    _require_equal("revision", request.revision, str(receipt["revision"]))
    if receipt.get("reuses") and not request.final.allow_spent:
        raise HoldoutError(
            f"a holdout that {', '.join(receipt['reuses'])} opened before",
            expected="an unspent one: the plan does not allow another",
            where=f"vault, holdout {request.holdout_digest[:8]}",
            remedy="A holdout opens once. Plan a new search revision with an unspent holdout.",
        )
    require_same_request(receipt, request, f"vault, holdout {request.holdout_digest[:8]}")


def _score(request: FinalRequest, store: Store, trainer: str, photos: int) -> Scores:
    """Return the one model's scores of the holdout's photos: no label is needed for that."""
    for name, digest in (("model", request.model), ("holdout array", request.pixels)):
        with store.path(digest).open("rb") as file:
            _require_equal(name, hashlib.file_digest(file, "sha256").hexdigest(), digest)
    module, _, name = trainer.partition(":")
    pixels = np.load(store.path(request.pixels), mmap_mode="r", allow_pickle=False)
    _require_equal("photos", str(len(pixels)), str(photos))
    loaded = getattr(importlib.import_module(module), name)()
    scores = np.asarray(loaded.score(store.path(request.model), pixels), dtype=np.float32)
    if scores.shape != (photos,) or not np.isfinite(scores).all():
        raise HoldoutError(
            f"scores of shape {scores.shape}, or one that is not finite",
            expected=f"{photos} finite scores",
            where="final evaluation",
            remedy="The model cannot judge these photos; nothing was decrypted.",
        )
    return scores


def _keep_predictions(folder: Path, store: Store, scores: Scores) -> str:
    """Store the predictions; a resumed look must give those that the first one gave."""
    digest = store.put(pack_scores(scores), ".f32")
    path = folder / PREDICTIONS_FILE
    if not path.exists():
        create_file(path, canonical_json({"predictions_digest": digest}))
    _require_equal("predictions", digest, str(read_record(path)["predictions_digest"]))
    return digest


def _label_key(path: Path) -> Any:
    """Return the key-holder's private key; raises HoldoutError where there is none."""
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
        # `age-keygen` writes comments above the key
        (text,) = (line for line in lines if line and not line.startswith("#"))
        return pyrage.x25519.Identity.from_str(text)
    except (OSError, ValueError, pyrage.IdentityError) as error:
        raise HoldoutError(
            "no usable label key",
            expected="the key-holder's private key, AGE-SECRET-KEY-1…, alone in its file",
            where=str(path),
            remedy="Bring the key that the labels were sealed to, then run again: it resumes.",
        ) from error


def _decrypt(ciphertext: bytes, key: Any, folder: Path, request: FinalRequest) -> dict[str, Any]:
    """Return salt and label rows, once the note that they are decrypted is on disk."""
    with (folder / DECRYPTIONS_FILE).open("a") as note:
        note.write(f"{request.revision} {request.digest}\n")
        note.flush()
        os.fsync(note.fileno())
    try:
        content: dict[str, Any] = json.loads(pyrage.decrypt(ciphertext, [key]))
    except pyrage.DecryptError as error:
        raise HoldoutError(
            "labels that this key does not open",
            expected="the key they were sealed to",
            where="vault",
            remedy="Bring the key that the labels were sealed to, then run again: it resumes.",
        ) from error
    _require_equal("sealed holdout", str(content["holdout_digest"]), request.holdout_digest)
    found = keyed_digest(bytes.fromhex(content["salt"]), content["labels"])
    _require_equal("commitment", found, request.commitment)
    return content


def _proof(result: Mapping[str, Any], key: Any) -> str:
    """Return what only who has the label key can write beside a result."""
    return keyed_digest(str(key).encode(), [result["request"], result["answer"]])


def _require_unchanged(result: Mapping[str, Any], key: Any, where: str) -> None:
    if not hmac.compare_digest(str(result.get("proof")), _proof(result, key)):
        raise HoldoutError(
            "a kept result that is not what the look left, or another label key",
            expected="the result with its proof under the key that the labels were sealed to",
            where=where,
            remedy="Bring that key, or restore the file from a copy. Without a copy take it away: "
            "the look is repeated, and the packet says that the labels were decrypted again.",
        )


def _claim(place: Path, order: Mapping[str, Any], request: FinalRequest, store: Store) -> Claim:
    """Return the evidence level that this look may claim, measured from who owns which file."""
    found = Path(order["key"]).stat()
    searched = [place / LABELS_FILE, store.path(request.model), store.path(request.pixels)]
    return claimable_level(
        to_key_holder=read_record(place / SEAL_FILE).get("to_key_holder") is True,
        key_mode=found.st_mode,
        key_owner=found.st_uid,
        search_owners={path.stat().st_uid for path in searched},
        without_l3=order.get("without_l3") is True,
    )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep a second process waiting until the first has kept its result."""
    with (folder / ".lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _require_equal(what: str, found: str, expected: str) -> None:
    if found != expected:
        raise HoldoutError(
            f"{what} {found[:16]}",
            expected=expected[:16],
            where="vault",
            remedy="Restore what the opening was made for; the labels stay sealed.",
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
