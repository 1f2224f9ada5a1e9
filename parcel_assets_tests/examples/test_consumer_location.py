"""The consumer's location loads a packet by key, verified, and refuses one flipped byte."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pytest

from parcel_assets.core.ports import Ports
from parcel_assets.steps.release import build_packet
from parcel_assets_tests.defs.told import as_told, failure_of, new_instance
from parcel_assets_tests.release_story import REVISION, tell

LOCATION = Path(__file__).parents[2] / "examples" / "consumer_location.py"
ASSET = "belt_camera_settings"


@pytest.fixture(scope="module")
def consumer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("consumer_location", LOCATION)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def published(tmp_path: Path) -> Ports:
    ports = as_told(tell(tmp_path))
    build_packet(REVISION, ports)
    return ports


def consume(consumer: Any, ports: Ports, key: Path | None = None) -> dg.ExecuteInProcessResult:
    packets = consumer.VerifiedPackets(
        packets_folder=str(ports.packets), public_key_path=str(key or "")
    )
    with new_instance(ports.packets) as instance:
        return dg.materialize(
            [consumer.belt_camera_settings, consumer.release_packet],
            selection=[ASSET],
            instance=instance,
            partition_key=REVISION,
            resources={"packets": packets},
            raise_on_error=False,
        )


def test_a_sound_packet_is_loaded_with_its_digest(consumer: Any, published: Ports) -> None:
    result = consume(consumer, published)
    assert result.success
    (event,) = result.asset_materializations_for_node(ASSET)
    assert "packet_digest" in event.metadata
    assert "threshold" in event.metadata


def test_one_flipped_byte_is_refused(consumer: Any, published: Ports) -> None:
    path = published.packets / REVISION / "model" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))
    result = consume(consumer, published)
    assert not result.success
    assert "model.safetensors" in load_failure(result)


def test_another_release_key_is_refused(consumer: Any, published: Ports, tmp_path: Path) -> None:
    other = tell(tmp_path / "other")
    key = tmp_path / "release.pem"
    key.write_bytes(other.ports.signer.public_key())
    result = consume(consumer, published, key)
    assert not result.success
    assert "does not verify" in load_failure(result)


def test_a_packet_that_is_only_said_to_exist_is_refused(consumer: Any, tmp_path: Path) -> None:
    result = consume(consumer, as_told(tell(tmp_path)))
    assert not result.success


def load_failure(result: dg.ExecuteInProcessResult) -> str:
    """Return the words with which loading the input failed."""
    for event in result.all_events:
        if event.is_step_failure:
            data = event.step_failure_data
            return f"{data.user_failure_data} {data.error} {data.error and data.error.cause}"
    return failure_of(result, ASSET)
