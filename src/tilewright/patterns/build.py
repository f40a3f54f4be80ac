"""Functions that write programs: they make patterns and have the names usual in the field.

Example:
    >>> from tilewright.patterns import *
    >>> N, M = sizes("N M")
    >>> mean = fun(lambda w: (w[0, 1] + w[2, 1]) / 2, "mean")
    >>> array("A", f32[N, M]) >> pad2(1, 1, clamp) >> slide2(3, 1) >> map2(mean)
    A >> pad2(1, 1, clamp) >> slide2(3, 1) >> map2(fork(at(0, 1), at(2, 1)) >> mean)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from keyword import iskeyword

from tilewright.arith import Poly, poly
from tilewright.patterns.errors import PatternError
from tilewright.patterns.nodes import (
    GATHER_INDEX,
    GATHER_LENGTH,
    IDENTITY,
    PAR,
    SEQ,
    SIMD,
    UNROLL,
    VEC,
    At,
    Crop,
    Fork,
    Gather,
    Get,
    Indices,
    Input,
    Iterate,
    Join,
    Literal,
    Map,
    MapLevel,
    Pad,
    PadValue,
    Par,
    Pattern,
    Reduce,
    Repeat,
    Scatter,
    Slide,
    SlideSeq,
    SplitPattern,
    TablePattern,
    To,
    Transpose,
    Unzip,
    UserFun,
    Zip,
    pipe,
)
from tilewright.patterns.places import noted
from tilewright.patterns.scalar import Arg, Expr, Operand, expression
from tilewright.patterns.types import DataType, ScalarType

Number = bool | int | float
Length = Poly | int

RESERVED_PREFIXES = ("_", "f_", "index_")  # of names in generated code
C_WORDS = frozenset(
    "auto bool break case char const constant continue default do double else enum extern failed "
    "float for free global goto half if inline int kernel local long main malloc private register "
    "restrict return short signed sizeof static struct switch threads typedef uchar uint ulong "
    "union unsigned ushort void volatile while".split()
)

clamp, wrap, mirror = "clamp", "wrap", "mirror"

identity: Pattern = IDENTITY
join: Pattern = Join()
transpose: Pattern = Transpose()
zip: Pattern = Zip()
unzip: Pattern = Unzip()
zip2: Pattern = pipe(zip, Map(zip))
untile2: Pattern = pipe(Map(transpose), join, Map(join))


def _size(name: str, value: Length, least: int) -> Poly:
    """Return a length or count that the user gave as a polynomial.

    Raises:
        PatternError: it is neither a size nor a whole number of at least ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, Poly | int):
        raise PatternError(f"{name} is {value!r}; give a whole number or a size")
    known = poly(value).value
    if known is not None and (known < least or not isinstance(known, int)):
        raise PatternError(f"{name} is {known}; give a whole number from {least}")
    return poly(value)


def array(name: str, type: DataType) -> Pattern:
    """Return an input of the program, as in ``array("A", f32[N, M])`` or ``array("a", f32)``.

    Raises:
        PatternError: the name cannot be an identifier in C and Python, or no type is given.
    """
    plain = name.isidentifier() and name.isascii() and not name.startswith(RESERVED_PREFIXES)
    if not plain or iskeyword(name) or name in C_WORDS:
        raise PatternError(f"input {name!r}: give a name that C and Python can use, as in 'A'")
    if not isinstance(type, DataType):
        raise PatternError(f"input {name}: {type!r} is not a type; give one as in f32[N, M]")
    return noted(Input(name, type))


def map(f: Pattern, level: MapLevel | None = None) -> Pattern:
    """Apply ``f`` to every element.

    Args:
        f: the function of an element.
        level: the level (`nodes.MapLevel`) that runs the iterations; None to decide it later.
    """
    return noted(Map(_pattern("map", f), _checked_level(level)))


def _checked_level(level: MapLevel | None) -> MapLevel | None:
    if level is None or isinstance(level, MapLevel):
        return level
    raise PatternError(f"level {level!r}; use map_glb, map_wrg, map_lcl, map_par or map_seq")


def map2(f: Pattern) -> Pattern:
    """Apply ``f`` to every element of every row."""
    return noted(Map(noted(Map(_pattern("map2", f)), part=True)))


def map3(f: Pattern) -> Pattern:
    """Apply ``f`` to every element of a three-dimensional array."""
    return map(map2(f))


def map_glb(f: Pattern, dim: int = 0) -> Pattern:
    """Apply ``f`` to every element, distributed over all threads of dimension ``dim``."""
    return map(f, _grid("glb", dim))


