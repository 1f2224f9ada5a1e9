"""What every test may rely on: no test leaves the process in another arithmetic than it found."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _usual_arithmetic() -> Iterator[None]:
    """Let small numbers be small again after a test that trained or served in this process."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_flush_denormal(False)
