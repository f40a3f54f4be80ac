import os
import random
import subprocess
import sys
import time
from pathlib import Path

import halide as hl
import numpy as np
import pytest

from tilewright.halide.execution.reference import ReferenceError
from tilewright.halide.execution.runner import schedule_plainly
from tilewright.halide.execution.session import Session, Variant, make_inputs
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.nest import default_stage
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    FuncSchedule,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)
from tilewright.measure import RunLimits, Timing
from tilewright.records import Records

QUICK = Timing(seconds=60.0, min_samples=2, max_samples=3)
LIMITS = RunLimits(build_seconds=300, run_seconds=100, memory_bytes=2 << 30)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def blur(width=70, height=40, weight=1):
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.UInt(16), 2, "image")
    across, blurred = hl.Func("across"), hl.Func("blurred")
    across[x, y] = (image[x, y] + image[x + 1, y] * weight + image[x + 2, y]) // 3
    blurred[x, y] = (across[x, y] + across[x, y + 1] + across[x, y + 2]) // 3
    blurred.set_estimates([(0, width), (0, height)])
    return hl.Pipeline(blurred)


def several():
    """Two outputs of other types, one a Tuple that starts elsewhere, a scalar, a histogram."""
    x, y, i = hl.Var("x"), hl.Var("y"), hl.Var("i")
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    gain = hl.Param(hl.Float(32), "gain", 1.5)
    r = hl.RDom([(0, 32), (0, 24)], "r")
    histogram, both, scaled = hl.Func("histogram"), hl.Func("both"), hl.Func("scaled")
    histogram[i] = 0
    histogram[hl.cast(hl.Int(32), image[r.x, r.y])] += 1
    value = hl.cast(hl.Int(32), image[hl.clamp(x, 0, 31), hl.clamp(y, 0, 23)])
    both[x, y] = (histogram[value], hl.cast(hl.Float(64), value) / 3)
    scaled[x, y] = both[x, y][1] * gain
    both.set_estimates([(-3, 33), (0, 24)])
    scaled.set_estimates([(0, 30), (0, 20)])
    return hl.Pipeline([both, scaled])


def measure_schedules(algorithm, schedules, *, target="host", **options):
    """Each schedule with its measurement, in a session of its own; `options` are `Session`'s."""
    variants = (
        Variant(schedule, target=target, name=f"schedule {i}")
        for i, schedule in enumerate(schedules)
    )
    with Session(algorithm, targets=[target], **options) as opened:
        yield from opened.measure(variants)


def tiled(algorithm, width=8, target="host", mappings=("vectorized", "serial", "parallel")):
    """Every Func but the output inlined, the output split in x."""
    out = len(algorithm.funcs) - 1
    nest = StageSchedule(
        (Split("v0", "v0o", "v0i", width, "shift_inwards"),),
        tuple(
            ScheduledLoop(name, mapping)
            for name, mapping in zip(("v0i", "v0o", "v1"), mappings, strict=True)
        ),
    )
    inlined = tuple(FuncSchedule(i, INLINE, INLINE) for i in range(out))
    last = FuncSchedule(out, ROOT, ROOT, stages=(nest,))
    return Schedule(algorithm.digest, target, (*inlined, last))


def at_root(algorithm):
    funcs = tuple(
        FuncSchedule(
            i, ROOT, ROOT, stages=tuple(default_stage(func, stage) for stage in func.stages)
        )
        for i, func in enumerate(algorithm.funcs)
    )
    return Schedule(algorithm.digest, "host", funcs)


def test_schedules_are_verified_and_a_rerun_finds_them_in_the_records(tmp_path):
    algorithm = load(blur())
    schedules = [tiled(algorithm, 8), tiled(algorithm, 16), at_root(algorithm)]
    outcomes = []
    with Records(tmp_path / "records") as records:
        for _ in range(2):
            how = {"records": records, "limits": LIMITS, "timing": QUICK}
            outcomes.append(list(measure_schedules(algorithm, schedules, **how)))
        assert len(records) == 3
        again = list(measure_schedules(algorithm, schedules[:1], remeasure=True, **how))
        assert len(records) == 4
        stored = list(records.query())
    first, second = outcomes
    assert all(m.measurement.ok and m.measurement.verified for m in first), first
    assert all(m.measurement.max_error == 0 for m in first)
    assert [m.recorded for m in first] == [False] * 3
    assert [m.recorded for m in second] == [True] * 3
    assert {m.variant.schedule for m in second} == set(schedules)
    assert [m.recorded for m in again] == [False]
    assert stored[0].versions["halide"]
    assert stored[0].configuration["schedule"]["algorithm"] == algorithm.digest


