"""The serving bench's own process: `python -m parcel_assets.serving ORDER` measures or exports.

A fresh process, one thread, the released weights: what is read here is what one replica would cost.
Prints one JSON line. It is a process entry like `worker` and `vault`, and Dagster is never loaded.
"""

import importlib.metadata
import io
import json
import os
import platform
import resource
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from parcel_assets.adapters.network_weights import load_network
from parcel_assets.adapters.trainer_batches import Normalisation, resized, side_of
from parcel_assets.core.ports import Pixels, Scores

WARM_UP_REQUESTS = 50
WARM_UP_SECONDS = 1.0
REQUESTS_FOR_P99 = 300
BATCH_PHOTOS = 16
BATCH_REPEATS = 20
PHOTO_SIZE_PIXELS = (640, 480)  # of the drawn JPEG that a request brings
NOISY = 0.10  # medians of thirds that differ by more are a noisy reading
OPSET = 17
PARITY = 1e-4  # largest difference of a score between torch and ONNX


class ServedModel:
    """The released weights, ready for requests."""

    def __init__(self, model: Path) -> None:
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)
        self.network, configuration, self.preprocess = load_network(model)
        self.side_pixels = side_of(configuration, self.preprocess)
        self._normalisation = Normalisation(self.preprocess, self.side_pixels)

    def score(self, pixels: Pixels) -> Scores:
        """Return the damage score of each photo (photos, side, side, 3) at the plan's side."""
        if pixels.shape[1] != self.side_pixels:
            pixels = resized(pixels, self.side_pixels)
        with torch.inference_mode():
            logits = self.network(self._normalisation.images(pixels))
            scores: Scores = torch.sigmoid(logits.float()).numpy()
        return scores

    def score_file(self, encoded: bytes) -> float:
        """Return the score of one encoded photo: decode, shrink to the plan's side, score."""
        with Image.open(io.BytesIO(encoded), formats=["JPEG"]) as image:
            side = self.preprocess.image_size_pixels
            small = image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
        return float(self.score(np.array(small)[None])[0])


def measure(order: Mapping[str, Any]) -> dict[str, Any]:
    """Return latency, throughput, memory and size of one replica, with the conditions."""
    path, side = Path(order["model"]), int(order["side_pixels"])
    load_average = os.getloadavg()[0]
    started = time.perf_counter()
    served = ServedModel(path)
    load_seconds = time.perf_counter() - started
    encoded, pixels = _drawn_photo(), _drawn_pixels(side)
    whole = _latencies(lambda: served.score_file(encoded), order)
    alone = _latencies(lambda: served.score(pixels[:1].copy()), order)
    batch_seconds = _latencies(
        lambda: served.score(pixels.copy()), {**order, "requests": BATCH_REPEATS}
    )
    thirds = [float(np.median(third)) for third in np.array_split(whole, 3)]
    return {
        "requests": len(whole),
        "requests_per_second": round(1 / float(whole.mean()), 2),
        "latency_p50_ms": _milliseconds(whole, 50),
        "latency_p95_ms": _milliseconds(whole, 95),
        "latency_p99_ms": _milliseconds(whole, 99) if len(whole) >= REQUESTS_FOR_P99 else None,
        "model_only_p50_ms": _milliseconds(alone, 50),
        "model_only_p95_ms": _milliseconds(alone, 95),
        "batch_photos": BATCH_PHOTOS,
        "batch_photos_per_second": round(BATCH_PHOTOS / float(np.median(batch_seconds)), 1),
        "noisy": max(thirds) > (1 + NOISY) * min(thirds),
        "peak_memory_bytes": _peak_memory_bytes(),
        "model_bytes": path.stat().st_size,
        "load_seconds": round(load_seconds, 3),
        "conditions": {
            "request": f"one {PHOTO_SIZE_PIXELS[0]} by {PHOTO_SIZE_PIXELS[1]} JPEG, decoded, "
            f"shrunk to {side} pixels and scored; one request at a time, no network",
            "threads": torch.get_num_threads(),
            "processor": _processor(),
            "processors": os.cpu_count(),
            "load_average_at_start": round(load_average, 2),
            "torch": torch.__version__,
            "pillow": importlib.metadata.version("pillow"),
        },
        "environment": _environment(),
    }


