"""The holdout's names: the unique keys under which it is opened once, and its digest.

A shipment's key carries the archive's name, since shipment ids mean something only there. The key
of an image does not: the same pixels are spent wherever they turn up again. Opening and receipts
are left to the ledger and the vault; how a holdout is shared out over searches, to core.tranches.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from parcel_assets.core.codec import digest_value
from parcel_assets.core.private_key import OTHERS


def holdout_keys(archive: str, rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the sorted keys of holdout rows: one for each shipment and each distinct image."""
    keys = set()
    for row in rows:
        keys.add(f"shipment:{archive}/{row['shipment_id']}")
        keys.add(f"image:{row['pixel_digest']}")
    return tuple(sorted(keys))


def holdout_digest(keys: Sequence[str]) -> str:
    """Return the digest that names a holdout: of its keys, in sorted order."""
    return digest_value(sorted(keys))


def first_openers(
    keys: Iterable[str], recorded: Mapping[str, str], receipts: Iterable[Mapping[str, Any]]
) -> dict[str, str]:
    """Return key -> revision that opened it first, after ledger and receipts (the ledger wins).

    A ledger that was lost knows nothing; the receipts beside the sealed labels still do.
    """
    asked, openers = set(keys), dict(recorded)
    for receipt in sorted(receipts, key=lambda one: float(one.get("at_seconds", 0.0))):
        for key in asked.intersection(receipt["keys"]):
            openers.setdefault(key, str(receipt["revision"]))
    return openers


def spent_shipments(
    archive: str, rows: Iterable[Mapping[str, Any]], openers: Mapping[str, str]
) -> dict[str, str]:
    """Return shipment -> revision that opened it, or a photo of it under whatever name."""
    spent: dict[str, str] = {}
    for row in rows:
        for key in holdout_keys(archive, [row]):
            if key in openers:
                spent.setdefault(str(row["shipment_id"]), openers[key])
    return dict(sorted(spent.items()))


def spent_words(spent: Mapping[str, str], shown: int = 5) -> str:
    """Return spent shipments in words: how many, the first few, and who opened them."""
    names = ", ".join(list(spent)[:shown]) + (", …" if len(spent) > shown else "")
    return f"{len(spent)} shipments ({names}), opened by {', '.join(sorted(set(spent.values())))}"


@dataclass(frozen=True, slots=True)
class Claim:
    """The evidence level that a look may claim, and in words why it is that one."""

    level: Literal["L1", "L3"]
    reason: str


def claimable_level(
    *,
    to_key_holder: bool,
    key_mode: int,
    key_owner: int,
    search_owners: Iterable[int],
    without_l3: bool = False,
) -> Claim:
    """Return what a look may claim, from who owns which file.

    L3 needs labels sealed to a key from elsewhere, and a key file that only its owner can read, who
    is none of the users that sealed and searched; an administrator (user 0) can read every file.
    `without_l3`: whoever opens said that less is enough, such as for a key that was shared.
    """
    users = set(search_owners)
    faults = {
        "the label key was made where the search ran": not to_key_holder,
        f"others than its owner can read the label key (mode {key_mode & 0o777:o})": bool(
            key_mode & OTHERS
        ),
        "the label key belongs to a user who sealed or searched": key_owner in users,
        "an administrator searched, who can read every file": 0 in users,
        "it was opened with --without-l3": without_l3,
    }
    fault = next((words for words, found in faults.items() if found), None)
    if fault is not None:
        return Claim("L1", f"not L3, since {fault}")
    return Claim("L3", "only its key-holder, who neither sealed nor searched, can read the key")
