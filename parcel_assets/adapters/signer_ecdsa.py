"""Signs packets with an ECDSA key on the curve P-256, kept in one file that only its owner reads.

The signature is what `openssl dgst -sha256 -verify` reads (DER). Who may hold the key, and whom its
fingerprint is told, is left to the operator.
"""

import os
import uuid
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from parcel_assets.core.errors import SettingError
from parcel_assets.core.private_key import require_private

PRIVATE_KEY_FILE = "release_key.private.pem"
PUBLIC_KEY_FILE = "release_key.pem"
OWNER_ONLY = 0o600


class EcdsaSigner:
    """A release key below one folder, made on first use; SettingError for a key it mistrusts."""

    def __init__(self, key_folder: Path) -> None:
        self._folder = key_folder
        self._path = key_folder / PRIVATE_KEY_FILE

    def sign(self, data: bytes) -> bytes:
        """Return the DER signature of the bytes under SHA-256."""
        return self._key().sign(data, ec.ECDSA(hashes.SHA256()))

    def public_key(self) -> bytes:
        """Return the public key in PEM; who may not read the private one reads its file."""
        if self._path.exists() and not os.access(self._path, os.R_OK):
            return (self._folder / PUBLIC_KEY_FILE).read_bytes()
        return (
            self._key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )

    def _key(self) -> ec.EllipticCurvePrivateKey:
        if not self._path.exists():
            self._make()
        require_private(self._path.stat().st_mode, str(self._path))
        try:
            key = load_pem_private_key(self._path.read_bytes(), password=None)
        except ValueError as error:
            raise self._mistrust(
                "a file that holds no private key",
                expected="an unencrypted PEM key on the curve P-256",
                remedy="Restore the key from its copy.",
            ) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
            raise self._mistrust(
                f"a {type(key).__name__}",
                expected="a private key on the curve P-256",
                remedy="Restore the key from its copy.",
            )
        return key

    def _make(self) -> None:
        """Write a fresh key that never stood readable or half-written under its name."""
        self._folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        temporary = self._folder / f".{PRIVATE_KEY_FILE}.{uuid.uuid4().hex}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
                file.flush()
                os.fsync(file.fileno())
            self._path.hardlink_to(temporary)
        except FileExistsError:
            return  # another process made the key first: that one counts
        finally:
            temporary.unlink(missing_ok=True)
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (self._folder / PUBLIC_KEY_FILE).write_bytes(public)

    def _mistrust(self, found: str, *, expected: str, remedy: str) -> SettingError:
        return SettingError(found, expected=expected, where=str(self._path), remedy=remedy)


def signature_holds(public_key: bytes, data: bytes, signature: bytes) -> bool:
    """Say whether a DER signature of the bytes is by the PEM key; no key is not a pass."""
    try:
        key = load_pem_public_key(public_key)
        if not isinstance(key, ec.EllipticCurvePublicKey):
            return False
        key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True