def map_wrg(f: Pattern, dim: int = 0) -> Pattern:
    """Apply ``f`` to every element, distributed over the work-groups of dimension ``dim``."""
    return map(f, _grid("wrg", dim))


def map_lcl(f: Pattern, dim: int = 0) -> Pattern:
    """Apply ``f`` to every element, distributed over a group's threads in dimension ``dim``."""
    return map(f, _grid("lcl", dim))


def map_seq(f: Pattern) -> Pattern:
    """Apply ``f`` to every element, in a loop."""
    return map(f, SEQ)


def map_unroll(f: Pattern) -> Pattern:
    """Apply ``f`` to every element, without a loop; the length must be a number."""
    return map(f, UNROLL)


def map_par(f: Pattern) -> Pattern:
    """Apply ``f`` to every element, distributed over the cores of a CPU."""
    return map(f, PAR)


def map_simd(f: Pattern) -> Pattern:
    """Apply ``f`` to every element, distributed over the lanes of vectors."""
    return map(f, SIMD)


def map_vec(f: Pattern) -> Pattern:
    """Apply ``f`` to 2, 4, 8 or 16 elements, which are accessed in pieces of at most 16 bytes."""
    return map(f, VEC)


def _grid(kind: str, dim: int) -> MapLevel:
    if dim not in (0, 1, 2):
        raise PatternError(f"dimension {dim!r} of map_{kind}; give 0, 1 or 2")
    return MapLevel(kind, dim)


def reduce(f: Pattern, init: Pattern | Number, level: MapLevel | None = None) -> Pattern:
    """Return ``[T]n -> U``: ``acc = f(acc, x)`` over all elements, starting from ``init``.

    As in RISE, the result is a scalar; Lift returns an array of one element.
    """
    return noted(Reduce(_pattern("reduce", f), _value(init), _checked_level(level)))


def reduce_seq(f: Pattern, init: Pattern | Number) -> Pattern:
    """Return `reduce` in a loop."""
    return reduce(f, init, SEQ)


def reduce_unroll(f: Pattern, init: Pattern | Number) -> Pattern:
    """Return `reduce` without a loop; the length must be a number."""
    return reduce(f, init, UNROLL)


def split(length: Length) -> Pattern:
    """Return ``[T]n -> [[T]length](n/length)``; ``length`` divides n."""
    return noted(SplitPattern(_size("split's length", length, 1)))


def slide(size: Length, step: Length) -> Pattern:
    """Return windows of ``size`` elements; each starts ``step`` elements after the previous one."""
    return noted(Slide(_size("slide's size", size, 1), _size("slide's step", step, 1)))


def slide_seq(size: Length, step: Length) -> Pattern:
    """Return `slide` for a `map_seq` that reads windows in order and keeps them in registers."""
    return noted(SlideSeq(_size("slide_seq's size", size, 1), _size("slide_seq's step", step, 1)))


def slide2(size: Length, step: Length) -> Pattern:
    """Return square windows: ``[[T]m]n -> [[[[T]size]size]m']n'``."""
    one = slide(size, step)
    return noted(pipe(Map(one), one, Map(transpose)))


def slide3(size: Length, step: Length) -> Pattern:
    """Return cubic windows: from ``[[[T]l]m]n``, windows of size x size x size in three dimensions.

    The construction is Lift's: windows of planes, then `slide2` in each plane.
    """
    swap = Map(transpose)
    whole = pipe(Map(slide2(size, step)), slide(size, step), swap, Map(swap))
    return noted(whole)


def pad(left: Length, right: Length, boundary: str | Number) -> Pattern:
    """Return a pattern that pads both ends.

    Args:
        left: the number of elements before the first.
        right: the number of elements after the last.
        boundary: `clamp`, `wrap` or `mirror`, or a number that fills the padding.

    Raises:
        PatternError: the boundary is unknown.
    """
    sides = _size("pad's left", left, 0), _size("pad's right", right, 0)
    if isinstance(boundary, str):
        if boundary not in (clamp, wrap, mirror):
            raise PatternError(f"boundary {boundary!r}; give clamp, wrap, mirror or a number")
        return noted(Pad(*sides, boundary))
    if not isinstance(boundary, bool | int | float):
        raise PatternError(f"boundary {boundary!r}; give clamp, wrap, mirror or a number")
    return noted(PadValue(*sides, boundary))


def pad2(left: Length, right: Length, boundary: str | Number) -> Pattern:
    """Return `pad` in both dimensions."""
    one = pad(left, right, boundary)
    return noted(pipe(one, Map(one)))


