"""Evaluates the texts in which T1 files list values: lists, ranges, sums and comprehensions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from typing import Any

_MOST_VALUES = 1_000_000  # per parameter: more than any recorded space has
_MOST_BITS = 64  # in the result of a power: values are sizes and counts
_OPERATORS: dict[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def listed(text: str) -> list[Any]:
    """Return the values of a text, as of ``[1, 2] + list(range(32, 1025, 32))``.

    Raises:
        ValueError: it is not such a list, or too long.
    """
    try:
        found = _value(ast.parse(text.strip(), mode="eval").body, {})
    except (SyntaxError, MemoryError, ArithmeticError, TypeError) as error:
        raise ValueError(f"{text[:60]!r} is not a list of values: {error}") from None
    if not isinstance(found, list):
        raise ValueError(f"{text[:60]!r} is not a list of values")
    return found


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value):
            return value
        case ast.Name(name) if name in names:
            return names[name]
        case ast.List(elements) | ast.Tuple(elements):
            return [_value(each, names) for each in elements]
        case ast.UnaryOp(ast.USub(), operand):
            return -_value(operand, names)
        case ast.BinOp(left, ast.Pow(), right):
            return _power(_number(left, names), _number(right, names))
        case ast.BinOp(left, ast.Add(), right):
            one, other = _value(left, names), _value(right, names)
            if isinstance(one, list) and isinstance(other, list):
                return _limited(one + other)
            return _number(left, names) + _number(right, names)
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_number(left, names), _number(right, names))
        case ast.Call(ast.Name("list"), [argument], []):
            return _sequence(argument, names)
        case ast.Call(ast.Name("range"), arguments, []):
            return list(_limited(range(*(_value(each, names) for each in arguments))))
        case ast.ListComp(element, [ast.comprehension(ast.Name(name), source, [], 0)]):
            values = _sequence(source, names)
            return [_value(element, {**names, name: each}) for each in values]
    raise ValueError(f"{ast.unparse(node)[:60]!r} is not a value or a list of values")


def _sequence(node: ast.expr, names: Mapping[str, Any]) -> list[Any]:
    found = _value(node, names)
    if not isinstance(found, list):
        raise ValueError(f"{ast.unparse(node)[:60]!r} is not a list")
    return found


def _number(node: ast.expr, names: Mapping[str, Any]) -> Any:
    found = _value(node, names)
    if not isinstance(found, int | float):
        raise ValueError(f"{ast.unparse(node)[:60]!r} is not a number")
    return found


def _power(base: Any, exponent: Any) -> Any:
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and abs(base).bit_length() * max(exponent, 1) > _MOST_BITS:
        raise ValueError(f"{base} ** {exponent} has more than {_MOST_BITS} bits")
    return base**exponent


def _limited(values: Any) -> Any:
    if len(values) > _MOST_VALUES:
        raise ValueError(f"more than {_MOST_VALUES} values")
    return values
