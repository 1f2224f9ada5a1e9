"""A worker looks at the owner marker itself before it begins, resumes or writes."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from parcel_assets.core.codec import canonical_json
from parcel_assets.core.errors import CheckpointError
from parcel_assets.core.lineage import owner_of
from parcel_assets.steps.worker import OWNER_FILE, _Attempt

OTHERS = {
    "another attempt's": owner_of("spring", "parcel-02/1", "parcel-02"),
    "another revision's": owner_of("autumn", "parcel-01/1", "parcel-01"),
    "nobody's": None,
}
MOMENTS: dict[str, Callable[[_Attempt], object]] = {
    "it begins": lambda attempt: attempt.train(),
    "it writes scores": lambda attempt: attempt.at_milestone(2, 16, np.zeros(3, np.float32)),
    "it writes a checkpoint": lambda attempt: attempt.at_checkpoint(
        3, lambda path, _lineage: path.touch()
    ),
}


@pytest.mark.parametrize("owner", OTHERS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_nothing_is_written_below_a_prefix_that_is_not_its_own(
    tmp_path: Path, owner: str, moment: str
) -> None:
    marker = OTHERS[owner]
    if marker is not None:
        (tmp_path / OWNER_FILE).write_bytes(canonical_json(marker))
    before = sorted(tmp_path.iterdir())
    worker: Any = SimpleNamespace(
        setup=SimpleNamespace(revision="spring"),
        watch=SimpleNamespace(require_unchanged=lambda: None),
    )
    order = {
        "attempt": "parcel-01/1",
        "subject": "parcel-01",
        "token": "secret",
        "prefix": str(tmp_path),
    }
    attempt = _Attempt(cast("Any", worker), order)
    with pytest.raises(CheckpointError, match="owner marker"):
        MOMENTS[moment](attempt)
    assert sorted(tmp_path.iterdir()) == before
