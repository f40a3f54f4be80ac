"""A fixed handful of schedules with everything that is printed, by hand."""

from scheduled_pipelines import BUILDERS, imported

from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    Clone,
    ComputeWith,
    DimensionBounds,
    Factored,
    FuncSchedule,
    Fuse,
    Level,
    Prefetch,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
    StorageDim,
)


def nest(*changes, order, **options):
    """A stage; `order` lists loops innermost first, each ``name`` or ``name:mapping``."""
    loops = []
    for loop in order.split():
        name, _, mapping = loop.partition(":")
        mapping, _, partition = mapping.partition("/")
        loops.append(ScheduledLoop(name, mapping or "serial", partition or "auto"))
    return StageSchedule(tuple(changes), tuple(loops), **options)


def split(old, factor, tail="guard_with_if"):
    return Split(old, f"{old}o", f"{old}i", factor, tail)


def place(algorithm, name):
    """A Func's place by the start of its name; copies do not count."""
    copies = {*algorithm.partials, *(copy.name for copy in algorithm.copies)}
    own = {f.name.split("$")[0]: i for i, f in enumerate(algorithm.funcs) if f.name not in copies}
    return own[name]


def complete(algorithm, target, entries, clones=()):
    """A schedule with the given entries; other Funcs are inlined, or at root where they must."""
    algorithm = with_clones(algorithm, clones)
    chosen = {entry.func: entry for entry in entries}
    for i, func in enumerate(algorithm.funcs):
        if i not in chosen:
            inline = func.pure and func.name not in algorithm.outputs
            level = INLINE if inline else ROOT
            chosen[i] = FuncSchedule(i, level, level)
    return Schedule(algorithm.digest, target, tuple(chosen[i] for i in sorted(chosen)), clones)


def sliding_window(algorithm):
    across, blurred = (place(algorithm, name) for name in ("across", "blurred"))
    return complete(
        algorithm,
        "host",
        [
            FuncSchedule(
                blurred,
                ROOT,
                ROOT,
                stages=(
                    nest(
                        split("v1", 32),
                        split("v0", 16, "shift_inwards"),
                        order="v0i:vectorized v0o v1i:serial/never v1o:parallel",
                    ),
                ),
            ),
            FuncSchedule(
                across,
                Level("at", blurred, 0, "v1i"),
                Level("at", blurred, 0, "v1o"),
                "stack",
                (nest(split("v0", 8, "round_up"), order="v0i:vectorized v0o v1"),),
                align_storage=16,
            ),
        ],
    )


def gpu_tiles(algorithm):
    across, blurred = (place(algorithm, name) for name in ("across", "blurred"))
    tiles = nest(
        split("v0", 16),
        split("v1", 8),
        split("v1i", 2),
        order="v1ii:unrolled v0i:gpu_thread v1io:gpu_thread v0o:gpu_block v1o:gpu_block",
    )
    return complete(
        algorithm,
        "opencl",
        [
            FuncSchedule(blurred, ROOT, ROOT, stages=(tiles,)),
            FuncSchedule(
                across,
                Level("at", blurred, 0, "v0o"),
                Level("at", blurred, 0, "v0o"),
                "gpu_shared",
                (nest(order="v0:gpu_thread v1:gpu_thread"),),
                storage_order=(1, 0),
            ),
        ],
    )


def reduction_loops(algorithm):
    convolved, histogram, scan, result = (
        place(algorithm, name) for name in ("convolved", "histogram", "scan", "result")
    )
    return complete(
        algorithm,
        "host",
        [
            FuncSchedule(
                result,
                ROOT,
                ROOT,
                stages=(nest(Split("v1", "rows", "v1i", 4, "round_up"), order="v0 v1i rows"),),
            ),
            FuncSchedule(scan, ROOT, ROOT),
            FuncSchedule(
                convolved,
                Level("at", scan, 0, "v1"),
                Level("at", scan, 0, "v1"),
                stages=(
                    nest(order="v0 v1"),
                    nest(
                        split("r1", 2),
                        Fuse("v0", "v1", "both"),
                        split("both", 8),
                        order="bothi:vectorized r0:unrolled r1i r1o botho:parallel",
                    ),
                ),
            ),
            FuncSchedule(
                histogram,
                ROOT,
                ROOT,
                stages=(
                    nest(split("v0", 4), order="v0i:vectorized v0o"),
                    nest(split("r0", 4), order="r0i r1 r0o:parallel", atomic=True),
                ),
            ),
        ],
    )


