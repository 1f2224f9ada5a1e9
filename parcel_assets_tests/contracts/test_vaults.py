"""The age vault, and what the fakes keep of it, under one contract."""

from pathlib import Path

import pytest

from parcel_assets.adapters.store_files import FileStore
from parcel_assets.adapters.vault_age import AgeVault
from parcel_assets.core.ports import Vault
from parcel_assets_tests.contracts.vault_contract import ReceiptContract, SealContract
from parcel_assets_tests.steps.desk import FakeVault
from parcel_assets_tests.steps.test_data import FakeVault as SealingVault


class TestAge(SealContract, ReceiptContract):
    @pytest.fixture
    def vault(self, tmp_path: Path) -> Vault:
        return AgeVault(tmp_path / "vault", tmp_path / "keys", tmp_path / "store")


class TestFakeOfTheEvaluation(ReceiptContract):
    @pytest.fixture
    def vault(self, tmp_path: Path) -> Vault:
        return FakeVault(FileStore(tmp_path / "store"))


class TestFakeOfTheSplit(SealContract):
    @pytest.fixture
    def vault(self) -> Vault:
        return SealingVault()  # type: ignore[return-value]  # it seals, and opens nothing