def test_the_same_pipeline_built_twice_finds_its_records(tmp_path):
    with Records(tmp_path / "records") as records:
        for expected in (False, True):
            algorithm = load(blur())
            how = {"records": records, "limits": LIMITS, "timing": QUICK}
            (outcome,) = measure_schedules(algorithm, [tiled(algorithm)], **how)
            assert outcome.recorded is expected


def test_other_sizes_and_inputs_are_other_problems():
    keys = set()
    for algorithm, seed in ((load(blur()), 0), (load(blur(71)), 0), (load(blur()), 1)):
        with Session(algorithm, seed=seed) as session:
            keys.add(session.problem.key)
    assert len(keys) == 3


def test_a_wrong_answer_is_reported_with_its_coordinates():
    algorithm = load(blur())
    wrong = bytes(hl.serialize_pipeline(blur(weight=2)))
    with Session(algorithm, limits=LIMITS, timing=QUICK) as session:
        (outcome,) = session.measure([Variant(serialized=wrong, name="wrong")])
    assert outcome.measurement.status == "wrong_answer"
    assert "values of blurred" in outcome.measurement.message
    assert outcome.measurement.max_error > 0


def test_several_outputs_tuples_scalars_and_updates():
    algorithm = load(several())
    with Session(algorithm, limits=LIMITS, timing=QUICK) as session:
        results = list(
            session.measure([Variant(name="as it is"), Variant(at_root(algorithm), name="root")])
        )
        paths = session.problem.reference
    assert [m.measurement.status for m in results] == ["ok", "ok"], results
    values = [np.load(path) for path in paths]
    assert [v.dtype for v in values] == [np.int32, np.float64, np.float64]
    assert [v.shape for v in values] == [(33, 24), (33, 24), (30, 20)]
    np.testing.assert_allclose(values[2], 1.5 * values[1][3:, :20])


def test_the_reference_is_right_and_made_once(monkeypatch):
    algorithm = load(blur())
    image = np.random.default_rng(0).integers(0, 9999, (72, 42)).astype(np.uint16)
    for _ in range(2):
        with Session(algorithm, contents={"image": image}, limits=LIMITS) as session:
            (path,) = session.prepare().reference or ()
    stamp = Path(path).stat().st_mtime_ns
    with Session(algorithm, contents={"image": image}, limits=LIMITS) as session:
        assert session.prepare().reference == (path,)
    assert Path(path).stat().st_mtime_ns == stamp
    rows = (image[:-2] + image[1:-1] + image[2:]) // np.uint16(3)
    expected = (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) // np.uint16(3)
    np.testing.assert_array_equal(np.load(path), expected)


def test_a_long_chain_of_stencils_does_not_make_the_reference_exponential():
    x = hl.Var("x")
    image = hl.ImageParam(hl.Int(32), 1, "image")
    func = hl.Func("f0")
    func[x] = image[x]
    for i in range(1, 30):
        following = hl.Func(f"f{i}")
        following[x] = func[x] ^ (func[x + 1] + func[x + 3])
        func = following
    func.set_estimates([(0, 500)])
    with Session(load(hl.Pipeline(func)), limits=LIMITS) as session:
        assert session.prepare().reference


def test_funcs_read_point_by_point_are_inlined_in_the_reference(tmp_path):
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    point, turned, spread, out = (hl.Func(n) for n in ("point", "turned", "spread", "out"))
    point[x, y] = image[x, y] + 1
    turned[x, y] = point[y, x]
    spread[x] = turned[x, 0] * 2
    out[x, y] = spread[x] + 1
    pipeline = hl.Pipeline(out)
    schedule_plainly(load(pipeline, estimates={"out": [(0, 9), (0, 9)]}), pipeline)
    text = tmp_path / "out.stmt"
    pipeline.compile_to_lowered_stmt(
        str(text), pipeline.infer_arguments(), hl.StmtOutputFormat.Text
    )
    # Only what is read again for every y is worth keeping, and what that reads at one point.
    produced = {
        n for n in ("point", "turned", "spread", "out") if f"produce {n}" in text.read_text()
    }
    assert produced >= {"spread", "out"}
    assert "point" not in produced


