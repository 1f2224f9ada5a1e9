"""The test server itself: it stops with the tests, also when they are killed."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from parcel_assets_tests.postgres import running_postgres
with running_postgres() as server:
    print(server._folder, flush=True)
    sys.stdin.read()
"""


def test_a_killed_test_run_leaves_no_server(tmp_path: Path) -> None:
    tests = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with tests:
        assert tests.stdout is not None
        folder = Path(tests.stdout.readline().strip())
        server = int((folder / "data" / "postmaster.pid").read_text().split()[0])
        handle = os.pidfd_open(server)
        try:
            os.kill(tests.pid, signal.SIGKILL)
            ended, _, _ = select.select([handle], [], [], 60)
            assert ended, "the server outlived its tests"
        finally:
            os.close(handle)
