"""Becomes `sitecustomize`: workers report at step 39 as well, with the worst scores there are.

It stands for an older client that a host still has beside the right code. Other processes of the
run are left alone.
"""

import sys

if "parcel_assets.worker" in sys.orig_argv:
    import numpy as np

    from parcel_assets.steps import worker

    STEP, LAST_MILESTONE_BEFORE = 39, 27
    _at_step = worker._Attempt.at_step

    def _reporting_at_step(self: worker._Attempt, step: int) -> None:
        _at_step(self, step)
        if step == STEP:
            self.worker.subsets[STEP] = self.worker.subsets[LAST_MILESTONE_BEFORE]
            photos = len(self.worker.rows[LAST_MILESTONE_BEFORE])
            seen = step * self.worker.setup.plan.training.batch_photos
            self.at_milestone(step, seen, np.zeros(photos, dtype=np.float32))

    worker._Attempt.at_step = _reporting_at_step  # type: ignore[method-assign]
