"""Checkpoints: any nested state comes back as it was; whole files or none; no pickle anywhere."""

import json
import math
import os
import pickle
import resource
import signal
import struct
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch

from parcel_assets.adapters.checkpoint_safetensors import (
    FORMAT,
    HEADER_BYTES_MAXIMUM,
    SafetensorsCheckpointIO,
    read_checkpoint,
    read_lineage,
    read_training,
    write_checkpoint,
    write_tensors,
)
from parcel_assets.core.errors import CheckpointError, StorageError

LINEAGE = {"trial": "parcel-07", "attempt": "a-2", "parent": ""}
STATE: dict[str, Any] = {
    "epoch": 0,
    "exact": 0.1 + 0.2,
    "best": math.inf,
    "name": "größer",
    "nothing": None,
    "flag": True,
    "state_dict": OrderedDict(weight=torch.arange(6.0).view(2, 3), count=torch.tensor(7)),
    "optimizer_states": [{"state": {0: {"step": torch.tensor(3.0)}}, "groups": [{"b": (1, 2)}]}],
    "empty": {"list": [], "map": {}, "tensor": torch.empty(0)},
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "step-003.safetensors"
    write_checkpoint(file, STATE, lineage=LINEAGE, training={"seed": 5, "step": 3})
    return file


def equal(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor):
        return bool(first.dtype == second.dtype and torch.equal(first, second))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(equal(first[k], second[k]) for k in first)
    if isinstance(first, list | tuple):
        same = type(first) is type(second) and len(first) == len(second)
        return same and all(map(equal, first, second))
    return type(first) is type(second) and bool(first == second)


def test_nested_state_comes_back_as_it_was(path: Path) -> None:
    assert equal(
        dict(STATE) | {"state_dict": dict(STATE["state_dict"])}, read_checkpoint(path).state
    )


def test_every_number_type_and_layout_comes_back(tmp_path: Path) -> None:
    kinds = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
             torch.int16, torch.int8, torch.uint8, torch.bool)  # fmt: skip
    state: dict[str, Any] = {str(kind): torch.tensor([0, 1, 1]).to(kind) for kind in kinds}
    state["filters"] = torch.randn(4, 3, 3, 3).to(memory_format=torch.channels_last)
    write_checkpoint(tmp_path / "c", state, lineage={}, training={})
    found = read_checkpoint(tmp_path / "c").state
    assert equal(state, found)
    assert found["filters"].stride() == state["filters"].stride()


def test_lineage_and_training_are_read_without_a_tensor(path: Path) -> None:
    assert read_lineage(path) == LINEAGE
    assert read_training(path) == {"seed": 5, "step": 3}


def test_equal_state_gives_equal_bytes_and_the_library_reads_them(path: Path) -> None:
    again = path.with_name("again")
    write_checkpoint(
        again, STATE, lineage=dict(reversed(LINEAGE.items())), training={"step": 3, "seed": 5}
    )
    assert again.read_bytes() == path.read_bytes()
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata()["lineage.trial"] == "parcel-07"
        assert "state_dict.weight" in file.keys()  # noqa: SIM118  (the library's object, no dict)


@pytest.mark.parametrize("value", [object(), {1.5: 1}, {True: 1}, {"deep": [Path("x")]}, 1j])
def test_state_of_another_kind_is_refused_and_named(tmp_path: Path, value: object) -> None:
    with pytest.raises(CheckpointError, match="of the state"):
        write_checkpoint(tmp_path / "c", {"odd": value}, lineage={}, training={})
    assert list(tmp_path.iterdir()) == []


# ---- files that are none ------------------------------------------------------------------------


