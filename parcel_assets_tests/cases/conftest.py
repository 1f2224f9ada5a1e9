"""Cases of what others report broken, tried on the whole protocol."""

import pytest

from parcel_assets.adapters import store_files


@pytest.fixture(autouse=True)
def _no_flushing(monkeypatch: pytest.MonkeyPatch) -> None:
    # files that live for a second need not reach the disk
    monkeypatch.setattr(store_files, "_flush", lambda file: file.flush())
    monkeypatch.setattr(store_files, "_flush_folder", lambda _folder: None)
