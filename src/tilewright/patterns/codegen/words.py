"""Printing of expressions as C, OpenCL C and CUDA C: numbers, indices and user functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tilewright.arith import Atom, Boundary, Div, LoopVariable, Mod, Poly, Size, at_least_zero
from tilewright.patterns import scalar
from tilewright.patterns.codegen.code import (
    BufferLoad,
    FunctionCall,
    IndexValue,
    Inside,
    Lane,
    Name,
    Number,
    Value,
    VectorLoad,
)
from tilewright.patterns.nodes import UserFun
from tilewright.patterns.types import ScalarType, boolean


@dataclass(frozen=True, slots=True)
class CDialect:
    """The differences between C, OpenCL C and CUDA C.

    Args:
        index: the type of indices and sizes.
        helper: the qualifiers of a helper function.
        suffixed: whether mathematical functions of f32 end in ``f``, as in C.
        boolean: the type of a truth value in memory.
        vector_load: the load of a vector of ``{n}`` elements at an address.
        vector_store: the statement that stores one.
    """

    name: str
    index: str
    helper: str
    suffixed: bool
    boolean: str
    vector_load: str = ""
    vector_store: str = ""


C = CDialect("c", "long", "static inline ", True, "_Bool")
OPENCL = CDialect(
    "opencl",
    "int",
    "",
    False,
    "uchar",
    "vload{n}(0, {at})",
    "vstore{n}(({type}{n})({values}), 0, {at});",
)
CUDA = CDialect(
    "cuda",
    "int",
    "static __device__ inline ",
    True,
    "bool",
    "*(const {type}{n} *)({at})",
    "*({type}{n} *)({at}) = make_{type}{n}({values});",
)

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "and": "&&",
    "or": "||",
}

_INDEX_HELPERS = {
    "div": "{{ return a / n - (a % n < 0); }}",
    "mod": "{{ return (a % n + n) % n; }}",
    "clamp": "{{ return a < 0 ? 0 : a < n ? a : n - 1; }}",
    "wrap": "{{ return (a % n + n) % n; }}",
    "least": "{{ return a < n ? a : n; }}",
    "most": "{{ return a < n ? n : a; }}",
    "mirror": "{{ a = (a % (2 * n) + 2 * n) % (2 * n); return a < n ? a : 2 * n - 1 - a; }}",
}


@dataclass(slots=True)
class Words:
    """Prints expressions, and collects the helper and user functions that they call.

    Args:
        named: names of parts of indices.
        inside: pairs (x, n) for which ``0 <= x < n`` holds in the current code.
    """

    dialect: CDialect
    named: Mapping[Atom, str] = field(default_factory=dict)
    inside: frozenset[tuple[Poly, Poly]] = frozenset()
    helpers: dict[str, str] = field(default_factory=dict)
    functions: dict[tuple[UserFun, tuple[ScalarType, ...]], str] = field(default_factory=dict)

    def type(self, t: ScalarType) -> str:
        """Return the name of a scalar type."""
        return self.dialect.boolean if t is boolean else t.c

    # Indices

    def index(self, p: Poly) -> str:
        """Return an index or size."""
        top, bottom = p.fraction
        if bottom == 1:
            return self._sum(top)
        return f"{self._factor(top)} / {self._factor(bottom)}"

    def _factor(self, p: Poly) -> str:
        text = self._sum(p)
        return text if text.isidentifier() or text.isdigit() else f"({text})"

    def _sum(self, p: Poly) -> str:
        text = ""
        for monomial, c in p.terms:
            factors = [self.atom(a) for a, q in monomial for _ in range(q)]
            if abs(c) != 1 or not factors:
                factors.insert(0, str(abs(c)))
            sign = (" - " if c < 0 else " + ") if text else ("-" if c < 0 else "")
            text += sign + " * ".join(factors)
        return text or "0"

    def atom(self, atom: Atom) -> str:
        """Return a part of an index: its name, or its definition if it has none."""
        return self.named.get(atom) or self.define(atom)

    def define(self, atom: Atom) -> str:
        """Return the definition of a part of an index."""
        if isinstance(atom, Size | LoopVariable):
            return atom.name
        if isinstance(atom, Div | Mod):
            kind = "div" if isinstance(atom, Div) else "mod"
            if at_least_zero(atom.x):
                sign = "/" if kind == "div" else "%"
                return f"({self._operand(atom.x)} {sign} {self._operand(atom.d)})"
            return self._index_helper(kind, atom.x, atom.d)
        assert isinstance(atom, Boundary)
        if (atom.x, atom.n) in self.inside:
            return self._factor(atom.x)
        return self._index_helper(atom.kind, atom.x, atom.n)

    def _operand(self, p: Poly) -> str:
        return self._factor(p) if p.fraction[1] == 1 else f"({self.index(p)})"

    def extreme(self, kind: str, values: Iterable[Poly | str]) -> str:
        """Return the ``least`` or ``most`` of indices; text is already printed."""
        text, *others = (v if isinstance(v, str) else self.index(v) for v in values)
        for other in others:
            text = f"{self._helper(kind)}({text}, {other})"
        return text

    def _index_helper(self, kind: str, x: Poly, n: Poly) -> str:
        return f"{self._helper(kind)}({self.index(x)}, {self.index(n)})"

    def _helper(self, kind: str) -> str:
        name, t = f"index_{kind}", self.dialect.index
        body = _INDEX_HELPERS[kind].format()
        self.helpers[name] = f"{self.dialect.helper}{t} {name}({t} a, {t} n) {body}"
        return name

    # Values

    def value(self, v: Value) -> str:
        """Return a value."""
        if isinstance(v, VectorLoad):
            at = f"{v.buffer.name} + {self.index(v.index)}"
            kind = self.type(v.buffer.type)
            return self.dialect.vector_load.format(n=v.lanes, at=at, type=kind)
        if isinstance(v, Lane):
            return f"{v.name}.{'xyzw'[v.number]}"
        if isinstance(v, BufferLoad):
            return f"{v.buffer.name}[{self.index(v.index)}]"
        if isinstance(v, Name):
            return v.name
        if isinstance(v, Number):
            return self.number(v.value, v.type)
        if isinstance(v, IndexValue):
            return f"(int)({self.index(v.index)})"
        if isinstance(v, FunctionCall):
            return f"{self.function(v)}({', '.join(map(self.value, v.args))})"
        assert isinstance(v, Inside)
        if (v.index, v.length) in self.inside:
            return self.value(v.value)
        index = self.index(v.index)
        test = f"{index} >= 0 && {index} < {self.index(v.length)}"
        return f"({test} ? {self.value(v.value)} : {self.value(v.other)})"

    def number(self, value: float, t: ScalarType) -> str:
        """Return a literal of a type, exact."""
        if t is boolean:
            return "1" if value else "0"
        if t.kind == "i":
            whole = int(value)
            if whole == np.iinfo(t.dtype).min:  # C has no literal of it
                return f"({whole + 1} - 1)" if t.size == 4 else f"({whole + 1}L - 1)"
            return str(whole) if whole >= 0 else f"({whole})"
        rounded = t.dtype.type(value)
        if not np.isfinite(rounded):
            return "NAN" if np.isnan(rounded) else ("INFINITY" if rounded > 0 else "(-INFINITY)")
        text = str(rounded)
        text = text if any(c in text for c in ".e") else text + ".0"
        text += "f" if t.size == 4 else ""
        return text if not text.startswith("-") else f"({text})"

    def function(self, call: FunctionCall) -> str:
        """Return the name of a user function for the types of a call's arguments."""
        key = call.function, call.types
        if key not in self.functions:
            taken = set(self.functions.values())
            name = stem = f"f_{call.function.name}"
            while name in taken:
                name = f"{stem}_{len(taken)}"
            self.functions[key] = name
            self.helpers[f"user {name}"] = self._definition(name, call)
        return self.functions[key]

    def _definition(self, name: str, call: FunctionCall) -> str:
        args = [f"x{i}" for i in range(len(call.types))]
        given = ", ".join(f"{self.type(t)} {a}" for t, a in zip(call.types, args, strict=True))
        body = FunctionBody(self, call.types, args, _shared(call.function.body))
        result = body.text(call.function.body, call.type)
        lines = [f"{self.dialect.helper}{self.type(call.type)} {name}({given}) {{"]
        lines += [f"  {line}" for line in body.lines]
        return "\n".join([*lines, f"  return {result};", "}"])


