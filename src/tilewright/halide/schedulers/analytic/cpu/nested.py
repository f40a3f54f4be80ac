"""Nested fusion: compute a reduction in registers, in the innermost block of its reader.

Notation: a *guest* ``f`` is a reduction over r. Its only reader, the *host* ``h``, reads it at the
point that it computes, ``h(x, y) = ... f(x, y)``, or along one complete short dimension c,
``f(x, 0..c)``. The guest is computed for one block of the host's innermost loops at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.halide.analysis.bounds import Linear
from tilewright.halide.analysis.reductions import only_reduces
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Func, Variable
from tilewright.halide.schedulers.analytic.cpu.alignment import moduli_of
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH


class NestedReduction(NamedTuple):
    """A reduction computed in the innermost block of `host`, its only reader.

    Dimension `whole`, if any, is short: the block contains its complete extent.
    """

    host: str
    whole: int | None = None


def nest_reductions(analysis: Analysis) -> dict[str, NestedReduction]:
    """Return the reductions to nest in their only reader, by name.

    The reader is a pure Func that reads the reduction point by point. Computing the reduction in
    the reader's innermost block keeps it in registers and recomputes nothing (Sioutas 2020,
    Section 4.3: no reuse across the reader's loops). A short dimension may be read in any way,
    because it is completely unrolled within the block.
    """
    view = analysis.view
    hosts: dict[str, NestedReduction] = {}
    taken: set[str] = set()
    for func in view.funcs:
        readers = view.consumers[func.name]
        if len(readers) != 1 or func.fixed or func.scheduled or func.name in view.algorithm.outputs:
            continue
        host = view.by_name[readers[0]]
        if host.name in taken or not _fit(analysis, func, host) or moduli_of(analysis, func.name):
            continue
        others = _not_pointwise(analysis, host.name, func.name)
        if others is None or len(others) > 1:
            continue
        whole = next(iter(others), None)
        if whole is not None and not (
            _is_short(analysis, func.name, whole) and _is_short(analysis, host.name, whole)
        ):
            continue
        hosts[func.name] = NestedReduction(host.name, whole)
        taken.add(host.name)
    return hosts


def _fit(analysis: Analysis, func: Func, host: Func) -> bool:
    """Return whether `func` is only a reduction and `host` is a single pure stage."""
    return (
        len(host.stages) == 1
        and bool(host.args)
        and not host.fixed
        and not host.scheduled
        and only_reduces(analysis, func)
    )


def _is_short(analysis: Analysis, name: str, dimension: int) -> bool:
    region = analysis.regions.get(name)
    return region is not None and 1 < float(np.max(region[dimension].extent)) <= SEARCH.short


def _not_pointwise(analysis: Analysis, host: str, guest: str) -> set[int] | None:
    """Return the dimensions in which the host reads the guest at other points than its own."""
    args = analysis.view.by_name[host].args
    others: set[int] = set()
    for access in analysis.summaries(host)[0].reads(guest):
        if len(access.forms) != len(args):
            return None
        others.update(
            d
            for d, (name, forms) in enumerate(zip(args, access.forms, strict=True))
            if not _is_at(forms, name)
        )
    return others


def _is_at(forms: tuple[tuple[Linear, float, float], ...], variable: str) -> bool:
    if len(forms) != 1:
        return False
    form, low, high = forms[0]
    if low != 0 or high != 0 or len(form.terms) != 1:
        return False
    atom, c = form.terms[0]
    return isinstance(atom, Variable) and atom.name == variable and c == 1
