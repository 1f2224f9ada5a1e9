"""What a host says of itself: code, packages, image; a user's network by its source alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parcel_assets.adapters.identity_host import IMAGE_VARIABLE, measure_identity
from parcel_assets.core.errors import SettingError
from parcel_assets.core.identity import FIELDS, field_of
from parcel_assets.core.ports import TrainingData
from parcel_assets.core.split import part_data
from parcel_assets_tests.core import plans


def measure(network: str = "cnn") -> dict[str, str]:
    plan = plans.plan()
    training = plan.training.model_copy(update={"network": network})
    return measure_identity(plan.model_copy(update={"training": training}), small_data())


def small_data() -> TrainingData:
    parts = []
    for part in ("train", "validation"):
        rows: list[dict[str, Any]] = [
            {
                "photo_id": f"{part}-{number}",
                "shipment_id": f"{part}-{number // 2}",
                "attributes": {},
                "damaged": number < 2,
                "damage_type": None,
            }
            for number in range(4)
        ]
        parts.append(part_data(rows, np.zeros((4, 16, 16, 3), dtype=np.uint8)))
    return TrainingData(*parts)


def of_field(identity: dict[str, str], field: str) -> dict[str, str]:
    return {name: text for name, text in identity.items() if name.startswith(f"{field}.")}


def test_every_field_is_measured() -> None:
    assert {field_of(name) for name in measure()} == set(FIELDS)


def test_what_a_worker_runs_is_measured_file_by_file() -> None:
    code = of_field(measure(), "code")
    for name in ("worker.py", "wiring.py", "steps/worker.py", "adapters/trainer_lightning.py"):
        assert f"code.{name}" in code
    assert not any("ledger_sql" in name for name in code)


def test_packages_are_those_that_a_worker_imports_and_all_that_these_require() -> None:
    packages = of_field(measure(), "packages")
    assert packages["packages.python"]
    assert packages["packages.torch"]
    assert packages["packages.torchmetrics"], "lightning requires it"
    assert "packages.dagster" not in packages
    assert "packages.pytest" not in packages


def test_the_packages_of_a_users_network_count_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "belt_network.py").write_text("import optuna\nclass Small: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "packages.optuna" not in measure()
    assert "packages.optuna" in measure("belt_network:Small")


def test_the_image_is_what_the_container_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(IMAGE_VARIABLE, raising=False)
    assert measure()["image"] == "none named"
    monkeypatch.setenv(IMAGE_VARIABLE, "sha256:one")
    assert measure()["image"] == "sha256:one"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a package whose import would fail: measuring must not import it."""
    folder = tmp_path / "belt_networks"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (folder / "small.py").write_text("from elsewhere import Far as Near\nclass Small: ...\n")
    (folder / "torn.py").write_text("class Small(\n")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


@pytest.mark.parametrize("name", ["small:Small", "small:Near"])
def test_a_network_that_is_there_is_measured_without_importing_it(package: Path, name: str) -> None:
    before = measure(f"belt_networks.{name}")
    with (package / "small.py").open("a") as source:
        source.write("# another version\n")
    after = measure(f"belt_networks.{name}")
    assert {one for one in after if after[one] != before[one]} == {"code.network/small.py"}


@pytest.mark.parametrize(
    ("network", "words"),
    [
        ("nowhere.at_all:Small", "no module nowhere.at_all"),
        ("belt_networks.large:Small", "no module belt_networks.large"),
        ("belt_networks.small:Large", "no Large in"),
        ("belt_networks.torn:Small", "not Python"),
    ],
)
@pytest.mark.usefixtures("package")
def test_a_network_that_is_not_there_is_refused(network: str, words: str) -> None:
    with pytest.raises(SettingError, match=words) as refused:
        measure(network)
    assert "No slot was spent" in refused.value.remedy
