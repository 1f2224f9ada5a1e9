"""The Lightning trainer and the fake one that stands in for it in searches keep one contract."""

import pytest

from parcel_assets.adapters.trainer_lightning import LightningTrainer
from parcel_assets.core.ports import Trainer
from parcel_assets_tests.contracts.trainer_contract import TrainerContract
from parcel_assets_tests.fake_training import FakeTrainer


class TestLightning(TrainerContract):
    @pytest.fixture
    def trainer(self) -> Trainer:
        return LightningTrainer()


class TestFake(TrainerContract):
    @pytest.fixture
    def trainer(self) -> Trainer:
        return FakeTrainer()
