"""A hypothesis strategy for legal schedules: consumers first, then levels that enclose them."""

from dataclasses import replace

from hypothesis import strategies as st

from tilewright.halide.analysis.paths import find_paths
from tilewright.halide.ir.clones import clone_problems, with_clones
from tilewright.halide.ir.nest import scheduled_loops, split_loops
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    Clone,
    FuncSchedule,
    Fuse,
    Level,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)
from tilewright.halide.ir.targets import is_gpu
from tilewright.halide.legality.stages import is_associative

EXACT = ("guard_with_if", "predicate")


@st.composite
def schedules(draw, algorithm, target="host", exact=False, clones=()):
    """Schedules of `algorithm`; with `exact`, only tails that are right at every size."""
    algorithm = with_clones(algorithm, clones)
    entries: dict = {}
    for index in reversed(range(len(algorithm.funcs))):
        so_far = Schedule(algorithm.digest, target, tuple(entries.values()), clones)
        entries[index] = draw(func_schedules(algorithm, index, so_far, exact))
    funcs = tuple(entries[i] for i in sorted(entries))
    return Schedule(algorithm.digest, target, funcs, clones)


@st.composite
def some_clones(draw, algorithm, most=3):
    """Clones that can be made, at least one and at most `most`, some of them read by clones."""
    count = len(algorithm.funcs)
    clones = ()
    for _ in range(draw(st.integers(1, most))):
        choices = [
            made
            for i in range(count)
            for reader in range(count + len(clones))
            for made in ((*clones, Clone(i, (reader,))),)
            if not list(clone_problems(algorithm, made))
        ]
        if choices:
            clones = draw(st.sampled_from(choices))
    return clones


@st.composite
def func_schedules(draw, algorithm, index, so_far, exact):
    func = algorithm.funcs[index]
    output = func.name in algorithm.outputs
    if not output and func.pure and draw(st.booleans()):
        return FuncSchedule(index, INLINE, INLINE)
    compute, store, around = ROOT, ROOT, ()
    if not output:
        compute, store, around = draw(levels(algorithm, index, so_far))
    stages = tuple(draw(nests(func, stage, around, so_far.target, exact)) for stage in func.stages)
    # Halide applies updates twice where an iteration has nothing new for vectors that shift.
    shifts = any(isinstance(c, Split) and c.tail == "shift_inwards" for c in stages[0].splits)
    if len(stages) > 1 and shifts:
        store = compute
    entry = FuncSchedule(index, compute, store, stages=stages)
    if not output:
        align = draw(st.sampled_from((1, 1, 8)))
        align = align if func.args else 1
        order = draw(st.permutations(range(len(func.args))))
        entry = replace(entry, align_storage=align, storage_order=tuple(order))
    return entry


@st.composite
def levels(draw, algorithm, index, so_far):
    """A compute and a store level around every use, and the loops around the compute level."""
    # The producer itself is taken to be at root, to find where its consumers run.
    trial = replace(so_far, funcs=(FuncSchedule(index, ROOT, ROOT), *so_far.funcs))
    paths = find_paths(trial, algorithm)
    ways = [path for use in paths.uses[index] for path in paths.stages[use]]
    common = [
        node
        for node in ways[0]
        if all(any((n.func, n.loop) == (node.func, node.loop) for n in way) for way in ways)
        and not any(between_gpu_loops(way, node) or in_lanes(way, node) for way in ways)
    ]
    choice = draw(st.integers(0, len(common)))
    if choice == 0:
        return ROOT, ROOT, ()
    node = common[choice - 1]
    compute = level(algorithm, so_far, node)
    prefixes = [
        way[: 1 + [(n.func, n.loop) for n in way].index((node.func, node.loop))] for way in ways
    ]
    store, free = compute, ("serial",)
    # Nothing slides over loops whose loads or stores alone are predicated.
    halved = any(
        isinstance(c, Split) and c.tail in ("predicate_loads", "predicate_stores")
        for e in so_far.funcs
        for s in e.stages
        for c in s.splits
    )
    if not halved and len({tuple((n.func, n.loop) for n in prefix) for prefix in prefixes}) == 1:
        outermost = len(prefixes[0])
        while outermost and all(p[outermost - 1].mapping in free for p in prefixes):
            outermost -= 1
        at = draw(st.integers(outermost, len(prefixes[0])))
        store = ROOT if at == 0 else level(algorithm, so_far, prefixes[0][at - 1])
    return compute, store, max(prefixes, key=lambda p: sum(n.mapping != "serial" for n in p))


def between_gpu_loops(way, node):
    at = 1 + [(n.func, n.loop) for n in way].index((node.func, node.loop))
    outside, inside = ({n.mapping for n in part} for part in (way[:at], way[at:]))
    return bool({"gpu_block", "gpu_thread"} & outside & inside)


def in_lanes(way, node):
    """Whether what is computed there runs in the vector lanes of a kernel."""
    at = 1 + [(n.func, n.loop) for n in way].index((node.func, node.loop))
    return {"gpu_block", "vectorized"} <= {n.mapping for n in way[:at]}


