"""Illegal schedules are refused before compiling, with the reason."""

from dataclasses import replace

import halide as hl
import pytest
from schedule_cases import all_cases, complete, nest, place, split
from scheduled_pipelines import PIPELINES, imported

from tilewright.halide.emit.apply import apply
from tilewright.halide.execution.lowering import refusal
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    FuncSchedule,
    Fuse,
    Level,
    ScheduleError,
    Split,
)
from tilewright.halide.legality.check import Limits, check

CASES = all_cases()
BLUR = imported(PIPELINES["blur"]())
REDUCTIONS = imported(PIPELINES["reductions"]())
ACROSS, BLURRED = place(BLUR, "across"), place(BLUR, "blurred")
CONVOLVED, SCAN, HISTOGRAM, RESULT = (
    place(REDUCTIONS, name) for name in ("convolved", "scan", "histogram", "result")
)
PURE = nest(order="v0 v1")
BLOCK_OF_16 = (split("v0", 16), split("v1", 16))
TILED = "v0i:gpu_thread v1i:gpu_thread v0o:gpu_block v1o:gpu_block"


def at(loop, stage=0, func=BLURRED):
    return Level("at", func, stage, loop)


def kinds(schedule, algorithm, **options):
    return {problem.kind for problem in check(schedule, algorithm, **options)}


def reasons(schedule, algorithm, **options):
    return " | ".join(str(problem) for problem in check(schedule, algorithm, **options))


def blur(order="v0 v1", *changes, across=INLINE, target="host", **options):
    """The blur with `blurred`'s nest and, if `across` is no entry, its level."""
    stages = (nest(*changes, order=order, **options),)
    entry = across
    if isinstance(across, Level):
        inline = across == INLINE
        entry = FuncSchedule(ACROSS, across, across, stages=() if inline else (PURE,))
    return complete(BLUR, target, [FuncSchedule(BLURRED, ROOT, ROOT, stages=stages), entry])


def updated(func, *stages):
    """`reductions` with one Func's stages scheduled."""
    return complete(REDUCTIONS, "host", [FuncSchedule(func, ROOT, ROOT, stages=stages)])


@pytest.mark.parametrize(
    ("schedule", "kind", "reason"),
    [
        (blur("v0"), "loops", r"must be \['v0', 'v1'\]"),
        (blur("v0 v1", split("v2", 4)), "loops", "no loop 'v2'"),
        (blur("v0 v1 v1"), "loops", "each once"),
        (blur("v0 b v1", Split("v0", "b", "v0", 4, "round_up")), "loops", "called 'v0'"),
        (
            blur("r7 b v1", Split("v0", "b", "r7", 4, "round_up")),
            "loops",
            "not of the form v0 or r0",
        ),
        (blur(across=at("v7")), "level", "has the loops v0, v1"),
        (blur(across=at("v0", stage=2)), "level", "no stage 2"),
        (blur(across=at("v0", func=50)), "level", "no Func 50"),
        (blur(across=at("v0", func=ACROSS)), "level", "does not enclose stage 0 of blurred"),
        (
            blur(across=FuncSchedule(ACROSS, at("v1"), at("v0"), stages=(PURE,))),
            "store",
            "does not enclose its compute level",
        ),
        (
            blur(across=FuncSchedule(ACROSS, ROOT, at("v0"))),
            "store",
            "so it must be stored at root",
        ),
        (
            blur(across=FuncSchedule(ACROSS, INLINE, ROOT)),
            "store",
            "its store level must be inline",
        ),
        (blur(across=FuncSchedule(ACROSS, at("v0"), INLINE)), "store", "stored inline"),
        (
            blur("v0 v1:parallel", across=FuncSchedule(ACROSS, at("v0"), ROOT, stages=(PURE,))),
            "store",
            "outside the parallel loop v1",
        ),
        (blur("v0:vectorized v1"), "extent", "v0 is vectorized, but"),
        (blur("v0 v1:unrolled"), "extent", "v1 is unrolled, but"),
        (blur("v0:gpu_block v1"), "target", "need a GPU target"),
        (blur("v0 v1", single_thread=True), "target", "single GPU thread needs a GPU"),
        (blur("v0 v1", atomic=True), "atomic", "only an update"),
        (
            blur("v0ii v0io v0o v1", split("v0", 6), split("v0i", 4, "round_up")),
            "tail",
            "6 iterations, which cannot be split by 4",
        ),
        (
            blur("v0oi v0oo v0i v1", split("v0", 4, "predicate_loads"), split("v0o", 2)),
            "tail",
            "cannot be split again",
        ),
        (
            blur("v0ii v0io v0o v1", split("v0", 4), split("v0i", 2, "predicate_stores")),
            "tail",
            "needs a loop of the definition",
        ),
        (
            blur(
                "v0i v0o v1",
                split("v0", 4, "predicate_stores"),
                across=FuncSchedule(ACROSS, at("v0o"), at("v1"), stages=(PURE,)),
            ),
            "store",
            "with predicate_loads or predicate_stores",
        ),
        (
            blur("both", split("v0", 4), Fuse("v0i", "v0o", "v0b"), Fuse("v0b", "v1", "both")),
            "fuse",
            "come from one loop",
        ),
    ],
)
def test_pure_stages_and_levels(schedule, kind, reason):
    assert kind in kinds(schedule, BLUR)
    assert reason.replace("\\", "") in reasons(schedule, BLUR)


