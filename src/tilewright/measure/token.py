"""The machine's one timing token: a lock on a file that all Tilewright processes share.

Timing holds it exclusively, whichever process times. Builds run without it, and pause while
another holds it. Heavy computing in the tuner itself takes it shared (`computing`), so that
nothing is timed meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


class TimingToken:
    """This process's handle on the machine's timing token."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or Path(tempfile.gettempdir()) / "tilewright-timing.lock"
        try:
            # Never O_CREAT on an existing file: the kernel refuses that in sticky directories
            # when another user owns the file.
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.held = False

    def try_acquire(self) -> bool:
        """Take the token exclusively, without waiting; False if another process has it."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self.held = True
        return True

    def release(self) -> None:
        """Give it back."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        self.held = False

    def taken_elsewhere(self) -> bool:
        """Whether another process is timing now."""
        if self.held:
            return False
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return False

    def close(self) -> None:
        """Close the handle; the token is free if this process held it."""
        os.close(self._fd)


@contextlib.contextmanager
def computing(path: Path | None = None) -> Iterator[None]:
    """Keep the machine from timing while the block computes; waits for a timing under way."""
    token = TimingToken(path)
    try:
        fcntl.flock(token._fd, fcntl.LOCK_SH)
        yield
    finally:
        token.close()
