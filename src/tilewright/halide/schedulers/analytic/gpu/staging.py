"""Copy the operands of a reduction to registers before it uses them.

A thread that keeps several sums in registers loads each operand right before its product and waits
for it. If operands are copied for several steps of the reduction at once, all these loads are in
flight together::

    for k:  s[0..3] += a[0..3, k] * b[k]        # every product waits for its own loads
    for k0: t[0..3, 0..7] = a[0..3, k0..k0+7]   # one wait for all
            u[0..7] = b[k0..k0+7]
            s[0..3] += t[0..3, k] * u[k]        # for k in k0..k0+7, unrolled
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Call, Func, Variable
from tilewright.halide.ir.loops import pure_loop
from tilewright.halide.ir.schedule import (
    INLINE,
    FuncSchedule,
    Level,
    Schedule,
    ScheduledLoop,
    StageSchedule,
)
from tilewright.halide.schedulers.analytic.gpu.nested import narrowed_by_conditions
from tilewright.halide.schedulers.analytic.gpu.plan import KernelPlan


@dataclass(frozen=True, slots=True)
class Staged:
    """An operand that can be copied.

    Attributes:
        name: A Func that only loads an image at its own coordinates.
        reader: The only Func that reads it.
        stage: The position of the reader's update that reads it.
    """

    name: str
    reader: str
    stage: int


def staged_operands(analysis: Analysis, plan: KernelPlan) -> tuple[Staged, ...]:
    """Return the operands of reductions in a kernel's threads that may be copied.

    An operand is an image that one update with a reduction reads at affine coordinates, and that
    no other stage reads.
    """
    if plan.steps == 1 or narrowed_by_conditions(plan.kernel, plan.nested):
        return ()
    view = analysis.view
    found = []
    for reader in plan.nested:
        for name in view.algorithm.producers[reader]:
            if name in view.inlined and _gives_image(view.algorithm.by_name[name]):
                stage = _only_read_by(analysis, name, reader)
                if stage is not None:
                    found.append(Staged(name, reader, stage))
    return tuple(dict.fromkeys(found))


def _gives_image(func: Func) -> bool:
    if len(func.stages) != 1 or len(func.stages[0].values) != 1:
        return False
    (value,) = func.stages[0].values
    return (
        isinstance(value, Call)
        and value.kind == "image"
        and [arg.name for arg in value.args if isinstance(arg, Variable)] == list(func.args)
    )


def _only_read_by(analysis: Analysis, name: str, reader: str) -> int | None:
    """Return the position of the only stage that reads a Func.

    None if several stages read it, the stage has no reduction, or a coordinate is not affine.
    """
    if analysis.view.algorithm.consumers[name] != (reader,):
        return None
    summaries = analysis.toggled(name).summaries(reader)
    reading = [(index, found.reads(name)) for index, found in enumerate(summaries)]
    reading = [(index, reads) for index, reads in reading if reads]
    if len(reading) != 1:
        return None
    ((index, reads),) = reading
    reduces = bool(analysis.view.stages(reader)[index].rvars)
    return index if reduces and all(access.affine for access in reads) else None


def staged_schedule(
    analysis: Analysis, operand: Staged, entries: list[FuncSchedule]
) -> FuncSchedule | None:
    """Return the schedule that copies an operand in the innermost serial loop of its reduction.

    None if the innermost loop that is not unrolled is not a reduction loop.
    """
    algorithm = analysis.view.algorithm
    order = algorithm.order
    entry = next(each for each in entries if each.func == order[operand.reader])
    loops = entry.stages[operand.stage].loops
    serial = [loop.name for loop in loops if loop.mapping != "unrolled"]
    if not serial or not serial[0].startswith("r"):
        return None
    level = Level("at", entry.func, operand.stage, serial[0])
    func = algorithm.by_name[operand.name]
    copies = tuple(ScheduledLoop(pure_loop(d), "unrolled") for d in range(len(func.args)))
    return FuncSchedule(order[operand.name], level, level, "register", (StageSchedule((), copies),))


def computed_in(analysis: Analysis, schedule: Schedule) -> frozenset[str]:
    """Return the Funcs that are inlined in the analysis but computed in the schedule."""
    funcs = analysis.view.algorithm.funcs
    computed = {funcs[entry.func].name for entry in schedule.funcs if entry.compute != INLINE}
    return analysis.view.inlined & computed


def not_inlined(analysis: Analysis, names: frozenset[str]) -> Analysis:
    """Return the analysis of the same pipeline with the inlined Funcs `names` computed."""
    for name in sorted(names):
        analysis = analysis.toggled(name)
    return analysis
