"""A real worker process with the fake trainer: `python -m …fake_worker FAULTS_JSON SETUP.json`."""

import json
import sys

from parcel_assets.worker import run
from parcel_assets_tests.fake_training import FakeTrainer

if __name__ == "__main__":
    run(sys.argv[2:], lambda: FakeTrainer(json.loads(sys.argv[1])))
