"""Approvers' keys: signs a decision with a private key, and says whether a signature holds.

ECDSA on P-256 over SHA-256, or Ed25519, as openssl makes and checks them. Whose signature a
decision needs is decided by `core.approval`.
"""

from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_private_key

from parcel_assets.core.approval import key_bytes
from parcel_assets.core.errors import SettingError
from parcel_assets.core.private_key import require_private


def signature_holds(public_key: str, data: bytes, signature: bytes) -> bool:
    """Say whether a signature of the bytes is by the public key (PEM or its base64)."""
    try:
        key = load_der_public_key(key_bytes(public_key))
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, data)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
        else:
            return False
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return False
    return True


def sign_with(private_key: Path, data: bytes) -> bytes:
    """Return the signature of the bytes.

    Raises SettingError for a file that holds no such key, or that others may read.
    """
    content = private_key.read_bytes()
    if b"-----BEGIN PUBLIC KEY-----" in content and b"PRIVATE KEY-----" not in content:
        raise _mistrust(private_key, "a public key, with which nobody can sign")
    require_private(private_key.stat().st_mode, str(private_key))
    try:
        key = load_pem_private_key(content, password=None)
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise _mistrust(private_key, "a file that holds no unencrypted private key") from error
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(data)
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp256r1":
        return key.sign(data, ec.ECDSA(hashes.SHA256()))
    raise _mistrust(private_key, f"a {type(key).__name__}")


def _mistrust(path: Path, found: str) -> SettingError:
    return SettingError(
        found,
        expected="an unencrypted PEM private key, Ed25519 or ECDSA P-256",
        where=str(path),
        remedy="Name the approver's own key, or make one: `openssl genpkey -algorithm ed25519 "
        "-out private.pem`.",
    )
