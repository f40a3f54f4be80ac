"""Programs as JSON: a list of nodes in which operands precede users; the last one is the root."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tilewright.arith import LoopVariable, Poly, parse, substitute
from tilewright.patterns import nodes, scalar
from tilewright.patterns.errors import PatternError
from tilewright.patterns.interned import InternedNode
from tilewright.patterns.types import SCALARS, ArrayType, DataType, ScalarType, TupleType

VERSION = 1


def _name(kind: type[InternedNode]) -> str:
    """Return a node's name in files: the name of its class without "Pattern" and "Scalar"."""
    return kind.__name__.removesuffix("Pattern").removeprefix("Scalar")


_KINDS: dict[str, type[InternedNode]] = {
    _name(kind): kind
    for module in (nodes, scalar)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, InternedNode)
}


def to_json(p: nodes.Pattern) -> dict[str, Any]:
    """Return a pattern as JSON values; a node that occurs twice is written once."""
    numbers: dict[InternedNode, int] = {}
    written: list[dict[str, Any]] = []

    def number(node: InternedNode) -> int:
        if node not in numbers:
            entry = {f.name: value(getattr(node, f.name)) for f in fields(node)}
            numbers[node] = len(written)
            written.append({"kind": _name(type(node)), **entry})
        return numbers[node]

    def value(x: Any) -> Any:
        if isinstance(x, InternedNode):
            return {"node": number(x)}
        if isinstance(x, tuple):
            return [value(item) for item in x]
        if isinstance(x, Poly):
            return {"size": str(x)}
        if isinstance(x, DataType):
            return {"type": _type_json(x)}
        if isinstance(x, nodes.MapLevel):
            return {"level": [x.kind, x.dim]}
        return {"float": x.hex()} if isinstance(x, float) else x

    number(p)
    return {"version": VERSION, "nodes": written}


def from_json(data: Any) -> nodes.Pattern:
    """Return the pattern of a JSON value.

    Raises:
        PatternError: the value is not in the form that `to_json` writes.
    """
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise PatternError(f"not a pattern program of version {VERSION}")
    made: list[InternedNode] = []
    try:
        for entry in data["nodes"]:
            named = {key: _value(x, made) for key, x in entry.items() if key != "kind"}
            made.append(_KINDS[entry["kind"]](**named))
        root = made[-1]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise PatternError(f"a pattern program that cannot be read ({what})") from None
    if not isinstance(root, nodes.Pattern):
        raise PatternError("a pattern program whose last node is not a pattern")
    return root


def _value(x: Any, made: list[InternedNode]) -> Any:
    if isinstance(x, list):
        return tuple(_value(item, made) for item in x)
    if not isinstance(x, dict):
        return x
    ((key, inner),) = x.items()
    if key == "node":
        if not 0 <= inner < len(made):
            raise ValueError(f"node {inner} is referred to before it is made")
        return made[inner]
    if key == "size":
        return _index(parse(inner))
    if key == "type":
        return _type(inner)
    if key == "level":
        return nodes.MapLevel(*inner)
    if key == "float":
        try:
            return float.fromhex(inner)
        except OverflowError as error:
            raise ValueError(f"{str(inner)[:60]!r} is not a float: {error}") from None
    raise ValueError(f"unknown value {key!r}")


def _index(p: Poly) -> Poly:
    """Return an index whose atom for gather and scatter is a loop variable again."""
    (((loop, _),), _), *_ = nodes.GATHER_INDEX.terms
    assert isinstance(loop, LoopVariable)
    return substitute(
        p, lambda atom: nodes.GATHER_INDEX if getattr(atom, "name", "") == loop.name else None
    )


def _type_json(t: DataType) -> Any:
    if isinstance(t, ScalarType):
        return t.name
    if isinstance(t, TupleType):
        return {"tuple": [_type_json(item) for item in t.items]}
    assert isinstance(t, ArrayType)
    return {"array": _type_json(t.item), "length": str(t.length)}


def _type(x: Any) -> DataType:
    if isinstance(x, str):
        return SCALARS[x]
    if "tuple" in x:
        return TupleType(tuple(_type(item) for item in x["tuple"]))
    return ArrayType(_type(x["array"]), parse(x["length"]))
