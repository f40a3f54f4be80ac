"""The machine's one timing token: a lock on a file that all of a user's Tilewright processes share.

A process holds it exclusively while it times. Builds run without it, and pause while another
process holds it. The file must belong to the user: in a folder that everybody writes to, another
user's file could be a link, a pipe, or locked for ever.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tilewright.errors import TilewrightError

# Between two attempts to take the token, in seconds.
_POLL_SECONDS = 0.002
# Seconds after which a wait is reported: more than the samples of one candidate take.
SAID_AFTER_SECONDS = 1.0

_listeners: list[Callable[[], object]] = []


class TokenError(TilewrightError):
    """The timing token is not a file of the user's own."""


@contextlib.contextmanager
def on_wait(listener: Callable[[], object]) -> Iterator[None]:
    """Call `listener` whenever this process has to wait until another has finished timing."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def say_wait() -> None:
    """Notify the listeners of `on_wait`."""
    for listener in _listeners:
        listener()


class Patience:
    """Decides when a wait is reported: once, after a while."""

    def __init__(self) -> None:
        self.end()

    def end(self) -> None:
        """End the wait."""
        self._since: float | None = None
        self._said = False

    def due(self) -> bool:
        """Return whether to report the wait now; called repeatedly while it lasts."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if self._said or now - self._since < SAID_AFTER_SECONDS:
            return False
        self._said = True
        return True


class TimingToken:
    """This process's handle on the machine's timing token.

    Args:
        path: the file, by default one of this user in the folder for temporary files.

    Raises:
        TokenError: the path is not a regular file of this user.
    """

    def __init__(self, path: Path | None = None) -> None:
        name = f"tilewright-timing-{os.geteuid()}.lock"
        self.path = path or Path(tempfile.gettempdir()) / name
        # No link is followed, and a pipe does not block.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            self._fd = os.open(self.path, flags | os.O_CREAT, 0o600)
        except OSError as error:
            raise TokenError(self._wrong(error.strerror or str(error))) from error
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            os.close(self._fd)
            raise TokenError(self._wrong("it is not a regular file of yours"))
        self.held = False

    def _wrong(self, why: str) -> str:
        return (
            f"{self.path} cannot be used to keep timings apart ({why}): remove it, or set TMPDIR "
            "to a folder of your own"
        )

    def try_acquire(self) -> bool:
        """Take the token exclusively, without waiting; False if another process has it."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self.held = True
        return True

    def acquire(self) -> None:
        """Take the token exclusively; a wait is reported to the listeners of `on_wait`."""
        patience = Patience()
        while not self.try_acquire():
            if patience.due():
                say_wait()
            time.sleep(_POLL_SECONDS)

    def release(self) -> None:
        """Release the token."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        self.held = False

    def taken_elsewhere(self) -> bool:
        """Return whether another process is timing now."""
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
