"""The file registry: versions count up, never change, and one packet has one version."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from parcel_assets.adapters.registry_file import FileRegistry
from parcel_assets.core.errors import RegistryError


def register(registry: FileRegistry, digest: str) -> tuple[str, int]:
    return registry.register("parcels", Path("packets/rev"), {"packet_digest": digest})


def test_versions_count_up_and_the_same_packet_keeps_its_own(tmp_path: Path) -> None:
    registry = FileRegistry(tmp_path)
    assert register(registry, "a") == ("parcels/version-000001.json", 1)
    assert register(registry, "b") == ("parcels/version-000002.json", 2)
    assert register(registry, "a") == ("parcels/version-000001.json", 1)
    versions = sorted((tmp_path / "parcels").iterdir())
    assert [json.loads(one.read_bytes())["packet"] for one in versions] == ["rev", "rev"]
    assert not any(one.stat().st_mode & 0o222 for one in versions)


def test_racing_writers_share_no_version(tmp_path: Path) -> None:
    digests = [f"digest-{number % 5}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda one: register(FileRegistry(tmp_path), one), digests))
    assert len(set(found)) == len([*(tmp_path / "parcels").iterdir()]) == 5


@pytest.mark.parametrize("name", ["../up", "Parcels", "", "a/b"])
def test_a_name_that_could_leave_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RegistryError):
        FileRegistry(tmp_path).register(name, Path("p"), {"packet_digest": "a"})


def test_facts_without_a_packet_digest_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="no packet digest"):
        FileRegistry(tmp_path).register("parcels", Path("p"), {})


def test_an_edited_entry_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "parcels").mkdir()
    (tmp_path / "parcels" / "version-000001.json").write_text("{}")
    with pytest.raises(RegistryError, match="which is no registry entry"):
        register(FileRegistry(tmp_path), "a")
