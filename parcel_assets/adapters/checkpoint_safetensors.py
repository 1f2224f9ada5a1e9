"""Write and read a training's whole state as one safetensors file; a pickle is never involved.

Decides how nested state (weights, optimizer, schedulers, loop counters) becomes named tensors and a
JSON skeleton, what the header may hold, and that a file is there whole or not at all. What goes
into the lineage, and which checkpoint may be resumed, is left to others.

Equal content gives equal bytes: the header is canonical JSON, tensors lie in the order of their
names. (The safetensors library itself writes its metadata in a random order, hence our own writer;
reading uses the library.)
"""

import json
import math
import os
import struct
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins import CheckpointIO
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor

from parcel_assets.core.codec import canonical_json
from parcel_assets.core.errors import CheckpointError, StorageError

FORMAT = "parcel_assets.checkpoint/1"
HEADER_BYTES_MAXIMUM = 4 * 1024 * 1024
LENGTH_BYTES = 8
ALIGNMENT_BYTES = 8
LINEAGE_PREFIX = "lineage."
TRAINING_FIELD = "training"
STATE_FIELD = "state"
FORMAT_FIELD = "format"

_TYPE_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file's whole content: Lightning's state, the lineage and what was being trained."""

    state: dict[str, Any]
    lineage: dict[str, str]
    training: dict[str, Any]


def write_checkpoint(
    path: Path,
    state: Mapping[str, Any],
    *,
    lineage: Mapping[str, str],
    training: Mapping[str, Any],
) -> None:
    """Write nested state with its lineage, durably and all at once.

    Raises CheckpointError for state that is neither a tensor nor a JSON value, StorageError where
    the file cannot be written (nothing of it is left behind then).
    """
    tensors: dict[str, Tensor] = {}
    skeleton = _encode(dict(state), (), tensors, path)
    metadata = {
        FORMAT_FIELD: FORMAT,
        STATE_FIELD: canonical_json(skeleton).decode(),
        TRAINING_FIELD: canonical_json(dict(training)).decode(),
    } | {LINEAGE_PREFIX + key: value for key, value in lineage.items()}
    write_tensors(path, tensors, metadata)


def read_checkpoint(path: Path) -> Checkpoint:
    """Return a checkpoint; raises CheckpointError where the file is corrupt, cut or foreign."""
    metadata, tensors = read_tensors(path, FORMAT)
    try:
        state = _decode(json.loads(metadata[STATE_FIELD]), tensors)
        training = json.loads(metadata[TRAINING_FIELD])
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise _refusal(path, f"a state that cannot be rebuilt ({error!r})") from error
    return Checkpoint(state, _lineage_of(metadata), training)


def read_lineage(path: Path) -> dict[str, str]:
    """Return the lineage strings of a checkpoint without loading a tensor."""
    return _lineage_of(read_header(path, FORMAT))


def read_training(path: Path) -> dict[str, Any]:
    """Return what a checkpoint was training (network, configuration, seed, step …)."""
    try:
        training = json.loads(read_header(path, FORMAT)[TRAINING_FIELD])
    except (KeyError, ValueError) as error:
        raise _refusal(path, f"a header without its training ({error!r})") from error
    if not isinstance(training, dict):
        raise _refusal(path, "a header whose training is not a JSON object")
    return training


class SafetensorsCheckpointIO(CheckpointIO):
    """Lightning's only way to write or read a checkpoint: through this file's codec.

    Saving takes `storage_options={"lineage": …, "training": …}`.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write Lightning's state; raises as `write_checkpoint` does."""
        options = storage_options or {}
        write_checkpoint(
            Path(path),
            checkpoint,
            lineage=options.get("lineage", {}),
            training=options.get("training", {}),
        )

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Any | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Return Lightning's state; raises CheckpointError as `read_checkpoint` does."""
        return read_checkpoint(Path(path)).state

    def remove_checkpoint(self, path: str | Path) -> None:
        """Delete a checkpoint that is there."""
        Path(path).unlink(missing_ok=True)


# ---- files of tensors ---------------------------------------------------------------------------


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file: equal content gives equal bytes; whole and durable, or absent."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    pieces, offset = [], 0
    for name in sorted(tensors):
        tensor = tensors[name].detach().to("cpu").contiguous()
        if tensor.dtype not in _TYPE_NAMES:
            raise _refusal(path, f"tensor {name!r} of type {tensor.dtype}")
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _TYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + size],
        }
        pieces.append(_bytes_of(tensor))
        offset += size
    text = canonical_json(header)
    text += b" " * (-len(text) % ALIGNMENT_BYTES)
    if len(text) > HEADER_BYTES_MAXIMUM:
        raise _refusal(path, f"a header of {len(text)} bytes")
    _write_whole(path, [struct.pack("<Q", len(text)), text, *pieces])


