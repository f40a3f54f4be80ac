"""Follow-up searches that a result suggests: cloned Funcs or transposed storage."""

from __future__ import annotations

from tilewright.halide.ir.clones import clone_problems
from tilewright.halide.ir.schedule import Clone
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts


def worth_cloning(costs: CpuCosts) -> tuple[Clone, ...]:
    """Return clones of Funcs that a scattering stage and other Funcs read.

    A scattering stage is not vectorised. A clone of the Func that it reads can be: it is computed
    row by row just before the stage. The other readers do not change.
    """
    view = costs.analysis.view
    base = view.algorithm.original or view.algorithm
    clones: list[Clone] = []
    for func in base.funcs:
        name = func.name
        readers = [f for f in base.funcs if name in base.producers[f.name]]
        if len(readers) < 2 or not func.args or not func.pure or func.fixed or func.scheduled:
            continue
        for reader in readers:
            if reader.name in view.inlined or reader.fixed:
                continue
            stages = costs.analysis.summaries(reader.name)
            if len(stages) > 1 and stages[-1].scatter:
                clone = Clone(base.order[name], (base.order[reader.name],))
                if not list(clone_problems(base, (*clones, clone))):
                    clones.append(clone)
    return tuple(sorted(clones, key=lambda clone: (clone.func, clone.readers)))


def gathers(costs: CpuCosts) -> bool:
    """Return whether transposed storage may be better.

    It may be if vectors gather values across rows. It may also be if a block has several reductions
    that are vectorised one by one: vectors across them would need no folds.
    """
    view = costs.analysis.view
    for func in view.funcs:
        if func.name not in costs.analysis.regions:
            continue  # only extern stages read it, so that its region is unknown
        for summary in costs.analysis.summaries(func.name):
            block = costs.block(func.name, summary.index)
            if block.steps > 1 and block.row is not None:
                return True
            if block.vector is None:
                continue
            loop = costs.pure_loops(func.name, summary.index).get(block.vector)
            for load in summary.loads:
                steps = load.strides.get(loop or "", ())
                if not load.indirect and steps is not None and any(steps[1:]):
                    return True
    return False