def export(order: Mapping[str, Any]) -> dict[str, Any]:
    """Write model.onnx, golden_inputs.npy and golden_outputs.npy; say in words where it cannot.

    The graph takes 8-bit pixels at the network's own side and gives scores; it is kept only if ONNX
    Runtime agrees with torch on the golden photos.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # it reports to its maker otherwise
    try:
        # optional: a packet without ONNX is a packet
        import onnxruntime  # type: ignore[import-untyped]  # noqa: PLC0415  (ships no types)
        from onnx import checker  # noqa: PLC0415
    except ImportError as error:
        return {"files": [], "sentence": f"No ONNX file: {error.name} is not installed here."}
    served, folder = ServedModel(Path(order["model"])), Path(order["folder"])
    pixels = np.load(order["pixels"], allow_pickle=False)
    if pixels.shape[1] != served.side_pixels:
        pixels = resized(pixels, served.side_pixels)
    expected, place = served.score(pixels.copy()), folder / "model.onnx"
    with warnings.catch_warnings():
        # the newer exporter needs a package that the product does not; this one serves such nets
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            torch.onnx.export(
                _Graph(served).eval(),
                (torch.from_numpy(pixels[:2].copy()),),
                str(place),
                dynamo=False,
                opset_version=OPSET,
                input_names=["pixels"],
                output_names=["score"],
                dynamic_axes={"pixels": {0: "photos"}, "score": {0: "photos"}},
            )
        except (RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
            place.unlink(missing_ok=True)
            first = str(error).strip().splitlines()[0]
            return {
                "files": [],
                "sentence": f"No ONNX file: this network does not export ({first}).",
            }
    checker.check_model(str(place), full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(place), options, providers=["CPUExecutionProvider"])
    found = session.run(["score"], {"pixels": pixels})[0]
    difference = float(np.abs(found - expected).max())
    if not difference <= PARITY:
        place.unlink()
        return {
            "files": [],
            "sentence": f"No ONNX file: its scores differ from torch's by {difference:.2g}.",
        }
    np.save(folder / "golden_inputs.npy", pixels, allow_pickle=False)
    np.save(folder / "golden_outputs.npy", expected, allow_pickle=False)
    return {
        "files": ["model.onnx", "golden_inputs.npy", "golden_outputs.npy"],
        "side_pixels": served.side_pixels,
        "largest_score_difference": difference,
        "sentence": f"model.onnx (opset {OPSET}) takes 8-bit RGB pixels (photos, "
        f"{served.side_pixels}, {served.side_pixels}, 3) and gives scores; on {len(pixels)} golden "
        f"photos it differs from torch by at most {difference:.1g}.",
    }


class _Graph(torch.nn.Module):
    """Pixels in, scores out: the normalisation and the sigmoid travel inside the exported graph."""

    scale: torch.Tensor
    offset: torch.Tensor

    def __init__(self, served: ServedModel) -> None:
        super().__init__()
        self.network = served.network
        # the numbers of `Normalisation`, per channel: a graph broadcasts them by itself
        deviation = torch.tensor(served.preprocess.standard_deviation, dtype=torch.float64)
        mean = torch.tensor(served.preprocess.mean, dtype=torch.float64)
        self.register_buffer("scale", (1 / (255 * deviation)).float().view(1, 3, 1, 1))
        self.register_buffer("offset", (-mean / deviation).float().view(1, 3, 1, 1))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return scores (photos,) of uint8 pixels (photos, side, side, 3)."""
        images = pixels.permute(0, 3, 1, 2).float() * self.scale + self.offset
        return torch.sigmoid(self.network(images))


def _latencies(request: Callable[[], Any], order: Mapping[str, Any]) -> Any:
    """Return the seconds of each request after a warm-up, until enough or out of time."""
    warm_until = time.perf_counter() + WARM_UP_SECONDS
    for _ in range(WARM_UP_REQUESTS):
        request()
        if time.perf_counter() > warm_until:
            break
    seconds: list[float] = []
    end = time.perf_counter() + float(order["seconds_maximum"])
    while len(seconds) < int(order["requests"]) and time.perf_counter() < end:
        started = time.perf_counter()
        request()
        seconds.append(time.perf_counter() - started)
    return np.array(seconds)


def _milliseconds(seconds: Any, percentile: float) -> float:
    return round(1000 * float(np.percentile(seconds, percentile)), 3)


def _drawn_pixels(side: int) -> Pixels:
    generator = np.random.default_rng(1)
    return generator.integers(0, 256, (BATCH_PHOTOS, side, side, 3), dtype=np.uint8)


def _drawn_photo() -> bytes:
    """Return a JPEG with soft structure, about as hard to decode as a photo of that size."""
    coarse = np.random.default_rng(2).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    photo = Image.fromarray(coarse).resize(PHOTO_SIZE_PIXELS, Image.Resampling.BICUBIC)
    encoded = io.BytesIO()
    photo.save(encoded, "JPEG", quality=90)
    return encoded.getvalue()


def _peak_memory_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _environment() -> dict[str, Any]:
    """Return python, platform and installed packages, names and versions only."""
    packages = {
        str(one.metadata["Name"]).lower().replace("_", "-"): one.version
        for one in importlib.metadata.distributions()
        if one.metadata["Name"]
    }
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
        "packages": dict(sorted(packages.items())),
    }


def main(arguments: list[str]) -> int:
    """Print the answer to an order (JSON, the one argument) as one line."""
    order = json.loads(arguments[0])
    answer = {"measure": measure, "export": export}[order["task"]](order)
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
