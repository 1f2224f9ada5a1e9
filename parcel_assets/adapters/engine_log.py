"""A worker's log file: bounded, whatever the worker prints, and its end always at hand.

Decides how much is kept. A disk that takes no more does not stop a worker: its log is cut short.
"""

import hashlib
import logging
import urllib.parse
from pathlib import Path

LOG_BYTES_MAXIMUM = 1 << 20  # of the newer and of the older half each
LOG_FILES_KEPT = 400
TAIL_BYTES = 2000
NAME_CHARACTERS = 120
OLDER = ".older.log"

log = logging.getLogger(__name__)


def log_file_of(folder: Path, worker_id: str) -> Path:
    """Return the log file of a worker, whatever characters its id holds; ids never share one."""
    name = urllib.parse.quote(worker_id, safe=" +,=@")
    if len(name) > NAME_CHARACTERS or name.startswith("."):
        digest = hashlib.sha256(worker_id.encode(errors="surrogatepass")).hexdigest()
        name = f"{name[:NAME_CHARACTERS].lstrip('.')}~{digest[:12]}"
    return folder / f"{name}.log"


def remove_old_logs(folder: Path) -> None:
    """Keep the newest log files of earlier workers only."""
    files = {path: path.stat().st_mtime for path in folder.glob("*.log")}
    for path in sorted(files, key=files.__getitem__)[: max(0, len(files) - LOG_FILES_KEPT)]:
        path.unlink(missing_ok=True)


class BoundedLog:
    """Appends to a file of at most twice LOG_BYTES_MAXIMUM, in two halves; raises OSError at first.

    What is kept is the newest.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tail = b""
        self._file = path.open("ab", buffering=0)
        self._size = self._file.tell()

    def write(self, data: bytes) -> None:
        """Append what a worker printed."""
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        if self._file.closed:
            return
        try:
            if self._size + len(data) > LOG_BYTES_MAXIMUM:
                self._file.close()
                self.path.replace(self.path.with_name(self.path.stem + OLDER))
                self._file = self.path.open("ab", buffering=0)
                self._size = 0
            self._size += self._file.write(data)
        except OSError as error:
            log.warning("%s takes no more: %s", self.path, error)
            self._file.close()

    @property
    def tail(self) -> str:
        """The end of what the worker printed."""
        return self._tail.decode(errors="replace").strip()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
