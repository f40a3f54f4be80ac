"""The patterns: functions from values to values, without variables, composed with ``>>``.

A program starts at its inputs, so it is a pattern that needs no argument. Patterns are interned
(`interned`): equal ones are identical. `check` defines their types and `interpreter` their
semantics. Below, ``[T]n`` is an array of n values of type T.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, singledispatch

import numpy as np

from tilewright.arith import LoopVariable, Poly, Size
from tilewright.patterns.errors import PatternTypeError
from tilewright.patterns.interned import InternedNode
from tilewright.patterns.places import noted
from tilewright.patterns.scalar import Cast, Expr, ScalarConst
from tilewright.patterns.types import DataType, ScalarType, converted


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Pattern(InternedNode):
    """A function of one value, which may be a tuple. ``a >> b`` applies a, then b."""

    def __rshift__(self, other: Pattern) -> Pattern:
        if not isinstance(other, Pattern):
            cure = "make a function of numbers a pattern with fun(), and run it with map()"
            raise PatternTypeError(f"{self} >> {other!r}, which is not a pattern: {cure}")
        return noted(pipe(self, other), self, other)

    def __call__(self, *arguments: Pattern) -> Pattern:
        """Apply the pattern to these values: ``zip(a, b)`` is ``fork(a, b) >> zip``."""
        if not arguments:
            return self
        start = arguments[0] if len(arguments) == 1 else Fork(arguments)
        return noted(pipe(noted(start, part=True), self), start, self)

    def __repr__(self) -> str:
        return text(self)


@singledispatch
def text(p: Pattern) -> str:
    """Return a pattern as Python source; user functions appear by name.

    `printing` registers a printer per pattern class.

    Raises:
        TypeError: the class has no printer.
    """
    raise TypeError(f"{type(p).__name__} has no printer in tilewright.patterns.printing")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Pipe(Pattern):
    """A sequence of stages; without stages, the identity. Make it with `pipe`."""

    stages: tuple[Pattern, ...]


def stages(p: Pattern) -> tuple[Pattern, ...]:
    """Return the stages of a pipe; any other pattern is its own only stage."""
    return p.stages if isinstance(p, Pipe) else (p,)


def pipe(*parts: Pattern) -> Pattern:
    """Compose patterns into a flat pipe; a single stage is returned unchanged."""
    flat = tuple(stage for part in parts for stage in stages(part))
    return flat[0] if len(flat) == 1 else Pipe(flat)


IDENTITY = Pipe(())


@dataclass(frozen=True, slots=True)
class MapLevel:
    """The level that runs the iterations of a map or reduction.

    Args:
        kind: ``glb`` all threads, ``wrg`` work-groups, ``lcl`` threads of a group, ``seq`` one
            thread in a loop, ``unroll`` one thread in unrolled code, ``par`` cores of a CPU,
            ``simd`` vector lanes chosen by the C compiler, ``vec`` lanes of one vector type.
        dim: dimension of the thread grid, 0 to 2, for ``glb``, ``wrg`` and ``lcl``; else 0.
    """

    kind: str
    dim: int = 0


GRID_KINDS = ("glb", "wrg", "lcl")
PLAIN_KINDS = ("seq", "unroll", "par", "simd", "vec")
SEQ, UNROLL, PAR, SIMD, VEC = (MapLevel(kind) for kind in PLAIN_KINDS)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Map(Pattern):
    """``[T]n -> [U]n``: ``f`` on every element. If ``level`` is None, the level is undecided."""

    f: Pattern
    level: MapLevel | None = None


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Reduce(Pattern):
    """``[T]n -> U``: ``acc = f(acc, x)`` over all x, starting from the value of ``init``.

    `rewriting` regroups a reduction only if its user function is declared associative.
    """

    f: Pattern
    init: Pattern
    level: MapLevel | None = None


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Zip(Pattern):
    """``([T]n, [U]n, ...) -> [(T, U, ...)]n``."""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Unzip(Pattern):
    """``[(T, U, ...)]n -> ([T]n, [U]n, ...)``."""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class SplitPattern(Pattern):
    """``[T]n -> [[T]m](n/m)``, m divides n."""

    length: Poly


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Join(Pattern):
    """``[[T]m]n -> [T](n*m)``."""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Slide(Pattern):
    """``[T]n -> [[T]size]((n - size + step) / step)``; step divides n - size."""

    size: Poly
    step: Poly


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class SlideSeq(Pattern):
    """`Slide` whose windows a sequential loop reads in order, like RISE's ``rotateValues``.

    The loop keeps the window in private memory. Each iteration reads ``step`` new elements.
    """

    size: Poly
    step: Poly


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Pad(Pattern):
    """``[T]n -> [T](left + n + right)``; ``boundary`` maps indices outside back into range."""

    left: Poly
    right: Poly
    boundary: str


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class PadValue(Pattern):
    """``[T]n -> [T](left + n + right)``; every scalar of the padding is one number."""

    left: Poly
    right: Poly
    value: bool | int | float


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Crop(Pattern):
    """``[T]n -> [T]length``: the first elements."""

    length: Poly


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Transpose(Pattern):
    """``[[T]m]n -> [[T]n]m``."""


GATHER_LENGTH = Poly.of(Size("_n"))
GATHER_INDEX = Poly.of(LoopVariable("_i", GATHER_LENGTH))


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Gather(Pattern):
    """``[T]n -> [T]n``: element i is element ``index(i, n)`` of the input."""

    index: Poly


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Scatter(Pattern):
    """``[T]n -> [T]n``: element i of the input becomes element ``index(i, n)``, a permutation."""

    index: Poly


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Iterate(Pattern):
    """``f`` applied ``count`` times: ``T -> T``."""

    count: int
    f: Pattern


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class At(Pattern):
    """``[T]n -> T``: the element with a fixed index."""

    index: Poly


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Get(Pattern):
    """``(T, U, ...) -> T``: the component with a fixed number."""

    index: int


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Fork(Pattern):
    """``T -> (U, V, ...)``: every item on the same value."""

    items: tuple[Pattern, ...]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Par(Pattern):
    """``(T, U, ...) -> (T', U', ...)``: every item on its component."""

    items: tuple[Pattern, ...]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Repeat(Pattern):
    """``T -> [T]n``: the same value n times."""

    length: Poly


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Indices(Pattern):
    """``any -> [i32]n``: 0, 1, ..., n - 1."""

    length: Poly


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Literal(Pattern):
    """``any -> type``: a number; without a type, it takes the type of the other operands."""

    value: bool | int | float
    type: ScalarType | None

    def expression(self) -> Expr:
        """Return it as a scalar expression, for ``fun(lambda a, x: a + x * i64(2))``."""
        number = ScalarConst(self.value)
        return number if self.type is None else Cast(self.type, number)


@converted.register(np.float64)  # the only NumPy float type that is a subclass of float
@converted.register(float)
@converted.register(int)
def _literal(x: bool | int | float, type: ScalarType) -> Literal:
    return Literal(x, type)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TablePattern(Pattern):
    """``any -> [type]n``: fixed numbers."""

    values: tuple[bool | int | float, ...]
    type: ScalarType


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Input(Pattern):
    """``any -> type``: an input of the program."""

    name: str
    type: DataType


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class UserFun(Pattern):
    """A function of scalars (a tuple, if there are several), as an expression of `scalar`.

    Args:
        types: the declared types of the parameters; None accepts any type.
        associative: the user's promise that ``f(f(a, b), c) = f(a, f(b, c))`` and that ``init`` is
            neutral, so that reductions may be regrouped.
    """

    name: str
    parameters: tuple[str, ...]
    types: tuple[ScalarType | None, ...]
    body: Expr
    associative: bool = False


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class To(Pattern):
    """``f``, whose result is stored in ``global``, ``local`` or ``private`` memory."""

    space: str
    f: Pattern


def children(p: Pattern) -> tuple[Pattern, ...]:
    """Return the patterns that a pattern directly contains."""
    if isinstance(p, Pipe):
        return p.stages
    if isinstance(p, Fork | Par):
        return p.items
    if isinstance(p, Map | Iterate | To):
        return (p.f,)
    return (p.f, p.init) if isinstance(p, Reduce) else ()


def rebuilt(p: Pattern, new: tuple[Pattern, ...]) -> Pattern:
    """Return the pattern with its `children` replaced by ``new``."""
    if isinstance(p, Pipe):
        return pipe(*new)
    if isinstance(p, Fork | Par):
        return type(p)(new)
    if isinstance(p, Map):
        return Map(new[0], p.level)
    if isinstance(p, Iterate):
        return Iterate(p.count, new[0])
    if isinstance(p, To):
        return To(p.space, new[0])
    return Reduce(new[0], new[1], p.level) if isinstance(p, Reduce) else p


def walk(p: Pattern) -> Iterator[Pattern]:
    """Yield a pattern and all patterns inside; a shared pattern appears once per use."""
    yield p
    for child in children(p):
        yield from walk(child)


def inputs(p: Pattern) -> tuple[Input, ...]:
    """Return the inputs of a program, in the order of their first use."""
    return tuple(dict.fromkeys(node for node in walk(p) if isinstance(node, Input)))


def user_functions(p: Pattern) -> tuple[UserFun, ...]:
    """Return the user functions of a program, in the order of their first use."""
    return tuple(dict.fromkeys(node for node in walk(p) if isinstance(node, UserFun)))


def scatters(p: Pattern) -> bool:
    """Return whether a pattern has a `scatter` in it."""
    return any(isinstance(q, Scatter) for q in walk(p))


@lru_cache(100_000)
def computes(p: Pattern) -> bool:
    """Return whether a pattern computes values, instead of only changing the layout."""
    return isinstance(p, UserFun | Reduce | To) or any(map(computes, children(p)))
