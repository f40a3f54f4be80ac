"""One kernel: a stage of a group's output with the members computed inside its blocks.

A member is a Func of the group other than the output. A `FusedKernel` has the parallel loops and
their roles. For an array of tilings, it infers the region of every member that one block or one
thread must compute.

| symbol | meaning | shape, unit |
|---|---|---|
| N | tilings evaluated together | count |
| `tiles` | tile sizes by parallel loop, innermost first | (N, parallel loops), iterations |
| `extents` | extents of the parallel loops | (parallel loops,), iterations |
| `env` | range of every loop of the output's stage in a block or thread | (N,), coordinates |
| `serial_env` | full ranges of the loops that are not parallel | coordinates |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tilewright.halide.analysis.bounds import Box, Interval, stage_env, touched, union_boxes
from tilewright.halide.analysis.rounds import independent_rvar
from tilewright.halide.analysis.summaries import Analysis, nothing_to_do
from tilewright.halide.analysis.windows import Reach, Reads, reaches, reads_along
from tilewright.halide.ir.algorithm import Loop, Stage, Variable, walk
from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.gpu.loads import SCATTERED, LoadGroup, load_groups
from tilewright.halide.schedulers.analytic.gpu.tiling import (
    LoopRoles,
    Tiles,
    loop_roles,
)

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ParallelLoop:
    """A loop that may be distributed over blocks and threads, with its start and extent."""

    loop: Loop
    lo: float
    extent: int


class FusedKernel:
    """Stage `stage` of `output` with those of `members` that it reads directly or indirectly.

    If `atomic`, the stage's reduction loops also run in parallel. If `in_rounds`, the one of
    `independent_rvar` does: each iteration of the others is a launch (`rounds`).
    """

    def __init__(
        self,
        analysis: Analysis,
        output: str,
        stage: int,
        members: tuple[str, ...] = (),
        atomic: bool = False,
        in_rounds: bool = False,
    ) -> None:
        self.analysis = analysis
        self.output = output
        self.atomic = atomic
        self.in_rounds = in_rounds
        self.func = analysis.view.by_name[output]
        self.stage: Stage = analysis.view.stages(output)[stage]
        self._independent = independent_rvar(self.func, self.stage) if in_rounds else None
        self.summary = analysis.summaries(output)[stage]
        self.members = used_members(analysis, output, stage, members)
        region = analysis.regions[output]
        env = stage_env(self.func, self.stage, region, analysis.bounder)
        self.serial_env = {
            loop.name: env[loop.name] for loop in self.stage.loops if not self._parallel(loop)
        }
        self.loops = tuple(
            ParallelLoop(loop, float(np.min(env[loop.name].lo)), _count(env[loop.name]))
            for loop in self._in_storage_order()
        )
        self.extents = tuple(loop.extent for loop in self.loops)
        self.roles: LoopRoles = loop_roles(self.extents)
        self._work: dict[tuple[str, int, str | None, bool], Work] = {}
        self._whole: dict[str, list[float]] = {}

    def _parallel(self, loop: Loop) -> bool:
        return loop.kind != "impure_rvar" or self.atomic or loop.name == self._independent

    @property
    def rounds(self) -> tuple[str, ...]:
        """The names of the loops around the launches of a kernel in rounds, innermost first."""
        loops = (loop.name for loop in self.stage.loops if loop.name in self.serial_env)
        return tuple(loops) if self.in_rounds else ()

    @cached_property
    def iterations(self) -> float:
        """The iterations of all loops of the stage."""
        return math.prod(map(iterations, self.serial_env.values())) * math.prod(self.extents)

    @cached_property
    def launches(self) -> float:
        """The number of launches: 1 unless the kernel runs in rounds."""
        return math.prod(iterations(self.serial_env[name]) for name in self.rounds)

    def _in_storage_order(self) -> list[Loop]:
        """Return the parallel loops in the order of the output's dimensions, innermost first.

        In an atomic kernel, reduction loops come first if they run along the innermost dimension of
        a load and no loop over the output's dimensions does.
        """
        place = {arg.name: i for i, arg in enumerate(self.stage.args) if isinstance(arg, Variable)}
        along = {
            loop
            for load in self.summary.loads
            for loop, steps in load.strides.items()
            if steps and abs(steps[0]) == 1.0 and not any(steps[1:])
        }
        if self.atomic and not along & place.keys():
            place |= dict.fromkeys(along, -1)
        loops = [loop for loop in self.stage.loops if self._parallel(loop)]
        return sorted(loops, key=lambda loop: place.get(loop.name, len(place)))

    @cached_property
    def exact_members(self) -> frozenset[str]:
        """The members for which Halide infers a region of the same size in every block.

        A member qualifies if it is read only at affine coordinates, and only by the output and
        members that qualify as well.
        """
        exact = {self.output}
        for name in reversed(self.members):
            readers = [
                self.summary.reads(name),
                *(
                    summary.reads(name)
                    for reader in self.members
                    if reader in exact
                    for summary in self.analysis.summaries(reader)
                ),
            ]
            inexact = any(
                name in self.analysis.view.producers[reader] and reader not in exact
                for reader in self.members
            )
            if not inexact and all(a.affine for accesses in readers for a in accesses):
                exact.add(name)
        return frozenset(exact - {self.output})

    @property
    def thread_loops(self) -> tuple[str, ...]:
        """The names of the loops whose tiles are distributed over threads, innermost first."""
        return tuple(self.loops[i].loop.name for i in self.roles.threads)

    # --- regions ------------------------------------------------------------------------

    def block_env(self, tiles: Tiles) -> dict[str, Interval]:
        """Return the range of every loop in a block in the middle of the domain."""
        env = dict(self.serial_env)
        for i, loop in enumerate(self.loops):
            tile = tiles[:, i]
            middle = np.floor((np.ceil(loop.extent / tile) - 1.0) / 2.0)
            lo = loop.lo + tile * middle
            env[loop.loop.name] = Interval(lo, lo + tile - 1.0)
        return env

    def reads(self, env: Mapping[str, Interval]) -> dict[str, Box]:
        """Return the box of each Func and input that the output's stage reads over `env`."""
        result: dict[str, Box] = {}
        memo: dict[int, Interval] = {}
        for access in self.summary.accesses:
            if access.callee != self.output:
                part = touched(access, env, self.analysis.bounder, memo)
                result[access.callee] = union_boxes(result.get(access.callee), part)
        return result

    def regions(self, env: Mapping[str, Interval]) -> dict[str, Box]:
        """Return the box of every member and input that the loop ranges in `env` require."""
        return self.analysis.needed(self.reads(env), self.members)

    def inside_threads(
        self,
        env: Mapping[str, Interval],
        points: Mapping[str, Box],
        nested: Mapping[str, str],
    ) -> dict[str, Box]:
        """Return the box of each nested member that one thread needs.

        Args:
            env: Range of the output's loops in one thread.
            points: For each member that others are nested in, the box that one thread computes.
            nested: For each nested member, the Func whose threads compute it.
        """
        read = self.reads(env)
        wanted = {name: box for name, box in read.items() if nested.get(name) == self.output}
        anchors = {name: box for name, box in points.items() if name not in nested}

        def counts(reader: str, callee: str) -> bool:
            """Return whether both are computed in the same threads."""
            return nested.get(callee) == nested.get(reader, reader)

        found = self.analysis.needed({**anchors, **wanted}, self.members, anchors, counts)
        return {name: box for name, box in found.items() if name in nested}

    def stage_threads(self, name: str, stage: Stage) -> tuple[int, ...]:
        """Return those thread dimensions of a member over which the given stage has a loop."""
        args = self.analysis.view.by_name[name].args
        pure = {loop.name for loop in stage.loops if loop.kind == "pure"}
        return tuple(d for d in self.member_threads[name] if args[d] in pure)

    def points_each(self, registers: Tiles) -> Tiles:
        """Return the points per thread along x, y and z, shape (N, 3).

        They apply to the output and to members alike. `registers` has the points per thread along
        each parallel loop, shape (N, parallel loops).
        """
        each = np.ones((len(registers), SEARCH.thread_dimensions))
        for place, i in enumerate(self.roles.threads):
            each[:, place] = registers[:, i]
        return each

    @cached_property
    def member_threads(self) -> dict[str, tuple[int, ...]]:
        """The dimensions of each member that are distributed over threads, innermost first.

        A dimension is chosen if its extent grows with the tile of a thread loop. If none does, the
        largest dimension is chosen.
        """
        base = np.array([float(min(SEARCH.probe_tile, max(e // 2, 1))) for e in self.extents])
        rows = [base]
        for i in self.roles.threads:
            more = base.copy()
            more[i] = min(2.0 * base[i], self.extents[i])
            rows.append(more)
        found = self.regions(self.block_env(np.array(rows).reshape(len(rows), -1)))
        result = {}
        for name in self.members:
            sizes = [np.broadcast_to(np.asarray(p.extent), (len(rows),)) for p in found[name]]
            grows = tuple(d for d, size in enumerate(sizes) if np.any(size != size[0]))
            if not grows and sizes:
                grows = (int(np.argmax([size[0] for size in sizes])),)
            result[name] = grows[: SEARCH.thread_dimensions]
        return result

    @cached_property
    def sliding(self) -> dict[str, Reach]:
        """The members that can slide along z; empty unless blocks have three dimensions.

        They are pure and exact, their only reader is in the kernel and reads them at constant
        offsets along z, and their own z is distributed over threads like that of the output.
        """
        threads = self.roles.threads
        if not self.func.pure or self.atomic or len(threads) < SEARCH.thread_dimensions:
            return {}
        loop = self.loops[threads[-1]].loop.name
        if loop not in self.func.args:
            return {}

        def readers(name: str) -> list[str]:
            producers = self.analysis.view.producers
            return [r for r in (*self.members, self.output) if name in producers[r]]

        def reads(reader: str, name: str, dimension: int) -> Reads | None:
            variable = self.analysis.view.by_name[reader].args[dimension]
            for access in self.analysis.summaries(reader)[0].accesses:
                if access.callee == name:
                    found = reads_along(access, variable)
                    place = self.member_threads[name][-1:]
                    return found if found is not None and place == (found.dimension,) else None
            return None

        able = [
            name
            for name in reversed(self.members)
            if name in self.exact_members
            and self.analysis.view.by_name[name].pure
            and len(self.member_threads[name]) == SEARCH.thread_dimensions
        ]
        found = reaches(able, (self.output, self.func.args.index(loop)), readers, reads)
        return found if any(reach.extra for reach in found.values()) else {}

    # --- stores ---------------------------------------------------------------------------

    @cached_property
    def stored_over(self) -> frozenset[str]:
        """The names of the variables in the coordinates that the stage stores to."""
        variables = (node for node in walk(*self.stage.args) if isinstance(node, Variable))
        return frozenset(variable.name for variable in variables)

    @cached_property
    def store_step(self) -> float:
        """The distance in elements between stores of neighbouring threads: 1, else infinite."""
        args = self.stage.args
        first = self.thread_loops[:1]
        if not first or not args:
            return SCATTERED
        if isinstance(args[0], Variable) and args[0].name == first[0]:
            return 1.0
        return SCATTERED

    # --- loads and arithmetic ------------------------------------------------------------

    @cached_property
    def in_halide_order(self) -> tuple[str, ...]:
        """The members in the order in which Halide computes them inside the block."""
        order = self.analysis.view.algorithm.halide_order
        return tuple(sorted(self.members, key=order.__getitem__))

    def read_steps(self, reader: str, nested: Mapping[str, str]) -> dict[str, list[int]]:
        """Return for each member that `reader` reads the positions of the stages that read it.

        Positions count the stages that compute anything (`working_stages`). Reads by nested members
        count as reads by `reader`.
        """
        summaries = [self.summary]
        if reader != self.output:
            working = self.working_stages(reader)
            summaries = [self.analysis.summaries(reader)[stage.index] for stage in working]
        found: dict[str, list[int]] = {}
        for step, summary in enumerate(summaries):
            callees = [a.callee for a in summary.accesses if a.callee in self.members]
            for callee in callees:
                if callee in nested:
                    more = self.analysis.view.producers[callee]
                    callees.extend(m for m in more if m in self.members and m not in callees)
                elif callee != reader:
                    found.setdefault(callee, []).append(step)
        return found

    def working_stages(self, name: str) -> list[Stage]:
        """Return the stages of a member that compute anything. Halide omits the loops of others."""
        return [s for s in self.analysis.view.stages(name) if not nothing_to_do(s)]

    def work(self, name: str, stage: int, thread_x: str | None, inside: bool) -> Work:
        """Return the work of one iteration of a stage.

        Args:
            name: The output or a member.
            stage: The position of the stage in its Func.
            thread_x: Name of the stage's innermost thread loop, None if it has none.
            inside: Whether the Func is computed inside a thread, rather than at block level.
        """
        key = (name, stage, thread_x, inside)
        known = self._work.get(key)
        if known is None:
            summary = self.analysis.summaries(name)[stage]
            pure = {loop.name for loop in summary.loops if loop.kind == "pure"}
            if name == self.output:
                pure = {self.loops[i].loop.name for i in self.roles.others}
            elif not inside:
                args = self.analysis.view.by_name[name].args
                pure -= {args[d] for d in self.member_threads[name]}
            known = Work(summary.arithmetic, load_groups(summary, thread_x, frozenset(pure)))
            self._work[key] = known
        return known

    def reduction_extents(self, name: str, stage: int) -> dict[str, float]:
        """Return the iterations of each reduction loop of a member's stage."""
        memo: dict[int, Interval] = {}
        spans = {}
        for rvar in self.analysis.view.stages(name)[stage].rvars:
            size = self.analysis.bounder.bound(rvar.extent, {}, memo)
            spans[rvar.name] = iterations(Interval(0.0, size.hi - 1.0))
        return spans

    def whole(self, callee: str) -> list[float]:
        """Return the extents, in elements, of a Func's or input's full required region."""
        known = self._whole.get(callee)
        if known is None:
            box = self.analysis.regions.get(callee, ())
            found = [float(np.max(part.extent)) for part in box]
            known = [extent if np.isfinite(extent) else SEARCH.unknown_extent for extent in found]
            self._whole[callee] = known
        return known


def used_members(
    analysis: Analysis, output: str, stage: int, members: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the members that a stage of `output` needs, in realisation order."""
    inside = set(members) - {output}
    accesses = analysis.summaries(output)[stage].accesses
    reached = {access.callee for access in accesses if access.callee in inside}
    for name in reversed(members):
        if name in reached:
            reached |= inside & set(analysis.view.producers[name])
    return tuple(name for name in members if name in reached)


@dataclass(frozen=True, slots=True)
class Work:
    """The arithmetic operations and loads of one iteration of a stage."""

    arithmetic: float
    loads: tuple[LoadGroup, ...]


def _count(interval: Interval) -> int:
    size = float(np.max(interval.extent))
    return max(int(size), 1) if np.isfinite(size) else 1


def sizes(box: Box, n: int) -> list[Array]:
    """Return the extents of a box, each of shape (n,); `SEARCH.huge` for unbounded ones."""
    found = []
    for part in box:
        given = part.extent
        if isinstance(given, float):  # much faster than an array of one element
            found.append(np.full(n, given if 1.0 <= given <= SEARCH.huge else SEARCH.huge))
            continue
        extent = np.fmin(given, SEARCH.huge)
        if np.any(extent < 1.0):
            extent = np.where(extent < 1.0, SEARCH.huge, extent)
        found.append(np.broadcast_to(extent, (n,)))
    return found


def iterations(span: Interval) -> float:
    """Return the iterations of a serial loop; a guess if its range is unbounded."""
    extent = float(np.max(span.extent))
    return extent if np.isfinite(extent) and extent >= 1.0 else SEARCH.unknown_iterations
