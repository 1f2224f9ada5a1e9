"""Vault with age encryption: labels sealed to a key-holder, one receipt beside each sealed file.

Decides keys and who may look: the private key is read by the process `parcel_assets.vault` alone.
The files are described in `vault_age_files`. When the holdout may open is left to the evaluation
step; what it says, to `core.final`.
"""

import contextlib
import fcntl
import hmac
import os
import re
import secrets
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyrage  # type: ignore[import-untyped]  # ships no types

from parcel_assets.adapters.vault_age_files import (
    LABELS_FILE,
    MARK_FILE,
    PRIVATE_KEY_FILE,
    PUBLIC_KEY_FILE,
    RECEIPT_FILE,
    SEAL_FILE,
    again_folder,
    create_file,
    evaluator_digest,
    read_record,
)
from parcel_assets.adapters.vault_age_process import ask_vault
from parcel_assets.core.codec import canonical_json, digest_bytes, digest_value, keyed_digest
from parcel_assets.core.errors import HoldoutError, SettingError
from parcel_assets.core.ports import Sealed
from parcel_assets.core.private_key import require_private
from parcel_assets.core.snapshot import Label, label_rows

TRAINER = "parcel_assets.adapters.trainer_lightning:LightningTrainer"
HOLD_KEY_HOLDER = "hold:key-holder"
_DIGEST = re.compile(r"[0-9a-f]{64}")