UPDATE = "r0 r1 v0 v1"


@pytest.mark.parametrize(
    ("schedule", "kind", "reason"),
    [
        (
            updated(SCAN, PURE, nest(order="v1 r0:parallel"), nest(order="v0")),
            "race",
            "r0 carries a reduction",
        ),
        (
            updated(SCAN, PURE, nest(split("r0", 4), order="v1 r0o r0i"), nest(order="v0")),
            "reorder",
            "depends on that order",
        ),
        (
            updated(SCAN, PURE, nest(order="r0 v1", atomic=True), nest(order="v0")),
            "atomic",
            "only an update",
        ),
        (
            updated(CONVOLVED, PURE, nest(order="r0:vectorized r1 v0 v1")),
            "race",
            "can only be vectorized if the stage is",
        ),
        (
            updated(
                CONVOLVED, PURE, nest(split("v0", 2, "predicate_loads"), order="r0 r1 v0i v0o v1")
            ),
            "tail",
            "only the loads or the stores of an update",
        ),
        (
            updated(
                CONVOLVED, PURE, nest(split("r0", 2, "round_up"), order=f"r0i r0o {UPDATE[3:]}")
            ),
            "tail",
            "must use guard_with_if",
        ),
        (
            updated(
                CONVOLVED, PURE, nest(split("v0", 4, "shift_inwards"), order="r0 r1 v0i v0o v1")
            ),
            "tail",
            "cannot use shift_inwards",
        ),
        (
            updated(
                CONVOLVED,
                PURE,
                nest(split("v0", 4), split("v0i", 2, "round_up"), order="r0 r1 v0ii v0io v0o v1"),
            ),
            "tail",
            "compute values twice",
        ),
        (updated(CONVOLVED, PURE), "stages", "it has 2 stages, but its schedule has 1"),
        (
            complete(REDUCTIONS, "host", [FuncSchedule(CONVOLVED, INLINE, INLINE)]),
            "inline",
            "single pure definition",
        ),
        (
            complete(REDUCTIONS, "host", [FuncSchedule(RESULT, INLINE, INLINE)]),
            "output",
            "computed and stored at root",
        ),
        (
            complete(REDUCTIONS, "host", [FuncSchedule(RESULT, ROOT, ROOT, "stack")]),
            "output",
            "the caller allocates outputs",
        ),
        (
            complete(REDUCTIONS, "host", [FuncSchedule(SCAN, ROOT, ROOT, storage_order=(0, 0))]),
            "storage",
            "dimensions 0 to 1",
        ),
    ],
)
def test_updates_and_storage(schedule, kind, reason):
    assert kind in kinds(schedule, REDUCTIONS)
    assert reason in reasons(schedule, REDUCTIONS)


def shared(level, *changes, order="v0:gpu_thread v1:gpu_thread", memory="gpu_shared"):
    return FuncSchedule(ACROSS, level, level, memory, (nest(*changes, order=order),))