def gpu_single_thread(algorithm):
    best, both = (place(algorithm, name) for name in ("best", "both"))
    blocks = nest(split("v0", 16), order="v0i:gpu_thread v0o:gpu_block v1:gpu_block")
    return complete(
        algorithm,
        "opencl",
        [
            FuncSchedule(both, ROOT, ROOT, stages=(blocks,)),
            FuncSchedule(
                best,
                ROOT,
                ROOT,
                stages=(nest(order="v0 v1", single_thread=True), nest(order="r0 v0 v1")),
            ),
        ],
    )


def clones(algorithm):
    """Two copies of one Func, one of which reads a copy of another, and one with updates."""
    convolved, scan, histogram = (
        place(algorithm, name) for name in ("convolved", "scan", "histogram")
    )
    image, wide = 0, algorithm.order[algorithm.producers[algorithm.funcs[convolved].name][0]]
    made = (
        Clone(wide, (histogram,)),
        Clone(image, (len(algorithm.funcs), wide)),
        Clone(wide, (convolved,)),
    )
    extended = with_clones(algorithm, made)
    for_image, for_histogram, for_convolved = (
        extended.order[extended.copies[i].name] for i in (1, 0, 2)
    )
    convolved, scan, histogram, result = (
        place(extended, name) for name in ("convolved", "scan", "histogram", "result")
    )
    return complete(
        algorithm,
        "host",
        [
            FuncSchedule(result, ROOT, ROOT),
            FuncSchedule(scan, ROOT, ROOT),
            FuncSchedule(convolved, ROOT, ROOT),
            FuncSchedule(histogram, ROOT, ROOT),
            FuncSchedule(
                for_histogram,
                Level("at", histogram, 1, "r1"),
                Level("at", histogram, 1, "r1"),
                stages=(nest(split("v0", 4, "round_up"), order="v0i:vectorized v0o v1"),),
            ),
            FuncSchedule(for_image, ROOT, ROOT),
            FuncSchedule(
                for_convolved,
                Level("at", convolved, 1, "v0"),
                Level("at", convolved, 1, "v1"),
                storage_order=(1, 0),
            ),
        ],
        made,
    )


def clone_of_an_output(algorithm):
    """One output reads another, which it computes again for itself."""
    colour, grey = (place(algorithm, name) for name in ("colour", "grey"))
    half = place(algorithm, "half")
    made = (Clone(colour, (grey,)), Clone(half, (len(algorithm.funcs), grey)))
    extended = with_clones(algorithm, made)
    grey = place(extended, "grey")
    for_colour, for_half = (extended.order[copy.name] for copy in extended.copies)
    row = Level("at", grey, 0, "v1")
    return complete(
        algorithm,
        "host",
        [
            FuncSchedule(for_colour, row, row, "stack"),
            FuncSchedule(for_half, row, row),
        ],
        made,
    )


def storage(algorithm):
    """Memory hoisted, folded, bounded and aligned; prefetches; regions widened."""
    across, blurred = (place(algorithm, name) for name in ("across", "blurred"))
    row = Level("at", blurred, 0, "v1i")
    return complete(
        algorithm,
        "host",
        [
            FuncSchedule(
                blurred,
                ROOT,
                ROOT,
                stages=(
                    nest(
                        split("v1", 32),
                        split("v0", 16, "round_up"),
                        order="v0i:vectorized v0o:serial/never v1i v1o",
                        prefetch=(Prefetch(across, "v1i", "v1i", 2, "clamp"),),
                    ),
                ),
                bounds=(DimensionBounds(0, modulus=16), DimensionBounds(1, extent=96)),
            ),
            FuncSchedule(
                across,
                row,
                Level("at", blurred, 0, "v1o"),
                hoist=ROOT,
                align_storage=32,
                storage=(StorageDim(1, align=2, fold=4), StorageDim(0, bound=4096)),
                bounds=(DimensionBounds(0, modulus=16, remainder=3),),
            ),
        ],
    )


def ring(algorithm):
    """Computed ahead by a thread of its own, two tiles in memory."""
    across, blurred = (place(algorithm, name) for name in ("across", "blurred"))
    tile = Level("at", blurred, 0, "v1o")
    return complete(
        algorithm,
        "host",
        [
            FuncSchedule(blurred, ROOT, ROOT, stages=(nest(split("v1", 8), order="v0 v1i v1o"),)),
            FuncSchedule(across, tile, tile, hoist=ROOT, run_async=True, ring_buffer=2),
        ],
    )