@dataclass(slots=True)
class FunctionBody:
    """The body of a user function; repeated subexpressions become variables."""

    words: Words
    types: tuple[ScalarType, ...]
    args: list[str]
    shared: set[scalar.Expr]
    lines: list[str] = field(default_factory=list)
    made: dict[tuple[scalar.Expr, ScalarType], str] = field(default_factory=dict)

    def text(self, e: scalar.Expr, wanted: ScalarType) -> str:
        """Return the text of an expression; one without a type gets the ``wanted`` type."""
        if isinstance(e, scalar.Arg):
            return self.args[e.index]
        if isinstance(e, scalar.ScalarConst):
            return self.words.number(e.value, wanted)
        kind = scalar.type_of(e, self.types) or wanted
        if (e, kind) not in self.made:
            text = self._compute(e, kind)
            if e not in self.shared:
                return f"({text})"
            name = f"t{len(self.made)}"
            self.lines.append(f"{self.words.type(kind)} {name} = {text};")
            self.made[e, kind] = name
        return self.made[e, kind]

    def _compute(self, e: scalar.Expr, kind: ScalarType) -> str:
        if isinstance(e, scalar.Cast):
            inner = scalar.type_of(e.x, self.types) or kind
            return f"({self.words.type(e.type)}){self.text(e.x, inner)}"
        assert isinstance(e, scalar.ScalarOp)
        found = [scalar.type_of(x, self.types) for x in e.args]
        operands = found[1:] if e.name == "where" else found
        inner = next((t for t in operands if t is not None), kind)
        args = [self.text(x, t or inner) for x, t in zip(e.args, found, strict=True)]
        if e.name in _INFIX:
            return f"{args[0]} {_INFIX[e.name]} {args[1]}"
        return _FORMS.get(e.name, _mathematical)(self.words.dialect, e.name, args, inner)


