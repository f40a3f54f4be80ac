"""User functions: a small typed expression language over scalars.

Users write functions in Python, which `build.fun` traces. The resulting expressions can be printed
as C, OpenCL C and CUDA C, evaluated with NumPy, counted and fused. The operands of an operation
have one type; a number literal takes the type of the other operand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.patterns.errors import PatternTypeError
from tilewright.patterns.interned import InternedNode
from tilewright.patterns.types import ScalarType, boolean, converted, misfit

MOST_POWER = 8  # largest n for which x ** n becomes a product


class Operand:
    """An operand: an expression, or a traced parameter that represents one."""

    __slots__ = ()
    __array_ufunc__ = None  # NumPy's numbers leave operators to this class

    def expression(self) -> Expr:
        """Return the expression that this operand represents; every subclass defines it."""
        raise TypeError(f"{type(self).__name__} has to define expression()")

    def __add__(self, other: Operand | float) -> Expr:
        return operation("add", self, other)

    def __radd__(self, other: Operand | float) -> Expr:
        return operation("add", other, self)

    def __sub__(self, other: Operand | float) -> Expr:
        return operation("sub", self, other)

    def __rsub__(self, other: Operand | float) -> Expr:
        return operation("sub", other, self)

    def __mul__(self, other: Operand | float) -> Expr:
        return operation("mul", self, other)

    def __rmul__(self, other: Operand | float) -> Expr:
        return operation("mul", other, self)

    def __truediv__(self, other: Operand | float) -> Expr:
        return operation("div", self, other)

    def __rtruediv__(self, other: Operand | float) -> Expr:
        return operation("div", other, self)

    def __floordiv__(self, other: Operand | float) -> Expr:
        raise _undivided("//", "i32(f64(x) / f64(y)), which truncates")

    __rfloordiv__ = __floordiv__

    def __mod__(self, other: Operand | float) -> Expr:
        raise _undivided("%", "x - y * i32(f64(x) / f64(y)), with the sign of x")

    __rmod__ = __mod__

    def __pow__(self, exponent: int) -> Expr:
        if type(exponent) is not int or not 1 <= exponent <= MOST_POWER:
            raise PatternTypeError(f"a power of {exponent!r}; give 1 to {MOST_POWER}, or use exp")
        result = self.expression()
        for _ in range(exponent - 1):
            result = operation("mul", result, self)
        return result

    def __neg__(self) -> Expr:
        return operation("neg", self)

    def __lt__(self, other: Operand | float) -> Expr:
        return operation("lt", self, other)

    def __le__(self, other: Operand | float) -> Expr:
        return operation("le", self, other)

    def __gt__(self, other: Operand | float) -> Expr:
        return operation("lt", other, self)

    def __ge__(self, other: Operand | float) -> Expr:
        return operation("le", other, self)

    def __and__(self, other: Operand | bool) -> Expr:
        return operation("and", self, other)

    def __or__(self, other: Operand | bool) -> Expr:
        return operation("or", self, other)

    def __invert__(self) -> Expr:
        return operation("not", self)

    def __eq__(self, other: object) -> bool:
        if isinstance(self, Expr) and isinstance(other, Expr):
            return self is other  # expressions are interned
        if isinstance(other, Operand | bool | int | float):
            raise PatternTypeError("== compares expressions: write equal(x, y)")
        return NotImplemented

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise PatternTypeError(
            "a user function cannot branch on a value with `if`, `and` or `or`: "
            "write where(condition, a, b), `&` or `|`"
        )


@dataclass(frozen=True, eq=False, slots=True)
class Expr(InternedNode, Operand):
    """A scalar expression."""

    def expression(self) -> Expr:
        """Return this expression."""
        return self

    def __repr__(self) -> str:
        return text(self)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Arg(Expr):
    """The parameter with this number."""

    index: int


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class ScalarConst(Expr):
    """A number, which takes the type of the other operand or of the result."""

    value: bool | int | float


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Cast(Expr):
    """A type conversion as in C: fractions are truncated."""

    type: ScalarType
    x: Expr


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class ScalarOp(Expr):
    """An operation of `OPERATIONS` on operands."""

    name: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """The properties of an operation.

    Args:
        takes: ``n`` numbers, ``f`` floating point, ``b`` truth values, ``s`` a truth value and
            two of one type (a selection).
        gives: ``same`` type as its operands, or ``boolean``.
        python: its form in Python, with ``{0}`` for operands.
        flops: the number of floating-point operations that it counts as.
    """

    arity: int
    takes: str
    gives: str
    python: str
    flops: int


OPERATIONS = {
    "add": Operation(2, "n", "same", "{0} + {1}", 1),
    "sub": Operation(2, "n", "same", "{0} - {1}", 1),
    "mul": Operation(2, "n", "same", "{0} * {1}", 1),
    "div": Operation(2, "f", "same", "{0} / {1}", 1),
    "neg": Operation(1, "n", "same", "-{0}", 1),
    "min": Operation(2, "n", "same", "minimum({0}, {1})", 1),
    "max": Operation(2, "n", "same", "maximum({0}, {1})", 1),
    "abs": Operation(1, "n", "same", "absolute({0})", 1),
    "sqrt": Operation(1, "f", "same", "sqrt({0})", 1),
    "exp": Operation(1, "f", "same", "exp({0})", 1),
    "log": Operation(1, "f", "same", "log({0})", 1),
    "sin": Operation(1, "f", "same", "sin({0})", 1),
    "cos": Operation(1, "f", "same", "cos({0})", 1),
    "lt": Operation(2, "n", "boolean", "{0} < {1}", 1),
    "le": Operation(2, "n", "boolean", "{0} <= {1}", 1),
    "eq": Operation(2, "n", "boolean", "equal({0}, {1})", 1),
    "and": Operation(2, "b", "boolean", "{0} & {1}", 0),
    "or": Operation(2, "b", "boolean", "{0} | {1}", 0),
    "not": Operation(1, "b", "boolean", "~{0}", 0),
    "where": Operation(3, "s", "same", "where({0}, {1}, {2})", 0),
}


def _undivided(sign: str, cure: str) -> PatternTypeError:
    """Return the error of an operator that could divide integers by zero."""
    return PatternTypeError(f"a user function has no {sign}: write {cure}")


def expression(x: Operand | np.generic | float) -> Expr:
    """Return an operand or a number as an expression.

    Raises:
        PatternTypeError: ``x`` is neither.
    """
    if isinstance(x, Operand) or hasattr(x, "expression"):  # typed literals have the method, too
        return x.expression()
    if isinstance(x, np.generic):
        x = x.item()
    if isinstance(x, bool | int | float):
        return ScalarConst(x)
    raise PatternTypeError(f"{x!r} in a user function: use its parameters and numbers")


@converted.register
def _cast(x: Operand | np.generic, type: ScalarType) -> Cast:
    return Cast(type, expression(x))


def operation(name: str, *args: Operand | float) -> Expr:
    """Return an operation on operands."""
    return ScalarOp(name, tuple(expression(x) for x in args))


def sqrt(x: Operand | float) -> Expr:
    """Return the square root."""
    return operation("sqrt", x)


def exp(x: Operand | float) -> Expr:
    """Return the exponential function of x."""
    return operation("exp", x)


def log(x: Operand | float) -> Expr:
    """Return the natural logarithm."""
    return operation("log", x)


def sin(x: Operand | float) -> Expr:
    """Return the sine of x in radians."""
    return operation("sin", x)


def cos(x: Operand | float) -> Expr:
    """Return the cosine of x in radians."""
    return operation("cos", x)


def absolute(x: Operand | float) -> Expr:
    """Return the absolute value."""
    return operation("abs", x)


def minimum(x: Operand | float, y: Operand | float) -> Expr:
    """Return ``y`` if it is less than ``x``, else ``x``."""
    return operation("min", x, y)


def maximum(x: Operand | float, y: Operand | float) -> Expr:
    """Return ``y`` if ``x`` is less than it, else ``x``."""
    return operation("max", x, y)


def equal(x: Operand | float, y: Operand | float) -> Expr:
    """Return whether two numbers are equal (``==`` compares expressions)."""
    return operation("eq", x, y)


def where(condition: Operand | bool, x: Operand | float, y: Operand | float) -> Expr:
    """Return ``x`` where the condition holds, else ``y``."""
    return operation("where", condition, x, y)


def type_of(e: Expr, types: tuple[ScalarType, ...]) -> ScalarType | None:
    """Return the type of an expression for types of its parameters; None for untyped numbers.

    Raises:
        PatternTypeError: operand types do not match; the message has both types and the operation.
    """
    if isinstance(e, Arg):
        return types[e.index]
    if isinstance(e, ScalarConst):
        return boolean if isinstance(e.value, bool) else None
    if isinstance(e, Cast):
        if type_of(e.x, types) is None:
            _check_numbers(e, e.x, e.type, truncated=isinstance(e.x, ScalarConst))
        return e.type
    assert isinstance(e, ScalarOp)
    info, of = OPERATIONS[e.name], [type_of(x, types) for x in e.args]
    if info.takes == "s" and of[0] is not boolean:
        raise PatternTypeError(f"the condition of {text(e)} is {of[0] or 'a number'}, not boolean")
    operands = list(zip(e.args, of, strict=True))[1 if info.takes == "s" else 0 :]
    known = [(x, t) for x, t in operands if t is not None]
    for x, t in known[1:]:
        if t is not known[0][1]:
            raise PatternTypeError(
                f"{text(e)} combines {known[0][1]} ({text(known[0][0])}) with {t} ({text(x)}); "
                f"convert one, as in {known[0][1]}(x)"
            )
    result = known[0][1] if known else None
    _check_operands(e, info, operands, result)
    return boolean if info.gives == "boolean" else result


def _check_operands(
    e: ScalarOp,
    info: Operation,
    operands: list[tuple[Expr, ScalarType | None]],
    result: ScalarType | None,
) -> None:
    allowed = {"n": "fi", "f": "f", "b": "b", "s": "fib"}[info.takes]
    if result is not None and result.kind not in allowed:
        needed = {"n": "numbers", "f": "f32 or f64", "b": "boolean"}[info.takes]
        raise PatternTypeError(f"{text(e)} has operands of type {result}; it takes {needed}")
    for x, t in operands:
        if result is not None and t is None:
            _check_numbers(e, x, result)


def _check_numbers(e: Expr, x: Expr, type: ScalarType, truncated: bool = False) -> None:
    """Check that the numbers of an operand ``x`` without a type fit the type that it takes."""
    if isinstance(x, ScalarConst):
        if type.kind == "i" and isinstance(x.value, float) and not truncated:
            raise PatternTypeError(f"{text(e)} combines {type} with the fraction {x.value}")
        if wrong := misfit(x.value, type, truncated):
            raise PatternTypeError(f"{text(e)} has the number {x.value!r}, but {wrong}")
    elif isinstance(x, ScalarOp) and OPERATIONS[x.name].gives == "same":
        for part in x.args[1:] if x.name == "where" else x.args:
            _check_numbers(e, part, type)


def check_result(e: Expr, type: ScalarType) -> None:
    """Check that an expression without a type can take the type of a function's result.

    Raises:
        PatternTypeError: the type cannot represent a number; the message has both.
    """
    _check_numbers(e, e, type)


def parts(e: Expr) -> tuple[Expr, ...]:
    """Return the expressions inside an expression."""
    if isinstance(e, ScalarOp):
        return e.args
    return (e.x,) if isinstance(e, Cast) else ()


def flops(e: Expr) -> int:
    """Return the floating-point operations of an expression; shared parts count once."""
    seen: set[Expr] = set()

    def count(x: Expr) -> int:
        if x in seen:
            return 0
        seen.add(x)
        own = OPERATIONS[x.name].flops if isinstance(x, ScalarOp) else 0
        return own + sum(map(count, parts(x)))

    return count(e)


def operations(e: Expr) -> int:
    """Return the operators and functions in an expression; shared parts count once."""
    seen: set[Expr] = set()
    open_ = [e]
    while open_:
        part = open_.pop()
        if part not in seen:
            seen.add(part)
            open_ += parts(part)
    return sum(isinstance(part, ScalarOp) for part in seen)


def uses(e: Expr, index: int) -> int:
    """Return how often the parameter with this index occurs."""
    if isinstance(e, Arg):
        return int(e.index == index)
    return sum(uses(x, index) for x in parts(e))


def replaced(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """Return the expression with each parameter replaced by the argument of its index."""
    if isinstance(e, Arg):
        return args[e.index]
    if isinstance(e, Cast):
        return Cast(e.type, replaced(e.x, args))
    if isinstance(e, ScalarOp):
        return ScalarOp(e.name, tuple(replaced(x, args) for x in e.args))
    return e


def text(e: Expr, names: tuple[str, ...] = ()) -> str:
    """Return the expression as Python."""
    if isinstance(e, Arg):
        return names[e.index] if e.index < len(names) else f"x{e.index}"
    if isinstance(e, ScalarConst):
        return repr(e.value)
    if isinstance(e, Cast):
        return f"{e.type}({text(e.x, names)})"
    assert isinstance(e, ScalarOp)
    form = OPERATIONS[e.name].python
    call = form.endswith(")")
    parts: list[Any] = []
    for x in e.args:
        inner = text(x, names)
        simple = call or not isinstance(x, ScalarOp) or OPERATIONS[x.name].python.endswith(")")
        parts.append(inner if simple and not inner.startswith("-") else f"({inner})")
    return form.format(*parts)