def read_tensors(path: Path, file_format: str) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return header strings and tensors of a file of the given format; raises CheckpointError."""
    metadata = read_header(path, file_format)
    try:
        return metadata, load_tensors(path.read_bytes())
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise _refusal(path, f"tensors that cannot be read ({error})") from error


def read_header(path: Path, file_format: str) -> dict[str, str]:
    """Return the header strings of a whole file of the given format, no tensor loaded.

    Raises CheckpointError where the file is absent, foreign, cut, or its header is above the limit.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            prefix = file.read(LENGTH_BYTES)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == LENGTH_BYTES else size
            if length > min(HEADER_BYTES_MAXIMUM, size - LENGTH_BYTES):
                raise _refusal(path, f"{size} bytes that announce a header of {length} bytes")
            header = json.loads(file.read(length))
        metadata = header.pop("__metadata__")
        end = max((int(entry["data_offsets"][1]) for entry in header.values()), default=0)
    except OSError as error:
        raise _refusal(path, f"a file that cannot be opened ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise _refusal(path, "a header that is not one of safetensors") from error
    if not isinstance(metadata, dict) or metadata.get(FORMAT_FIELD) != file_format:
        found = metadata.get(FORMAT_FIELD) if isinstance(metadata, dict) else metadata
        raise _refusal(path, f"a safetensors file of format {found!r}", file_format)
    if LENGTH_BYTES + length + end != size:
        raise _refusal(path, f"{size} bytes where the header says {LENGTH_BYTES + length + end}")
    return {str(key): str(value) for key, value in metadata.items()}


def _write_whole(path: Path, pieces: list[bytes]) -> None:
    """Write beside the path, flush to the disk, then rename; on any failure leave nothing."""
    temporary: Path | None = None
    try:
        # as the umask says: a key-holder of another user's reads it before the opening
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        with temporary.open("xb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        temporary = None
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise StorageError(
            f"{error.strerror or error}",
            expected=f"room for {sum(map(len, pieces))} bytes",
            where=str(path),
            remedy="Free space or mend the folder, then run again: nothing earlier is lost.",
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _bytes_of(tensor: Tensor) -> bytes:
    """Return a contiguous tensor's little-endian bytes."""
    if sys.byteorder != "little":
        raise StorageError(
            "a big-endian machine",
            expected="a little-endian one, as safetensors lays numbers out",
            where="checkpoint",
            remedy="Train on another machine.",
        )
    if tensor.numel() == 0:
        return b""
    return bytes(tensor.flatten().view(torch.uint8).numpy())


# ---- nested state <-> skeleton ------------------------------------------------------------------


def _encode(value: Any, place: tuple[str, ...], tensors: dict[str, Tensor], path: Path) -> Any:
    """Return a JSON skeleton of a value; its tensors go into `tensors` under their place's name."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else ["number", repr(value)]
    if isinstance(value, Tensor):
        name = ".".join(place)
        name = name if name not in tensors else f"{name}#{len(tensors)}"
        tensors[name] = value
        channels_last = (
            value.dim() == 4
            and not value.is_contiguous()
            and value.is_contiguous(memory_format=torch.channels_last)
        )
        return ["tensor", name, channels_last]
    if isinstance(value, Mapping):
        pairs = []
        for key, inner in value.items():
            if not isinstance(key, str | int) or isinstance(key, bool):
                raise _unfit(path, place, f"key {key!r}")
            pairs.append([key, _encode(inner, (*place, str(key)), tensors, path)])
        return ["map", pairs]
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        inner_values = [
            _encode(one, (*place, str(index)), tensors, path) for index, one in enumerate(value)
        ]
        return [kind, inner_values]
    raise _unfit(path, place, f"a {type(value).__module__}.{type(value).__qualname__}")


def _decode(skeleton: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the value of a skeleton, each tensor in the memory layout that it had."""
    if not isinstance(skeleton, list):
        return skeleton
    kind, content = skeleton[0], skeleton[1]
    match kind:
        case "number":
            return float(content)
        case "tensor":
            layout = torch.channels_last if skeleton[2] else torch.contiguous_format
            return tensors[content].contiguous(memory_format=layout)
        case "map":
            return {key: _decode(inner, tensors) for key, inner in content}
        case "list":
            return [_decode(one, tensors) for one in content]
        case "tuple":
            return tuple(_decode(one, tensors) for one in content)
    raise ValueError(f"unknown kind {kind!r}")


def _lineage_of(metadata: Mapping[str, str]) -> dict[str, str]:
    cut = len(LINEAGE_PREFIX)
    return {key[cut:]: text for key, text in metadata.items() if key.startswith(LINEAGE_PREFIX)}


def _unfit(path: Path, place: tuple[str, ...], found: str) -> CheckpointError:
    return CheckpointError(
        f"{found} at {'.'.join(place) or 'the top'} of the state",
        expected="tensors, numbers, texts, lists and mappings with text or whole-number keys",
        where=str(path),
        remedy="Keep such state out of the network's, optimizer's and scheduler's saved state.",
    )


def _refusal(path: Path, found: str, file_format: str = FORMAT) -> CheckpointError:
    return CheckpointError(
        found,
        expected=f"a whole safetensors file of format {file_format}",
        where=str(path),
        remedy="Set the file aside; the trial starts again from an earlier checkpoint or from its "
        "first step.",
    )