@pytest.mark.parametrize(
    ("schedule", "kind", "reason"),
    [
        (blur("v0:gpu_thread v1", target="opencl"), "nesting", "is not inside a block loop"),
        (blur("v0:gpu_block v1:gpu_thread", target="cuda"), "nesting", "inside a thread loop"),
        (
            blur(
                "v0i v1i:gpu_block v0o v1o:gpu_block",
                *BLOCK_OF_16,
                target="cuda",
            ),
            "nesting",
            "directly inside one another",
        ),
        (blur("v0:parallel v1:gpu_block", target="cuda"), "nesting", "map it to threads"),
        (
            blur(TILED, split("v0", 64), split("v1", 32), target="cuda"),
            "threads",
            "a block has 2048 threads; the maximum is 1024",
        ),
        (
            blur(
                "v0ii:gpu_thread v0io:gpu_thread v1ii:gpu_thread v1io:gpu_thread v0o v1o:gpu_block",
                *BLOCK_OF_16,
                split("v0i", 4),
                split("v1i", 4),
                target="cuda",
            ),
            "dimensions",
            "4 loops are mapped to GPU threads",
        ),
        (
            blur(TILED, *BLOCK_OF_16, across=shared(at("v1o")), target="cuda"),
            "level",
            "between two GPU block loops",
        ),
        (
            blur(
                TILED,
                *BLOCK_OF_16,
                target="cuda",
                across=shared(at("v0o"), order="v0:gpu_block v1"),
            ),
            "nesting",
            "GPU blocks of another Func",
        ),
        (
            blur(TILED, *BLOCK_OF_16, across=shared(at("v0i")), target="cuda"),
            "memory",
            "store it inside blocks, outside threads",
        ),
        (
            blur(TILED, *BLOCK_OF_16, across=shared(at("v0o"), memory="stack"), target="cuda"),
            "memory",
            "belongs to a thread",
        ),
        (
            blur("v0i:vectorized v0o v1:gpu_block", split("v0", 4), target="opencl"),
            "vector",
            "encloses the guard of loop v0i",
        ),
        (
            blur(
                "v0i:vectorized v0o v1:gpu_block",
                split("v0", 4, "round_up"),
                across=FuncSchedule(
                    ACROSS, at("v0i"), at("v0i"), stages=(nest(split("v0", 2), order="v0i v0o v1"),)
                ),
                target="opencl",
            ),
            "vector",
            "encloses the guard of loop v0o",
        ),
        (
            blur(
                TILED,
                *BLOCK_OF_16,
                across=FuncSchedule(
                    ACROSS, at("v0i"), at("v0i"), stages=(nest(order="v0:gpu_thread v1"),)
                ),
                target="cuda",
            ),
            "nesting",
            "GPU threads of another Func",
        ),
        (
            blur("v0i:gpu_block v0o v1", split("v0", 1), target="cuda"),
            "extent",
            "split by 1",
        ),
    ],
)
def test_gpu(schedule, kind, reason):
    assert reason in reasons(schedule, BLUR)
    assert kind in kinds(schedule, BLUR)


def test_four_block_dimensions():
    order = "v0ii v1ii:gpu_block v0io:gpu_block v1io:gpu_block v0o:gpu_block v1o"
    changes = (*BLOCK_OF_16, split("v0i", 4), split("v1i", 4))
    found = reasons(blur(order, *changes, target="cuda"), BLUR)
    assert "4 loops are mapped to GPU blocks; the maximum is 3" in found


def test_limits_of_the_device():
    schedule = blur(TILED, *BLOCK_OF_16, target="opencl")
    assert check(schedule, BLUR) == []
    assert kinds(schedule, BLUR, limits=Limits(threads_per_block=128)) == {"threads"}
    limits = Limits(shared_memory_bytes=49152)
    assert check(schedule, BLUR, limits, {BLURRED: 49152}) == []
    assert "49153 bytes of shared memory" in reasons(
        schedule, BLUR, limits=limits, shared_bytes={BLURRED: 49153}
    )


