"""An authority asked over HTTP, and the fake of it, under one contract."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from parcel_assets.adapters.timestamp_rfc3161 import Rfc3161Timestamper
from parcel_assets.core.timestamps import Timestamper
from parcel_assets_tests.contracts.timestamper_contract import TimestamperContract
from parcel_assets_tests.timestamp_authority import FakeTimestamper, listening, signer


@pytest.fixture
def roots() -> bytes:
    return signer().root_pem


class TestRfc3161(TimestamperContract):
    @pytest.fixture
    def timestamper(self, tmp_path: Path, roots: bytes) -> Iterator[Timestamper]:
        (tmp_path / "root.pem").write_bytes(roots)
        with listening() as authority:
            yield Rfc3161Timestamper(authority.url, tmp_path / "root.pem")


class TestFake(TimestamperContract):
    @pytest.fixture
    def timestamper(self) -> Timestamper:
        return FakeTimestamper(time.time)
