"""A real worker whose signs of life cease while it trains: `python -m … TOLD SETUP.json`.

The first one does so, and notes it in the file TOLD; every other is sound.
"""

import sys
from pathlib import Path

from parcel_assets import worker
from parcel_assets_tests.fake_training import FakeTrainer

if __name__ == "__main__":
    told = Path(sys.argv[1])
    if not told.exists():
        told.touch()

        def stop_at_once(self: worker.PipeChannel) -> None:
            """Show no life at all."""

        worker.PipeChannel._show_life = stop_at_once  # type: ignore[method-assign]
    worker.run(sys.argv[2:], lambda: FakeTrainer({"step_seconds": 0.02}))
