"""Check whether a schedule is legal, before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.paths import find_paths, inlined
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Algorithm, Func
from tilewright.halide.ir.clones import clone_problems, with_clones
from tilewright.halide.ir.joint import joined
from tilewright.halide.ir.nest import guarded
from tilewright.halide.ir.schedule import (
    CallCondition,
    FuncSchedule,
    KnownValue,
    Schedule,
    ScheduleError,
    SizeVariant,
)
from tilewright.halide.ir.targets import is_gpu as is_gpu
from tilewright.halide.ir.variants import running_at, variant_schedules
from tilewright.halide.legality.additions import addition_problems
from tilewright.halide.legality.directives import (
    dimension_problems,
    hoist_problems,
    prefetch_problems,
    sharing_problems,
)
from tilewright.halide.legality.grids import launch_problems
from tilewright.halide.legality.levels import (
    level_problems,
    path_problems,
    single_thread_problems,
)
from tilewright.halide.legality.registers import register_problems
from tilewright.halide.legality.sliding import Sliding
from tilewright.halide.legality.stages import stage_problems
from tilewright.halide.legality.violations import Limits as Limits
from tilewright.halide.legality.violations import Violation as Violation

Found = Iterator[tuple[str, str]]
Known = dict[FuncSchedule, tuple[Violation, ...]]
# Maximum number of nodes of an expression after inlining.
_LARGEST_VIEW = 200_000


def check(
    schedule: Schedule,
    algorithm: Algorithm,
    limits: Limits | None = None,
    shared_bytes: Mapping[int, int] | None = None,
    known: Known | None = None,
) -> list[Violation]:
    """Return all violations of a schedule; if there are none, it may be compiled.

    If the outputs have estimates, the launches of a GPU schedule are computed and compared with
    `limits`.

    Args:
        schedule: The schedule.
        algorithm: The algorithm, with or without the schedule's clones.
        limits: Limits of the device; by default those of `Limits`.
        shared_bytes: Known bytes of shared memory per block, by the position of the kernel's Func
            (clones included).
        known: The violations of single Funcs by their schedules, kept for later calls with the same
            algorithm, target and clones.

    Raises:
        ScheduleError: The schedule was made for another algorithm.
    """
    if schedule.algorithm != algorithm.digest:
        raise ScheduleError("the schedule was made for another algorithm; schedule this one")
    limits = limits or Limits()
    unsound = list(clone_problems(algorithm, schedule.clones))
    if unsound:
        return [Violation("clone", name, None, reason) for name, reason in unsound]
    algorithm = with_clones(algorithm, schedule.clones)
    found = list(_entry_problems(schedule, algorithm))
    for variant in () if found else schedule.variants:
        found += _variant_problems(schedule, variant, algorithm)
    if not found:
        plain = [nests for _, nests in variant_schedules(schedule)]
        found += [problem for nests in plain for problem in _nest_problems(nests, algorithm, known)]
        # Levels can only be checked if every nest is legal.
        for nests in () if found else plain:
            found += _shared_problems(nests, algorithm)
            nests, joint = joined(nests, algorithm)
            found += _place_problems(nests, with_clones(joint, nests.clones), limits)
            if is_gpu(schedule.target):
                found += _device_nest_problems(nests, algorithm)
    if not found and is_gpu(schedule.target):
        found += launch_problems(running_at(schedule, algorithm), algorithm, limits)
    found += _memory_problems(algorithm, limits, shared_bytes or {})
    return list(dict.fromkeys(found))


def _entry_problems(schedule: Schedule, algorithm: Algorithm) -> Iterator[Violation]:
    """Yield violations for unknown Funcs, duplicate entries and missing entries."""
    seen: set[int] = set()
    for entry in schedule.funcs:
        if not 0 <= entry.func < len(algorithm.funcs):
            reason = f"there is no Func {entry.func}; the pipeline has {len(algorithm.funcs)} Funcs"
            yield Violation("unknown_func", str(entry.func), None, reason)
            continue
        name = algorithm.funcs[entry.func].name
        if entry.func in seen:
            yield Violation("duplicate", name, None, "it has two entries; remove one")
        seen.add(entry.func)
    for i, func in enumerate(algorithm.funcs):
        free = not func.fixed and not func.scheduled
        if i not in seen and free and not func.pure and func.name not in algorithm.outputs:
            reason = (
                "it has no entry, and Halide cannot inline it because it has updates; add an entry"
            )
            yield Violation("missing", func.name, None, reason)


def _nest_problems(
    schedule: Schedule, algorithm: Algorithm, known: Known | None
) -> Iterator[Violation]:
    """Yield violations of single Funcs."""
    known = {} if known is None else known
    for entry in schedule.funcs:
        if entry not in known:
            known[entry] = tuple(_func_problems(entry, schedule.target, algorithm))
        yield from known[entry]


def _variant_problems(
    schedule: Schedule, variant: SizeVariant, algorithm: Algorithm
) -> Iterator[Violation]:
    """Yield violations of a variant, except those of its nests."""
    for known in variant.sizes:
        reason = _unknowable(known, algorithm)
        if reason:
            yield Violation("specialize", algorithm.outputs[0], None, reason)
    if not variant.sizes:
        reason = "a variant has no conditions, so it would apply to all calls; add a condition"
        yield Violation("specialize", algorithm.outputs[0], None, reason)
    if len(variant.nests) != len(schedule.funcs):
        reason = f"a variant has nests of {len(variant.nests)} Funcs, not {len(schedule.funcs)}"
        yield Violation("stages", algorithm.outputs[0], None, reason)
        return
    for entry, nests in zip(schedule.funcs, variant.nests, strict=True):
        name = algorithm.funcs[entry.func].name
        if len(nests) != len(entry.stages):
            reason = (
                f"a variant has {len(nests)} nests for it, but the schedule has {len(entry.stages)}"
            )
            yield Violation("stages", name, None, reason)
        if any(nest.sizes for nest in nests):
            reason = "a nest of a variant has sizes; only the variant itself may have them"
            yield Violation("specialize", name, None, reason)


def _unknowable(known: CallCondition, algorithm: Algorithm) -> str:
    """Return the reason why a condition is invalid for an algorithm; empty if it is valid."""
    if not isinstance(known, KnownValue):
        func = algorithm.funcs[known.func] if known.func < len(algorithm.funcs) else None
        if func is None or func.name not in algorithm.outputs:
            return f"Func {known.func} is not an output, so a call does not determine its extents"
        if known.dimension >= len(func.args):
            return f"{func.name} has no dimension {known.dimension}"
        return ""
    if known.parameter >= len(algorithm.parameters):
        return f"there is no parameter {known.parameter} to specialise on"
    parameter = algorithm.parameters[known.parameter]
    if known.field == "value":
        if parameter.is_buffer:
            return f"{parameter.name} is an input; a condition can be on its sizes, not its values"
        if parameter.type.code not in ("int", "uint"):
            return f"{parameter.name} is of type {parameter.type}; a condition needs an integer"
    elif known.dimension >= parameter.dimensions:
        return f"{parameter.name} has no dimension {known.dimension}"
    return ""


def _func_problems(entry: FuncSchedule, target: str, algorithm: Algorithm) -> Iterator[Violation]:
    """Yield violations of one Func, except those that depend on surrounding loops."""
    func = algorithm.funcs[entry.func]
    for index, nest in enumerate(entry.stages):
        for known in (*nest.specialize, *nest.sizes):
            reason = _unknowable(known, algorithm)
            if reason:
                yield Violation("specialize", func.name, index, reason)
    for kind, message in (
        *_inline_problems(entry, func, algorithm),
        *_device_problems(entry, func, algorithm),
        *_storage_problems(entry, func, target),
        *dimension_problems(entry, func),
        *(_output_problems(entry) if func.name in algorithm.outputs else ()),
    ):
        yield Violation(kind, func.name, None, message)
    if entry.stages and func.fixed:
        message = "it is extern or memoised, so its loops cannot be scheduled; remove its nests"
        yield Violation("fixed", func.name, None, message)
    elif entry.stages and len(entry.stages) != len(func.stages):
        message = f"it has {len(func.stages)} stages, but its schedule has {len(entry.stages)}"
        yield Violation("stages", func.name, None, message)
    else:
        registers = entry.memory == "register"
        for stage, nest in zip(func.stages, entry.stages, strict=False):
            for one in (nest, guarded(nest)) if nest.sizes else (nest,):
                for kind, message in stage_problems(func, stage, one, registers=registers):
                    yield Violation(kind, func.name, stage.index, message)


def _extern_reader(func: Func, algorithm: Algorithm) -> str | None:
    readers = [algorithm.by_name[name] for name in algorithm.consumers[func.name]]
    return next((reader.name for reader in readers if reader.extern is not None), None)


def _device_problems(entry: FuncSchedule, func: Func, algorithm: Algorithm) -> Found:
    extern = _extern_reader(func, algorithm)
    if extern is None:
        return
    if any(
        nest.single_thread or any(loop.mapping.startswith("gpu_") for loop in nest.loops)
        for nest in entry.stages
    ):
        yield (
            "extern",
            f"the extern stage {extern} reads it on the host, and Halide does not copy it back "
            "from the GPU for that; compute it on the host",
        )


def _inline_problems(entry: FuncSchedule, func: Func, algorithm: Algorithm) -> Found:
    if entry.compute.kind == "inline":
        extern = _extern_reader(func, algorithm)
        if extern is not None:
            yield "inline", f"the extern stage {extern} reads it from memory; compute it at root"
        if not func.pure:
            yield "inline", "only a Func with a single pure definition can be inlined"
        if func.memoized:
            yield "inline", "a memoised Func cannot be inlined"
        if entry.store.kind != "inline":
            yield "store", "it is computed inline, so its store level must be inline, too"
        if entry != FuncSchedule(entry.func, entry.compute, entry.store):
            yield "inline", "an inlined Func can have no nests and no storage directives"
    elif entry.store.kind == "inline":
        yield "store", "it is stored inline but not computed inline; store it at a loop or at root"
    if entry.compute.kind == "root" and entry.store.kind == "at":
        yield "store", "it is computed at root, so it must be stored at root"


def _storage_problems(entry: FuncSchedule, func: Func, target: str) -> Found:
    dims = len(func.args)
    if entry.storage_order and sorted(entry.storage_order) != list(range(dims)):
        yield "storage", f"storage_order must list each of the dimensions 0 to {dims - 1} once"
    if entry.align_storage < 1 or (entry.align_storage > 1 and dims == 0):
        yield "storage", "align_storage must be at least 1, and exactly 1 without dimensions"
    if entry.memory == "gpu_shared" and not is_gpu(target):
        yield "memory", f"the target {target} has no shared memory"


def _output_problems(entry: FuncSchedule) -> Found:
    if entry.compute.kind != "root" or entry.store.kind != "root":
        yield "output", "an output must be computed and stored at root"
    own = entry.storage or entry.hoist is not None or entry.run_async or entry.ring_buffer
    if own or entry.memory != "auto" or entry.storage_order or entry.align_storage > 1:
        yield "output", "the caller allocates outputs, so they can have no storage directives"


def _shared_problems(schedule: Schedule, algorithm: Algorithm) -> Iterator[Violation]:
    for entry in schedule.funcs:
        for kind, message in sharing_problems(entry, schedule, algorithm):
            yield Violation(kind, algorithm.funcs[entry.func].name, None, message)


def _place_problems(schedule: Schedule, algorithm: Algorithm, limits: Limits) -> list[Violation]:
    try:
        paths = find_paths(schedule, algorithm)
    except ScheduleError as error:
        return [Violation("level", algorithm.outputs[0], None, str(error))]
    sliding = Sliding(schedule, algorithm, paths)
    found = []
    for entry in schedule.funcs:
        name = algorithm.funcs[entry.func].name
        problems = [
            *level_problems(entry, schedule, algorithm, paths),
            *single_thread_problems(entry, paths, schedule.target),
            *sliding.problems(entry),
            *hoist_problems(entry, paths),
            *prefetch_problems(entry, algorithm),
        ]
        found += [Violation(kind, name, None, message) for kind, message in problems]
    if not found:
        for (func, stage), ways in paths.stages.items():
            name = algorithm.funcs[func].name
            for path in ways:
                for kind, message in path_problems(path, schedule.target, limits.threads_per_block):
                    found.append(Violation(kind, name, stage, message))
    return list(dict.fromkeys(found))


def _device_nest_problems(schedule: Schedule, algorithm: Algorithm) -> Iterator[Violation]:
    gone = frozenset(algorithm.funcs[i].name for i in inlined(schedule, algorithm))
    view = View(algorithm, gone, limit=_LARGEST_VIEW)
    analysis = Analysis(view, {}, algorithm.symbols)
    yield from addition_problems(schedule, algorithm, analysis)
    yield from register_problems(schedule, algorithm, analysis)


def _memory_problems(
    algorithm: Algorithm, limits: Limits, shared_bytes: Mapping[int, int]
) -> list[Violation]:
    available = limits.shared_memory_bytes
    return [
        Violation(
            "shared_memory",
            algorithm.funcs[func].name,
            None,
            f"a block needs {used} bytes of shared memory; the device has {available}",
        )
        for func, used in shared_bytes.items()
        if available is not None and used > available
    ]
