"""Copy the operands of a reduction to registers before it uses them.

A thread that keeps several sums in registers loads each operand right before its product and waits
for it. If operands are copied for several steps of the reduction at once, all these loads are in
flight together::

    for k:  s[0..3] += a[0..3, k] * b[k]        # every product waits for its own loads
    for k0: t[0..3, 0..7] = a[0..3, k0..k0+7]   # one wait for all
            u[0..7] = b[k0..k0+7]
            s[0..3] += t[0..3, k] * u[k]        # for k in k0..k0+7, unrolled

The copies load four elements at once where these are known to be aligned. That depends on the sizes
that a caller passes, so the kernel is specialised on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.halide.analysis.bounds import Access, Linear
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Algorithm, Call, Const, Func, Variable
from tilewright.halide.ir.loops import dimension_of, part_of, pure_loop, reduction_loop
from tilewright.halide.ir.schedule import (
    INLINE,
    CallCondition,
    FuncSchedule,
    KnownValue,
    Level,
    OutputExtent,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)
from tilewright.halide.ir.variants import Conditions
from tilewright.halide.schedulers.analytic.gpu.nested import narrowed_by_conditions
from tilewright.halide.schedulers.analytic.gpu.plan import KernelPlan

# Elements of 32 bits that Halide 21 loads at once for CUDA, if their address is a multiple of 16
# bytes relative to the buffer (its code generator for PTX; wider vectors are loaded in parts).
VECTOR = 4
VECTOR_BITS = 32


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
        if reader in view.algorithm.sliced:
            continue  # Halide clamps what it reads, so the number of copies is not constant.
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

    None if several stages read it, the stage has no reduction, or a coordinate is not affine. Reads
    must also be at constant distances: between ``a[x, k]`` and ``a[y, k]`` lie unknown numbers of
    elements.
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
    near = all(access.affine and all(len(f) == 1 for f in access.forms) for access in reads)
    return index if reduces and near else None


def staged_schedule(
    analysis: Analysis,
    operand: Staged,
    entries: list[FuncSchedule],
    extents: Sequence[float],
) -> tuple[FuncSchedule, Conditions] | None:
    """Return the schedule that copies an operand in the innermost serial loop of its reduction.

    None if the innermost loop that is not unrolled is not a reduction loop. `extents` are those of
    the reader's region in a thread. The conditions are those under which vectors are aligned; there
    are none if the copies do not load vectors.
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
    nest = StageSchedule((), copies)
    conditions = _aligned(analysis, operand, entry.stages[operand.stage], extents)
    if conditions:
        first = pure_loop(0)
        rest, lanes = part_of(first, "_u"), part_of(first, "_l")
        vectors = ScheduledLoop(lanes, "vectorized"), ScheduledLoop(rest, "unrolled")
        split = Split(first, rest, lanes, VECTOR, "guard_with_if")
        nest = StageSchedule((split,), (*vectors, *copies[1:]))
    return FuncSchedule(order[operand.name], level, level, "register", (nest,)), conditions


def _aligned(
    analysis: Analysis, operand: Staged, nest: StageSchedule, extents: Sequence[float]
) -> Conditions:
    """Return the conditions under which an operand's copies are whole, aligned vectors.

    `nest` is that of the reader's stage. There are no conditions if the copies are not vectors at
    the estimated sizes.
    """
    algorithm = analysis.view.algorithm
    reader = algorithm.by_name[operand.reader]
    (image,) = algorithm.by_name[operand.name].stages[0].values
    if image.type.bits != VECTOR_BITS or not isinstance(image, Call):
        return ()
    reads = analysis.toggled(operand.name).summaries(operand.reader)[operand.stage]
    (access,) = reads.reads(operand.name)
    copied = _copied(nest, extents)
    moves = _moves(access, reader, operand.stage)
    if moves is None:
        return ()
    terms, low, high = moves
    length = 1.0 + high - low + sum(abs(c) * (copied.get(loop, 1.0) - 1.0) for loop, c in terms)
    steps = [c * copied.get(loop, 1.0) for loop, c in terms]
    if any(value % VECTOR for value in (length, low, *steps)):
        return ()
    dimensions = [dimension_of(loop) for loop, _ in terms]
    return _conditions(algorithm, image.name, [d for d in dimensions if d is not None])


def _copied(nest: StageSchedule, extents: Sequence[float]) -> dict[str, float]:
    """Return the unrolled iterations of each loop of a stage's definition, by its name."""
    parts = {change.inner: change for change in nest.splits if isinstance(change, Split)}
    found: dict[str, float] = {}
    for loop in nest.loops:
        if loop.mapping != "unrolled":
            break
        part, dimension = parts.get(loop.name), dimension_of(loop.name)
        if part is not None:
            found[part.old] = float(part.factor)
        elif dimension is not None and dimension < len(extents):
            found[loop.name] = float(extents[dimension])
    return found


def _moves(
    access: Access, reader: Func, stage: int
) -> tuple[list[tuple[str, float]], float, float] | None:
    """Return how loops of the reader move an access along its first dimension.

    Returns:
        The loops of the definition, each with the step of one iteration in elements, then the least
        and the largest offset. None if there are several forms of index, or loops that begin at an
        unknown coordinate.
    """
    loops = {name: pure_loop(d) for d, name in enumerate(reader.args)}
    begin = dict.fromkeys(loops.values(), 0.0)
    for i, rvar in enumerate(reader.stages[stage].rvars):
        if not isinstance(rvar.min, Const) or isinstance(rvar.min.value, str):
            continue
        loops[rvar.name] = reduction_loop(i)
        begin[reduction_loop(i)] = float(rvar.min.value)
    form: Linear
    if len(access.forms[0]) != 1:
        return None
    ((form, low, high),) = access.forms[0]
    terms: list[tuple[str, float]] = []
    for atom, coefficient in form.terms:
        loop = loops.get(atom.name) if isinstance(atom, Variable) else None
        if loop is None:
            return None
        terms.append((loop, coefficient))
    offset = sum(coefficient * begin[loop] for loop, coefficient in terms)
    return terms, low + offset, high + offset


def _conditions(algorithm: Algorithm, image: str, dimensions: Sequence[int]) -> Conditions:
    """Return the conditions on an input's rows and on these dimensions of the outputs.

    There are none if one of them does not hold at the estimates.
    """
    index = next(i for i, p in enumerate(algorithm.parameters) if p.name == image)
    parameter, symbols = algorithm.parameters[index], algorithm.symbols
    if symbols.get(f"{image}.min.0", 1) % VECTOR:
        return ()
    found: list[CallCondition] = [KnownValue(index, "min", 0, VECTOR, multiple=True)]
    stride = 1.0
    for d in range(1, parameter.dimensions):
        stride *= symbols.get(f"{image}.extent.{d - 1}", 1)
        if stride % VECTOR:
            return ()
        found.append(KnownValue(index, "stride", d, VECTOR, multiple=True))
    for name in algorithm.outputs:
        func = algorithm.by_name[name]
        for d in dimensions:
            span = func.estimates.get(func.args[d]) if d < len(func.args) else None
            if span is None or span.min % VECTOR or span.extent % VECTOR:
                return ()
            found.append(OutputExtent(algorithm.order[name], d, 1, VECTOR, VECTOR))
    return tuple(found)


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
