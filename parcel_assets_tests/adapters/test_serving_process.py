"""Serving is measured on the real weights in a process of its own, and ONNX says the same."""

import sys
from pathlib import Path

import numpy as np
import pytest

from parcel_assets.adapters.serving_process import ServingProcess
from parcel_assets.core.errors import SettingError
from parcel_assets.core.ports import TrainingTask
from parcel_assets.core.serving import serving_estimate
from parcel_assets_tests.core.plans import plan

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from parcel_assets.adapters.network_weights import build_network, save_network

    place = tmp_path_factory.mktemp("model") / "model.safetensors"
    small = plan()
    configuration = {"learning_rate": 0.002, "width": 8, "depth": 3, "image_size": 24}
    task = TrainingTask(configuration, 1, small.training, small.preprocess, {})
    save_network(place, build_network("cnn", configuration, 82), task)
    return place


def test_a_reading_tells_latency_throughput_memory_and_its_conditions(model: Path) -> None:
    reading = ServingProcess(requests=40, seconds_maximum=2.0).measure(model, 32)
    assert (
        0 < reading["model_only_p50_ms"] <= reading["latency_p50_ms"] <= reading["latency_p95_ms"]
    )
    assert reading["latency_p99_ms"] is None  # too few requests to know
    assert reading["model_bytes"] == model.stat().st_size
    assert reading["conditions"]["threads"] == 1
    assert reading["environment"]["packages"]["numpy"] == np.__version__
    assert "replicas" in serving_estimate(reading)


def test_onnx_gives_the_scores_of_torch_on_the_golden_photos(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is optional")
    pixels = np.random.default_rng(3).integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    exported = ServingProcess().export_onnx(model, pixels, tmp_path)
    assert not list(home.rglob("*onnxruntime*")), "ONNX Runtime keeps a record for its maker"
    assert sorted(exported["files"]) == ["golden_inputs.npy", "golden_outputs.npy", "model.onnx"]
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    golden = np.load(tmp_path / "golden_inputs.npy", allow_pickle=False)
    assert golden.shape == (16, 24, 24, 3)
    found = session.run(None, {"pixels": golden})[0]
    expected = np.load(tmp_path / "golden_outputs.npy", allow_pickle=False)
    assert np.abs(found - expected).max() <= 1e-4
    assert str(tmp_path).encode() not in (tmp_path / "model.onnx").read_bytes()


def test_a_file_that_is_no_model_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(SettingError, match="serving process, measure"):
        ServingProcess().measure(tmp_path / "model.safetensors", 32)


def test_the_adapter_itself_loads_no_torch() -> None:
    import subprocess

    code = (
        "import sys, parcel_assets.adapters.serving_process as _; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
