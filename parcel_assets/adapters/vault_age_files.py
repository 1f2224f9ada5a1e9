"""The files of an age vault: where each lies, how one appears whole, and the evaluator's digest.

<vault>/<holdout digest>/labels.age       labels and their salt, encrypted; read-only
<vault>/<holdout digest>/seal.json        commitment, ciphertext digest, photos' digest, mark
<vault>/<holdout digest>/opened.json      the receipt of the one opening
<vault>/<holdout digest>/decryptions.log  one line before each decryption
<vault>/<holdout digest>/result.json      the result of the opening, kept
<vault>/<holdout digest>/again-<revision>/  the same of a later look, where a plan allows it
<keys>/holdout.key, holdout.pub           the key-holder's pair; the private one is 0600
<keys>/holdout.mark                       the custodian's key to know the same labels again
"""

import importlib.util
import json
import os
import uuid
from pathlib import Path
from typing import Any

from parcel_assets.core.codec import digest_bytes, digest_value
from parcel_assets.core.errors import HoldoutError

LABELS_FILE = "labels.age"
SEAL_FILE = "seal.json"
RECEIPT_FILE = "opened.json"
RESULT_FILE = "result.json"
PREDICTIONS_FILE = "predictions.json"
DECRYPTIONS_FILE = "decryptions.log"
PRIVATE_KEY_FILE = "holdout.key"
PUBLIC_KEY_FILE = "holdout.pub"
MARK_FILE = "holdout.mark"
# code that the result depends on, whoever starts it
EVALUATOR_FILES = (
    "vault.py",
    "core/final.py",
    "core/holdout.py",
    "core/private_key.py",
    "core/slice_report.py",
    "core/slice_plan.py",
    "core/slice_family.py",
    "core/slice_words.py",
    "core/slice_verdict.py",
    "core/slices.py",
    "core/rates.py",
    "core/ranks.py",
    "core/comparison.py",
    "core/thresholds.py",
    "core/columns.py",
    "core/statistics.py",
    "core/snapshot.py",
    "core/codec.py",
    "adapters/trainer_lightning.py",
    "adapters/trainer_batches.py",
    "adapters/network_weights.py",
    "adapters/network_cnn.py",
    "adapters/checkpoint_safetensors.py",
)
_PACKAGE = Path(__file__).resolve().parent.parent


def evaluator_digest(trainer: str) -> str:
    """Return the digest of the code that evaluates, and of the named trainer's module."""
    module = trainer.partition(":")[0]
    found = importlib.util.find_spec(module)
    sources = {name: _PACKAGE / name for name in EVALUATOR_FILES}
    if found is not None and found.origin is not None:
        sources["trainer"] = Path(found.origin)
    files = {name: digest_bytes(one.read_bytes()) for name, one in sources.items() if one.exists()}
    return digest_value({"files": files, "trainer": trainer})


def again_folder(place: Path, revision: str) -> Path:
    """Return where a later look of another revision at a spent holdout keeps its records."""
    return place / f"again-{revision}"


def create_file(path: Path, data: bytes, *, mode: int = 0o444) -> None:
    """Write a file that appears whole under its name; raises FileExistsError if it is taken.

    A link onto a taken name fails as an exclusive creation does, and no crash leaves half a file.
    """
    temporary = path.with_name(f".{uuid.uuid4().hex}")
    try:
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)


def read_record(path: Path) -> dict[str, Any]:
    """Return a JSON record of the vault; raises HoldoutError where it does not read."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise HoldoutError(
            f"a file that does not read ({error})",
            expected="the vault's own record",
            where=str(path),
            remedy="Restore the vault folder from a copy; the holdout stays shut until then.",
        ) from error
    assert isinstance(value, dict)
    return value
