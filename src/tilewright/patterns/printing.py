"""Printing of patterns as the Python that `build` accepts, with the 2-D and 3-D short forms."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.arith import Poly
from tilewright.patterns import nodes as n
from tilewright.patterns import scalar
from tilewright.patterns.nodes import text

_JOIN, _ZIP = n.Join(), n.Zip()
_MAP_TRANSPOSE, _MAP_JOIN, _MAP_ZIP = n.Map(n.Transpose()), n.Map(_JOIN), n.Map(_ZIP)


@text.register
def _text(p: n.Pattern) -> str:
    return _pipe(n.stages(p))


def definitions(p: n.Pattern) -> str:
    """Return the user functions of a pattern as Python, one per line."""
    return "\n".join(definition(f) for f in n.user_functions(p))


def definition(f: n.UserFun) -> str:
    """Return a user function as Python."""
    body = scalar.text(f.body, f.parameters)
    promise = ", associative=True" if f.associative else ""
    if any(f.types):
        promise += f", types=[{', '.join(map(str, f.types))}]"
    return f"{f.name} = fun(lambda {', '.join(f.parameters)}: {body}, {f.name!r}{promise})"


def _pipe(stages: tuple[n.Pattern, ...]) -> str:
    if not stages:
        return "identity"
    parts: list[str] = []
    position = 0
    while position < len(stages):
        used, part = _window(stages[position:])
        position += used
        parts.append(part)
    return " >> ".join(parts)


def _window(stages: tuple[n.Pattern, ...]) -> tuple[int, str]:
    """Return the number of first stages that a short form replaces, and its text."""
    first, *rest = stages
    second = rest[0] if rest else None
    found = _of_three_dimensions(first, stages) or _of_two_dimensions(first, second, stages)
    if found is not None:
        return found
    if isinstance(first, n.Fork) and second == _ZIP:
        twice = stages[2:3] == (_MAP_ZIP,)
        arguments = ", ".join(text(item) for item in first.items)
        return (3, f"zip2({arguments})") if twice else (2, f"zip({arguments})")
    if isinstance(first, n.At):
        count = next((i for i, s in enumerate(stages) if not isinstance(s, n.At)), len(stages))
        indices = ", ".join(str(s.index) for s in stages[:count] if isinstance(s, n.At))
        return count, f"at({indices})"
    if isinstance(first, n.Indices) and isinstance(second, n.Map) and second.level is None:
        return 2, f"generate({first.length}, {text(second.f)})"
    return 1, _one(first)


def _of_three_dimensions(first: n.Pattern, stages: tuple[n.Pattern, ...]) -> tuple[int, str] | None:
    """Return the short form of `pad3` or `slide3` as `_window` does; None if none begins here."""
    if isinstance(first, n.Pad | n.PadValue) and stages[1:3] == (n.Map(first), n.Map(n.Map(first))):
        return 3, _one(first).replace("pad(", "pad3(", 1)
    inner = n.stages(first.f) if isinstance(first, n.Map) and first.level is None else ()
    if len(inner) == 3 and isinstance(inner[1], n.Slide):
        one = inner[1]
        planes = n.Map(n.pipe(n.Map(one), one, _MAP_TRANSPOSE))
        if stages[:4] == (planes, one, _MAP_TRANSPOSE, n.Map(_MAP_TRANSPOSE)):
            return 4, f"slide3({one.size}, {one.step})"
    return None


def _of_two_dimensions(
    first: n.Pattern, second: n.Pattern | None, stages: tuple[n.Pattern, ...]
) -> tuple[int, str] | None:
    """Return the short form of a 2-D pattern as `_window` does; None if none begins here."""
    if isinstance(first, n.Pad | n.PadValue) and second == n.Map(first):
        return 2, _one(first).replace("pad(", "pad2(", 1)
    if isinstance(first, n.Map) and isinstance(first.f, n.Slide) and first.level is None:
        one = first.f
        if stages[:3] == (first, one, _MAP_TRANSPOSE):
            return 3, f"slide2({one.size}, {one.step})"
    if stages[:3] == (_MAP_TRANSPOSE, _JOIN, _MAP_JOIN):
        return 3, "untile2"
    if stages[:2] == (_ZIP, _MAP_ZIP):
        return 2, "zip2"
    inner = second.f if isinstance(second, n.Map) and second.level is None else None
    if isinstance(first, n.Crop) and isinstance(inner, n.Crop):
        return 2, f"crop2({first.length}, {inner.length})"
    return None


def _nested(p: n.Pattern) -> tuple[n.Map, ...]:
    """Return directly nested maps without a level, outermost first."""
    return (p, *_nested(p.f)) if isinstance(p, n.Map) and p.level is None else ()


def _map(p: n.Map) -> str:
    if p.level is None:
        nested = _nested(p)
        if len(nested) == 3:
            return f"map3({text(nested[2].f)})"
        return f"map2({text(nested[1].f)})" if len(nested) > 1 else f"map({text(p.f)})"
    dim = f", {p.level.dim}" if p.level.kind in n.GRID_KINDS else ""
    return f"map_{p.level.kind}({text(p.f)}{dim})"


def _reduce(p: n.Reduce) -> str:
    init = p.init
    plain = isinstance(init, n.Literal) and init.type is None
    start = repr(init.value) if plain and isinstance(init, n.Literal) else text(init)
    suffix = "" if p.level is None else f"_{p.level.kind}"
    return f"reduce{suffix}({text(p.f)}, {start})"


def _index(index: Poly) -> str:
    return str(index).replace("_i", "i").replace("_n", "n")


def _literal(p: n.Literal) -> str:
    return f"literal({p.value!r})" if p.type is None else f"{p.type}({p.value!r})"


def _items(p: n.Fork | n.Par) -> str:
    return ", ".join(text(item) for item in p.items)


_TEXTS: dict[type[n.Pattern], Callable[..., str]] = {
    n.Pipe: lambda p: _pipe(p.stages),
    n.Map: _map,
    n.Reduce: _reduce,
    n.Zip: lambda p: "zip",
    n.Unzip: lambda p: "unzip",
    n.SplitPattern: lambda p: f"split({p.length})",
    n.Join: lambda p: "join",
    n.Slide: lambda p: f"slide({p.size}, {p.step})",
    n.SlideSeq: lambda p: f"slide_seq({p.size}, {p.step})",
    n.Pad: lambda p: f"pad({p.left}, {p.right}, {p.boundary})",
    n.PadValue: lambda p: f"pad({p.left}, {p.right}, {p.value!r})",
    n.Crop: lambda p: f"crop({p.length})",
    n.Transpose: lambda p: "transpose",
    n.Gather: lambda p: f"gather(lambda i, n: {_index(p.index)})",
    n.Scatter: lambda p: f"scatter(lambda i, n: {_index(p.index)})",
    n.Iterate: lambda p: f"iterate({p.count}, {text(p.f)})",
    n.At: lambda p: f"at({p.index})",
    n.Get: lambda p: f"get({p.index})",
    n.Fork: lambda p: f"fork({_items(p)})",
    n.Par: lambda p: f"par({_items(p)})",
    n.Repeat: lambda p: f"repeat({p.length})",
    n.Indices: lambda p: f"generate({p.length})",
    n.Literal: _literal,
    n.TablePattern: lambda p: f"table({list(p.values)}, {p.type})",
    n.Input: lambda p: p.name,
    n.UserFun: lambda p: p.name,
    n.To: lambda p: f"to_{p.space}({text(p.f)})",
}


def _one(p: n.Pattern) -> str:
    return _TEXTS[type(p)](p)
