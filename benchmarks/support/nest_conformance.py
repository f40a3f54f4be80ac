"""What `ScheduledNest` says of a schedule against what Halide's lowering makes of it."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import resource
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from support import lowered_nest
from support.lowered_nest import BOUNDS, PATIENCE, STORAGE

FRACTIONS = (0.0, 0.5, 1.0)


# Loops by the names of the loops around and their own.
Places = dict[tuple[str, ...], list[Any]]


@dataclass
class Comparison:
    """How many loops, allocations and launches were compared, and where the two differ.

    `categories` counts what is not compared, by reason.
    """

    loops: int = 0
    allocations: int = 0
    launches: int = 0
    extent_mismatches: list[str] = field(default_factory=list)
    allocation_mismatches: list[str] = field(default_factory=list)
    launch_mismatches: list[str] = field(default_factory=list)
    categories: dict[str, int] = field(default_factory=dict)
    error: str = ""


class Lowering:
    """A process that lowers schedules and hands back Halide's statements after two passes.

    Use it as a context manager. Halide reads ``HL_DEBUG_CODEGEN`` once, when it is first used; so
    this is a process of its own, which importing `lowered_nest` gives that variable.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, mp_context=context)

    def __enter__(self) -> Lowering:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def __call__(self, algorithm: Any, schedule: Any, seconds: float = 60.0) -> dict[str, str]:
        """The statements by pass; see `lowered_nest.passes`."""
        from tilewright.halide.ir.json import to_json

        given = algorithm.serialized, to_json(schedule), seconds
        return self._pool.submit(_lowered, *given).result()

    def launched(
        self, algorithm: Any, schedule: Any, seconds: float = 60.0
    ) -> list[dict[str, Any]] | str:
        """What a CUDA driver that computes nothing is asked to launch, or why nothing is."""
        from tilewright.halide.execution.session import make_inputs
        from tilewright.halide.ir.json import to_json

        payload = {
            "serialized": algorithm.serialized,
            "schedule": to_json(schedule),
            "target": schedule.target,
            "inputs": make_inputs(algorithm).to_json(),
        }
        return self._pool.submit(_launched, payload, seconds).result()


def _lowered(serialized: bytes, text: str, seconds: float) -> dict[str, str]:
    import halide as hl

    from tilewright.halide.emit.apply import apply, halide_target
    from tilewright.halide.frontend.importer import import_pipeline
    from tilewright.halide.ir.json import from_json

    algorithm = import_pipeline(serialized)
    schedule = from_json(text, algorithm)

    def lower() -> None:
        pipeline = hl.deserialize_pipeline(algorithm.serialized, {})
        apply(schedule, algorithm, pipeline, same_bytes=True)
        target = halide_target(schedule.target).with_feature(hl.TargetFeature.NoRuntime)
        form = hl.StmtOutputFormat.Text
        pipeline.compile_to_lowered_stmt("/dev/null", pipeline.infer_arguments(), form, target)

    return lowered_nest.passes(lower, (BOUNDS, STORAGE), seconds)


_RECORDER: list[Any] = []


def _launched(payload: dict[str, Any], seconds: float) -> list[dict[str, Any]] | str:
    from support.recording_cuda import Recorder
    from tilewright.halide.execution.runner import Runner

    if not _RECORDER:
        _RECORDER.append(Recorder())
    recorder = _RECORDER[0]
    recorder.launches()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 2)
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
            Runner(payload).run()
            status = 0
        except BaseException as error:
            with open(recorder.log, "a", encoding="utf-8") as log:
                log.write(json.dumps({"error": str(error)[-300:]}) + "\n")
        finally:
            os._exit(status)
    status = _ended(child, PATIENCE * seconds)
    found = recorder.launches()
    if status == -signal.SIGXCPU:
        return f"took more than {seconds:g} CPU seconds"
    if status != 0:
        said = found[-1].get("error") if found else None
        return str(said or f"ended with status {status}")
    return found


