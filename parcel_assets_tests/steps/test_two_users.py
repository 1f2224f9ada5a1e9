"""L3 between two users of one machine: who searches cannot read the key, and the packet says so.

The users are numbers that no account has: to the system they are users like any, and nothing is
left of them.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyrage  # type: ignore[import-untyped]  # ships no types
import pytest

SEARCH, KEY_HOLDER, GROUP = 61_001, 61_002, 61_003
REPOSITORY = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def run_as(user: int, *words: str, cwd: Path = Path("/")) -> "subprocess.CompletedProcess[str]":
    """Run this interpreter as a user, who is in the common group and in no other."""
    return subprocess.run(
        [sys.executable, *words],
        user=user, group=GROUP, extra_groups=[], umask=0o007, cwd=cwd,
        env={
            "PATH": os.environ["PATH"], "HOME": "/nowhere", "MPLCONFIGDIR": "/nowhere",
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, sys.path)]),
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def other_user_missing() -> str | None:
    """Return why no test can run as another user here, or None."""
    if os.geteuid() != 0:
        return "only root can work as two other users"
    try:
        told = run_as(SEARCH, "-c", "import parcel_assets_tests")
    except (OSError, subprocess.SubprocessError) as error:
        return f"another user cannot run {sys.executable} ({error})"
    return None if told.returncode == 0 else f"another user cannot import us: {told.stderr[-200:]}"


@dataclass
class Shared:
    """A data folder that two users share, and the key-holder's own one."""

    data: Path
    key: Path
    recipient: str

    def as_user(self, user: int, what: str, *further: str) -> Any:
        words = ["-m", "parcel_assets_tests.steps.two_users", what, str(self.data), self.recipient]
        told = run_as(user, *words, *further)
        assert told.returncode == 0, told.stderr[-2000:]
        return json.loads(told.stdout)

    def open_as(self, user: int, *further: str) -> Any:
        return self.as_user(user, "open", str(self.key), *further)

    @property
    def receipts(self) -> list[Path]:
        return list((self.data / "vault").glob("*/opened.json"))


@pytest.fixture
def shared() -> Iterator[Shared]:
    """Return a search, sealed to the key-holder and done up to the slice report by its user."""
    reason = other_user_missing()
    if reason is not None:
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="parcel-assets-users-"))
    try:
        folder.chmod(0o711)
        data, own = folder / "data", folder / "key-holder"
        for path, owner, mode in ((data, SEARCH, 0o2770), (own, KEY_HOLDER, 0o700)):
            path.mkdir()
            os.chown(path, owner, GROUP)
            path.chmod(mode)
        identity = pyrage.x25519.Identity.generate()
        key = own / "holdout.key"
        key.touch(0o600)
        key.write_text(str(identity))
        os.chown(key, KEY_HOLDER, GROUP)
        one = Shared(data, key, str(identity.to_public()))
        assert one.as_user(SEARCH, "search") == "searched"
        yield one
    finally:
        shutil.rmtree(folder)


def test_only_the_key_holder_opens_and_once_and_the_look_claims_l3(shared: Shared) -> None:
    read = run_as(SEARCH, "-c", f"open({str(shared.key)!r}).read()")
    assert "PermissionError" in read.stderr
    assert shared.as_user(SEARCH, "open")["hold"] == "hold:key-holder"
    refused = shared.open_as(SEARCH)
    assert refused["found"] == "no label key that this user may read"
    assert not shared.receipts
    final = shared.open_as(KEY_HOLDER)
    assert (final["evidence_level"], final["outcome"]) == ("L3", "PASS")
    assert "only its key-holder" in final["evidence_level_reason"]
    # asked again, by either: the one result, and no second look
    assert shared.open_as(KEY_HOLDER) == final
    assert shared.as_user(SEARCH, "open") == final
    (notes,) = (shared.data / "vault").glob("*/decryptions.log")
    assert len(notes.read_text().splitlines()) == 1


def test_a_key_that_the_group_can_read_is_refused_and_opens_for_l1_only(shared: Shared) -> None:
    shared.key.parent.chmod(0o750)
    shared.key.chmod(0o640)
    assert "others may read (mode 640)" in shared.open_as(KEY_HOLDER)["found"]
    assert not shared.receipts
    final = shared.open_as(KEY_HOLDER, "--without-l3")
    assert final["evidence_level"] == "L1"
    assert final["evidence_level_reason"].startswith("not L3, since others than")


def test_a_key_that_belongs_to_the_search_opens_for_l1_and_only_when_told_to(
    shared: Shared,
) -> None:
    shared.key.parent.chmod(0o755)
    os.chown(shared.key, SEARCH, GROUP)
    refused = shared.open_as(SEARCH)
    assert "cannot claim L3: not L3, since the label key belongs" in refused["found"]
    assert "--without-l3" in refused["remedy"]
    assert not shared.receipts
    final = shared.open_as(SEARCH, "--without-l3")
    assert final["evidence_level"] == "L1"
    assert "belongs to a user who sealed or searched" in final["evidence_level_reason"]


def test_the_release_key_s_public_half_is_read_by_who_may_not_read_the_private_one(
    shared: Shared,
) -> None:
    said = "from parcel_assets.adapters.signer_ecdsa import EcdsaSigner; from pathlib import Path; "
    said += f"print(EcdsaSigner(Path({str(shared.data / 'keys')!r})).public_key())"
    own, other = run_as(SEARCH, "-c", said), run_as(KEY_HOLDER, "-c", said)
    assert "BEGIN PUBLIC KEY" in own.stdout
    assert other.stdout == own.stdout, other.stderr
    assert (
        "PermissionError"
        in run_as(KEY_HOLDER, "-c", said.replace("public_key()", "sign(b'')")).stderr
    )


def test_another_user_s_file_that_cannot_be_read_quarantines_nothing(shared: Shared) -> None:
    (prefix, *_) = (path for path in shared.data.glob("store/attempts/**/owner.json"))
    locked = prefix.with_name("checkpoint-1.safetensors")
    locked.touch(0o600)
    os.chown(locked, SEARCH, GROUP)
    before = (shared.data / "ledger.sqlite").read_bytes()
    refused = shared.open_as(KEY_HOLDER)
    assert refused["error"] == "StorageError"
    assert "Nothing was quarantined" in refused["remedy"]
    assert not shared.receipts
    assert len(before) == len((shared.data / "ledger.sqlite").read_bytes())
    locked.unlink()
    assert shared.open_as(KEY_HOLDER)["evidence_level"] == "L3"
