"""Reductions with few outputs, split so that many threads compute partial results.

A reduction with few outputs leaves most of a GPU idle, or many threads add to the same addresses.
With partial results (``rfactor``), each thread reduces a part of the domain in a register, and
stores one value. Few partial results are then reduced in the same way until the last step has few
terms::

    one thread:       for r in 0..n:  f += g(r)

    4096 threads u:   for r in 0..n / 4096:  p(u) += g(..)
    64 threads v:     for s in 0..64:        q(v) += p(64 * s + v)
    one thread:       for v in 0..64:        f += q(v)

Neighbouring threads read neighbouring values, and each block reads one part of the domain. The
position of a minimum or maximum depends on the order of equal values; there, each thread reduces a
contiguous part of the domain instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tilewright.halide.analysis.reductions import only_reduces
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Func
from tilewright.halide.ir.associativity import Combiner, combiner
from tilewright.halide.ir.clones import Added, clone_problems
from tilewright.halide.ir.schedule import Clone, Factored, Split
from tilewright.halide.schedulers.analytic.gpu.kernel import FusedKernel, iterations
from tilewright.halide.schedulers.analytic.reduction_parts import (
    Parts,
    contiguous_parts,
    guarded_split,
)

# Numbers of partial results per output, per step of a reduction (chosen): at most 1024 terms for
# atomic additions of the last step, 64 per thread and step otherwise; more threads for large GPUs.
SHAPES: tuple[tuple[int, ...], ...] = (
    (256,),
    (1024, 32),
    (4096, 64),
    (16384, 512, 32),
    (65536, 1024, 32),
)
# Neighbouring values that the threads of a block read at once (chosen: a common size of blocks).
_THREADS = 256


def split_reductions(
    base: Analysis, names: Iterable[str], shape: Sequence[int]
) -> tuple[Added, ...]:
    """Return the entries of a schedule that split the reductions of some Funcs, with wrappers.

    The wrappers keep partial results in registers until they are complete (see `wrapping`). `base`
    analyses an algorithm without added Funcs. `shape` has the number of partial results per output
    for every step. Reductions that cannot be split so often are left out.
    """
    algorithm = base.view.algorithm
    count = len(algorithm.funcs)
    entries: list[Factored] = []
    wrappers: list[Clone] = []
    for name in sorted(names, key=algorithm.order.__getitem__):
        func = algorithm.by_name[name]
        place = algorithm.order[name]
        made: list[Factored] = []
        for index in range(1, len(func.stages)):
            made += _steps(base, func, index, place, shape)
        first = count + len(entries)
        if not made or list(clone_problems(algorithm, (*entries, *made))):
            continue
        entries += made
        for i, entry in enumerate(made):
            later = [k for k in range(i + 1, len(made)) if made[k].stage == entry.stage]
            reader = first + later[0] if later else place
            wrappers.append(Clone(first + i, (reader,), wrapper=True))
    added: tuple[Added, ...] = (*entries, *wrappers)
    return added if not list(clone_problems(algorithm, added)) else ()


def whole_outputs(base: Analysis, names: Iterable[str]) -> tuple[Added, ...]:
    """Return the entries with which outputs that are reductions accumulate in registers.

    Halide wraps no output. The partial results of its whole domain, one per result, can be wrapped
    (see `wrapping`); the output adds them to the initial values. `base` analyses an algorithm
    without added Funcs.
    """
    algorithm = base.view.algorithm
    entries: list[Factored] = []
    for name in sorted(set(names) & set(algorithm.outputs), key=algorithm.order.__getitem__):
        func = algorithm.by_name[name]
        if name in base.regions and only_reduces(base, func):
            place = algorithm.order[name]
            made = [Factored(place, stage.index, ()) for stage in func.stages[1:]]
            entries += [] if list(clone_problems(algorithm, (*entries, *made))) else made
    first = len(algorithm.funcs)
    wrappers = [Clone(first + i, (entry.func,), wrapper=True) for i, entry in enumerate(entries)]
    added: tuple[Added, ...] = (*entries, *wrappers)
    return added if not list(clone_problems(algorithm, added)) else ()


def idle_reductions(base: Analysis, names: Iterable[str], most: float) -> tuple[str, ...]:
    """Return the reductions with fewer than `most` parallel points, which leave a GPU idle."""
    found = []
    for name in names:
        func = base.view.algorithm.by_name[name]
        if name not in base.regions or not only_reduces(base, func):
            continue
        kernels = [FusedKernel(base, name, stage.index) for stage in func.stages[1:]]
        if any(math.prod(kernel.extents) < most for kernel in kernels):
            found.append(name)
    return tuple(found)


def _steps(
    base: Analysis, func: Func, index: int, place: int, shape: Sequence[int]
) -> list[Factored]:
    """Return the entries that split one update step by step."""
    stage = func.stages[index]
    operator = combiner(stage)
    if not isinstance(operator, Combiner) or not stage.rvars:
        return []
    env = FusedKernel(base, func.name, index).serial_env
    if any(rvar.name not in env for rvar in stage.rvars):
        return []  # a reduction variable that is an index of the result
    extents = [int(iterations(env[rvar.name])) for rvar in stage.rvars]
    made: list[Factored] = []
    for number in shape:
        split = contiguous_parts if operator.ordered else _inner
        step = split(extents, number)
        if step is None:
            break
        splits, kept, extents = step
        made.append(Factored(place, index, kept, splits))
    return made


def _inner(extents: Sequence[int], number: int) -> Parts | None:
    """Return the splits of loops into about `number` interleaved parts, and the parts' extents.

    `extents` are those of the reduction's loops, innermost first. None if there are too few steps.
    """
    if math.prod(extents) < 2 * number:
        return None
    splits: list[Split] = []
    kept: list[str] = []
    left: list[int] = []
    for i, extent in enumerate(extents):
        if number <= 1:
            break
        if extent <= number:
            kept.append(f"r{i}")
            left.append(extent)
            number = number // extent
        elif number <= _THREADS:
            splits.append(guarded_split(f"r{i}", number))
            kept.append(f"r{i}i")
            left.append(number)
            number = 1
        else:
            blocks = number // _THREADS
            chunk = -(-extent // (blocks * _THREADS)) * _THREADS
            splits += [guarded_split(f"r{i}", chunk), guarded_split(f"r{i}i", _THREADS)]
            kept += [f"r{i}ii", f"r{i}o"]
            left += [_THREADS, -(-extent // chunk)]
            number = 1
    return tuple(splits), tuple(kept), left