def _shared(e: scalar.Expr) -> set[scalar.Expr]:
    """Return the parts of an expression that occur more than once."""
    seen: set[scalar.Expr] = set()
    again: set[scalar.Expr] = set()

    def visit(x: scalar.Expr) -> None:
        if x in seen:
            again.add(x)
            return
        seen.add(x)
        for part in scalar.parts(x):
            visit(part)

    visit(e)
    # min, max and abs print their operands twice.
    twice = [x for x in seen if isinstance(x, scalar.ScalarOp) and x.name in ("min", "max", "abs")]
    return again.union(*(scalar.parts(x) for x in twice))


def _mathematical(dialect: CDialect, name: str, args: list[str], t: ScalarType) -> str:
    suffix = "f" if dialect.suffixed and t.size == 4 else ""
    return f"{name}{suffix}({', '.join(args)})"


def _absolute(dialect: CDialect, name: str, args: list[str], t: ScalarType) -> str:
    if t.kind == "i":
        return f"{args[0]} < 0 ? -{args[0]} : {args[0]}"
    return _mathematical(dialect, "fabs", args, t)


_FORMS: dict[str, Callable[[CDialect, str, list[str], ScalarType], str]] = {
    "neg": lambda d, name, a, t: f"-{a[0]}",
    "not": lambda d, name, a, t: f"!{a[0]}",
    "min": lambda d, name, a, t: f"{a[1]} < {a[0]} ? {a[1]} : {a[0]}",
    "max": lambda d, name, a, t: f"{a[0]} < {a[1]} ? {a[1]} : {a[0]}",
    "where": lambda d, name, a, t: f"{a[0]} ? {a[1]} : {a[2]}",
    "abs": _absolute,
}
