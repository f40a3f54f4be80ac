"""Wrappers around reductions with kernels of their own, so that threads sum in registers.

A reduction that is the output of a kernel is stored in global memory: one kernel sets the sums, and
each step of another loads and stores them. If a wrapper of the reduction is the output instead, the
reduction is computed in the wrapper's threads, in registers, and stored once::

    kernel 1, each thread: f[x] = 0                 # a store
    kernel 2, each thread: for r:  f[x] += g(r)     # a load and a store per step

    one kernel, each thread: t = 0;  for r:  t += g(r)
                             f[x] = t               # the only store
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.halide.analysis.reductions import only_reduces
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.clones import clone_problems
from tilewright.halide.ir.schedule import Clone


def wrapped_reductions(base: Analysis, kernels: Iterable[str]) -> tuple[Clone, ...]:
    """Return wrappers of the reductions among `kernels`, the Funcs that are outputs of kernels.

    Outputs of the pipeline cannot be wrapped. `base` analyses an algorithm without clones.
    """
    algorithm = base.view.algorithm
    wrappers: list[Clone] = []
    for name in sorted(set(kernels) - set(algorithm.outputs), key=algorithm.order.__getitem__):
        func = algorithm.by_name[name]
        if not only_reduces(base, func):
            continue
        readers = tuple(algorithm.order[reader] for reader in algorithm.consumers[name])
        wrapper = Clone(algorithm.order[name], readers, wrapper=True)
        if readers and not list(clone_problems(algorithm, (*wrappers, wrapper))):
            wrappers.append(wrapper)
    return tuple(wrappers)
