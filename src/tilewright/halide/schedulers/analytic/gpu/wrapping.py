"""Wrappers of Funcs: reductions that threads sum up in registers, windows that blocks share.

A reduction that is the output of a kernel is stored in global memory: one kernel sets the sums, and
each step of another loads and stores them. If a wrapper of the reduction is the output instead, the
reduction is computed in the wrapper's threads, in registers, and stored once::

    kernel 1, each thread: f[x] = 0                 # a store
    kernel 2, each thread: for r:  f[x] += g(r)     # a load and a store per step

    one kernel, each thread: t = 0;  for r:  t += g(r)
                             f[x] = t               # the only store

A stencil loads most values of a stored Func once per point that it computes. If it reads a wrapper
that its blocks compute, each block loads a value once, into shared memory or registers::

    each thread: g[x] = f[x - 2] + .. + f[x + 2]    # five loads from global memory
    each block:  s[..] = f[..]                      # one load per element
                 g[x] = s[x - 2] + .. + s[x + 2]    # five loads from shared memory
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.halide.analysis.bounds import Access
from tilewright.halide.analysis.reductions import only_reduces
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import clone_problems
from tilewright.halide.ir.schedule import Clone
from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.gpu.plan import KernelPlan


def wrapped_reductions(base: Analysis, kernels: Iterable[str]) -> tuple[Clone, ...]:
    """Return wrappers of the reductions among `kernels`, the Funcs that are outputs of kernels.

    Outputs of the pipeline cannot be wrapped. `base` analyses an algorithm without clones.
    """
    algorithm = base.view.algorithm
    names = set(kernels) - set(algorithm.outputs)
    return _wrappers(algorithm, (n for n in names if only_reduces(base, algorithm.by_name[n])))


def wrapped_windows(analysis: Analysis, kernels: Sequence[KernelPlan]) -> tuple[Clone, ...]:
    """Return wrappers of the Funcs that a single kernel reads windows of from global memory.

    A window is read if a point needs at least `SEARCH.least_window` values at constant distances.
    """
    view = analysis.view
    found = set()
    for plan in kernels:
        computed = {plan.kernel.output, *plan.kernel.members}
        for reader in computed:
            for summary in analysis.summaries(reader):
                for name in set(view.producers[reader]) - computed:
                    stored = name in view.by_name and name not in view.inlined
                    wide = any(map(_is_window, summary.reads(name)))
                    if stored and wide and set(view.consumers[name]) <= computed:
                        found.add(name)
    return _wrappers(view.algorithm, found - set(view.algorithm.outputs))


def _is_window(access: Access) -> bool:
    """Return whether a point reads many values, at constant distances from its own position."""
    one_form = all(len(forms) == 1 for forms in access.forms)
    moves = any(form.terms and low < high for ((form, low, high), *_) in access.forms)
    return one_form and moves and access.affine and access.count >= SEARCH.least_window


def _wrappers(algorithm: Algorithm, names: Iterable[str]) -> tuple[Clone, ...]:
    """Return wrappers of those Funcs that can have one, for all their readers."""
    wrappers: list[Clone] = []
    for name in sorted(names, key=algorithm.order.__getitem__):
        readers = tuple(algorithm.order[reader] for reader in algorithm.consumers[name])
        wrapper = Clone(algorithm.order[name], readers, wrapper=True)
        if readers and not list(clone_problems(algorithm, (*wrappers, wrapper))):
            wrappers.append(wrapper)
    return tuple(wrappers)
