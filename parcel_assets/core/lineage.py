"""What an attempt proves about its checkpoints: lineage in a file's header, owner of a prefix.

Decides what a file below a prefix says about itself. Which attempts a contradiction involves is
decided in `lineage_clash`; reading the files is left to the steps.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from parcel_assets.core.codec import digest_bytes, digest_value

LINEAGE_PREFIX = "lineage."  # how a checkpoint's header names its lineage fields
HEADER_BYTES_MAXIMUM = 4 * 1024 * 1024
LENGTH_BYTES = 8

_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
_BFLOAT_EXPONENT = 0x7F80  # all ones: infinite or no number


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file below a prefix as found: what it is and what it says about itself.

    `payload` digests its tensors alone, whatever its header says; empty where it has none that tell
    anything. `link_to` is where a symbolic link leads (below the attempts folder, else the name of
    the kind of file): workers make plain files only.
    """

    digest: str
    lineage: Mapping[str, str] | None = None
    payload: str = ""
    link_to: str | None = None


@dataclass(frozen=True, slots=True)
class PrefixContent:
    """What lies below an attempt's prefix: owner marker (or None), every other file by name."""

    owner: Mapping[str, Any] | None
    files: Mapping[str, FoundFile] = field(default_factory=dict)


def owner_of(revision: str, attempt: str, subject: str) -> dict[str, str]:
    """Return the owner marker of an attempt's prefix."""
    return {"revision": revision, "attempt": attempt, "subject": subject}


def training_digest(configuration: Mapping[str, Any], seed: int) -> str:
    """Return the digest of what determines a training: two equal ones end in equal weights."""
    return digest_value([digest_value(dict(configuration)), str(seed)])


def lineage_of(
    *,
    revision: str,
    plan_digest: str,
    identity_digest: str,
    subject: str,
    attempt: str,
    configuration: Mapping[str, Any],
    seed: int,
    step: int,
    parent_checkpoint: str | None,
) -> dict[str, str]:
    """Return the lineage that a checkpoint carries in its header."""
    return {
        "revision": revision,
        "plan": plan_digest,
        "identity": identity_digest,
        "subject": subject,
        "attempt": attempt,
        "configuration": digest_value(dict(configuration)),
        "seed": str(seed),
        "step": str(step),
        "parent_checkpoint": parent_checkpoint or "",
    }


def read_found_file(content: bytes) -> FoundFile:
    """Return what a plain file's bytes say; one without lineage is torn, or no checkpoint."""
    digest = digest_bytes(content)
    try:
        header = _read_header(content)
        lineage = _lineage_in(header)
    except (ValueError, KeyError, TypeError, AttributeError):
        return FoundFile(digest)
    return FoundFile(digest, lineage or None, _payload_digest(header, content))


def is_below_prefix(file: str) -> bool:
    """Say whether a file name, relative to a prefix, stays below it."""
    path = PurePosixPath(file)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def _read_header(start: bytes) -> Mapping[str, Any]:
    length = int.from_bytes(start[:LENGTH_BYTES], "little")
    # a torn or oversized header is cut here, and then is no JSON
    header = json.loads(start[LENGTH_BYTES:][: min(length, HEADER_BYTES_MAXIMUM)])
    if not isinstance(header, dict):
        raise TypeError("a header that is no JSON object")
    return header


def _lineage_in(header: Mapping[str, Any]) -> dict[str, str]:
    cut = len(LINEAGE_PREFIX)
    metadata = header["__metadata__"].items()
    return {key[cut:]: str(text) for key, text in metadata if key.startswith(LINEAGE_PREFIX)}


def _payload_digest(header: Mapping[str, Any], content: bytes) -> str:
    """Return the digest of a file's tensors by name, shape and bytes; empty where none tells.

    Weights that are no numbers tell nothing: trainings that diverge may well end in the same ones.
    """
    body = memoryview(content)[LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little") :]
    hasher = hashlib.sha256()
    tensors = sorted(name for name in header if name != "__metadata__")
    try:
        for name in tensors:
            entry = header[name]
            start, end = (int(one) for one in entry["data_offsets"])
            piece = body[start:end]
            if len(piece) != end - start or not _is_finite(str(entry["dtype"]), piece):
                return ""
            shape = [int(one) for one in entry["shape"]]
            hasher.update(digest_value([name, entry["dtype"], shape, math.prod(shape)]).encode())
            hasher.update(piece)
    except (KeyError, TypeError, ValueError):
        return ""
    return hasher.hexdigest() if tensors else ""


def _is_finite(kind: str, piece: memoryview) -> bool:
    if kind in _FLOATS:
        return bool(np.isfinite(np.frombuffer(piece, _FLOATS[kind])).all())
    if kind == "BF16":
        bits = np.frombuffer(piece, "<u2") & _BFLOAT_EXPONENT
        return not bool((bits == _BFLOAT_EXPONENT).any())
    return True
