"""The common base of compiled programs: argument checks and result shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arith import Poly, evaluate
from tilewright.patterns import nodes as n
from tilewright.patterns.binding import bind, conforming
from tilewright.patterns.check import requirements, type_of
from tilewright.patterns.codegen.code import Buffer, Code
from tilewright.patterns.codegen.limits import SizeLimit, exceeded
from tilewright.patterns.codegen.printer import scratch
from tilewright.patterns.errors import SizeError
from tilewright.patterns.places import about
from tilewright.patterns.types import ArrayType, DataType, TupleType, dimensions

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class BoundKernel:
    """A kernel with its arguments and memory, which can be run any number of times.

    Args:
        run: runs the kernel, and returns when it has finished.
        result: returns the results of the last run.
    """

    run: Callable[[], None]
    result: Callable[[], Any]


def check_index_range(limits: Sequence[SizeLimit], known: Mapping[str, int]) -> None:
    """Check that 32-bit indices, which GPU kernels use, suffice for known sizes.

    Raises:
        SizeError: an array, an index or a loop is too long.
    """
    if wrong := exceeded(limits, known):
        raise SizeError(wrong)


class CompiledPattern:
    """A compiled program. A call with one array per input returns the result.

    Attributes:
        program: the patterns.
        source: the source in the target's language.
        code: the intermediate code that `source` was printed from.
    """

    def __init__(self, program: n.Pattern, code: Code, source: str) -> None:
        self.program, self.type, self.code, self.source = program, type_of(program), code, source
        self.inputs = n.inputs(program)
        self.requirements = requirements(program)

    def prepare(
        self, arrays: tuple[Any, ...], sizes: Mapping[str, int] | None
    ) -> tuple[dict[str, Array], dict[str, int]]:
        """Return the inputs by name, in their types, and the value of every size.

        Raises:
            SizeError: arrays or sizes do not fit the program.
            PatternError: an array has the wrong type.
        """
        with about(self.program):
            given = conforming(self.inputs, arrays)
            known = bind(self.inputs, given, sizes or {})
            for requirement in self.requirements:
                requirement.check(known)
        missing = [name for name in self.code.sizes if name not in known]
        if missing:
            raise SizeError(
                f"no input's shape gives {missing[0]}: pass sizes={{'{missing[0]}': ...}}"
            )
        return given, known

    def memory(self, known: Mapping[str, int]) -> dict[Buffer, Array]:
        """Allocate arrays for the results and for the program's intermediate results."""
        buffers = [*self.code.outputs, *scratch(self.code)]
        return {b: np.empty(int(evaluate(b.size, known)), b.type.dtype) for b in buffers}

    def result(self, made: Mapping[Buffer, Array], known: Mapping[str, int]) -> Any:
        """Return the results in the shape of the program's type; tuples as tuples of arrays."""
        return _shaped(self.type, iter([made[b] for b in self.code.outputs]), known, ())


def _shaped(
    kind: DataType, flat: Iterator[Array], known: Mapping[str, int], outer: tuple[Poly, ...]
) -> Any:
    lengths, item = dimensions(kind)
    if isinstance(item, TupleType):
        return tuple(_shaped(part, flat, known, (*outer, *lengths)) for part in item.items)
    assert not isinstance(item, ArrayType)
    shape = [int(evaluate(length, known)) for length in (*outer, *lengths)]
    return next(flat).reshape(shape)