def _ended(child: int, seconds: float) -> int:
    """The status that a child ends with, -N for signal N; it is killed after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)


def compare_launches(algorithm: Any, schedule: Any, found: list[dict[str, Any]]) -> Comparison:
    """Where the kernels of a schedule differ from those launched, the largest launch of each.

    As of an allocation on the host, shared bytes between those touched and the most that Halide's
    interval arithmetic can make of them count as ``interval``.
    """
    from tilewright.halide.analysis.gpu_launches import launches
    from tilewright.halide.analysis.scheduled_nest import ScheduledNest, nest_analysis

    analysis = nest_analysis(algorithm, schedule)
    funcs = analysis.view.algorithm.funcs
    result = Comparison(launches=len(found))
    ours: dict[str, tuple[int, ...]] = {}
    sliding: set[str] = set()
    partial: set[str] = set()
    nest = ScheduledNest(analysis, schedule)
    most: dict[str, int] = {}
    for launch in launches(nest):
        kernel = f"{_flat(funcs[launch.func].name)}_s{launch.stage}"
        sizes = tuple(int(n) for n in (*launch.grid, *launch.block, launch.shared_bytes))
        ours[kernel] = tuple(map(max, sizes, ours.get(kernel, sizes)))
        if launch.slides:
            sliding.add(kernel)
        if launch.partial:
            partial.add(kernel)
    theirs: dict[str, tuple[int, ...]] = {}
    for item in found:
        kernel = _kernel_of(item["kernel"], [*ours])
        sizes = (*item["blocks"], *item["threads"], item["shared"])
        theirs[kernel] = tuple(map(max, sizes, theirs.get(kernel, sizes)))
    for kernel in sorted({*ours, *theirs}):
        one, other = ours.get(kernel), theirs.get(kernel)
        if one == other:
            continue
        if one and other and _slid(one, other, kernel in sliding, kernel in partial):
            _count(result, "sliding", 1)
            continue
        if not most:
            for launch in launches(nest, at_most=True):
                name = f"{_flat(funcs[launch.func].name)}_s{launch.stage}"
                most[name] = max(int(launch.shared_bytes), most.get(name, 0))
        if one and other and one[:-1] == other[:-1] and one[-1] <= other[-1] <= most[kernel]:
            _count(result, "interval", 1)
        else:
            result.launch_mismatches.append(f"{kernel}: {one} predicted, {other} launched")
    return result


def _slid(predicted: Sequence[int], made: Sequence[int], folded: bool, partial: bool) -> bool:
    """Whether sliding explains what two launches differ in.

    A `partial` kernel has at most the blocks, threads and shared bytes predicted. Where shared
    memory may be `folded`, a block has at most the bytes predicted.
    """
    bytes_fit = made[-1] <= predicted[-1] if folded or partial else made[-1] == predicted[-1]
    if partial:
        return bytes_fit and all(a <= b for a, b in zip(made[:-1], predicted[:-1], strict=True))
    return bytes_fit and made[:-1] == predicted[:-1]


def _kernel_of(name: str, known: list[str]) -> str:
    flat = _flat(name)
    return max((k for k in known if flat.startswith(f"_kernel_{k}_")), key=len, default=name)


def _flat(name: str) -> str:
    return re.sub(r"[\W_]+", "_", name)


def compare(algorithm: Any, schedule: Any, found: dict[str, str]) -> Comparison:
    """Compare loops and allocations at three iterations of each loop with what Halide made."""
    from tilewright.halide.analysis.scheduled_nest import ScheduledNest, nest_analysis

    result = Comparison()
    if "error" in found:
        result.error = found["error"]
        return result
    analysis = nest_analysis(algorithm, schedule)
    nest = ScheduledNest(analysis, schedule, at=np.array(FRACTIONS))
    symbols = {
        k: int(v) if isinstance(v, bool | int) else v
        for k, v in analysis.view.algorithm.symbols.items()
    }
    spelled = _speller(schedule, analysis.view.algorithm)
    ours = _loops(nest, spelled)
    for row, fraction in enumerate(FRACTIONS):
        loops, _, failed = lowered_nest.run(found[BOUNDS], symbols, fraction)
        _count(result, "unreadable", len(failed))
        result.extent_mismatches += [f"unreadable: {why}" for why in failed[:3]]
        theirs: Places = defaultdict(list)
        for loop in loops:
            path = tuple(_plain(name) for name in (*loop.path, loop.name))
            theirs[path].append(loop)
        _compare_loops(result, nest, ours, theirs, row, fraction)
        later, made, failed = lowered_nest.run(found[STORAGE], symbols, fraction)
        result.allocation_mismatches += [f"unreadable: {why}" for why in failed[:3]]
        # Between the two passes Halide guards values that are not read.
        entered = {_plain(loop.name) for loop in later if loop.extent > 0}
        single = {path[-1] for path, loops in theirs.items() if loops[0].extent == 1}
        seen = {item.name.partition(".")[0] for item in made}
        placed: defaultdict[int, list[Any]] = defaultdict(list)
        for item in nest.allocations:
            path = tuple(spelled(*outer) for outer in item.path)
            there = nest.structure.names[item.func] in seen or entered.issuperset({*path} - single)
            if there and _runs(item, ours, {(), *theirs}, path):
                placed[item.func].append(item)
            else:
                keys = _own_loops(item, ours, path) or [(*path, "")]
                idle = all(_left_out(nest, ours, key, row) for key in keys)
                _count(result, "left_out" if idle else "skipped", 1)
        _compare_allocations(result, nest, placed, made, row, fraction)
    return result


def _compare_loops(
    result: Comparison, nest: Any, ours: Places, theirs: Places, row: int, fraction: float
) -> None:
    for path, made in theirs.items():
        if path not in ours:
            if not path[-1].endswith(("one_block", "one_thread")):
                result.extent_mismatches.append(f"not predicted: {path}")
            continue
        if len(made) != len(ours[path]):
            result.extent_mismatches.append(
                f"{path[-1]} at {fraction}: {len(ours[path])} places predicted, {len(made)}"
            )
            continue
        for loop, own in zip(made, ours[path], strict=True):
            result.loops += 1
            got = _at(own.lo, row), _at(own.extent, row)
            if got != (loop.lo, loop.extent):
                result.extent_mismatches.append(
                    f"{path[-1]} at {fraction}: {got} predicted, {(loop.lo, loop.extent)} made"
                )
    for path, predicted in ours.items():
        idle = _left_out(nest, ours, path, row)
        if idle and path not in theirs:
            _count(result, "left_out", len(predicted))
        elif idle or path not in theirs:
            reached = "reached" if idle else "not reached"
            result.extent_mismatches.append(f"{path[-1]} at {fraction}: {reached}")


def _compare_allocations(
    result: Comparison,
    nest: Any,
    predicted: dict[int, list[Any]],
    made: Sequence[Any],
    row: int,
    fraction: float,
) -> None:
    theirs: defaultdict[str, list[Any]] = defaultdict(list)
    for item in made:
        theirs[item.name].append(item)
    for func, items in predicted.items():
        name = nest.structure.names[func]
        tuple_ = len(nest.analysis.view.algorithm.funcs[func].types) > 1
        real = theirs.get(f"{name}.0" if tuple_ else name, [])
        if not real and all(item.slides for item in items):
            _count(result, "sliding", len(items))
            continue
        if len(real) != len(items):
            result.allocation_mismatches.append(
                f"{name} at {fraction}: {len(items)} places predicted, {len(real)} made"
            )
            continue
        for item, own in zip(items, real, strict=True):
            if own.extents is None:
                _count(result, "data", 1)
                continue
            _compare_allocation(result, nest, item, tuple(own.extents), row, fraction)


def _compare_allocation(
    result: Comparison, nest: Any, item: Any, made: tuple[int, ...], row: int, fraction: float
) -> None:
    entry = nest.structure.entries[item.func]
    order = entry.storage_order or range(len(item.extents))

    def placed(extents: Sequence[Any]) -> tuple[int, ...]:
        sizes = {d: _at(extent, row) for d, extent in zip(order, extents, strict=True)}
        return tuple(sizes[d] for d in range(len(sizes)))

    got = placed(item.extents)
    if got == made:
        result.allocations += 1
        return
    most = placed(nest.at_most(item))
    if _nothing(item.context, row):
        _count(result, "skipped", 1)
    elif item.slides and all(b <= c + max(a, 1) for a, b, c in zip(got, made, most, strict=True)):
        _count(result, "sliding", 1)
    elif all(a <= b <= c for a, b, c in zip(got, made, most, strict=True)):
        _count(result, "interval", 1)
    else:
        name = nest.structure.names[item.func]
        result.allocation_mismatches.append(
            f"{name} at {fraction}: {got} to {most} predicted, {made} made"
        )


def _left_out(nest: Any, ours: Places, path: tuple[str, ...], row: int) -> bool:
    """Whether a guard or an empty loop around keeps a loop from being reached, as predicted."""
    for depth in range(1, len(path)):
        for loop in ours.get(path[:depth], ()):
            here = loop.context
            now = nest.values(here.stage, here.ranges, here.fixed)
            if _at(loop.extent, row) <= 0 or bool(_row(now.beyond, row)):
                return True
    return False


def _row(value: Any, row: int) -> Any:
    array = np.asarray(value)
    return array[()] if array.ndim == 0 else array[row]


def _nothing(context: Any, row: int) -> bool:
    """Whether a guard leaves a stage around the place nothing to compute at this iteration."""
    return any(
        _at(part.hi, row) < _at(part.lo, row)
        for required in context.boxes.values()
        for part in required.box
    )


def _runs(
    item: Any,
    ours: Places,
    reached: set[tuple[str, ...]],
    path: tuple[str, ...],
) -> bool:
    """Whether Halide's statement comes to a place: to a loop of the Func that is stored there."""
    own = _own_loops(item, ours, path)
    return any(key in reached for key in own) if own else path in reached


