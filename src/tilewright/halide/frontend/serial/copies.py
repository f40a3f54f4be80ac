"""Convert the wrappers and clones of a file to the `Clone` entries of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.halide.frontend.serial.nests import UnreadableScheduleError
from tilewright.halide.frontend.serial.reader import Record
from tilewright.halide.frontend.serial.reset import droppable_wrappers, is_wrapper_of
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.schedule import Clone


@dataclass
class Copies:
    """The copies in a file: their `Clone` entries, and the name of each in the file."""

    clones: list[Clone] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


def find_copies(funcs: Sequence[Record], root: Record, algorithm: Algorithm) -> Copies:
    """Return the copies in a file.

    Args:
        funcs: The tables of the Funcs.
        root: The table of the pipeline.
        algorithm: The algorithm without copies.

    Raises:
        UnreadableScheduleError: There is a clone of a wrapper.
    """
    finder = _Finder(funcs, root, algorithm)
    for func in reversed(algorithm.funcs):
        finder.add(func.name, finder.readers_of(func.name), algorithm.order[func.name])
    return finder.found


class _Finder:
    def __init__(self, funcs: Sequence[Record], root: Record, algorithm: Algorithm) -> None:
        self.funcs = {func.name: func for func in funcs}
        self.listed = [func.name for func in funcs]
        self.dropped = droppable_wrappers(root)
        self.algorithm = algorithm
        self.found = Copies()

    def readers_of(self, name: str) -> list[str]:
        """Return the Funcs whose definitions read an original Func, and their clones."""
        readers = list(self.algorithm.consumers[name])
        count = len(self.algorithm.funcs)
        for copy, clone in zip(self.found.names, self.found.clones, strict=True):
            if not clone.wrapper:
                place = clone.func
                while place >= count:
                    place = self.found.clones[place - count].func
                if name in self.algorithm.producers[self.algorithm.funcs[place].name]:
                    readers.append(copy)
        return readers

    def place(self, name: str) -> int:
        """Return the position of an original Func or a copy, as in `Clone`."""
        if name in self.algorithm.order:
            return self.algorithm.order[name]
        return len(self.algorithm.funcs) + self.found.names.index(name)

    def add(self, source: str, readers: list[str], place: int) -> None:
        """Add the copies of `source` (at position `place`) for `readers`, and copies of them."""
        links: dict[str, list[str]] = {}
        record = self.funcs[source]
        dropped = self.dropped.get(source, set())
        named = {link.func_name for link in record.func_schedule.wrappers if link.func_name}
        for link in record.func_schedule.wrappers:
            copy = self.listed[link.func_index]
            if copy in dropped:
                own = [link.func_name] if link.func_name else [r for r in readers if r not in named]
                links.setdefault(copy, []).extend(r for r in own if r in readers)
        for copy in sorted(links, key=self.listed.index):
            if links[copy]:
                self._copy(source, copy, links[copy], place)

    def _copy(self, source: str, copy: str, readers: list[str], place: int) -> None:
        wrapper = is_wrapper_of(self.funcs[copy], self.funcs[source])
        count = len(self.algorithm.funcs)
        places = tuple(sorted(self.place(reader) for reader in readers))
        clones = self.found.clones
        if not wrapper and place >= count:
            # Halide makes the second clone of a Func as a clone of the first, for some of its
            # readers (see ir.clones.clone_calls).
            first = clones[place - count]
            if first.wrapper:
                raise UnreadableScheduleError(source, "a clone of a wrapper")
            left = tuple(reader for reader in first.readers if reader not in places)
            clones[place - count] = Clone(first.func, left)
            place = first.func
        clones.append(Clone(place, places, wrapper))
        self.found.names.append(copy)
        self.add(copy, readers, count + len(clones) - 1)