def pad3(left: Length, right: Length, boundary: str | Number) -> Pattern:
    """Return `pad` in all three dimensions."""
    one = pad(left, right, boundary)
    return noted(pipe(one, Map(one), Map(Map(one))))


def crop(length: Length) -> Pattern:
    """Return the first ``length`` elements."""
    return noted(Crop(_size("crop's length", length, 1)))


def crop2(rows: Length, columns: Length) -> Pattern:
    """Return the first ``columns`` elements of each of the first ``rows`` rows."""
    return noted(pipe(crop(rows), Map(crop(columns))))


def gather(index: Callable[[Poly, Poly], Poly | int]) -> Pattern:
    """Return an array whose element i is element ``index(i, n)`` of the input, n its length.

    ``gather(lambda i, n: n - 1 - i)`` reverses the input.
    """
    return noted(Gather(_index("gather", index)))


def scatter(index: Callable[[Poly, Poly], Poly | int]) -> Pattern:
    """Move element i of the input to position ``index(i, n)``, which must be a permutation."""
    return noted(Scatter(_index("scatter", index)))


def _index(where: str, index: Callable[[Poly, Poly], Poly | int]) -> Poly:
    cure = f"{where} takes a function of an index and a length, as in lambda i, n: n - 1 - i"
    try:
        found = index(GATHER_INDEX, GATHER_LENGTH)
    except TypeError as error:
        raise PatternError(f"{cure} ({error})") from None
    if not isinstance(found, Poly | int):
        raise PatternError(f"{cure}; it returned {found!r}")
    return poly(found)


def iterate(count: int, f: Pattern) -> Pattern:
    """Apply ``f`` ``count`` times."""
    _size("iterate's count", count, 0)
    return noted(Iterate(count, _pattern("iterate", f)))


def at(*indices: Length) -> Pattern:
    """Return the element with fixed indices: ``at(0, 1)`` is row 0, column 1."""
    steps = [noted(At(_size("at's index", i, 0)), part=len(indices) > 1) for i in indices]
    return noted(pipe(*steps))


def get(index: int) -> Pattern:
    """Return component ``index`` of a tuple, counted from 0."""
    _size("get's index", index, 0)
    return noted(Get(index))


def fork(*items: Pattern) -> Pattern:
    """Apply every item to the same value; the results are a tuple."""
    return noted(Fork(tuple(_pattern("fork", item) for item in items)))


def par(*items: Pattern) -> Pattern:
    """Apply each item to the corresponding component of a tuple; the results are a tuple."""
    return noted(Par(tuple(_pattern("par", item) for item in items)))


def repeat(length: Length) -> Pattern:
    """Return an array that repeats a value ``length`` times."""
    return noted(Repeat(_size("repeat's length", length, 1)))


def generate(length: Length, f: Pattern | None = None) -> Pattern:
    """Return the array ``f(0), f(1), ..., f(length - 1)``; without ``f``, the i32 indices."""
    made = Indices(_size("generate's length", length, 1))
    return noted(made if f is None else pipe(made, Map(_pattern("generate", f))))


def table(values: Sequence[Number], type: ScalarType) -> Pattern:
    """Return an array of fixed numbers."""
    if not values:
        raise PatternError("a table needs at least one value")
    return noted(TablePattern(tuple(values), type))


def to_global(f: Pattern) -> Pattern:
    """Apply ``f`` and store its result in global memory (a buffer of the program)."""
    return noted(To("global", _pattern("to_global", f)))


def to_local(f: Pattern) -> Pattern:
    """Apply ``f`` and store its result in the local memory of a work-group."""
    return noted(To("local", _pattern("to_local", f)))


def to_private(f: Pattern) -> Pattern:
    """Apply ``f`` and store its result in the private memory of a thread."""
    return noted(To("private", _pattern("to_private", f)))


def _pattern(where: str, f: Pattern) -> Pattern:
    if not isinstance(f, Pattern):
        raise PatternError(f"{where} of {f!r}; give a pattern, or make a function one with fun()")
    return f


def _value(init: Pattern | Number) -> Pattern:
    if isinstance(init, bool | int | float):
        return Literal(init, None)
    return _pattern("reduce", init)


class TracedParameter(Operand):
    """A parameter that records its uses while `fun` runs the user's function.

    It represents a scalar, or an array that the function indexes.
    """

    __slots__ = ("_reads", "_route")

    def __init__(self, reads: dict[tuple[Pattern, ...], Arg], route: tuple[Pattern, ...]) -> None:
        self._reads, self._route = reads, route

    def expression(self) -> Expr:
        """Return the scalar at this position of the parameter."""
        return self._reads.setdefault(self._route, Arg(len(self._reads)))

    def __iter__(self) -> Iterator[TracedParameter]:
        raise PatternError("a user function cannot loop over an array: use reduce")

    def __getitem__(self, indices: Length | tuple[Length, ...]) -> TracedParameter:
        many = indices if isinstance(indices, tuple) else (indices,)
        steps = tuple(At(_size("an index", i, 0)) for i in many)
        return TracedParameter(self._reads, (*self._route, *steps))