def wrappers(algorithm):
    """A wrapper for one reader, one for two, a wrapper of a wrapper, and a clone."""
    convolved, scan, histogram, result = (
        place(algorithm, name) for name in ("convolved", "scan", "histogram", "result")
    )
    wide = algorithm.order[algorithm.producers[algorithm.funcs[convolved].name][0]]
    count = len(algorithm.funcs)
    made = (
        Clone(scan, (result,), wrapper=True),
        Clone(wide, (convolved, result), wrapper=True),
        Clone(count + 1, (result,), wrapper=True),
        Clone(wide, (histogram,)),
    )
    extended = with_clones(algorithm, made)
    scanned, shared, again, cloned = (extended.order[copy.name] for copy in extended.copies)
    convolved, scan, histogram, result = (
        place(extended, name) for name in ("convolved", "scan", "histogram", "result")
    )
    tile = Level("at", result, 0, "v1o")
    return complete(
        algorithm,
        "host",
        [
            FuncSchedule(result, ROOT, ROOT, stages=(nest(split("v1", 4), order="v0 v1i v1o"),)),
            FuncSchedule(scan, ROOT, ROOT),
            FuncSchedule(
                scanned, tile, tile, stages=(nest(split("v0", 8), order="v0i:vectorized v0o v1"),)
            ),
            FuncSchedule(shared, ROOT, ROOT, storage_order=(1, 0)),
            FuncSchedule(again, Level("at", result, 0, "v1i"), tile, hoist=tile),
            FuncSchedule(cloned, ROOT, ROOT),
            FuncSchedule(convolved, ROOT, ROOT),
            FuncSchedule(histogram, ROOT, ROOT),
        ],
        made,
    )


def partial_results(algorithm):
    """A sum split twice, a histogram per thread, and a wrapper of partial sums."""
    convolved, histogram = (place(algorithm, name) for name in ("convolved", "histogram"))
    count = len(algorithm.funcs)
    made = (
        Factored(convolved, 1, ("r1i", "r0"), (split("r1", 2),)),
        Factored(convolved, 1, ("r1",)),
        Factored(histogram, 1, ("r1o",), (split("r1", 3),)),
        Clone(count, (count + 1,), wrapper=True),
    )
    extended = with_clones(algorithm, made)
    once, twice, counted = (extended.order[name] for name in extended.partials)
    (wrapped,) = (extended.order[copy.name] for copy in extended.copies)
    rows = Level("at", twice, 1, "v1")
    return complete(
        algorithm,
        "host",
        [
            FuncSchedule(once, rows, rows),
            FuncSchedule(twice, ROOT, ROOT),
            FuncSchedule(wrapped, rows, rows, storage_order=(3, 1, 0, 2)),
            FuncSchedule(
                counted, ROOT, ROOT, stages=(nest(order="v0 v1"), nest(order="r0 r1 v1:parallel"))
            ),
        ],
        made,
    )


def shared_loops(algorithm):
    """Two Funcs in one nest, one of them with an update."""
    colour, grey = (place(algorithm, name) for name in ("colour", "grey"))
    rows = nest(split("v1", 8, "round_up"), order="v0 v2 v1i v1o:parallel")
    shared = nest(
        split("v1", 8, "round_up"),
        order="v0 v1i v1o:parallel",
        compute_with=ComputeWith(colour, 0, "v1o", (("v1o", "start"),)),
    )
    return complete(
        algorithm,
        "host",
        [
            FuncSchedule(colour, ROOT, ROOT, stages=(rows,)),
            FuncSchedule(grey, ROOT, ROOT, stages=(shared,)),
        ],
    )


def races(algorithm):
    """An update run in parallel on the author's word."""
    scan, result = place(algorithm, "scan"), place(algorithm, "result")
    return complete(
        algorithm,
        "host",
        [
            FuncSchedule(result, ROOT, ROOT),
            FuncSchedule(place(algorithm, "convolved"), ROOT, ROOT),
            FuncSchedule(
                place(algorithm, "histogram"),
                ROOT,
                ROOT,
                stages=(nest(order="v0"), nest(order="r0 r1:parallel", allow_races=True)),
            ),
            FuncSchedule(scan, ROOT, ROOT),
        ],
    )


def all_cases():
    """Name to algorithm and schedule."""
    algorithms = {name: imported(build()) for name, build in BUILDERS.items()}
    made = {
        "sliding_window": ("blur", sliding_window),
        "gpu_tiles": ("blur", gpu_tiles),
        "reduction_loops": ("reductions", reduction_loops),
        "gpu_single_thread": ("tuples", gpu_single_thread),
        "clones": ("reductions", clones),
        "clone_of_an_output": ("outputs", clone_of_an_output),
        "storage": ("blur", storage),
        "ring": ("blur", ring),
        "wrappers": ("reductions", wrappers),
        "partial_results": ("reductions", partial_results),
        "shared_loops": ("separate", shared_loops),
        "races": ("reductions", races),
    }
    return {
        name: (algorithms[pipeline], make(algorithms[pipeline]))
        for name, (pipeline, make) in made.items()
    }
