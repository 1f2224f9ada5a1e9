"""Canonical bytes, digests and seeds: the one place that says how a value becomes a name.

Canonical JSON is UTF-8, keys sorted, no blanks, no NaN; the same value has the same bytes on every
machine. A digest is the SHA-256 of such bytes, in hex.
"""

import hashlib
import hmac
import json
from typing import Any

DIGEST_LENGTH = 64
SHORT_DIGEST_LENGTH = 8


def canonical_json(value: Any) -> bytes:
    """Return the canonical bytes of a JSON value; raises ValueError for NaN or infinity."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def digest_bytes(data: bytes | memoryview) -> str:
    """Return the SHA-256 of bytes, 64 hex characters."""
    return hashlib.sha256(data).hexdigest()


def digest_value(value: Any) -> str:
    """Return the SHA-256 of a JSON value's canonical bytes."""
    return digest_bytes(canonical_json(value))


def keyed_digest(key: bytes, value: Any) -> str:
    """Return HMAC-SHA-256 of a JSON value under a key (commitments, part assignment)."""
    return hmac.new(key, canonical_json(value), hashlib.sha256).hexdigest()


def derive_seed(*parts: str | int) -> int:
    """Return a seed in [0, 2**63) that is a function of the named parts and nothing else."""
    return int(digest_value(list(parts))[:16], 16) >> 1


def short(digest: str) -> str:
    """Return the first characters of a digest, for people."""
    return digest[:SHORT_DIGEST_LENGTH]
