"""Claims on problems of a records file: advisory locks that end with their process.

Any number of processes write to one file at the same time, in transactions of milliseconds. A
run whose decisions follow from the records of its own problem, such as a tuner's, claims that
problem, so that no second run takes the same decisions.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import struct
import time
from pathlib import Path

from tilewright.errors import TilewrightError

# A claim is a lock on one byte of FILE.lock, far beyond its end: locks need no data.
_PLACES = 1 << 62
# Process ids of owners, in ASCII, for messages alone: problems may share an entry.
_OWNERS = 1 << 10
_OWNER_BYTES = 16
# Linux's struct flock: type, whence, start, length, process (0 for locks of open files).
_FLOCK = "hhqqi4x"
_POLL_SECONDS = 0.02


class RecordsError(TilewrightError):
    """The records cannot be read or written; the message says why and what to do."""


class Claim:
    """Holds one problem of a records file for this process.

    The system frees it when the process ends for any reason, so that no stale lock remains.

    Args:
        records: the records file.
        problem: the problem to claim.
        wait: seconds to wait for the present owner to end.

    Raises:
        RecordsError: another run has the problem; the message has its process id.
        OSError: the lock file cannot be made.
    """

    def __init__(self, records: Path, problem: str, *, wait: float = 0.0) -> None:
        path = records.with_name(records.name + ".lock")
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        key = problem.encode(errors="backslashreplace")
        hashed = int.from_bytes(hashlib.sha256(key).digest()[:8], "big")
        entry = hashed % _OWNERS * _OWNER_BYTES
        place = hashed % _PLACES
        wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, wanted)
                break
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    os.close(self._fd)
                    raise
                if time.monotonic() >= deadline:
                    owner = os.pread(self._fd, _OWNER_BYTES, entry).decode(errors="replace")
                    os.close(self._fd)
                    raise RecordsError(
                        f"process {owner.strip() or 'unknown'} works on the same problem with "
                        f"{records}; wait for it to end, or give another file (--records FILE "
                        "or TILEWRIGHT_RECORDS)"
                    ) from None
                time.sleep(_POLL_SECONDS)
        with contextlib.suppress(OSError):  # a full disk bars no claim
            os.pwrite(self._fd, f"{os.getpid()}".ljust(_OWNER_BYTES).encode(), entry)

    def release(self) -> None:
        """Release the claim, so that another run can take the problem."""
        os.close(self._fd)
