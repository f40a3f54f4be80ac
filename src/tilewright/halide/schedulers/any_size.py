"""Make a schedule correct at all sizes, without slowing it down at the estimated ones.

Splits that shift inwards or round up require a minimum size. A nest with such splits is compiled
twice (`StageSchedule.sizes`): unchanged for calls with large enough outputs, and with guarded
splits for other calls. All nests of a schedule share the same condition on the extents of outputs:
within a branch in which it holds, Halide drops the conditions of inner nests.

Only some nests need this. Computing more of a Func than required only matters if inputs or outputs
are then accessed outside their required regions (`tilewright.halide.legality.overreach`).

A *need* is the minimum extent that a split requires of one dimension of its Func. A nest is right
as it is written if its needs are met.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tilewright.halide.analysis.bounds import Bound, Box, Interval
from tilewright.halide.analysis.computed import Computed
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.frontend.estimates import output_spans
from tilewright.halide.frontend.extents import metadata_used
from tilewright.halide.ir.algorithm import Algorithm, Parameter, Span
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.joint import joint_of_schedule
from tilewright.halide.ir.nest import all_guarded, exact_size, guarded, points_of_threads
from tilewright.halide.ir.schedule import CallCondition, KnownValue, OutputExtent, Schedule
from tilewright.halide.legality.narrowed import FAR, least_regions, narrowed
from tilewright.halide.legality.sizes import needs, reads_anything
from tilewright.halide.legality.sliding import partial_axes

Axis = tuple[int, int]  # a Func and one of its dimensions
Conditions = tuple[CallCondition, ...]

# Number of extents evaluated at once in the search for the least one.
_CANDIDATES = 33
# To find out whether regions depend on the extent of an input: a factor on the estimated one.
_LARGER = 4
# First coordinates of outputs to try, relative to the estimates: where coordinates are halved, the
# extents of regions depend on them.
_OFFSETS = (0.0, 1.0, 2.0, 3.0)


def any_size(schedule: Schedule, algorithm: Algorithm) -> Schedule:
    """Return the schedule, made correct at all sizes of `algorithm`.

    Outputs must have estimates. Funcs whose needs are not met at the estimates are guarded at all
    sizes. Conditions from an earlier call are replaced.
    """
    schedule = exact_size(schedule)
    together, joint = joint_of_schedule(schedule, algorithm)
    if joint is not None:
        separate = joint.separated(any_size(together, joint.algorithm))
        return all_guarded(schedule) if separate is None else separate
    extended = with_clones(algorithm, schedule.clones)
    wanted = {(func, d): need for func, _, d, need in needs(schedule, extended)}
    if not wanted:
        return schedule
    outputs = {extended.order[name] for name in extended.outputs}
    sizes = _Sizes(
        schedule,
        extended,
        {axis: need.minimum for axis, need in wanted.items() if axis[0] in outputs},
        {axis: need.minimum for axis, need in wanted.items() if axis[0] not in outputs},
    )
    least = sizes.smallest()
    conditions: Conditions = tuple(
        OutputExtent(*axis, minimum, wanted[axis].multiple if axis in wanted else 1)
        for axis, minimum in sorted(least.items())
        if minimum > 1
    )
    conditions = (*conditions, *sizes.known(least))
    twice = {func: conditions for func, _ in wanted if func not in sizes.hopeless}
    guarded_too = outputs & (twice.keys() | sizes.hopeless)
    twice |= dict.fromkeys(_around_registers(schedule, guarded_too), conditions)
    return _with_sizes(schedule, extended, twice, sizes.hopeless)


def _with_sizes(
    schedule: Schedule,
    algorithm: Algorithm,
    twice: Mapping[int, Conditions],
    always: frozenset[int],
) -> Schedule:
    """Return the schedule with conditions on its nests.

    The nests of the Funcs in `twice` get their conditions; those of the Funcs in `always` are
    guarded at all sizes. `algorithm` includes the schedule's clones.
    """
    funcs = []
    for entry in schedule.funcs:
        func = algorithm.funcs[entry.func]
        is_output = func.name in algorithm.outputs
        stages = []
        for stage, nest in zip(func.stages, entry.stages, strict=bool(entry.stages)):
            safe = guarded(nest)
            if safe.splits == nest.splits or not (is_output or reads_anything(stage)):
                stages.append(replace(nest, sizes=()))
            elif entry.func in always:
                stages.append(replace(safe, specialize=nest.specialize))
            else:
                stages.append(replace(nest, sizes=twice.get(entry.func, ())))
        funcs.append(replace(entry, stages=tuple(stages)))
    return replace(schedule, funcs=tuple(funcs))


def _around_registers(schedule: Schedule, outputs: Container[int]) -> set[int]:
    """Return the Funcs with Funcs in the registers of threads that compute several of their points.

    Halide cannot infer a constant number of registers in a guarded block, so these Funcs need
    another nest there. Only those in blocks of `outputs` count.
    """
    entries = {entry.func: entry for entry in schedule.funcs}
    return {
        anchor.func
        for entry in schedule.funcs
        if entry.memory == "register" and entry.compute.kind == "at"
        for anchor in (entries[entry.compute.func],)
        if anchor.compute.kind == "at"
        and anchor.compute.func in outputs
        and any(map(points_of_threads, anchor.stages))
    }


def _others(parameter: Parameter, value: float) -> list[tuple[str, float]]:
    """Return pairs of a scalar's name and a value other than the expected one."""
    found = [0.0, value / 2, value * 2 + 1]
    if parameter.type.code in ("int", "uint"):
        found = [float(int(other)) for other in found]
    return [(parameter.name, other) for other in found]


