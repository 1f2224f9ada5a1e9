"""Cases of what others report broken, tried on the whole protocol."""

import pytest


@pytest.fixture(autouse=True)
def _unflushed(unflushed: None) -> None:
    """Keep what all cases write off the disk."""
