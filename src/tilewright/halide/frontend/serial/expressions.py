"""Convert the expression tables of a file to the expressions of an `Algorithm`.

Equal subexpressions become one object. The names that a `Let` binds are replaced by their values,
so the result is a graph without local names. The code does not recurse, because expressions may be
thousands of nodes deep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tilewright.halide.frontend.serial.reader import MalformedError, Record
from tilewright.halide.frontend.serial.schema import (
    BINARY,
    CALL_TYPES,
    TYPE_CODES,
    VECTOR_REDUCTIONS,
)
from tilewright.halide.ir.algorithm import (
    Call,
    CallKind,
    Const,
    Expr,
    Op,
    Type,
    Variable,
    VariableKind,
)

_Node = TypeVar("_Node", Const, Variable, Op, Call)

_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_BINARY = frozenset(BINARY)
_CALL_KINDS: dict[str, CallKind] = {
    "Image": "image",
    "Extern": "extern",
    "ExternCPlusPlus": "extern",
    "PureExtern": "extern",
    "Halide": "func",
    "Intrinsic": "intrinsic",
    "PureIntrinsic": "intrinsic",
}
_INT32 = Type("int", 32)
_STRING = Type("handle", 64)
# Maximum number of visits of tables in a file. Lets nested in the values of other Lets may need one
# visit per table and binding; Halide's own files need one per table.
_VISITS = 5_000_000


@dataclass(frozen=True, eq=False, slots=True)
class _Scope:
    """The Lets around an expression, innermost first."""

    name: str
    value: Expr
    outer: _Scope | None


class Expressions:
    """Build expressions such that equal ones are one object."""

    def __init__(self) -> None:
        """Start with no expressions."""
        self.rvars: frozenset[str] = frozenset()
        self.redirected: Mapping[str, str] = {}
        self._nodes: dict[object, Any] = {}
        self._types: dict[tuple[str, int, int], Type] = {}
        self._built: dict[tuple[Record, _Scope | None], Expr] = {}
        self._visits = 0

    def start(self, redirected: Mapping[str, str], rvars: frozenset[str]) -> None:
        """Set the meaning of names in the following expressions.

        Args:
            redirected: Maps Funcs to the Funcs to call in their place.
            rvars: The stage's reduction variables. They must be given, because a reduction
                domain's predicate has them as ordinary variables.
        """
        self.redirected = redirected
        self.rvars = rvars

    def type(self, record: Record | None) -> Type:
        """Return the type that a `Type` table describes."""
        if record is None:
            raise MalformedError("a type is missing")
        if not 0 <= record.code < len(TYPE_CODES):
            raise MalformedError(f"{record.code} is not the code of a type")
        if not 1 <= record.lanes <= 65535:
            raise MalformedError(f"a type has {record.lanes} lanes")
        return self._type(TYPE_CODES[record.code], record.bits, record.lanes)

    def _type(self, code: Any, bits: int, lanes: int = 1) -> Type:
        key = code, bits, lanes
        found = self._types.get(key)
        if found is None:
            found = self._types[key] = Type(code, bits, lanes)
        return found

    def const(self, value: int | float | str, type: Type) -> Const:
        """Return the literal `value`."""
        # repr distinguishes 0.0 from -0.0, and NaN is equal to NaN.
        return self._intern(("const", repr(value), type), Const, value, type)

    def variable(self, name: str, kind: VariableKind, type: Type) -> Variable:
        """Return the variable `name`."""
        return self._intern(("variable", name, kind, type), Variable, name, kind, type)

    def op(self, name: str, args: tuple[Expr, ...], type: Type) -> Op:
        """Return the operator `name` applied to `args`."""
        return self._intern(("op", name, args, type), Op, name, args, type)

    def call(
        self, name: str, kind: CallKind, args: tuple[Expr, ...], type: Type, value_index: int
    ) -> Call:
        """Return a call of `name`."""
        key = "call", name, kind, args, type, value_index
        return self._intern(key, Call, name, kind, args, type, value_index)

    def _intern(self, key: object, make: Callable[..., _Node], *values: object) -> _Node:
        # Expressions hash by identity, and operands are interned before operators. Therefore keys
        # that contain expressions are compared in constant time.
        found: _Node | None = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = make(*values)
        return found

    def build(self, record: Record | None) -> Expr:
        """Return the expression that starts at `record`."""
        if record is None or record.table == "UndefinedExpr":
            raise MalformedError("an expression is missing")
        built = self._built
        stack: list[tuple[Record, _Scope | None]] = [(record, None)]
        while stack:
            entry = stack[-1]
            if entry in built:
                stack.pop()
                continue
            self._visits += 1
            if self._visits > _VISITS:
                raise MalformedError("the expressions are too large after replacing their Lets")
            node, scope = entry
            if node.table == "Let":
                value = self._child(node.value)
                if (value, scope) not in built:
                    stack.append((value, scope))
                    continue
                # Every visit of the Let must use the same scope object.
                inner = node.__dict__.setdefault("scopes", {})
                if scope not in inner:
                    inner[scope] = _Scope(node.name or "", built[value, scope], scope)
                body = self._child(node.body), inner[scope]
                if body not in built:
                    stack.append(body)
                    continue
                built[entry] = built[body]
                stack.pop()
                continue
            children = [(self._child(child), scope) for child in _children(node)]
            missing = [child for child in children if child not in built]
            if missing:
                stack.extend(reversed(missing))
                continue
            built[entry] = self._make(node, scope, tuple(built[child] for child in children))
            stack.pop()
        return built[record, None]

    def _child(self, record: Record | None) -> Record:
        if record is None or record.table == "UndefinedExpr":
            raise MalformedError("an operand is missing")
        return record

    def _make(self, node: Record, scope: _Scope | None, args: tuple[Expr, ...]) -> Expr:
        table = node.table
        if table in _BINARY:
            name = table.lower()
            type = args[0].type
            if name in _COMPARISONS:
                type = self._type("uint", 1, type.lanes)
            return self.op(name, args, type)
        if table in ("IntImm", "UIntImm", "FloatImm"):
            return self.const(node.value, self.type(node.type))
        if table == "StringImm":
            return self.const(node.value or "", _STRING)
        if table in ("Cast", "Reinterpret"):
            return self.op(table.lower(), args, self.type(node.type))
        if table == "Not":
            return self.op("not", args, args[0].type)
        if table == "Select":
            return self.op("select", args, args[1].type)
        if table in ("Ramp", "Broadcast"):
            lanes = args[0].type.lanes * node.lanes
            return self.op(table.lower(), args, self._lanes(args[0].type, lanes))
        if table == "Shuffle":
            if not args or not node.indices:
                raise MalformedError("a shuffle of nothing")
            indices = tuple(self.const(i, _INT32) for i in node.indices)
            return self.op("shuffle", args + indices, self._lanes(args[0].type, len(indices)))
        if table == "VectorReduce":
            if node.reduction_op >= len(VECTOR_REDUCTIONS):
                raise MalformedError(f"{node.reduction_op} is not a reduction of vectors")
            op = self.const(VECTOR_REDUCTIONS[node.reduction_op], _STRING)
            return self.op("vector_reduce", (*args, op), self._lanes(args[0].type, node.lanes))
        if table == "Variable":
            return self._make_variable(node, scope)
        if table == "Call":
            if node.call_type >= len(CALL_TYPES):
                raise MalformedError(f"{node.call_type} is not a kind of call")
            kind = _CALL_KINDS[CALL_TYPES[node.call_type]]
            name = node.name
            if kind == "func":
                name = self.redirected.get(name, name)
            return self.call(name, kind, args, self.type(node.type), node.value_index)
        raise MalformedError(f"a {table} inside a pipeline that is not lowered")

    def _lanes(self, type: Type, lanes: int) -> Type:
        if not 1 <= lanes <= 65535:
            raise MalformedError(f"a vector of {lanes} lanes")
        return self._type(type.code, type.bits, lanes)

    def _make_variable(self, node: Record, scope: _Scope | None) -> Expr:
        name = node.name or ""
        while scope is not None:
            if scope.name == name:
                return scope.value
            scope = scope.outer
        domain = node.reduction_domain
        kind: VariableKind
        if name in self.rvars or (domain is not None and domain.defined):
            kind = "rvar"
        elif node.param_name or node.image_name:
            kind = "param"
        else:
            kind = "var"
        return self.variable(name, kind, self.type(node.type))


def _children(node: Record) -> tuple[Record | None, ...]:
    """Return the tables of an expression's operands, in order."""
    table = node.table
    if table in _BINARY:
        return node.a, node.b
    if table == "Call":
        args: tuple[Record | None, ...] = node.args
        return args
    if table in ("Cast", "Reinterpret", "Broadcast", "VectorReduce"):
        return (node.value,)
    if table == "Select":
        return node.condition, node.true_value, node.false_value
    if table == "Not":
        return (node.a,)
    if table == "Ramp":
        return node.base, node.stride
    if table == "Shuffle":
        vectors: tuple[Record | None, ...] = node.vectors
        return vectors
    return ()
