"""Find Funcs that must not be computed beyond their required region.

A loop computes more of a Func than its readers need if it is rounded up, or if it is shifted
inwards although its extent is smaller than the split factor. This is harmless if the regions of
producers can grow with it and a boundary condition keeps reads of inputs within bounds. Otherwise,
the pipeline reads an input, or an output buffer of the caller, outside the region that it reads
without the schedule. We call this reading *further out*.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tilewright.halide.analysis.bounds import Bound, Box, Interval, union_boxes
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import (
    Algorithm,
    Call,
    Const,
    Expr,
    Func,
    Op,
    Variable,
    walk,
)
from tilewright.halide.ir.expressions import uses

# The assumed bounds of inputs, chosen to differ from constants that a pipeline may clamp to: the
# n-th dimension of all inputs starts at _MIN - n * _MIN_STEP and has _EXTENT + n * _EXTENT_STEP
# coordinates.
_MIN, _MIN_STEP = -1013.0, 17.0
_EXTENT, _EXTENT_STEP = 37.0, 12.0

Mask = npt.NDArray[np.bool_]


def overreaching(algorithm: Algorithm, zero_based: bool = False) -> frozenset[tuple[int, int]]:
    """Return the dimensions along which computing more of a Func reads further out.

    Each item is a Func's position and a dimension. Of an output, only reads of inputs and other
    outputs count; stores to its own buffer are ignored here. With `zero_based`, coordinates of
    inputs begin at 0, so that reads clamped to at least 0 stay inside.
    """
    analysis = Analysis(View(algorithm), {}, _symbols(algorithm, zero_based))
    rows = [
        (i, d)
        for i, func in enumerate(algorithm.funcs)
        if func.extern is None
        for d in range(-1, len(func.args))  # -1: a single point, to compare with
    ]
    with np.errstate(invalid="ignore"):
        reached = _reached(algorithm, analysis, rows)
    base = {i: n for n, (i, d) in enumerate(rows) if d < 0}
    found = set()
    for name, box in reached.items():
        limits = _limits(name, algorithm, zero_based)
        for n, (i, d) in enumerate(rows):
            if d >= 0 and name != algorithm.funcs[i].name and _grows(box, n, base[i], limits):
                found.add((i, d))
    return frozenset(found)


@functools.lru_cache(maxsize=64)
def aligned_reads_further(algorithm: Algorithm, func: int, dimension: int, modulus: int) -> bool:
    """Return whether a Func at root reads further out if a dimension is aligned to `modulus`.

    It does not if all coordinates between two multiples of `modulus` read the same elements of
    inputs and outputs, as in ``f(x) = .. g(x // 8 * 8 + r)``, itself or by the Funcs that it reads.
    """
    analysis = Analysis(View(algorithm), {}, _symbols(algorithm))
    name, args = algorithm.funcs[func].name, algorithm.funcs[func].args
    members = _upstream(algorithm, name)

    def required(lo: Bound, hi: Bound) -> dict[str, Box]:
        box = [Interval(0.0, 0.0)] * len(args)
        box[dimension] = Interval(lo, hi)
        boxes = analysis.needed({name: tuple(box)}, members)
        return {callee: found for callee, found in boxes.items() if callee not in members}

    first, extent = np.indices((modulus, 2 * modulus)).reshape(2, -1).astype(float)
    last = first + extent
    one = last < modulus  # between two multiples: the bounds of remainders are exact
    with np.errstate(invalid="ignore"):
        for lo, hi in ((first[one], last[one]), (first[~one], last[~one])):
            narrow = required(lo, hi)
            wide = required(np.zeros_like(lo), hi // modulus * modulus + modulus - 1)
            for callee, box in wide.items():
                if _differs(box, narrow[callee], _limits(callee, algorithm)):
                    return True
    return False


@functools.lru_cache(maxsize=64)
def predicate_reads(algorithm: Algorithm) -> frozenset[tuple[int, int, int]]:
    """Return the pure loops at whose variable a predicate reads, so that it may read further out.

    Each item is a Func's position, a stage and a dimension. If the loop runs over more coordinates,
    even if a guard leaves these out, the predicate reads inputs or outputs further out. Halide
    clamps what partial results read.
    """
    found = set()
    for place, func in enumerate(algorithm.funcs):
        for stage in func.stages if func.name not in algorithm.sliced else ():
            reads = [e for e in walk(*stage.predicates) if isinstance(e, Call)]
            for d, arg in enumerate(stage.args):
                if isinstance(arg, Variable) and any(
                    uses(coordinate, {arg.name})
                    for call in reads
                    for coordinate in _coordinates(call)
                ):
                    found.add((place, stage.index, d))
    if not found:
        return frozenset()
    # Programs that clamp to 0 assume that their inputs begin there.
    further = overreaching(algorithm, zero_based=True)
    return frozenset(each for each in found if (each[0], each[2]) in further)


def _upstream(algorithm: Algorithm, name: str) -> list[str]:
    """Return a Func and its producers in realisation order, without outputs and extern Funcs.

    Producers of those are not included.
    """
    found, pending = {name}, [name]
    while pending:
        for producer in algorithm.producers[pending.pop()]:
            func = algorithm.by_name[producer]
            leaf = func.extern is not None or producer in algorithm.outputs
            if producer not in found and not leaf:
                found.add(producer)
                pending.append(producer)
    return [func.name for func in algorithm.funcs if func.name in found]


def _differs(wide: Box, narrow: Box, limits: tuple[Interval, ...] | None) -> bool:
    """Return whether a box differs from another one outside `limits`."""
    for d, (low, high) in enumerate(wide):
        same = np.all(narrow[d].lo == low) and np.all(narrow[d].hi == high)
        inside = limits is not None and np.all(low >= limits[d].lo) and np.all(high <= limits[d].hi)
        if not same and not inside:
            return True
    return False


@functools.lru_cache(maxsize=64)
def may_align_in_loops(algorithm: Algorithm, func: int, dimension: int) -> bool:
    """Return whether Halide infers exact regions if a dimension is aligned in loops of others.

    Two conditions make it so. Coordinates in the Func and its producers use each variable once,
    and no remainder, as ``g(x // 2 + 1)``; otherwise Halide bounds the parts of ``x // 2 * 2 +
    x % 2`` one by one. And all readers up to the outputs read the dimension at ``x`` plus a
    constant; otherwise the first and the last coordinate of the region are sums of quotients, which
    may not cancel in their difference.
    """
    return _divides_only(algorithm, func) and _is_read_in_step(algorithm, func, dimension)


def _is_read_in_step(algorithm: Algorithm, func: int, dimension: int) -> bool:
    """Return whether readers up to the outputs read a dimension at a variable plus a constant."""
    pending, seen = [(algorithm.funcs[func].name, dimension)], set[tuple[str, int]]()
    while pending:
        name, along = pending.pop()
        if (name, along) in seen:
            continue
        seen.add((name, along))
        for reader in algorithm.consumers[name]:
            other = algorithm.by_name[reader]
            if other.extern is not None:
                return False
            for call in (call for stage in other.stages for call in stage.calls):
                if call.name == name and call.kind == "func":
                    variable = _shifted(call.args[along])
                    if variable not in other.args:
                        return False
                    pending.append((reader, other.args.index(variable)))
    return True


def _shifted(coordinate: Expr) -> str:
    """Return the variable of ``x``, ``x + 3`` or ``x - 3``; "" for other coordinates."""
    while isinstance(coordinate, Op) and coordinate.name in ("add", "sub"):
        first, second = coordinate.args
        if isinstance(first, Const) and coordinate.name == "add":
            first, second = second, first
        if not isinstance(second, Const):
            return ""
        coordinate = first
    return coordinate.name if isinstance(coordinate, Variable) else ""


def _divides_only(algorithm: Algorithm, func: int) -> bool:
    """Return whether coordinates in a Func and its producers move one way with every variable."""
    pending, seen = [algorithm.funcs[func].name], set[str]()
    while pending:
        name = pending.pop()
        if name in seen or name not in algorithm.by_name:
            continue
        seen.add(name)
        each = algorithm.by_name[name]
        if each.extern is not None:
            return False
        for stage in each.stages:
            coordinates = [arg for call in stage.calls for arg in _coordinates(call)]
            if not all(map(_moves_one_way, coordinates)):
                return False
        pending += algorithm.producers[name]
    return True


def _coordinates(call: Call) -> tuple[Expr, ...]:
    return call.args if call.kind in ("func", "image") else ()


def _moves_one_way(coordinate: Expr) -> bool:
    """Return whether a coordinate uses no remainder and each variable at most once."""
    used: set[str] = set()
    stack = [coordinate]
    while stack:
        node = stack.pop()
        if isinstance(node, Variable):
            if node.name in used:
                return False
            used.add(node.name)
        elif isinstance(node, Op) and node.name in ("mod", "select"):
            return False
        elif isinstance(node, Call):
            # The coordinates of other loads are bounded by the values of what they load.
            stack += [] if node.kind in ("func", "image") else node.args
        elif isinstance(node, Op):
            stack += node.args
    return True


def _reached(
    algorithm: Algorithm, analysis: Analysis, rows: list[tuple[int, int]]
) -> dict[str, Box]:
    """Return the boxes reached in inputs, outputs and extern Funcs, one bound per row.

    Row n is a Func's position and a dimension. The Func is computed at one point, or everywhere
    along that dimension if it is not negative.
    """
    count = len(rows)
    wanted: dict[str, Box] = {}
    for n, (i, d) in enumerate(rows):
        func = algorithm.funcs[i]
        start = wanted.setdefault(func.name, _empty(len(func.args), count))
        for dimension, (lo, hi) in enumerate(start):
            assert isinstance(lo, np.ndarray)
            assert isinstance(hi, np.ndarray)
            lo[n], hi[n] = (-math.inf, math.inf) if dimension == d else (0.0, 0.0)
    result: dict[str, Box] = {}
    outputs = set(algorithm.outputs)
    for func in reversed(algorithm.funcs):
        box = wanted.get(func.name)
        if box is None:
            continue
        here = _mask(box, func, rows, algorithm)
        if func.extern is not None or func.name in outputs:
            result[func.name] = box
        if func.extern is not None or not func.args:
            continue
        grown = analysis.func_region(func.name, box)
        for callee, part in analysis.required_by(func.name, grown).items():
            read: Box = tuple(
                Interval(np.where(here, p.lo, math.inf), np.where(here, p.hi, -math.inf))
                for p in part
            )
            if callee in algorithm.by_name:
                wanted[callee] = union_boxes(wanted.get(callee), read)
            else:
                result[callee] = union_boxes(result.get(callee), read)
    return result


def _mask(box: Box, func: Func, rows: list[tuple[int, int]], algorithm: Algorithm) -> Mask:
    """Return the rows in which any part of the Func is required."""
    if not box:
        return np.array([algorithm.funcs[i] is func for i, _ in rows])
    lo, hi = np.asarray(box[0].lo), np.asarray(box[0].hi)
    return ~(lo > hi)  # NaN: a part of unknown size is required


def _grows(box: Box, row: int, base: int, limits: tuple[Interval, ...] | None) -> bool:
    """Return whether a row reaches further than row `base` (a single point) and than `limits`."""
    for d, interval in enumerate(box):
        lo, hi = _at(interval.lo, row), _at(interval.hi, row)
        if lo > hi:  # nothing is read
            return False
        inside = limits is not None and lo >= limits[d].lo and hi <= limits[d].hi
        same = lo == _at(interval.lo, base) and hi == _at(interval.hi, base)
        if not inside and not same:
            return True
    return False


def _at(bound: Bound, row: int) -> float:
    array = np.asarray(bound)
    return float(array if array.ndim == 0 else array[row])


def _empty(dimensions: int, count: int) -> Box:
    return tuple(
        Interval(np.full(count, math.inf), np.full(count, -math.inf)) for _ in range(dimensions)
    )


def _limits(
    name: str, algorithm: Algorithm, zero_based: bool = False
) -> tuple[Interval, ...] | None:
    """Return the assumed bounds of an input; None for a Func."""
    symbols = _symbols(algorithm, zero_based)
    for parameter in algorithm.parameters:
        if parameter.name == name:
            found = []
            for d in range(parameter.dimensions):
                low = symbols[f"{name}.min.{d}"]
                found.append(Interval(low, low + symbols[f"{name}.extent.{d}"] - 1.0))
            return tuple(found)
    return None


def _symbols(algorithm: Algorithm, zero_based: bool = False) -> Mapping[str, float]:
    """Return the estimated values of scalars and the assumed, distinctive bounds of inputs."""
    symbols: dict[str, float] = dict(algorithm.symbols)
    count = 0
    for parameter in algorithm.parameters:
        for d in range(parameter.dimensions if parameter.is_buffer else 0):
            first = 0.0 if zero_based else _MIN - _MIN_STEP * count
            symbols[f"{parameter.name}.min.{d}"] = first
            symbols[f"{parameter.name}.extent.{d}"] = _EXTENT + _EXTENT_STEP * count
            count += 1
    return symbols
