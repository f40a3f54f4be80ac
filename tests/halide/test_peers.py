"""Halide's autoschedulers in child processes: what they give, and how they fail."""

import re

import halide as hl
import pytest
from patience import PATIENT

from tilewright.errors import TilewrightError
from tilewright.halide.execution.binding import deserialize, set_estimates
from tilewright.halide.execution.session import Session, Variant, make_inputs
from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers import halide_autoschedulers as module
from tilewright.halide.schedulers.halide_autoschedulers import Peer, peers, plugin_path, run_peers
from tilewright.machines import gpu
from tilewright.measure import Timing, Workers

ONCE = Timing(warmup=0, min_samples=1, max_samples=1, sample_seconds=0.0)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def workers():
    with Workers(
        preload=[
            "tilewright.halide.execution.runner",
            "tilewright.halide.schedulers.halide_autoschedulers",
        ]
    ) as opened:
        yield opened


def chain(stages=2):
    """Automatic names, a scalar, and an input of which only the outputs' estimates tell."""
    x, y = hl.Var(), hl.Var()
    image, gain = hl.ImageParam(hl.Float(32), 2), hl.Param(hl.Float(32))
    gain.set_estimate(2.0)
    func = hl.Func()
    func[x, y] = image[x, y] * gain
    for _ in range(stages):
        after = hl.Func()
        after[x, y] = func[x, y] + func[x + 1, y] + func[x, y + 1]
        func = after
    func.set_estimates([(0, 640), (0, 480)])
    return func


def test_each_gets_this_machine():
    by_name = {peer.name: peer for peer in peers("host")}
    assert list(by_name) == ["Mullapudi2016", "Adams2019", "Adams2019, beam 1", "Li2018"]
    cores = {peer.parameters["parallelism"] for peer in by_name.values()}
    assert len(cores) == 1
    assert int(cores.pop()) >= 1
    assert int(by_name["Mullapudi2016"].parameters["last_level_cache_size"]) > 1 << 15
    assert by_name["Adams2019, beam 1"].parameters["beam_size"] == "1"
    on_gpu = {peer.name: peer for peer in peers("cuda", gpu("v100"))}
    assert list(on_gpu) == ["Li2018", "Anderson2021"]
    assert on_gpu["Anderson2021"].parameters["parallelism"] == "80"
    with pytest.raises(TilewrightError, match="give the GPU"):
        peers("cuda")


def test_their_schedules_run_and_are_right(workers):
    algorithm = load(chain())
    inputs = make_inputs(algorithm)
    found = list(run_peers(algorithm, inputs, peers("host"), workers=workers))
    assert {s.peer.name: s.status for s in found} == {p.name: "ok" for p in peers("host")}
    assert all(s.cpu_seconds is not None and s.memory_bytes > 0 and s.source for s in found)
    variants = [Variant(serialized=s.serialized, name=s.peer.name, env=s.peer.env) for s in found]
    with Session(algorithm, inputs=inputs, limits=PATIENT, timing=ONCE) as session:
        for measured in session.measure(variants):
            assert measured.measurement.ok, measured.measurement
            assert measured.measurement.verified


def test_for_a_gpu(workers):
    machine = gpu("a100")
    algorithm = load(chain(1))
    chosen = peers("cuda", machine)
    target = machine.halide_target
    found = run_peers(algorithm, make_inputs(algorithm), chosen, target=target, workers=workers)
    assert {s.peer.name: s.status for s in found} == {"Li2018": "ok", "Anderson2021": "ok"}


@pytest.mark.parametrize("name", ["Mullapudi2016", "Li2018"])
def test_the_bytes_lower_as_the_live_pipeline_does(name, tmp_path):
    algorithm = load(chain())
    inputs = make_inputs(algorithm)
    hl.load_plugin(str(plugin_path(name)))
    module._step_over(module._automatic_names(algorithm))
    live = deserialize(algorithm.serialized, inputs)
    set_estimates(live, inputs)
    target = hl.get_host_target()
    live.pipeline.apply_autoscheduler(target, hl.AutoschedulerParams(name, {"parallelism": "4"}))
    again = deserialize(bytes(hl.serialize_pipeline(live.pipeline)), inputs)
    texts = []
    for pipeline in (live.pipeline, again.pipeline):
        path = tmp_path / "lowered.stmt"
        pipeline.compile_to_lowered_stmt(
            str(path), pipeline.infer_arguments(), hl.StmtOutputFormat.Text, target
        )
        texts.append(_loops(path.read_text()))
    assert any("[ramp(" in line for line in texts[0])  # it vectorised
    assert texts[0] == texts[1]


def _loops(text):
    """Loops, allocations and stores in order, automatic numbers left out."""
    lines = [line.strip() for line in text.splitlines()]
    kept = re.compile(r"(for|allocate|produce|consume)\b|\S+\[")
    return [re.sub(r"(\$|__|(?<=\bt))\d+", "", line) for line in lines if kept.match(line)]


def test_peers_that_take_too_long_are_ended(workers):
    algorithm = load(chain(12))
    slow = next(p for p in peers("host") if p.name == "Adams2019")
    (found,) = run_peers(
        algorithm, make_inputs(algorithm), [slow], cpu_seconds=1.0, workers=workers
    )
    assert (found.status, found.cpu_seconds, found.serialized) == ("timeout", 1.0, None)
    assert found.message == "no schedule in 1 CPU seconds"


def test_peers_that_need_too_much_memory_are_ended(workers):
    algorithm = load(chain())
    (found,) = run_peers(
        algorithm, make_inputs(algorithm), peers("host")[:1], memory_bytes=1 << 20, workers=workers
    )
    assert found.status == "out_of_memory"


def test_peers_that_abort_are_reported_as_crashed(workers):
    algorithm = load(chain())
    odd = Peer("odd", "Li2018", {"paralelism": "2"})
    (found,) = run_peers(algorithm, make_inputs(algorithm), [odd], workers=workers)
    assert (found.status, found.serialized) == ("crashed", None)
    assert "Halide::Error" in found.message
