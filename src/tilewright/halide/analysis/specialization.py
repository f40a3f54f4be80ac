"""Find the parameters whose values are worth specialising on (`StageSchedule.specialize`).

These are numbers that determine the length of a short reduction (the taps of a filter), numbers
that multiply or divide an index (the step of a pooling), the strides of dimensions that are
contiguous because all earlier dimensions have a single element, and those of pixels whose colours
lie next to each other. With known values, the compiler
unrolls loops, keeps sums in registers, and turns gathers into dense loads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tilewright.halide.analysis.bounds import Bounder
from tilewright.halide.analysis.layouts import fixes, interleaved_planes
from tilewright.halide.ir.algorithm import Algorithm, Expr, Op, Stage, Variable, walk
from tilewright.halide.ir.schedule import KnownValue

# Longest reduction, in iterations, that is specialised; longer ones gain little.
_LONGEST = 16
# Maximum number of conditions of a specialisation; more of them rarely hold at once.
_MOST = 8


def worth_knowing(algorithm: Algorithm, bounder: Bounder) -> dict[str, KnownValue]:
    """Return the conditions worth specialising on: parameters that equal their estimates.

    Keys are the symbols that expressions use (see `Algorithm.symbols`).
    """
    conditions = _conditions(algorithm)
    found = {
        symbol
        for func in algorithm.funcs
        for stage in func.stages
        for symbol in (*_short_lengths(stage, bounder), *_factors(stage), *_strides(stage))
        if symbol in conditions
    }
    return {symbol: conditions[symbol] for symbol in sorted(found)}


def known_values(
    stages: Iterable[Stage], worth: Mapping[str, KnownValue]
) -> tuple[KnownValue, ...]:
    """Return those conditions of `worth` that stages use; none if there are more than `_MOST`.

    Strides of interleaved inputs are left out: they only help some vectors.
    """
    found: set[str] = set()
    for stage in stages:
        roots = [*stage.args, *stage.values, *stage.predicates]
        roots += [bound for rvar in stage.rvars for bound in (rvar.min, rvar.extent)]
        symbols = (*_symbols(*roots), *_strides(stage))
        found.update(s for s in symbols if s in worth and not _interleaved(worth[s]))
    return tuple(worth[symbol] for symbol in sorted(found)) if len(found) <= _MOST else ()


def _interleaved(known: KnownValue) -> bool:
    return known.field == "stride" and known.value > 1


def _symbols(*roots: Expr) -> Iterator[str]:
    for node in walk(*roots):
        if isinstance(node, Variable) and node.kind == "param":
            yield node.name


def _short_lengths(stage: Stage, bounder: Bounder) -> Iterator[str]:
    for rvar in stage.rvars:
        if bounder.bound(rvar.extent, {}, {}).hi <= _LONGEST:
            yield from _symbols(rvar.extent)


def _factors(stage: Stage) -> Iterator[str]:
    """Yield parameters that multiply or divide within an index."""
    indices = [*stage.args, *(arg for call in stage.calls for arg in call.args)]
    for node in walk(*indices):
        if isinstance(node, Op) and node.name in ("mul", "div", "mod"):
            for factor, other in (node.args, node.args[::-1]):
                if _runs(other) and not _runs(factor):
                    yield from _symbols(factor)


def _strides(stage: Stage) -> Iterator[str]:
    """Yield the strides of the input dimensions whose index depends on a loop of the stage."""
    for call in stage.calls:
        if call.kind == "image":
            yield from (f"{call.name}.stride.{d}" for d, a in enumerate(call.args) if _runs(a))


def _runs(expr: Expr) -> bool:
    """Return whether an expression depends on a loop variable."""
    return any(isinstance(n, Variable) and n.kind != "param" for n in walk(expr))


def _conditions(algorithm: Algorithm) -> dict[str, KnownValue]:
    """Return, for every parameter, the condition that it equals its estimate, by symbol.

    Inputs are assumed to be dense, with the first dimension innermost.
    """
    values = algorithm.symbols
    found: dict[str, KnownValue] = {}
    for index, parameter in enumerate(algorithm.parameters):
        if not parameter.is_buffer:
            value = values.get(parameter.name)
            if isinstance(value, int) and parameter.type.code in ("int", "uint"):
                found[parameter.name] = KnownValue(index, "value", 0, int(value))
            continue
        for d in range(parameter.dimensions):
            extent = values.get(f"{parameter.name}.extent.{d}")
            if isinstance(extent, int):
                found[f"{parameter.name}.extent.{d}"] = KnownValue(index, "extent", d, extent)
        extents = [values.get(f"{parameter.name}.extent.{d}") for d in range(parameter.dimensions)]
        long = next((d for d, extent in enumerate(extents) if extent != 1), 0)
        if long > 0:
            found[f"{parameter.name}.stride.{long}"] = KnownValue(index, "stride", long, 1)
        planes = interleaved_planes(parameter.estimates, parameter.strides)
        if planes is not None and not fixes(parameter.strides, 1):
            found[f"{parameter.name}.stride.1"] = KnownValue(index, "stride", 1, planes)
    return found