def _own_loops(item: Any, ours: Places, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The loops of the Func that is stored at a place, inside it."""
    return [
        key
        for key, loops in ours.items()
        if loops[0].stage[0] == item.func and key[: len(path)] == path
    ]


def _speller(schedule: Any, algorithm: Any) -> Callable[[tuple[int, int], str], str]:
    """What a loop of a stage is called in Halide's statements."""
    from tilewright.halide.ir.names import loop_names

    names = loop_names(schedule, algorithm)
    return lambda key, loop: f"{algorithm.funcs[key[0]].name}.s{key[1]}.{names(*key, loop)}"


def _loops(
    nest: Any, spelled: Callable[[tuple[int, int], str], str]
) -> dict[tuple[str, ...], list[Any]]:
    found: defaultdict[tuple[str, ...], list[Any]] = defaultdict(list)
    for loop in nest.loops:
        path = tuple(spelled(*outer) for outer in loop.path)
        found[*path, spelled(loop.stage, loop.name)].append(loop)
    return found


def _plain(name: str) -> str:
    """A loop's name without those of the loops that it was split from."""
    match = re.match(r"(.*?\.s\d+)\.(.*)$", name)
    return name if match is None else f"{match[1]}.{match[2].rpartition('.')[2]}"


def _at(value: Any, row: int) -> int:
    array = np.asarray(value, dtype=np.float64)
    number = float(array if array.ndim == 0 else array[row])
    return int(number) if np.isfinite(number) else -(2**62)


def _count(result: Comparison, reason: str, number: int) -> None:
    if number:
        result.categories[reason] = result.categories.get(reason, 0) + number
