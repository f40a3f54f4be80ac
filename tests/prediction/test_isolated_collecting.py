"""What a variant breaks while it is measured is its own outcome; the rest goes on."""

import importlib.util
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unruly_kernels

from tilewright.errors import TilewrightError
from tilewright.measure import RunLimits, Timing, reference_to
from tilewright.prediction.data.collect import collect
from tilewright.prediction.data.isolated import origin
from tilewright.prediction.data.user_kernels import from_callable, from_command
from tilewright.prediction.data.whole_call import whole_call
from tilewright.prediction.errors import PredictionError
from tilewright.prediction.kernels import kernel
from tilewright.records import Records

QUICK = Timing(warmup=1, min_samples=1, max_samples=1, seconds=0.001, sample_seconds=0.0)
# What hangs does so until the limit; the rest takes milliseconds.
LIMITS = RunLimits(build_seconds=6.0, run_seconds=6.0, memory_bytes=400 << 20)


def unruly(values, **how):
    return from_callable(
        unruly_kernels.breaks,
        {"n": values},
        "n",
        name="unruly",
        reference=unruly_kernels.right,
        **how,
    )


def test_crashes_hangs_and_want_of_memory_are_outcomes_and_the_rest_goes_on(tmp_path):
    broken = unruly([*range(8), 14, 15])
    with Records(tmp_path / "r.sqlite") as records:
        how: dict[str, Any] = {"retime": False, "rounds": 1, "timing": QUICK, "limits": LIMITS}
        # These ten draws have every kind among them.
        runs = collect(broken, "breaks", 10, 68, records, **how)
        again = collect(broken, "breaks", 10, 68, records, **how)
        assert len(records) == 10  # failures are known, too
    assert set(runs.table[:, 0] % 8) <= {6, 7}
    assert len(runs) == 2
    assert len(runs.dropped) == 8
    statuses = {text.split(": ")[1] for text in runs.dropped}
    assert statuses >= {"crashed", "timeout", "out_of_memory", "run_failed", "wrong_answer"}
    assert np.array_equal(again.times, runs.times)
    assert again.dropped == runs.dropped


@pytest.mark.thorough
def test_wider_limits_measure_again_what_ran_into_narrower_ones(tmp_path):
    slow = unruly([1, 6])
    with Records(tmp_path / "r.sqlite") as records:
        how: dict[str, Any] = {"retime": False, "rounds": 1, "timing": QUICK}
        first = collect(slow, "breaks", 2, 1, records, limits=LIMITS, **how)
        before = len(records)
        assert any("timeout" in text for text in first.dropped)
        wider = RunLimits(build_seconds=6.5, run_seconds=6.5, memory_bytes=400 << 20)
        collect(slow, "breaks", 2, 1, records, limits=wider, **how)
        assert len(records) == before + len(first.dropped)


def test_a_worker_makes_the_same_instances_as_this_process():
    matmul = kernel("matmul")
    here, there = (
        collect(matmul, "numpy", 3, 5, retime=False, rounds=1, timing=QUICK, isolate=isolate)
        for isolate in (False, True)
    )
    assert np.array_equal(here.table, there.table)
    assert (there.times > 0).all()


def test_kernels_that_no_other_process_can_make_are_measured_here_or_refused():
    local = from_callable(lambda n: n, {"n": (1, 9)}, "n", name="local")
    assert len(collect(local, "lambda", 2, 0, retime=False, rounds=1, timing=QUICK)) == 2
    with pytest.raises(PredictionError, match="top level of a module"):
        collect(local, "lambda", 2, 0, timing=QUICK, isolate=True)
    with pytest.raises(TilewrightError, match="top level of a module"):
        reference_to(lambda: 0)


def test_a_function_typed_at_a_prompt_is_refused_with_the_cure(monkeypatch):
    prompt = types.ModuleType("typed")
    exec("def doubled(x):\n    return 2 * x\n", prompt.__dict__)
    monkeypatch.setitem(sys.modules, "typed", prompt)
    with pytest.raises(TilewrightError, match="write it to a module"):
        reference_to(prompt.doubled)


def test_origins_name_what_can_be_made_again():
    matmul = kernel("matmul")
    numpy = matmul.variant("numpy")
    assert origin(matmul, numpy) == {"kernel": "matmul", "variant": "numpy", "whole_call": False}
    assert (origin(matmul, whole_call(numpy)) or {})["whole_call"]
    own = unruly((1, 9), make=unruly_kernels.make, variants={"quick": unruly_kernels.quick})
    assert (origin(own, own.variant("quick")) or {})["variant"] == "quick"
    changed = own.with_variant(own.variant("quick"))
    assert origin(changed, changed.variant("quick")) is None


def test_commands_are_measured_in_workers():
    command = from_command(["sh", "-c", "exit {n}"], {"n": [0, 1, 3]}, "n + 1")
    runs = collect(command, "command", 3, 2, retime=False, rounds=1, timing=QUICK)
    assert set(runs.table[:, 0]) == {0}
    assert all("exit code" in text for text in runs.dropped)


@pytest.mark.parametrize("guarded", [False, True])
def test_a_script_that_would_run_again_in_its_workers_is_not_imported(
    tmp_path, monkeypatch, guarded
):
    path = tmp_path / "script.py"
    does = 'if __name__ == "__main__":\n    pass\n' if guarded else "assert total.__name__\n"
    path.write_text(f"def total(n):\n    return n\n\n\n{does}")
    spec = importlib.util.spec_from_file_location("__main__", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "__main__", module)
    spec.loader.exec_module(module)
    own = from_callable(module.total, {"n": (1, 9)}, "n")
    assert (origin(own, own.variant("total")) is not None) == guarded


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[2])
import unruly_kernels
from tilewright.measure import Timing
from tilewright.prediction.data.collect import collect
from tilewright.prediction.data.user_kernels import from_callable
from tilewright.records import Records

QUICK = Timing(warmup=1, min_samples=1, max_samples=1, seconds=0.001, sample_seconds=0.0)
if __name__ == "__main__":
    kernel = from_callable(unruly_kernels.quick, {"n": (1, 1000)}, "n", name="quick")
    with Records(sys.argv[1]) as records:
        told = lambda progress: print(progress.done, flush=True)
        how = {"retime": False, "rounds": 1, "timing": QUICK}
        collect(kernel, "quick", 40, 0, records, **how, on_progress=told)
"""


def test_a_collection_that_is_killed_goes_on_and_loses_nothing(tmp_path):
    path, script = tmp_path / "r.sqlite", tmp_path / "collecting.py"
    script.write_text(SCRIPT)
    words = [sys.executable, script, path, Path(unruly_kernels.__file__).parent]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if int(line) >= 5:
                process.kill()
                break
    own = from_callable(unruly_kernels.quick, {"n": (1, 1000)}, "n", name="quick")
    with Records(path) as records:
        kept = {str(r.configuration): r.measurement.times for r in records.query()}
        assert len(kept) >= 5
        how: dict[str, Any] = {"retime": False, "rounds": 1, "timing": QUICK}
        first = list(collect(own, "quick", 40, 0, records, **how).times)
        found = {str(r.configuration): r.measurement.times for r in records.query()}
        assert {key: found[key] for key in kept} == kept
        again = list(collect(own, "quick", 40, 0, records, **how).times)
        assert (again, len(records)) == (first, 40)
