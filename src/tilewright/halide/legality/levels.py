"""Check the compute and store levels of Funcs, given all surrounding loops."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tilewright.halide.analysis.paths import Path, Paths, position
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.nest import original_loops, scheduled_loops
from tilewright.halide.ir.schedule import FuncSchedule, Level, Schedule, Split
from tilewright.halide.ir.targets import is_gpu
from tilewright.halide.legality.stages import GPU, HALVES, PARALLEL

Found = Iterator[tuple[str, str]]

_GRID_DIMENSIONS = 3  # x, y and z, both in CUDA and in OpenCL


def level_problems(
    entry: FuncSchedule, schedule: Schedule, algorithm: Algorithm, paths: Paths
) -> Found:
    """Yield levels that do not exist, do not enclose the uses, or are in the wrong order."""
    for verb, level in (("computed", entry.compute), ("stored", entry.store)):
        if level.kind == "at":
            reason = _missing_loop(level, schedule, algorithm)
            if reason:
                yield "level", f"it is {verb} at loop {level.loop!r}: {reason}"
                return
    if entry.func in paths.misplaced:
        yield "level", paths.misplaced[entry.func]
        return
    if entry.compute.kind == "at" and not paths.uses[entry.func]:
        yield "level", "nothing reads it, so it can only be computed at root"
        return
    for path in paths.prefixes.get(entry.func, ()):
        yield from _store_problems(entry, path)
        yield from _slide_problems(entry, path, schedule)
    for use in paths.uses.get(entry.func, ()):
        for path in paths.stages.get(use, ()):
            for level in (entry.compute, entry.store):
                at = position(path, level) or 0
                outside, inside = ({n.mapping for n in part} for part in (path[:at], path[at:]))
                for mapping in sorted(GPU & outside & inside):
                    kind = mapping.removeprefix("gpu_")
                    yield (
                        "level",
                        f"loop {level.loop!r} is between two GPU {kind} loops; use a level outside "
                        "or inside all of them",
                    )


def _missing_loop(level: Level, schedule: Schedule, algorithm: Algorithm) -> str:
    """Return the reason why the loop of a level does not exist; empty if it exists."""
    if not 0 <= level.func < len(algorithm.funcs):
        return f"there is no Func {level.func}"
    func = algorithm.funcs[level.func]
    if not 0 <= level.stage < len(func.stages):
        return f"{func.name} has no stage {level.stage}"
    entry = next((e for e in schedule.funcs if e.func == level.func), None)
    if entry is not None and entry.compute.kind == "inline":
        return f"{func.name} is inlined, so it has no loops"
    stage = func.stages[level.stage]
    if entry is not None and entry.stages:
        loops = scheduled_loops(func, stage, entry.stages[level.stage])
    else:
        loops = original_loops(func, stage)
    names = [loop.name for loop in loops]
    if level.loop in names:
        return ""
    return f"stage {level.stage} of {func.name} has the loops {', '.join(names) or 'none'}"


def _store_problems(entry: FuncSchedule, path: Path) -> Found:
    stored = position(path, entry.store)
    if stored is None:
        yield "store", "its store level does not enclose its compute level; store it further out"
        return
    for node in path[stored:]:
        if node.mapping in PARALLEL or node.mapping == "vectorized":
            yield (
                "store",
                f"it is stored outside the {node.mapping} loop {node.loop} and computed inside, "
                "so iterations would overwrite each other's values",
            )
        elif node.mapping == "unrolled":
            # A sliding window adds iterations to the loop, and their number may not be constant.
            yield (
                "store",
                f"it is stored outside the unrolled loop {node.loop} and computed inside; Halide "
                "cannot always unroll such a loop; store it inside, or keep the loop serial",
            )
    kept = path[:stored]
    in_block = any(node.mapping == "gpu_block" for node in kept)
    in_thread = any(node.mapping == "gpu_thread" for node in kept)
    if entry.memory == "gpu_shared" and (in_thread or not in_block):
        yield "memory", "shared memory belongs to a block; store it inside blocks, outside threads"
    if entry.memory in ("stack", "register") and in_block and not in_thread:
        yield "memory", f"{entry.memory} memory on a GPU belongs to a thread; store it in threads"


def _slide_problems(entry: FuncSchedule, path: Path, schedule: Schedule) -> Found:
    """Yield sliding windows over loops whose tail guards only loads or only stores.

    Halide 21 then computes the wrong region of new values in an iteration.
    """
    slid = {node.func for node in path[position(path, entry.store) or 0 :]}
    for other in schedule.funcs:
        changes = [change for nest in other.stages for change in nest.splits]
        tails = {change.tail for change in changes if isinstance(change, Split)}
        if other.func in slid and tails & HALVES:
            yield (
                "store",
                "it is stored outside and computed inside a loop of a consumer with "
                "predicate_loads or predicate_stores; store it at its compute level",
            )
            return


def path_problems(path: Path, target: str, threads_per_block: int) -> Found:
    """Yield violations by the mappings of the loops around one stage, its own included."""
    mappings = [node.mapping for node in path]
    blocks = [i for i, mapping in enumerate(mappings) if mapping == "gpu_block"]
    threads = [i for i, mapping in enumerate(mappings) if mapping == "gpu_thread"]
    if (blocks or threads) and not is_gpu(target):
        yield "target", "GPU blocks and threads need a GPU target"
        return
    if "vectorized" in mappings:
        for node in path[mappings.index("vectorized") + 1 :]:
            if node.mapping in PARALLEL:
                yield "nesting", f"loop {node.loop} is {node.mapping} inside a vectorised loop"
    if blocks:
        if "cuda" not in target.split("-"):
            yield from _guarded_lanes(path[blocks[0] :])
        yield from _grid_nesting(path, blocks, threads)
        yield from _grid_sizes(path, blocks, threads, threads_per_block)
    elif threads:
        yield "nesting", f"the GPU thread loop {path[threads[0]].loop} is not inside a block loop"


def _guarded_lanes(kernel: Path) -> Found:
    """Yield vectorised loops around a condition, which Halide compiles for CUDA kernels only.

    `kernel` are the loops from the first block loop inwards.
    """
    vectors = (i for i, node in enumerate(kernel) if node.mapping == "vectorized")
    lanes = next(vectors, len(kernel))
    guarded = next((node for node in kernel[lanes:] if node.guarded), None)
    if guarded is not None:
        yield (
            "vector",
            f"the vectorised loop {kernel[lanes].loop} encloses the guard of loop {guarded.loop}, "
            "which Halide cannot compile in kernels for this target; split that loop with "
            "round_up or shift_inwards, or do not vectorise",
        )


def _grid_nesting(path: Path, blocks: list[int], threads: list[int]) -> Found:
    """Yield block and thread loops (by position in `path`) that are nested incorrectly."""
    if len({path[i].func for i in blocks}) > 1:
        yield "nesting", "GPU blocks are nested in the GPU blocks of another Func"
    elif len({path[i].func for i in threads}) > 1:
        yield "nesting", "GPU threads are nested in the GPU threads of another Func"
    elif blocks[-1] - blocks[0] + 1 != len(blocks):
        yield "nesting", "the GPU block loops must be directly inside one another"
    if threads and threads[0] < blocks[-1]:
        yield "nesting", f"the GPU block loop {path[blocks[-1]].loop} is inside a thread loop"
    if any(node.mapping == "parallel" for node in path[blocks[0] :]):
        yield "nesting", "a loop inside a GPU block cannot be parallel; map it to threads"


def _grid_sizes(path: Path, blocks: list[int], threads: list[int], threads_per_block: int) -> Found:
    """Yield launches with too many dimensions, or too many threads per block."""
    for kind, chosen in (("block", blocks), ("thread", threads)):
        if len(chosen) > _GRID_DIMENSIONS:
            yield (
                "dimensions",
                f"{len(chosen)} loops are mapped to GPU {kind}s; the maximum is {_GRID_DIMENSIONS}",
            )
    count = math.prod(path[i].extent or 1 for i in threads)
    if count > threads_per_block:
        yield "threads", f"a block has {count} threads; the maximum is {threads_per_block}"


def single_thread_problems(entry: FuncSchedule, paths: Paths, target: str) -> Found:
    """Yield single-thread nests inside a kernel; each one must be a separate kernel."""
    if not any(nest.single_thread for nest in entry.stages):
        return
    if not is_gpu(target):
        yield "target", "a nest run by a single GPU thread needs a GPU target"
    for path in paths.prefixes.get(entry.func, ()):
        if any(node.mapping in GPU for node in path):
            yield "single_thread", "it is already inside a GPU kernel; remove single_thread"
            return