class AgeVault:
    """A vault below one folder; keys are made on first use in a folder of their own.

    `trainer` names the class, as `module:Class`, that scores photos in the subprocess. With a
    `recipient`, the public key of a key-holder elsewhere, no key pair is made here and labels are
    sealed to that key; to look, the key-holder hands in the path of the private one as `key`. A
    look that could not claim L3 is refused then, unless `without_l3` says that less is enough.
    """

    def __init__(
        self,
        folder: Path,
        key_folder: Path,
        store_root: Path,
        *,
        trainer: str = TRAINER,
        recipient: str | None = None,
        key: Path | None = None,
        without_l3: bool = False,
    ) -> None:
        self._folder = folder
        self._keys = key_folder
        self._store_root = store_root
        self._trainer = trainer
        self._recipient = recipient
        self._key = key
        self._without_l3 = without_l3

    @property
    def evaluator_digest(self) -> str:
        """The digest of the code that evaluates: the same look needs the same evaluator."""
        return evaluator_digest(self._trainer)

    def seal(self, holdout_digest: str, labels: Sequence[Label]) -> Sealed:
        """Encrypt labels and their fresh salt; a holdout that is sealed already keeps its seal.

        Raises HoldoutError where the same holdout was sealed with other photos or labels.
        """
        rows = label_rows(labels)
        photos = digest_value([row[0] for row in rows])
        target = self._place(holdout_digest)
        if not target.exists():
            mark = keyed_digest(self._mark_key(), [holdout_digest, rows])
            self._seal_new(target, holdout_digest, rows, {"photos": photos, "mark": mark})
        seal = read_record(target / SEAL_FILE)
        if seal["photos"] != photos or not self._same_mark(seal, holdout_digest, rows):
            raise HoldoutError(
                "other photos or labels than were sealed",
                expected="the labels of the first seal",
                where=f"vault, holdout {holdout_digest[:8]}",
                remedy="Sealed labels do not change. Restore the label table, or plan a new search "
                "revision whose split has a holdout of its own.",
            )
        return Sealed(str(seal["commitment"]), str(seal["ciphertext_digest"]))

    def receipts_over(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """Return the receipts beside any sealed file that share one of the keys."""
        asked = set(keys)
        places = [
            *self._folder.glob(f"*/{RECEIPT_FILE}"),
            *self._folder.glob(f"*/*/{RECEIPT_FILE}"),
        ]
        receipts = [read_record(path) for path in sorted(places)]
        return [one for one in receipts if asked.intersection(one["keys"])]

    def leave_receipt(self, holdout_digest: str, receipt: Mapping[str, Any]) -> None:
        """Create the receipt beside the sealed file, whole and exclusively.

        Raises HoldoutError where it exists, or another receipt shares a key with it, unless this
        one names in `reuses` the revision that left the other: its plan allows a spent holdout.
        """
        target = self._place(holdout_digest)
        if not (target / LABELS_FILE).exists():
            raise self._not_sealed(holdout_digest)
        with self._locked():
            others = self.receipts_over(list(receipt["keys"]))
            strangers = [one for one in others if one["revision"] not in receipt.get("reuses", ())]
            if strangers:
                raise _opened(strangers[0], holdout_digest)
            if (target / RECEIPT_FILE).exists():
                target = again_folder(target, str(receipt["revision"]))
                target.mkdir(exist_ok=True)
            try:
                create_file(target / RECEIPT_FILE, canonical_json(dict(receipt)))
            except FileExistsError as error:
                raise _opened(read_record(target / RECEIPT_FILE), holdout_digest) from error

    def evaluate(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Decrypt, check and judge in a subprocess of its own, once a receipt allows it.

        `request` is a core.final.FinalRequest document. Returns `predictions_digest`, `outcome`,
        `sentence`, `result` and `decryptions`; raises HoldoutError with its reason.
        """
        order = {"request": dict(request), "trainer": self._trainer}
        answer = self._ask(str(request["holdout_digest"]), order)
        if "outcome" not in answer:
            raise HoldoutError(
                "an answer without an outcome",
                expected="a result",
                where=f"vault, holdout {str(request['holdout_digest'])[:8]}",
                remedy="Materialize final_evaluation again: the same opening is resumed.",
            )
        return answer

    def disclose(self, holdout_digest: str, revision: str) -> dict[str, Any]:
        """Return `salt`, `labels` and `request` of a holdout whose one result is kept.

        Raises HoldoutError where it is not: nothing is disclosed before the look.
        """
        return self._ask(holdout_digest, {"disclose": revision})

    def _ask(self, holdout_digest: str, order: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the vault's own process answers; raises HoldoutError with its reason."""
        self._require_private_key()
        order = {
            **order,
            "folder": str(self._place(holdout_digest)),
            "key": str(self._key or self._keys / PRIVATE_KEY_FILE),
            "without_l3": self._without_l3,
            "store": str(self._store_root),
        }
        return ask_vault(order, f"vault, holdout {holdout_digest[:8]}")

    def require_key(self, request: Mapping[str, Any]) -> None:
        """Raise HoldoutError, a hold, where the key is with a key-holder who has to hand it in.

        Raises it too where it is another key, or the look could not claim L3 and nobody said that
        less is enough; SettingError where others than its owner may read the one that is here.
        """
        holdout_digest = str(request["holdout_digest"])
        seal = self._place(holdout_digest) / SEAL_FILE
        if not seal.exists():
            raise self._not_sealed(holdout_digest)
        to_key_holder = self._recipient is not None or read_record(seal).get("to_key_holder")
        if to_key_holder and self._key is None:
            raise HoldoutError(
                "labels sealed to a key-holder, whose key is not here",
                expected="the key-holder, who opens the holdout",
                where="vault",
                remedy=f"The key-holder runs `parcel-assets holdout open {request['revision']} "
                "--key PATH`, as a user of their own. Nothing was opened.",
                hold=HOLD_KEY_HOLDER,
            )
        if self._key is None:
            self._require_private_key()
            return
        claim = self._ask(holdout_digest, {"claim": dict(request)})
        if claim["level"] != "L3" and not self._without_l3:
            raise HoldoutError(
                f"an opening that cannot claim L3: {claim['reason']}",
                expected="labels sealed to a key-holder, and at work that key-holder: a user who "
                "neither sealed nor searched, with a key file of mode 600",
                where=str(self._key),
                remedy="Let the key-holder run this, as a user of their own. If less than L3 is "
                "enough, once and for good, add --without-l3. Nothing was opened.",
            )

    def _require_private_key(self) -> None:
        path = self._key or self._keys / PRIVATE_KEY_FILE
        if not os.access(path, os.R_OK):
            if self._key is None:  # made on first use; the vault's process tells of a lost one
                return
            raise HoldoutError(
                "no label key that this user may read",
                expected="the key-holder's private key, and the key-holder at work",
                where=str(path),
                remedy="The key-holder runs this command, as a user of their own. The labels stay "
                "sealed.",
            )
        if not self._without_l3:
            otherwise = "Else open with --without-l3: the packet then claims no L3, and says why."
            require_private(path.stat().st_mode, str(path), otherwise if self._key else "")

    def _seal_new(
        self, target: Path, holdout_digest: str, rows: list[list[Any]], facts: Mapping[str, str]
    ) -> None:
        """Make the sealed folder aside and rename it into place: whole, or not there."""
        salt = secrets.token_bytes(32)
        public_key = self._recipient or self._public_key()
        recipient = _recipient(public_key)
        content = {"holdout_digest": holdout_digest, "salt": salt.hex(), "labels": rows}
        ciphertext = pyrage.encrypt(canonical_json(content), [recipient])
        seal = {
            "commitment": keyed_digest(salt, rows),
            "ciphertext_digest": digest_bytes(ciphertext),
            "to_key_holder": self._recipient is not None,
            "recipient": public_key,
            **facts,
        }
        prepared = self._folder / f".{uuid.uuid4().hex}"
        prepared.mkdir(parents=True)
        try:
            create_file(prepared / LABELS_FILE, ciphertext)
            create_file(prepared / SEAL_FILE, canonical_json(seal))
            # a rename onto a folder that holds files fails: of two custodians one seals
            with contextlib.suppress(OSError):
                prepared.rename(target)
            if not (target / SEAL_FILE).exists():
                raise SettingError(
                    "a folder that cannot be written",
                    expected=f"a sealed folder at {target}",
                    where="vault",
                    remedy="Check the vault folder's rights and space, then split again.",
                )
        finally:
            shutil.rmtree(prepared, ignore_errors=True)

    def _same_mark(self, seal: Mapping[str, Any], holdout_digest: str, rows: list[Any]) -> bool:
        """Say whether labels are those of the seal; with the keys taken away nobody can tell."""
        if not (self._keys / MARK_FILE).exists():
            return True
        mark = keyed_digest(self._mark_key(), [holdout_digest, rows])
        return hmac.compare_digest(str(seal["mark"]), mark)

    def _mark_key(self) -> bytes:
        """Return the custodian's key for marks, made on first use."""
        path = self._keys / MARK_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            with contextlib.suppress(FileExistsError):
                create_file(path, secrets.token_bytes(32), mode=0o600)
        return path.read_bytes()

    def _public_key(self) -> str:
        """Return the key-holder's public key, making the pair on first use."""
        private = self._keys / PRIVATE_KEY_FILE
        public = self._keys / PUBLIC_KEY_FILE
        if not public.exists():
            self._keys.mkdir(parents=True, exist_ok=True)
            if not private.exists():
                with contextlib.suppress(FileExistsError):
                    create_file(
                        private, str(pyrage.x25519.Identity.generate()).encode(), mode=0o600
                    )
            identity = pyrage.x25519.Identity.from_str(private.read_text().strip())
            with contextlib.suppress(FileExistsError):
                create_file(public, str(identity.to_public()).encode(), mode=0o644)
        return public.read_text().strip()

    def _place(self, holdout_digest: str) -> Path:
        if not _DIGEST.fullmatch(holdout_digest):
            raise HoldoutError(
                repr(holdout_digest),
                expected="a holdout digest, 64 hex characters",
                where="vault",
                remedy="Pass the digest that the split's evidence names.",
            )
        return self._folder / holdout_digest

    def _not_sealed(self, holdout_digest: str) -> HoldoutError:
        return HoldoutError(
            "no sealed labels",
            expected=f"{LABELS_FILE} of holdout {holdout_digest[:8]}",
            where="vault",
            remedy="Restore the vault folder, or split again under a new search revision.",
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from leaving receipts; the lock goes with the process."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / ".lock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _recipient(public_key: str) -> Any:
    try:
        return pyrage.x25519.Recipient.from_str(public_key)
    except pyrage.RecipientError as error:
        raise SettingError(
            f"{public_key[:20]!r}, which is no public key ({error})",
            expected="an age public key, age1…",
            where="PARCEL_ASSETS_HOLDOUT_RECIPIENT",
            remedy="Ask the key-holder for the line that `parcel-assets holdout key --out PATH` "
            "printed.",
        ) from error


def _opened(receipt: Mapping[str, Any], holdout_digest: str) -> HoldoutError:
    return HoldoutError(
        f"the receipt of an opening by {receipt['revision']}",
        expected="a holdout that nobody opened",
        where=f"vault, holdout {holdout_digest[:8]}",
        remedy="A holdout opens once. Plan a new search revision with an unspent holdout.",
        opened_by=receipt["revision"],
    )