def test_entries():
    schedule = updated(CONVOLVED, PURE, nest(order=UPDATE))
    without = tuple(entry for entry in schedule.funcs if entry.func != SCAN)
    assert "it has no entry" in reasons(replace(schedule, funcs=without), REDUCTIONS)
    twice = replace(schedule, funcs=(*schedule.funcs, schedule.funcs[0]))
    assert "two entries" in reasons(twice, REDUCTIONS)
    unknown = replace(schedule, funcs=(*schedule.funcs, FuncSchedule(99, ROOT, ROOT)))
    assert "no Func 99" in reasons(unknown, REDUCTIONS)
    with pytest.raises(ScheduleError, match="another algorithm"):
        check(schedule, BLUR)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("stage", [1, 2])
def test_loops_over_different_domains_are_different_loops(shared, parts, stage):
    """Two updates read a Func at loops that have one canonical name."""
    image = hl.ImageParam(hl.Int(32), 2, "image")
    x = hl.Var("x")
    r = hl.RDom([(0, 8)], "r")
    q = r if shared else hl.RDom([(0, 8)], "q")
    double, total = hl.Func("double"), hl.Func("total")
    double[x] = 2 * image[x, 0]
    total[x] = 0
    total[x] += double[x + r]
    total[x] += 3 * double[x + q]
    image.set_estimates([(0, 108), (0, 1)])
    total.set_estimates([(0, 100)])
    algorithm = imported(hl.Pipeline(total))
    places = place(algorithm, "double"), place(algorithm, "total")
    update = nest(split("r0", 4), order="r0i r0o v0") if parts else nest(order="r0 v0")
    level = at("r0o" if parts else "r0", stage, places[1])
    entries = [
        FuncSchedule(places[0], level, level, stages=(nest(order="v0"),)),
        FuncSchedule(places[1], ROOT, ROOT, stages=(nest(order="v0"), update, update)),
    ]
    schedule = complete(algorithm, "host", entries)
    # Loops that splits make have one name in all stages, in Halide, too.
    if shared or parts:
        assert check(schedule, algorithm) == []
        assert not refusal(schedule, algorithm)
    else:
        (problem,) = check(schedule, algorithm)
        assert f"does not enclose stage {3 - stage}" in problem.message


def test_a_schedule_for_another_pipeline_is_not_applied():
    algorithm, schedule = CASES["sliding_window"]
    with pytest.raises(ScheduleError, match="another computation"):
        apply(schedule, algorithm, PIPELINES["tuples"]())
    with pytest.raises(ScheduleError, match="was made for the algorithm"):
        apply(schedule, REDUCTIONS, PIPELINES["reductions"]())


def test_extern_and_memoised_funcs_stay_as_they_are():
    x = hl.Var("x")
    slow, output = hl.Func("slow"), hl.Func("output")
    slow[x] = x * x
    slow.compute_root().memoize()
    output[x] = slow[x] + slow[x + 1]
    algorithm = imported(hl.Pipeline(output))
    made = place(algorithm, "slow")
    assert check(complete(algorithm, "host", [FuncSchedule(made, ROOT, ROOT)]), algorithm) == []
    moved = FuncSchedule(made, ROOT, ROOT, stages=(nest(order="v0:parallel"),))
    assert kinds(complete(algorithm, "host", [moved]), algorithm) == {"fixed"}
    inlined = FuncSchedule(made, INLINE, INLINE)
    assert kinds(complete(algorithm, "host", [inlined]), algorithm) == {"inline"}


def test_single_thread_makes_one_block_of_one_thread(tmp_path):
    algorithm, schedule = CASES["gpu_single_thread"]
    pipeline = hl.deserialize_pipeline(algorithm.serialized, {})
    apply(schedule, algorithm, pipeline, same_bytes=True)
    path = tmp_path / "stmt"
    pipeline.compile_to_lowered_stmt(
        str(path), pipeline.infer_arguments(), hl.StmtOutputFormat.Text, hl.Target("host-opencl")
    )
    assert "one_block" in path.read_text()
    inside = at("v0o", func=place(algorithm, "both"))
    best = next(e for e in schedule.funcs if e.func == place(algorithm, "best"))
    moved = replace(best, compute=inside, store=inside)
    funcs = tuple(moved if e.func == best.func else e for e in schedule.funcs)
    assert "already inside a GPU kernel" in reasons(replace(schedule, funcs=funcs), algorithm)
