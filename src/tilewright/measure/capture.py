"""Keeps a candidate's output within bounds: its beginning and its end."""

from __future__ import annotations


class OutputCapture:
    """Keeps the first and the last half of `limit` bytes and counts what is dropped."""

    def __init__(self, limit: int) -> None:
        self._half = max(limit // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            if len(self._tail) > self._half:
                del self._tail[: -self._half]

    @property
    def tail(self) -> bytes:
        """The last bytes seen."""
        return bytes(self._tail or self._head)

    def text(self) -> str:
        """Return the kept output as text, with a line where bytes are missing."""
        dropped = self.total - len(self._head) - len(self._tail)
        middle = f"\n[... {dropped} bytes dropped ...]\n".encode() if dropped else b""
        return (bytes(self._head) + middle + bytes(self._tail)).decode(errors="replace")