def test_a_pipeline_that_cannot_run_says_so():
    x = hl.Var("x")
    out = hl.Func("out")
    out.define_extern("no_such_c_function", [], hl.Int(32), [x])
    out.set_estimates([(0, 8)])
    with (
        Session(load(hl.Pipeline(out)), limits=LIMITS) as session,
        pytest.raises(ReferenceError, match="no_such_c_function"),
    ):
        session.prepare()


def test_threads_and_registers_are_part_of_the_configuration():
    variant = Variant(threads=3, max_registers=128)
    assert variant.environment == {"HL_NUM_THREADS": "3", "HL_CUDA_JIT_MAX_REGISTERS": "128"}
    assert variant.configuration["env"] == variant.environment
    assert variant.configuration != Variant(threads=4, max_registers=128).configuration


def test_finals_interleave_schedules_and_thread_counts():
    algorithm = load(blur(300, 300))
    schedule = tiled(algorithm)
    variants = [
        Variant(schedule, name="one", threads=1),
        Variant(schedule, name="two", threads=2),
        Variant(serialized=bytes(hl.serialize_pipeline(blur(weight=2))), name="wrong"),
    ]
    with Session(algorithm, limits=LIMITS, timing=QUICK) as session:
        finals = session.finals(variants, rounds=3)
    assert [m.status for m in finals.measurements] == ["ok", "ok", "wrong_answer"]
    assert finals.ratio_interval("one", "two").low > 0


def test_contents_that_are_given_are_kept_under_their_own_hash():
    algorithm = load(blur())
    ones, twos = (np.full((72, 42), v, np.uint16) for v in (1, 2))
    digests = [
        make_inputs(algorithm, contents={"image": image}).digest for image in (ones, twos, ones)
    ]
    assert digests[0] == digests[2] != digests[1]


@pytest.mark.opencl
def test_opencl_runs_and_is_verified():
    algorithm = load(blur(64, 32))
    schedule = tiled(algorithm, 16, "opencl", ("gpu_thread", "gpu_block", "gpu_block"))
    how = {"target": "opencl", "limits": LIMITS, "timing": QUICK}
    (outcome,) = measure_schedules(algorithm, [schedule], **how)
    assert outcome.measurement.ok, outcome
    assert outcome.measurement.verified


TUNER = """
import sys
sys.path.insert(0, sys.argv[1])
from test_measuring import LIMITS, QUICK, blur, measure_schedules, tiled
from tilewright.halide.frontend.source import load
from tilewright.records import Records
algorithm = load(blur())
schedules = [tiled(algorithm, width) for width in range(1, 13)]
with Records(sys.argv[2]) as records:
    how = {"records": records, "limits": LIMITS, "timing": QUICK}
    for outcome in measure_schedules(algorithm, schedules, **how):
        if not outcome.recorded:
            print(outcome.variant.name.split()[1], flush=True)
"""


def test_a_run_killed_at_random_moments_resumes_and_loses_nothing(tmp_path):
    script, store = tmp_path / "tuner.py", tmp_path / "records"
    script.write_text(TUNER)
    argv = [sys.executable, str(script), str(Path(__file__).parent), str(store)]
    choose = random.Random(7)
    told: list[str] = []
    for _ in range(2):
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=os.environ) as tuner:
            told.append(tuner.stdout.readline().strip())
            time.sleep(choose.uniform(0, 0.3))
            tuner.kill()
            told += [line.strip() for line in tuner.stdout if line.endswith("\n")]
        with Records(store) as records:
            assert len(records) >= len(told)
    finished = subprocess.run(argv, capture_output=True, text=True, check=True)
    told += finished.stdout.split()
    assert len(told) == len(set(told))
    with Records(store) as records:
        everything = list(records.query())
    assert len(everything) == 12
    assert all(r.measurement.ok and r.measurement.verified for r in everything)
