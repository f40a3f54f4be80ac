"""The schedule that a pipeline arrives with, read from its bytes."""

import contextlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import halide as hl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_schedules import schedules, some_clones
from schedule_cases import all_cases
from scheduled_pipelines import PIPELINES, imported, lowered

import tilewright
from tilewright.errors import TilewrightError
from tilewright.halide.emit.apply import apply
from tilewright.halide.execution.session import make_inputs
from tilewright.halide.frontend.given import read_schedule
from tilewright.halide.frontend.serial.nests import UnreadableScheduleError
from tilewright.halide.frontend.serial.reset import without_schedule
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.nest import default_stage
from tilewright.halide.ir.schedule import (
    ROOT,
    FuncSchedule,
    Fuse,
    KnownValue,
    Level,
    OutputValue,
    Split,
)
from tilewright.halide.schedulers.halide_autoschedulers import peers, run_peers
from tilewright.machines import CpuMachine, gpu

ALGORITHMS = {name: imported(build()) for name, build in PIPELINES.items()}
# rfactor changes the algorithm, so a schedule with it cannot be read back or dropped.
CASES = {name: case for name, case in all_cases().items() if name != "partial_results"}
MACHINE = CpuMachine("test", "x86-64", 4, ("avx2",), 256, ())
x, y = hl.Var("x"), hl.Var("y")
QUIET = settings(
    deadline=None,
    max_examples=8,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def serialized(thing):
    thing = thing if isinstance(thing, hl.Pipeline) else hl.Pipeline(thing)
    return bytes(hl.serialize_pipeline(thing))


def applied(schedule, algorithm):
    pipeline = hl.deserialize_pipeline(algorithm.serialized, {})
    apply(schedule, algorithm, pipeline, same_bytes=True)
    return serialized(pipeline)


SCHEDULED = [applied(CASES[name][1], CASES[name][0]) for name in ("wrappers", "storage")]


def plain(schedule, algorithm):
    """The schedule with loops numbered in the order of the splits that make them."""
    nests, names = {}, {}
    for scheduled in schedule.funcs:
        func = algorithm.funcs[scheduled.func]
        inline = scheduled.compute.kind == "inline"
        default = () if inline else tuple(default_stage(func, s) for s in func.stages)
        for index, nest in enumerate(scheduled.stages or default):
            nests[scheduled.func, index] = nest
            found = names[scheduled.func, index] = {loop.name: loop.name for loop in nest.loops}
            for number, change in enumerate(nest.splits):
                if isinstance(change, Split):
                    found |= {change.outer: f"outer{number}", change.inner: f"inner{number}"}
                else:
                    found[change.fused] = f"fused{number}"

    def level(given):
        if given is None or given.kind != "at":
            return given
        meant = {
            (index, names[func, index][given.loop])
            for (func, index), nest in nests.items()
            if func == given.func and given.loop in {loop.name for loop in nest.loops}
        }
        return ("at", given.func, frozenset(meant))

    def stage(key):
        nest, found = nests[key], names[key]

        def called(name):
            return found.get(name, name)

        shared = nest.compute_with
        if shared is not None:
            align = tuple((called(loop), how) for loop, how in shared.align)
            loop = names[shared.func, shared.stage][shared.loop]
            shared = replace(shared, loop=loop, align=align)
        return replace(
            nest,
            splits=tuple(
                Split(called(c.old), called(c.outer), called(c.inner), c.factor, c.tail)
                if isinstance(c, Split)
                else Fuse(*map(called, (c.inner, c.outer, c.fused)))
                for c in nest.splits
            ),
            loops=tuple(replace(loop, name=called(loop.name)) for loop in nest.loops),
            prefetch=tuple(
                replace(p, at=called(p.at), along=called(p.along)) for p in nest.prefetch
            ),
            compute_with=shared,
        )

    def entry(given):
        order = given.storage_order
        return replace(
            given,
            compute=level(given.compute),
            store=level(given.store),
            hoist=level(given.hoist),
            stages=tuple(stage(key) for key in sorted(nests) if key[0] == given.func),
            storage_order=() if order == tuple(range(len(order))) else order,
            storage=tuple(sorted(given.storage, key=lambda s: s.dimension)),
            bounds=tuple(sorted(given.bounds, key=lambda b: b.dimension)),
        )

    return replace(schedule, funcs=tuple(entry(one) for one in schedule.funcs))


def check_reading(schedule, algorithm):
    found = read_schedule(applied(schedule, algorithm), schedule.target)
    assert found.algorithm.digest == algorithm.digest
    if not schedule.clones:  # siblings among them have no order
        assert plain(found.schedule, algorithm) == plain(schedule, algorithm)
    return found


def renamed(text):
    """Lowered code with every name replaced by the order in which names appear."""
    text = re.sub(r"^module name=\S+", "module", text, flags=re.MULTILINE)
    text = re.sub(r"^(external\S*|internal\S*) func \S+", r"\1 func", text, flags=re.MULTILINE)
    # The length of a kernel's source counts the letters of names.
    text = re.sub(r"(source_kernels\.buffer\)), \d+\)", r"\1, length)", text)
    ranks: dict = {}
    return re.sub(r"[A-Za-z_][\w$.]*", lambda m: ranks.setdefault(m[0], f"n{len(ranks)}"), text)


def check_round_trip(schedule, algorithm, path):
    found = check_reading(schedule, algorithm)
    texts = [
        lowered(a, lambda p, s=s, a=a: apply(s, a, p, same_bytes=True), path, schedule.target)
        for s, a in ((schedule, algorithm), (found.schedule, found.algorithm))
    ]
    assert renamed(texts[0]) == renamed(texts[1])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.few(5)
def test_applied_schedules_are_read_back(name, tmp_path):
    algorithm, schedule = CASES[name]
    check_round_trip(schedule, algorithm, tmp_path / "lowered")


@pytest.mark.parametrize("target", ["host", "opencl"])
@pytest.mark.parametrize("name", PIPELINES)
@QUIET
@given(data=st.data())
@pytest.mark.few(4)
def test_random_schedules_are_read_back(name, target, data):
    algorithm = ALGORITHMS[name]
    check_reading(data.draw(schedules(algorithm, target)), algorithm)


@settings(QUIET, max_examples=2)
@given(data=st.data())
def test_random_clones_are_read_back(data, tmp_path):
    algorithm = ALGORITHMS["reductions"]
    clones = data.draw(some_clones(algorithm))
    schedule = data.draw(schedules(algorithm, clones=clones))
    check_round_trip(schedule, algorithm, tmp_path / "lowered")


def check_same_code(data, path, target="host"):
    found = read_schedule(data, target)

    def again(pipeline):
        apply(found.schedule, found.algorithm, pipeline, same_bytes=True)

    texts = [
        lowered(lambda: hl.deserialize_pipeline(data, {}), lambda p: None, path, target),
        lowered(
            lambda: hl.deserialize_pipeline(found.algorithm.serialized, {}), again, path, target
        ),
    ]
    assert renamed(texts[0]) == renamed(texts[1])
    return found


# Loops named again, wrappers, shared loops, an rfactor, hoisted storage, folds, bounds.
@pytest.mark.parametrize(
    "name", ["blur", "harris", "histogram", "iir_blur", "max_filter", "nl_means", "camera_pipe"]
)
@pytest.mark.few(3)
def test_schedules_by_hand_are_read_and_lower_to_the_same_code(name, tmp_path):
    here = Path(__file__).parent
    # The order of some operands depends on how names are spelled, and that on how many Halide has
    # given out: a process of its own always gives the same.
    script = (
        f"import pathlib, halide, {name}, test_read_schedule as tests\n"
        f"pipeline = {name}.hand(halide.Target('host'))\n"
        f"tests.check_same_code(tests.serialized(pipeline), pathlib.Path({str(tmp_path)!r}, 'l'))"
    )
    path = os.pathsep.join([str(here), str(here.parents[1] / "examples"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr


def stencils(stages=1):
    image = hl.ImageParam(hl.Float(32), 2, "image_r")
    func = hl.Func("stencil_r")
    func[x, y] = image[x, y] * 2.0
    for _ in range(stages):
        after = hl.Func("stencil_r")
        after[x, y] = func[x, y] + func[x + 1, y] + func[x, y + 1]
        func = after
    total = hl.Func("total_r")
    r = hl.RDom([(0, 16)], "r")
    total[x, y] = hl.f32(0)
    total[x, y] += func[x + r, y]
    return total.set_estimates([(0, 640), (0, 480)])


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("host", ["Mullapudi2016", "Adams2019, beam 1", "Li2018"]),
        ("host-cuda", ["Li2018", "Anderson2021"]),
    ],
)
@pytest.mark.few(1)
def test_schedules_of_halides_autoschedulers_are_read(target, names, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    algorithm = load(stencils())
    machine = gpu("v100") if "cuda" in target else None
    chosen = [peer for peer in peers(target, machine) if peer.name in names]
    scheduled = {
        found.peer.name: found
        for found in run_peers(algorithm, make_inputs(algorithm), chosen, target=target)
    }
    assert sorted(scheduled) == sorted(names)
    for found in scheduled.values():
        assert found.serialized is not None, found.message
        given = check_same_code(found.serialized, tmp_path / "lowered", target)
        # Mullapudi2016 writes inlined Funcs into their readers, Li2018 makes an rfactor.
        if found.peer.name not in ("Mullapudi2016", "Li2018"):
            assert given.algorithm.digest == algorithm.digest


def parts():
    image = hl.ImageParam(hl.UInt(8), 2, "image_p")
    wide, out = hl.Func("wide_p"), hl.Func("out_p")
    wide[x, y] = hl.cast(hl.Int(32), image[x, y])
    out[x, y] = wide[x, y] + wide[x, y + 1]
    out[x, y] += wide[x, y]
    return image, wide, out.set_estimates([(0, 64), (0, 64)])


def test_a_loop_may_be_named_again_and_renamed(tmp_path):
    _, wide, out = parts()
    xi, u = hl.Var("xi"), hl.Var("u")
    out.split(x, x, xi, 8).split(x, x, u, 4).rename(y, hl.Var("rows")).vectorize(xi)
    out.update().split(x, x, u, 4)
    wide.compute_at(out, u)
    found = check_same_code(serialized(out), tmp_path / "lowered")
    entry = found.schedule.funcs[-1]
    assert [change.factor for change in entry.stages[0].splits] == [8, 4]
    assert found.schedule.funcs[1].compute == Level("at", entry.func, 0, "v0oi")


def test_expected_values_are_read(tmp_path):
    image, _, out = parts()
    out.vectorize(x, 8)
    buffer = out.output_buffer()
    of_input = (image.dim(0).stride() == 3) & (image.dim(1).extent() == 40)
    out.specialize(of_input & (buffer.dim(0).min() == 0) & (buffer.dim(1).stride() == 3))
    found = check_same_code(serialized(out), tmp_path / "lowered")
    me = found.schedule.funcs[-1].func
    known = (
        KnownValue(0, "stride", 0, 3),
        KnownValue(0, "extent", 1, 40),
        OutputValue(me, "min", 0, 0),
        OutputValue(me, "stride", 1, 3),
    )
    assert found.schedule.funcs[-1].stages[0].specialize == known


def test_schedules_that_are_right_at_every_size_are_read(tmp_path):
    result = tilewright.schedule(stencils(2), machine=MACHINE, check=False)
    assert any(nest.sizes for entry in result.schedule.funcs for nest in entry.stages)
    assert result.schedule.clones == ()  # see CASES
    check_round_trip(result.schedule, result.task.algorithm, tmp_path / "lowered")


def test_updates_without_a_level_are_computed_in_the_innermost_loop(tmp_path):
    total = hl.Func("total_n")
    r = hl.RDom([(0, 16)], "r")
    out = hl.Func("out_n")
    total[x] = 0
    total[x] += x * r
    out[x, y] = total[x] + y
    total.update().unroll(r.x, 4)
    found = check_same_code(serialized(out), tmp_path / "lowered")
    assert found.schedule.funcs[0].compute == Level("at", 1, 0, "v0")
    assert found.schedule.funcs[0].stages[1].splits[0].factor == 4


def split_by_a_parameter(image, wide, out):
    out.split(x, hl.Var("xo"), hl.Var("xi"), image.width())


def two_loops_of_one_name(image, wide, out):
    out.split(y, y, hl.Var("yi"), 8)
    wide.compute_at(out, y)


UNREADABLE = {
    "by an expression": split_by_a_parameter,
    "two stages, split differently": two_loops_of_one_name,
    "specialisation with": lambda image, wide, out: out.specialize(image.width() > 9).parallel(y),
    "one that fails": lambda image, wide, out: out.specialize_fail("never"),
    "GPU lanes": lambda image, wide, out: out.gpu_lanes(x),
    "other than a CUDA or OpenCL": lambda image, wide, out: out.hexagon(y),
    "outermost loop": lambda image, wide, out: out.parallel(hl.Var.outermost()),
    "kind of memory": lambda image, wide, out: wide.compute_root().store_in(hl.MemoryType.VTCM),
    "associativity test overridden": lambda image, wide, out: out.update().atomic(True),
}


@pytest.mark.parametrize("reason", UNREADABLE)
def test_unreadable_schedules_are_named(reason):
    things = parts()
    UNREADABLE[reason](*things)
    with pytest.raises(UnreadableScheduleError, match=reason) as caught:
        read_schedule(serialized(things[2]))
    assert caught.value.func in str(caught.value)
    assert "--discard-schedule" in str(caught.value)


def test_updates_without_a_level_and_with_two_readers_are_refused():
    shared, one, out = hl.Func("shared_s"), hl.Func("one_s"), hl.Func("out_s")
    shared[x] = x
    shared[x] += 1
    one[x] = shared[x] * 2
    out[x] = one[x] + shared[x]
    one.compute_root()
    with pytest.raises(UnreadableScheduleError, match=r"shared_s\S* has updates and several"):
        read_schedule(serialized(out))
    shared.compute_root()
    assert read_schedule(serialized(out)).schedule.funcs[0].compute == ROOT


def test_a_plain_pipeline_has_the_schedule_that_halide_gives_it():
    found = read_schedule(serialized(parts()[2]))
    assert [entry.compute.kind for entry in found.schedule.funcs] == ["inline", "inline", "root"]
    assert all(entry.stages == () for entry in found.schedule.funcs)
    assert found.schedule.funcs[-1] == FuncSchedule(2, ROOT, ROOT)


@settings(QUIET, max_examples=120)
@given(data=st.data())
def test_damaged_files_are_refused_or_read_but_never_crash(data):
    changed = bytearray(data.draw(st.sampled_from(SCHEDULED)))
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    for read_it in (read_schedule, without_schedule):
        with contextlib.suppress(TilewrightError):
            read_it(bytes(changed))
