"""What every vault must do short of opening; a test module offers a `vault` with nothing in it.

The fakes hold only the part that their tests use: seals, or receipts.
"""

import pytest

from parcel_assets.core.errors import HoldoutError
from parcel_assets.core.ports import Vault
from parcel_assets.core.snapshot import Label

HOLDOUT, OTHER = "ab" * 32, "cd" * 32


def labels(damaged: int = 3) -> list[Label]:
    return [
        Label(photo_id=f"p{number}", damaged=number < damaged, damage_type="dent")
        for number in range(6)
    ]


class SealContract:
    """What sealing must be; a subclass defines a fixture `vault`."""

    def test_a_seal_is_made_once_and_its_word_repeated(self, vault: Vault) -> None:
        first = vault.seal(HOLDOUT, labels())
        assert vault.seal(HOLDOUT, labels()[::-1]) == first

    def test_other_labels_under_the_same_seal_are_refused(self, vault: Vault) -> None:
        first = vault.seal(HOLDOUT, labels())
        with pytest.raises(HoldoutError):
            vault.seal(HOLDOUT, labels(2))
        assert vault.seal(HOLDOUT, labels()) == first

    def test_nothing_is_opened_by_sealing(self, vault: Vault) -> None:
        vault.seal(HOLDOUT, labels())
        assert vault.receipts_over(["k1"]) == []


class ReceiptContract:
    """What receipts must be; a subclass defines a fixture `vault`."""

    def test_a_receipt_is_found_by_any_of_its_keys(self, vault: Vault) -> None:
        vault.seal(HOLDOUT, labels())
        receipt = {"revision": "spring", "keys": ["k1", "k2"]}
        vault.leave_receipt(HOLDOUT, receipt)
        assert vault.receipts_over(["k2", "k9"]) == [receipt]
        assert vault.receipts_over(["k9"]) == []
        assert vault.receipts_over([]) == []

    def test_a_second_receipt_is_refused(self, vault: Vault) -> None:
        vault.seal(HOLDOUT, labels())
        receipt = {"revision": "spring", "keys": ["k1"]}
        vault.leave_receipt(HOLDOUT, receipt)
        with pytest.raises(HoldoutError):
            vault.leave_receipt(HOLDOUT, receipt | {"revision": "autumn"})
        assert vault.receipts_over(["k1"]) == [receipt]

    def test_one_shared_shipment_refuses_another_holdout_s_receipt(self, vault: Vault) -> None:
        for holdout in (HOLDOUT, OTHER):
            vault.seal(holdout, labels())
        vault.leave_receipt(HOLDOUT, {"revision": "spring", "keys": ["k1", "k2"]})
        with pytest.raises(HoldoutError):
            vault.leave_receipt(OTHER, {"revision": "autumn", "keys": ["k2", "k3"]})
        assert vault.receipts_over(["k3"]) == []
