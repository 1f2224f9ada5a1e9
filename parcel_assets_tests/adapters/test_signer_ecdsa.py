"""The release key: made once, for its owner alone, and verified by openssl."""

import stat
import subprocess
from pathlib import Path

import pytest

from parcel_assets.adapters.signer_ecdsa import PRIVATE_KEY_FILE, EcdsaSigner, signature_holds
from parcel_assets.core.errors import SettingError


def test_the_key_is_made_on_first_use_and_read_by_its_owner_alone(tmp_path: Path) -> None:
    first, second = EcdsaSigner(tmp_path / "keys"), EcdsaSigner(tmp_path / "keys")
    assert not (tmp_path / "keys").exists()
    assert first.public_key() == second.public_key()
    mode = (tmp_path / "keys" / PRIVATE_KEY_FILE).stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    assert sorted(one.name for one in (tmp_path / "keys").iterdir()) == [
        "release_key.pem",
        PRIVATE_KEY_FILE,
    ]


def test_openssl_verifies_a_signature_and_refuses_other_bytes(tmp_path: Path) -> None:
    signer = EcdsaSigner(tmp_path)
    (tmp_path / "list").write_bytes(b"digests")
    (tmp_path / "list.sig").write_bytes(signer.sign(b"digests"))
    command = ["openssl", "dgst", "-sha256", "-verify", "release_key.pem"]
    command += ["-signature", "list.sig", "list"]
    assert subprocess.run(command, cwd=tmp_path, check=False, capture_output=True).returncode == 0
    (tmp_path / "list").write_bytes(b"other digests")
    assert subprocess.run(command, cwd=tmp_path, check=False, capture_output=True).returncode == 1


def test_a_signature_holds_for_its_bytes_and_key_only(tmp_path: Path) -> None:
    signer, other = EcdsaSigner(tmp_path / "a"), EcdsaSigner(tmp_path / "b")
    signature = signer.sign(b"digests")
    assert signature_holds(signer.public_key(), b"digests", signature)
    assert not signature_holds(signer.public_key(), b"others", signature)
    assert not signature_holds(other.public_key(), b"digests", signature)
    assert not signature_holds(b"no key", b"digests", signature)


def test_a_key_that_others_may_read_signs_nothing(tmp_path: Path) -> None:
    signer = EcdsaSigner(tmp_path)
    signer.public_key()
    (tmp_path / PRIVATE_KEY_FILE).chmod(0o644)
    with pytest.raises(SettingError, match="others may read"):
        signer.sign(b"digests")


def test_a_file_that_is_no_key_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / PRIVATE_KEY_FILE).write_text("not a key")
    (tmp_path / PRIVATE_KEY_FILE).chmod(0o600)
    with pytest.raises(SettingError, match="holds no private key"):
        EcdsaSigner(tmp_path).sign(b"digests")
