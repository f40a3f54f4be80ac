"""Check the nest of one stage by itself, without the loops around it and the Funcs inside it."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.halide.ir.algorithm import Func, Stage
from tilewright.halide.ir.associativity import Combiner, combiner
from tilewright.halide.ir.nest import NestLoop, default_stage, scheduled_loops, split_loops
from tilewright.halide.ir.schedule import (
    Fuse,
    Mapping,
    ScheduledLoop,
    ScheduleError,
    Split,
    StageSchedule,
    Tail,
)
from tilewright.halide.legality.sizes import WRITES_BEYOND, stays_inside

Found = Iterator[tuple[str, str]]

PARALLEL: frozenset[Mapping] = frozenset({"parallel", "gpu_block", "gpu_thread"})
GPU: frozenset[Mapping] = frozenset({"gpu_block", "gpu_thread"})
_REDUCTION_TAILS: frozenset[Tail] = frozenset({"guard_with_if", "predicate"})
_BLENDS: frozenset[Tail] = frozenset({"shift_inwards_and_blend", "round_up_and_blend"})
HALVES: frozenset[Tail] = frozenset({"predicate_loads", "predicate_stores"})
_EXACT: frozenset[Tail] = frozenset({"guard_with_if", "predicate"})


def stage_problems(
    func: Func, stage: Stage, nest: StageSchedule, *, registers: bool = False
) -> Found:
    """Yield all violations of one nest, as pairs of a kind and a sentence.

    Args:
        func: The Func.
        stage: Its stage.
        nest: The nest of that stage.
        registers: Whether the Func is stored in registers. Halide then needs constant bounds of the
            region, and with these it can also unroll the pure loops.
    """
    try:
        loops = scheduled_loops(func, stage, nest)
    except ScheduleError as error:
        yield "loops", str(error)
        return
    dotted = [loop.name for loop in stage.loops if "." in loop.name]
    if dotted and nest != default_stage(func, stage):
        yield "name", f"Halide cannot schedule {dotted[0]}: the name has a dot; rename the Var"
    yield from _split_problems(func, stage, nest)
    yield from _bound_problems(func, nest)
    yield from _order_problems(func, stage, nest, loops)
    for loop, mapped in zip(loops, nest.loops, strict=True):
        if not (registers and loop.kind == "pure" and mapped.mapping == "unrolled"):
            yield from _extent_problems(loop, mapped)
        yield from _mapping_problems(stage, nest, loop, mapped)
    if nest.atomic and not (stage.index > 0 and is_associative(stage)):
        yield (
            "atomic",
            "only an update that adds to, multiplies, or takes the minimum or maximum with the "
            "value it overwrites may be atomic",
        )
    if nest.single_thread and any(loop.mapping in PARALLEL for loop in nest.loops):
        yield (
            "single_thread",
            "a nest with single_thread can have no parallel, block or thread loop",
        )


def is_associative(stage: Stage) -> bool:
    """Return whether the stage combines the new and old value by an associative operator.

    The test is conservative: Halide also accepts stages for which this returns false.
    """
    return len(stage.values) == 1 and isinstance(combiner(stage), Combiner)


def _split_problems(func: Func, stage: Stage, nest: StageSchedule) -> Found:
    """Yield splits and fusions that Halide rejects or that would change the result."""
    settled: set[str] = set()
    for i, change in enumerate(nest.splits):
        before = split_loops(func, stage, StageSchedule(nest.splits[:i]))
        by_name = {loop.name: loop for loop in before}
        if isinstance(change, Fuse):
            yield from _fuse_problems(stage, change, before)
            if settled & {change.inner, change.outer}:
                # Halide 21 crashes on some of these.
                yield (
                    "fuse",
                    f"{change.inner} or {change.outer} comes from a split with predicate_loads "
                    "or predicate_stores and cannot be fused; use guard_with_if",
                )
            continue
        yield from _tail_problems(stage, nest, change, by_name[change.old])
        if change.old in settled:
            yield (
                "tail",
                f"{change.old} comes from a split with predicate_loads or predicate_stores and "
                "cannot be split again; use guard_with_if",
            )
        if change.tail in HALVES:
            settled |= {change.outer, change.inner}


def _tail_problems(stage: Stage, nest: StageSchedule, split: Split, old: NestLoop) -> Found:
    tail = split.tail
    if old.reduction and tail not in _REDUCTION_TAILS:
        yield (
            "tail",
            f"loop {old.name} runs over a reduction, so its split must use guard_with_if or "
            f"predicate, not {tail}",
        )
        return
    if len(old.sources) > 1 and tail not in _EXACT:
        yield "tail", f"{old.name} is fused from several loops; split it with guard_with_if"
    if stage.index > 0:
        yield from _update_tail_problems(tail, old)
    if tail in HALVES and old.name != old.sources[0]:
        # Halide refuses some of these and computes wrong extents of others.
        yield "tail", f"{old.name} comes from a split; {tail} needs a loop of the definition"
    if tail in _BLENDS and (nest.atomic or any(loop.mapping in PARALLEL for loop in nest.loops)):
        yield "tail", f"{tail} writes back old values, so no loop of the nest may be parallel"
    if old.inside and old.extent is not None and tail not in _EXACT:
        fits = old.extent >= split.factor if "shift" in tail else old.extent % split.factor == 0
        if not fits:
            yield (
                "tail",
                f"{old.name} has {old.extent} iterations, which cannot be split by {split.factor} "
                f"with {tail}; use guard_with_if",
            )


def _update_tail_problems(tail: Tail, old: NestLoop) -> Found:
    """Yield tails that would compute an update twice, or guard only its loads or its stores."""
    if tail == "shift_inwards":
        yield "tail", f"{old.name} is in an update and cannot use shift_inwards; use guard_with_if"
    if old.inside and tail == "round_up":
        yield (
            "tail",
            f"{old.name} is the inner loop of a split in an update, where round_up would compute "
            "values twice; use guard_with_if",
        )
    if tail in HALVES:
        # Halide 21 computes wrong values for vectors of a Tuple and refuses atomic ones.
        yield "tail", f"{tail} guards only the loads or the stores of an update; use guard_with_if"


def _bound_problems(func: Func, nest: StageSchedule) -> Found:
    """Yield splits that run beyond the bounds that the user has promised for a dimension."""
    for d, arg in enumerate(func.args):
        bound = func.bounds.get(arg)
        if bound and not stays_inside(nest, f"v{d}", bound.extent, WRITES_BEYOND, bound=True):
            yield (
                "tail",
                f"dimension {arg} is bound to {bound.extent} values, and a split of it runs "
                "beyond them; use guard_with_if",
            )


def _fuse_problems(stage: Stage, fuse: Fuse, before: tuple[NestLoop, ...]) -> Found:
    """Yield fusions that change the order of a reduction whose result depends on it."""
    by_name = {loop.name: loop for loop in before}
    inner, outer = by_name[fuse.inner], by_name[fuse.outer]
    if set(inner.sources) & set(outer.sources):
        # Halide 21 crashes on some of these, and fusing the parts of a split again is useless.
        yield "fuse", f"{fuse.inner} and {fuse.outer} come from one loop; fuse different ones"
    impure = [loop.name for loop in before if loop.kind == "impure_rvar"]
    if is_associative(stage) or not {fuse.inner, fuse.outer} <= set(impure):
        return
    if impure.index(fuse.outer) != impure.index(fuse.inner) + 1:
        yield (
            "fuse",
            f"fusing {fuse.inner} and {fuse.outer} changes the order of the reduction, on which "
            "its result depends; fuse adjacent loops",
        )


def _order_problems(
    func: Func, stage: Stage, nest: StageSchedule, loops: tuple[NestLoop, ...]
) -> Found:
    """Yield reordered reduction loops, unless the reduction is associative."""
    if is_associative(stage):
        return
    before = [x.name for x in split_loops(func, stage, nest) if x.kind == "impure_rvar"]
    after = [x.name for x in loops if x.kind == "impure_rvar"]
    if before != after:
        yield (
            "reorder",
            f"the reduction runs over {', '.join(before)} (innermost first) and depends on that "
            f"order; {', '.join(after)} may give another result",
        )


def _extent_problems(loop: NestLoop, mapped: ScheduledLoop) -> Found:
    mapping = mapped.mapping
    if mapping in ("unrolled", "vectorized") and loop.extent is None:
        yield (
            "extent",
            f"loop {loop.name} is {mapping}, but its number of iterations is not constant; split "
            f"it and make the inner loop {mapping}",
        )


def _mapping_problems(
    stage: Stage, nest: StageSchedule, loop: NestLoop, mapped: ScheduledLoop
) -> Found:
    mapping = mapped.mapping
    if mapping == "gpu_block" and loop.inside and loop.extent == 1:
        # Halide 21 fails an assertion on some of these.
        yield (
            "extent",
            f"loop {loop.name} comes from a split by 1, so it is useless as a GPU block loop; "
            "remove the split",
        )
    shared = mapping in PARALLEL or mapping == "vectorized"
    safe = nest.allow_races or (nest.atomic and is_associative(stage))
    if loop.kind == "impure_rvar" and shared and not safe:
        yield (
            "race",
            f"loop {loop.name} carries a reduction, so it can only be {mapping} if the stage is "
            "associative and atomic",
        )