def fun(
    function: Callable[..., Operand | float],
    name: str | None = None,
    *,
    associative: bool = False,
    types: Sequence[ScalarType | None] | None = None,
) -> Pattern:
    """Make a user function from a Python function of numbers; also usable as a decorator.

    The function runs once, with parameters that record the operations on them. A parameter
    may be an array of fixed size, which is indexed: ``fun(lambda w: w[0, 1] + w[2, 1])``. With
    several parameters the pattern takes a tuple. Annotations such as ``x: f32`` are checked.

    Args:
        function: takes numbers or arrays of fixed size, and returns a number.
        name: its name in generated code; by default the function's.
        associative: whether rewriting may assume ``f(f(a, b), c) = f(a, f(b, c))``, and that
            reductions start with a neutral element.
        types: the type of each parameter, or of its elements if it is an array; None accepts any
            type. By default the annotations.

    Raises:
        PatternError: the function has no parameters or a variable number of them, or the number
            of types differs from the number of parameters.
    """
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        raise PatternError("a user function takes a fixed number of parameters, at least one")
    called: str = name or str(getattr(function, "__name__", "f"))
    called = called if called.isidentifier() else "f"
    reads: dict[tuple[Pattern, ...], Arg] = {}
    single = len(parameters) == 1
    routes: list[tuple[Pattern, ...]] = [
        () if single else (Get(i),) for i in range(len(parameters))
    ]
    body = function(*(TracedParameter(reads, route) for route in routes))
    body = expression(body)
    declared = [_declared(p, function) for p in parameters] if types is None else list(types)
    if len(declared) != len(parameters):
        raise PatternError(f"{called}: {len(declared)} types for {len(parameters)} parameters")
    if list(reads) != routes[: len(reads)] or len(reads) < len(routes):
        plain = all(route in routes for route in reads)
        if plain:
            return _direct(called, parameters, routes, reads, body, declared, associative)
        return _points(called, parameters, routes, reads, body, declared, associative)
    names = tuple(p.name for p in parameters)
    return noted(UserFun(called, names, tuple(declared), body, associative))


def _direct(
    called: str,
    parameters: list[inspect.Parameter],
    routes: list[tuple[Pattern, ...]],
    reads: dict[tuple[Pattern, ...], Arg],
    body: Expr,
    declared: list[ScalarType | None],
    associative: bool,
) -> Pattern:
    """Return the pattern of a function that reads scalar parameters, all or some, in any order."""
    from tilewright.patterns.scalar import replaced

    order = tuple(Arg(routes.index(route)) for route in reads)
    names = tuple(p.name for p in parameters)
    return noted(UserFun(called, names, tuple(declared), replaced(body, order), associative))


def _points(
    called: str,
    parameters: list[inspect.Parameter],
    routes: list[tuple[Pattern, ...]],
    reads: dict[tuple[Pattern, ...], Arg],
    body: Expr,
    declared: list[ScalarType | None],
    associative: bool,
) -> Pattern:
    """Return the pattern of a function of arrays: it reads the used elements, then combines."""
    names, types = [], []
    for route in reads:
        position = next(i for i, start in enumerate(routes) if route[: len(start)] == start)
        rest = route[len(routes[position]) :]
        indices = [str(step.index) for step in rest if isinstance(step, At)]
        names.append("_".join([parameters[position].name, *indices]))
        types.append(declared[position])
    inner = UserFun(called, tuple(names), tuple(types), body, associative)
    parts = [pipe(*route) for route in reads]
    start = parts[0] if len(parts) == 1 else Fork(tuple(parts))
    return noted(pipe(start, noted(inner, part=True)))


def _declared(parameter: inspect.Parameter, function: Callable[..., object]) -> ScalarType | None:
    found = parameter.annotation
    if isinstance(found, str):
        found = getattr(function, "__globals__", {}).get(found)
    return found if isinstance(found, ScalarType) else None


add = UserFun("add", ("a", "b"), (None, None), Arg(0) + Arg(1), True)
mul = UserFun("mul", ("a", "b"), (None, None), Arg(0) * Arg(1), True)
copy = UserFun("copy", ("x",), (None,), Arg(0))