def level(algorithm, so_far, node):
    entry = next(e for e in so_far.funcs if e.func == node.func)
    for stage, nest in enumerate(entry.stages):
        if any(loop.name == node.loop for loop in nest.loops):
            return Level("at", node.func, stage, node.loop)
    raise AssertionError(node)


@st.composite
def nests(draw, func, stage, around, target, exact):
    nest = StageSchedule()
    final: set = set()
    atomic = stage.index > 0 and is_associative(stage) and not is_gpu(target)
    atomic = atomic and draw(st.booleans())
    for number in range(draw(st.integers(0, 4))):
        loops = split_loops(func, stage, nest)
        if not loops:
            break
        change = draw(changes(loops, stage, number, exact, final))
        if isinstance(change, Split) and change.tail in ("predicate_loads", "predicate_stores"):
            final |= {change.outer, change.inner}
        if change is not None:
            nest = replace(nest, splits=(*nest.splits, change))
    loops = split_loops(func, stage, nest)
    order = draw(st.permutations(range(len(loops))))
    impure = iter(sorted(i for i in order if loops[i].kind == "impure_rvar"))
    order = [next(impure) if loops[i].kind == "impure_rvar" else i for i in order]
    nest = replace(nest, loops=tuple(ScheduledLoop(loops[i].name) for i in order), atomic=atomic)
    loops = scheduled_loops(func, stage, nest)
    masked = any(isinstance(c, Split) and c.tail.startswith("predicate") for c in nest.splits)
    # Halide 21 fails an assertion on some nests where loops that are guarded twice are around
    # blocks; such a candidate does not compile, which does not make it illegal.
    crowded = len(nest.splits) > 1
    mapped = draw(mappings(loops, around, is_gpu(target), atomic, masked, crowded))
    partition = draw(st.sampled_from(("auto", "auto", "never")))
    named = zip(loops, mapped, strict=True)
    return replace(nest, loops=tuple(ScheduledLoop(loop.name, m, partition) for loop, m in named))


@st.composite
def changes(draw, loops, stage, number, exact, final):
    if len(loops) > 1 and draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(loops) - 2))
        inner, outer = loops[at], loops[at + 1]
        kinds = {inner.kind, outer.kind}
        apart = not set(inner.sources) & set(outer.sources)
        apart = apart and not final & {inner.name, outer.name}
        if apart and ("impure_rvar" not in kinds or kinds == {"impure_rvar"}):
            return Fuse(inner.name, outer.name, f"fused{number}")
        return None
    old = draw(st.sampled_from(loops))
    factor = draw(st.sampled_from((1, 2, 3, 4, 8)))
    tails = list(EXACT)
    if not exact and not old.reduction and len(old.sources) == 1:
        if not (stage.index and old.inside):
            tails.append("round_up")
        if not stage.index:
            tails.append("shift_inwards")
        if old.name == old.sources[0] and not stage.index:
            tails += ["predicate_loads", "predicate_stores"]
    if old.name in final:
        return None
    tail = draw(st.sampled_from(tails))
    if old.inside and old.extent is not None and tail not in EXACT and old.extent % factor:
        tail = "guard_with_if"
    return Split(old.name, f"o{number}_", f"i{number}_", factor, tail)


@st.composite
def mappings(draw, loops, around, gpu, atomic, masked, crowded):
    """Mappings, innermost first, that fit the loops around the Func."""
    outside = [node.mapping for node in around]
    blocks, threads = outside.count("gpu_block"), outside.count("gpu_thread")
    inside_threads = threads > 0
    in_kernel, open_blocks = blocks > 0, blocks == 0
    vector = "vectorized" in outside
    result = []
    for place, loop in reversed(list(enumerate(loops))):
        guarded = masked or any(inner.guarded for inner in loops[: place + 1])
        choices = ["serial"]
        free = loop.kind != "impure_rvar" or atomic
        if loop.extent is not None and loop.extent <= 8:
            choices.append("unrolled")
            # No backend but CUDA's has conditions on lanes.
            if free and not vector and not (in_kernel and guarded):
                choices.append("vectorized")
        if free and not vector and not in_kernel:
            choices.append("parallel")
        if gpu and free and not vector:
            open_blocks = open_blocks and "parallel" not in outside
            by_one = loop.inside and loop.extent == 1
            if open_blocks and blocks < 3 and loop.kind == "pure" and not by_one:
                choices += ["gpu_block"] * 3
            small = loop.extent is not None and loop.extent <= 8
            if in_kernel and threads < 3 and small and not inside_threads:
                choices += ["gpu_thread"] * 3
        choice = draw(st.sampled_from(choices))
        outside.append(choice)
        if choice == "gpu_block":
            blocks, in_kernel = blocks + 1, True
        elif in_kernel or crowded:
            open_blocks = False
        threads += choice == "gpu_thread"
        vector |= choice == "vectorized"
        result.append(choice)
    return result[::-1]
