"""One writer a records file: an advisory lock that dies with its process."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from tilewright.errors import TilewrightError


class RecordsError(TilewrightError):
    """The records cannot be read or written; the message says why and what to do."""


class WriterLock:
    """Holds ``FILE.lock``, in which it leaves its process id for others to read.

    The kernel frees the lock when the process ends in whatever way, so there is no stale lock
    to clean up. Raises RecordsError naming the holder when the lock is not free within `wait`
    seconds.
    """

    def __init__(self, records: Path, *, wait: float = 0.0) -> None:
        path = records.with_name(records.name + ".lock")
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
                    os.close(self._fd)
                    raise RecordsError(
                        f"{records} is being written by process {holder or 'unknown'}; wait for "
                        "it to end, or give another file (--records FILE or TILEWRIGHT_RECORDS)"
                    ) from None
                time.sleep(0.02)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let the next writer in."""
        os.close(self._fd)