class _Sizes:
    """Finds the least extents of outputs at which the needs of all nests are met.

    `own` holds the needs of outputs, `inner` those of other Funcs, which apply to the extents
    computed at a time. `hopeless` are the Funcs whose needs are not met at the estimates, where a
    condition holds, or in later iterations of a loop over which a Func slides.
    """

    def __init__(
        self,
        schedule: Schedule,
        algorithm: Algorithm,
        own: Mapping[Axis, int],
        inner: Mapping[Axis, int],
    ) -> None:
        self._schedule, self._algorithm = schedule, algorithm
        self._own = own
        self._spans: dict[Axis, Span] = {}
        for name in algorithm.outputs:
            for d, span in enumerate(output_spans(algorithm.by_name[name])):
                assert span is not None
                self._spans[algorithm.order[name], d] = span
        self._symbols = dict(algorithm.symbols)
        self._analyses: dict[tuple[tuple[str, float], ...], Analysis] = {}
        cut = partial_axes(schedule, algorithm)
        self._conditional = narrowed(algorithm)
        self.hopeless = frozenset(p[0] for p in inner if p in cut)
        self._inner = {p: least for p, least in inner.items() if p[0] not in self.hopeless}
        self._give_up({})

    def _give_up(self, extents: Mapping[Axis, Bound], **symbols: float) -> None:
        """Move the Funcs whose inner needs are not met to `hopeless`."""
        met = self._met(extents, symbols)
        self.hopeless |= {func for (func, _), right in met.items() if not right.all()}
        self._inner = {p: least for p, least in self._inner.items() if p[0] not in self.hopeless}

    def smallest(self) -> dict[Axis, int]:
        """Return the least extent of each dimension of the outputs, minimised one by one."""
        if not self._inner:
            return dict(self._own)
        found: dict[Axis, int] = {}
        for axis, span in self._spans.items():
            func = self._algorithm.funcs[axis[0]]
            if func.args[axis[1]] in func.bounds:
                continue
            low, high = self._own.get(axis, 1), max(span.extent, self._own.get(axis, 1))
            while low < high:
                # np.unique would import numpy.ma: 30 ms
                spread = np.linspace(low, high, _CANDIDATES).astype(np.int64)
                tried = np.array(list(dict.fromkeys(spread.tolist())))
                met = self._met({**found, axis: tried.astype(np.float64)})
                right = np.all(list(met.values()), axis=0)
                first = int(np.argmax(right)) if right.any() else len(tried) - 1
                high = int(tried[first])
                low = int(tried[first - 1]) + 1 if first > 0 else high
            found[axis] = high
        return found

    def known(self, least: Mapping[Axis, int]) -> tuple[KnownValue, ...]:
        """Return the conditions on parameters that are needed if outputs have extents `least`.

        Regions may depend on parameters, for example on an input's extent in a boundary condition.
        """
        extents = {axis: float(extent) for axis, extent in least.items()}
        used = metadata_used(self._algorithm)
        result: list[KnownValue] = []
        scalars = [p for p in self._algorithm.parameters if p.name in self._symbols]
        # Most scalars do not affect regions: change all of them at once first.
        matters = not all(
            all(bool(right.all()) for right in self._met(extents, dict(changed)).values())
            for changed in zip(*(_others(p, self._symbols[p.name]) for p in scalars), strict=True)
        )
        for i, parameter in enumerate(self._algorithm.parameters):
            if not parameter.is_buffer:
                if matters:
                    result += self._scalar(i, parameter, extents)
                continue
            for d in range(parameter.dimensions):
                for field in ("extent", "min"):
                    symbol = f"{parameter.name}.{field}.{d}"
                    if symbol in used and symbol in self._symbols:
                        result += self._bound(i, d, symbol, extents)
        return tuple(result)

    def _bound(
        self, parameter: int, d: int, symbol: str, extents: Mapping[Axis, Bound]
    ) -> Iterator[KnownValue]:
        """Yield the condition on the extent or the first coordinate of an input's dimension."""
        value = int(self._symbols[symbol])
        if symbol.endswith(f".min.{d}"):
            if not all(self._holds(extents, symbol, value + far) for far in FAR):
                yield KnownValue(parameter, "min", d, value)
            return
        if not self._holds(extents, symbol, _LARGER * value):
            yield KnownValue(parameter, "extent", d, value)
        elif not self._holds(extents, symbol, 1):
            low, high = 2, value
            while low < high:
                middle = (low + high) // 2
                if self._holds(extents, symbol, middle):
                    high = middle
                else:
                    low = middle + 1
            self._symbols[symbol] = float(high)
            yield KnownValue(parameter, "extent", d, high, least=True)

    def _scalar(
        self, i: int, parameter: Parameter, extents: Mapping[Axis, Bound]
    ) -> Iterator[KnownValue]:
        """Yield the condition on an integer; for a float, give up Funcs that depend on it."""
        value = self._symbols.get(parameter.name)
        if value is None:
            return
        others = _others(parameter, value)
        if parameter.type.code in ("int", "uint"):
            if not all(self._holds(extents, name, other) for name, other in others):
                yield KnownValue(i, "value", 0, int(value))
            return
        for name, other in others:
            self._give_up(extents, **{name: other})

    def _analysis(self, symbols: Mapping[str, float]) -> Analysis:
        """Return the analysis with these values of symbols; analyses are cached."""
        values = {**self._symbols, **symbols}
        key = tuple(sorted(values.items()))
        if key not in self._analyses:
            self._analyses[key] = least_regions(self._algorithm, {}, values)
        return self._analyses[key]

    def _holds(self, extents: Mapping[Axis, Bound], symbol: str, value: float) -> bool:
        met = self._met(extents, {symbol: float(value)})
        return all(bool(right.all()) for right in met.values())

    def _met(
        self, extents: Mapping[Axis, Bound], symbols: Mapping[str, float] | None = None
    ) -> dict[Axis, npt.NDArray[np.bool_]]:
        """Return whether each inner need is met, per candidate of `extents`.

        Other extents and symbols have their estimated values.
        """
        if not self._inner:
            return {}
        count = max([1, *(np.size(extent) for extent in extents.values())])
        starts = (*_OFFSETS, *FAR) if self._conditional else _OFFSETS
        offsets = np.repeat(starts, count)
        boxes: dict[str, Box] = {}
        for name in self._algorithm.outputs:
            func, bounds = self._algorithm.order[name], self._algorithm.by_name[name].bounds
            box = []
            for d, arg in enumerate(self._algorithm.by_name[name].args):
                span = self._spans[func, d]
                extent = np.resize(extents.get((func, d), float(span.extent)), count)
                low = span.min + (np.zeros_like(offsets) if arg in bounds else offsets)
                box.append(Interval(low, low + np.tile(extent, len(starts)) - 1.0))
            boxes[name] = tuple(box)
        analysis = self._analysis(symbols or {}).with_boxes(boxes)
        ends = [Computed(self._schedule, analysis, last=last) for last in (False, True)]
        shape = len(starts), count
        result: dict[Axis, npt.NDArray[np.bool_]] = {}
        with np.errstate(invalid="ignore"):
            for (func, d), least in self._inner.items():
                first, final = (np.asarray(end.extents(func)[d]) for end in ends)
                extent = np.broadcast_to(np.minimum(first, final), offsets.shape)
                met = (extent >= least).reshape(shape)
                tried = len(starts) if func in self._conditional else len(_OFFSETS)
                result[func, d] = np.asarray(met[:tried].all(axis=0))
        return result
