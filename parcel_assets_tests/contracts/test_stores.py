"""The store in files and the store in memory keep one contract."""

from pathlib import Path

import pytest

from parcel_assets.adapters.store_files import FileStore
from parcel_assets.core.ports import Store
from parcel_assets_tests.contracts.store_contract import StoreContract
from parcel_assets_tests.fakes import FakeStore


class TestFileStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return FileStore(tmp_path / "store")


class TestFakeStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return FakeStore(tmp_path / "store")


class TestFakeStoreFromABase(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        base = FakeStore(tmp_path / "base")
        base.put(b"earlier")
        return FakeStore(tmp_path / "store", base=base)