def test_a_file_cut_anywhere_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for length in [0, 3, 8, 40, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        for read in (read_checkpoint, read_lineage, read_training):
            with pytest.raises(CheckpointError):
                read(path)


def test_a_file_with_more_behind_it_is_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(CheckpointError, match="where the header says"):
        read_checkpoint(path)


def header_of(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def rewrite(path: Path, header: Any, body: bytes) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


@pytest.mark.parametrize(
    "skeleton",
    ["", "[", '["code", "x"]', '["tensor", "absent", false]', '["map", 3]', '["map", [[1]]]', "[]"],
)
def test_a_state_that_cannot_be_rebuilt_is_refused(path: Path, skeleton: str) -> None:
    header, body = header_of(path)
    header["__metadata__"]["state"] = skeleton
    rewrite(path, header, body)
    with pytest.raises(CheckpointError):
        read_checkpoint(path)


@pytest.mark.parametrize(
    "change",
    [{"data_offsets": [0, 5]}, {"dtype": "F99"}, {"shape": [3, 3]}, {"data_offsets": "x"}],
)
def test_a_header_that_lies_about_a_tensor_is_refused(path: Path, change: dict[str, Any]) -> None:
    header, body = header_of(path)
    header["state_dict.weight"] |= change
    rewrite(path, header, body)
    with pytest.raises(CheckpointError):
        read_checkpoint(path)


def test_a_header_above_the_limit_is_not_even_read(path: Path) -> None:
    path.write_bytes(
        struct.pack("<Q", HEADER_BYTES_MAXIMUM + 1) + b" " * (HEADER_BYTES_MAXIMUM + 9)
    )
    with pytest.raises(CheckpointError, match="announce a header"):
        read_lineage(path)


def test_a_lineage_above_the_limit_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="a header of"):
        write_checkpoint(
            tmp_path / "c", {}, lineage={"long": "x" * HEADER_BYTES_MAXIMUM}, training={}
        )
    assert list(tmp_path.iterdir()) == []


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    write_tensors(foreign, {"a": torch.ones(2)}, {"format": "pt"})
    with pytest.raises(CheckpointError, match="of format 'pt'"):
        read_lineage(foreign)
    with pytest.raises(CheckpointError, match="No such file"):
        read_lineage(tmp_path / "absent")
    with pytest.raises(CheckpointError):
        read_lineage(tmp_path)


class Bomb:
    """What an attacker puts into a pickle: unpickling it would make a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return Path.touch, (self.target,)


def test_a_pickle_is_refused_and_never_run(tmp_path: Path) -> None:
    target = tmp_path / "exploded"
    (tmp_path / "plain").write_bytes(pickle.dumps(Bomb(target)))
    torch.save({"state_dict": Bomb(target)}, tmp_path / "torch")
    for name in ("plain", "torch"):
        with pytest.raises(CheckpointError):
            SafetensorsCheckpointIO().load_checkpoint(tmp_path / name)
    assert not target.exists()


# ---- disks that fill up -------------------------------------------------------------------------


@contextmanager
def small_disk() -> Iterator[None]:
    """Let the kernel refuse every byte beyond the first 2,000 of a file, in this block only.

    The limit holds for the whole process: pytest's own output must not meet it.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_a_storage_error_and_leaves_no_file(tmp_path: Path) -> None:
    with small_disk(), pytest.raises(StorageError, match="room for"):
        write_checkpoint(tmp_path / "c", {"big": torch.ones(9000)}, lineage={}, training={})
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_earlier_checkpoint_whole(path: Path) -> None:
    before = path.read_bytes()
    with small_disk(), pytest.raises(StorageError):
        write_checkpoint(path, {"big": torch.ones(9000)}, lineage=LINEAGE, training={})
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_folder_that_is_absent_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        write_checkpoint(tmp_path / "no" / "c", {}, lineage={}, training={})


# ---- Lightning's door ---------------------------------------------------------------------------


def test_the_plugin_writes_and_reads_this_format_only(tmp_path: Path) -> None:
    plugin, file = SafetensorsCheckpointIO(), tmp_path / "c"
    plugin.save_checkpoint({"epoch": 1}, file, {"lineage": LINEAGE, "training": {"step": 1}})
    assert plugin.load_checkpoint(file) == {"epoch": 1}
    assert read_lineage(file) == LINEAGE
    assert FORMAT.encode() in file.read_bytes()
    plugin.remove_checkpoint(file)
    plugin.remove_checkpoint(file)
    assert not file.exists()


def test_whom_the_umask_lets_may_read_a_checkpoint(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_tensors(tmp_path / "checkpoint", {"w": torch.zeros(2)}, {})
    finally:
        os.umask(before)
    assert (tmp_path / "checkpoint").stat().st_mode & 0o777 == 0o640
