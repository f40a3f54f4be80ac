"""The bytes that the kernels of a schedule move through memory, with a second cache between them.

The cache is taken to keep whole Funcs and inputs, those used last: what a kernel writes is read
from the cache by the next one if it fits. A schedule runs again and again, so that it finds what
its last run has left.

| symbol | meaning | unit |
|---|---|---|
| `kept` | what the cache holds of each Func and input, the least recently used first | bytes |
| `room` | what the cache holds | bytes |
| `whole` | all Funcs and inputs that the kernels touch | bytes |
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.halide.schedulers.analytic.gpu.nest_work import HostWork, KernelWork


def memory_traffic(parts: Iterable[KernelWork | HostWork], room: float) -> list[float]:
    """Return the bytes through memory of each part; 0 for a stage of the host."""
    parts = tuple(parts)
    cache = _Cache(room)
    runs: list[list[float]] = []
    for _ in range(2):
        moved = [cache.load(part) if isinstance(part, KernelWork) else 0.0 for part in parts]
        runs.append(moved)
    written = 1.0 - cache.share_kept(cache.touched)
    return [
        loaded + (written * part.written if isinstance(part, KernelWork) else 0.0)
        for part, loaded in zip(parts, runs[-1], strict=True)
    ]


class _Cache:
    """The second cache."""

    def __init__(self, room: float) -> None:
        self._room = room
        self._kept: dict[str, float] = {}
        self._sizes: dict[str, float] = {}

    @property
    def touched(self) -> float:
        """The bytes of all that was ever touched."""
        return sum(self._sizes.values())

    def share_kept(self, size: float) -> float:
        """Return the share of `size` bytes, used again and again, that the cache has each time."""
        return _returned(self._room, size)

    def load(self, kernel: KernelWork) -> float:
        """Run a kernel, and return the bytes that it loads from memory."""
        loaded = 0.0
        for name, (footprint, whole) in kernel.read.items():
            loaded += self._touch(name, min(footprint * kernel.blocks, whole))
        updated = self._touch(kernel.func, kernel.written)
        # A stage that adds to values loads what it stores.
        return loaded + (updated if kernel.stage > 0 else 0.0)

    def _touch(self, name: str, size: float) -> float:
        """Use `size` bytes of a Func or input, and return those that the cache lacks."""
        held = self._kept.pop(name, 0.0)
        self._kept[name] = max(held, size)
        self._sizes[name] = max(self._sizes.get(name, 0.0), size)
        excess = sum(self._kept.values()) - self._room
        for other in list(self._kept):
            cut = min(self._kept[other], max(excess, 0.0))
            self._kept[other] -= cut
            excess -= cut
        return size * (1.0 - _returned(held, size))


def _returned(held: float, size: float) -> float:
    """Return the share of `size` bytes that is found where `held` of them are still kept.

    Nothing below one half: while the first part is fetched, it displaces the last.
    """
    return min(max(2.0 * held / size - 1.0, 0.0), 1.0) if size > 0.0 else 1.0
