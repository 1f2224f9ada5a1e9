"""Fixtures of the adapters' tests."""

import os
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of private real pictures; without one the test is skipped."""
    named = os.environ.get("PARCEL_ASSETS_REAL_DATA")
    folder = Path(named) if named else next(CHECKOUT.parent.glob("*/realdata"), None)
    if folder is None or not folder.is_dir():
        pytest.skip("no real pictures here: set PARCEL_ASSETS_REAL_DATA to their folder")
    return folder
