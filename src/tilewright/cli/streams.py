"""Standard streams that survive being closed, full, abandoned, or of another encoding."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO


class Tolerant(io.TextIOBase):
    """Writes to another stream until the first error, which is kept.

    Characters that the stream's encoding lacks are written as escapes.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream."""
        return self._stream.encoding or "utf-8"

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self.error is None and self._stream.isatty()

    def fileno(self) -> int:
        """Return the stream's file descriptor."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Write, unless writing has failed before."""
        if self.error is None:
            try:
                self._stream.write(text)
            except OSError as error:
                self._fail(error)
        return len(text)

    def flush(self) -> None:
        """Flush, unless writing has failed before."""
        if self.error is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._fail(error)

    def _fail(self, error: OSError) -> None:
        self.error = error
        # Buffered output would fail once more when the interpreter exits.
        with contextlib.suppress(OSError, ValueError):
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self._stream.fileno())
            os.close(nothing)

    @property
    def lost(self) -> str:
        """Why output was lost; empty if none was, or if the reader closed the pipe."""
        if self.error is None or self.error.errno == errno.EPIPE:
            return ""
        return self.error.strerror or str(self.error)


def _take_standard_descriptors() -> None:
    """Connect closed standard streams to ``/dev/null``.

    Otherwise the first socket that is opened could get number 2, and a child process would use it
    as its standard error.
    """
    for wanted in (0, 1, 2):
        try:
            os.fstat(wanted)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free


@contextlib.contextmanager
def tolerant_streams() -> Iterator[Tolerant | None]:
    """Replace standard output and error by tolerant streams within the block.

    Yields:
        Standard output, None if the process has none.
    """
    _take_standard_descriptors()
    out, err = sys.stdout, sys.stderr
    made = None if out is None else Tolerant(out)
    with open(os.devnull, "w", encoding="utf-8") as nothing:
        sys.stdout = made or Tolerant(nothing)
        sys.stderr = Tolerant(err or nothing)
        try:
            yield made
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            sys.stdout, sys.stderr = out, err
