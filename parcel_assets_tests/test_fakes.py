"""The in-memory ledger keeps the contract that the real one keeps."""

import pytest

from parcel_assets_tests.contracts.ledger_contract import LedgerContract
from parcel_assets_tests.fakes import FakeLedger


class TestFakeLedger(LedgerContract):
    @pytest.fixture
    def ledger(self) -> FakeLedger:
        return FakeLedger()
