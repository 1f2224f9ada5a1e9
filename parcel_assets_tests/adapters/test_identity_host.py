"""A user's network is looked for on the host, by its source alone, before a search opens."""

from pathlib import Path

import pytest

from parcel_assets.adapters.identity_host import measure_identity
from parcel_assets.core.errors import SettingError
from parcel_assets_tests.core import plans


def measure(network: str) -> dict[str, str]:
    document = plans.plan().document()
    document["training"]["network"] = network
    return measure_identity(document, {})


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
    before = measure(f"belt_networks.{name}")["code"]
    with (package / "small.py").open("a") as source:
        source.write("# another version\n")
    assert measure(f"belt_networks.{name}")["code"] != before


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
