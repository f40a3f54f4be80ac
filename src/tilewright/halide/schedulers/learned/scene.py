"""The scene of a search: a pipeline with the Funcs that schedules add, and its machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.ir.algorithm import Algorithm, Func, Stage, walk
from tilewright.halide.ir.clones import Added, factor_calls, with_clones
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.legality.check import Known
from tilewright.machines import CpuMachine

if TYPE_CHECKING:
    from tilewright.halide.schedulers.learned.partial_results import Factor

# Least lanes of a vector, and least extent of a dimension to vectorise.
LEAST_LANES = 4
# Maximum number of Funcs of a pipeline to which moves add others: for each, all are analysed again.
MOST_FUNCS = 100


@dataclass(frozen=True, eq=False)
class Scene:
    """A pipeline and its machine; all schedules of a scene have the same `clones`.

    `algorithm` is the pipeline without clones. `problems` caches the violations of single Funcs by
    target, `small` whether expressions stay small, by a Func and all inlined ones, and `splits` the
    ways to split the reductions of a Func. `others` has the scenes with other clones.
    """

    algorithm: Algorithm
    machine: CpuMachine
    clones: tuple[Added, ...] = ()
    problems: dict[str, Known] = field(default_factory=dict, compare=False, repr=False)
    small: dict[object, bool] = field(default_factory=dict, compare=False, repr=False)
    splits: dict[int, tuple[Factor, ...]] = field(default_factory=dict, compare=False, repr=False)
    others: dict[tuple[Added, ...], Scene] = field(default_factory=dict, compare=False, repr=False)

    def of(self, schedule: Schedule) -> Scene:
        """Return the scene of a schedule of the same pipeline, which may have other clones."""
        if schedule.clones == self.clones:
            return self
        if schedule.clones not in self.others:
            made = Scene(self.algorithm, self.machine, schedule.clones, others=self.others)
            self.others[schedule.clones] = made
        return self.others[schedule.clones]

    @cached_property
    def extended(self) -> Algorithm:
        """The pipeline with the clones."""
        return with_clones(self.algorithm, self.clones)

    @cached_property
    def analysis(self) -> Analysis:
        """What the stages of all Funcs compute, with none inlined."""
        view = View(self.extended)
        return Analysis(view, estimated_boxes(view), self.extended.symbols)

    @cached_property
    def extents(self) -> dict[str, tuple[float, ...]]:
        """The extents of each Func at root, infinite where they are unknown."""
        return {
            name: tuple(float(np.max(part.extent)) for part in box)
            for name, box in self.analysis.regions.items()
        }

    @cached_property
    def slices(self) -> dict[str, frozenset[int]]:
        """The dimensions of partial results that run over slices of a domain, by Func.

        Vectors along them would read, and may store, in as many places as they have lanes.
        """
        found = {}
        for call in factor_calls(self.algorithm, self.clones):
            func = self.extended.funcs[call.result]
            outer = {split.outer for split in call.splits}
            first = len(func.args) - len(call.rvars)
            dims = (first + i for i, loop in enumerate(call.rvars) if loop in outer)
            found[func.name] = frozenset(dims)
        return found

    def terms(self, stage: Stage) -> tuple[float, ...]:
        """Return the extents of a stage's reduction variables, infinite where they are unknown."""
        bound = self.analysis.bounder.bound
        return tuple(float(np.max(bound(rvar.extent, {}, {}).hi)) for rvar in stage.rvars)

    def lanes(self, func: Func) -> tuple[int, ...]:
        """Return the lanes that fill a register with the widest, narrowest and result types."""
        kinds = {t.bytes for t in func.types}
        kinds |= {node.type.bytes for s in func.stages for node in walk(*s.values)}
        kinds.discard(0)
        natural = {self.machine.lanes(8 * size) for size in (max(kinds), min(kinds))}
        natural |= {self.machine.lanes(8 * max(t.bytes for t in func.types))}
        return tuple(sorted((n for n in natural if n >= LEAST_LANES), reverse=True))
