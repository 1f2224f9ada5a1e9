"""Every sampler, the fake one too, keeps the contract."""

import pytest

from parcel_assets.adapters.sampler_optuna import OptunaSampler
from parcel_assets.core.ports import Sampler
from parcel_assets_tests.contracts.sampler_contract import SamplerContract
from parcel_assets_tests.fake_training import FakeSampler


class TestTpe(SamplerContract):
    @pytest.fixture
    def sampler(self) -> Sampler:
        return OptunaSampler("tpe")


class TestRandom(SamplerContract):
    @pytest.fixture
    def sampler(self) -> Sampler:
        return OptunaSampler("random")


class TestFake(SamplerContract):
    @pytest.fixture
    def sampler(self) -> Sampler:
        return FakeSampler()
