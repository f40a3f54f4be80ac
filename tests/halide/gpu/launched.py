"""Run in a process of its own: what schedules launch, against what the model says.

Prints a JSON list of ``[program, mode, predicted, launched]``, where the last two are sorted
lists of ``[blocks, threads, shared bytes]``.
"""

import importlib.util
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    found = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = found
    spec.loader.exec_module(found)
    return found


def main(programs):
    recorder = module(ROOT / "benchmarks" / "support" / "recording_cuda.py").Recorder()

    from tilewright.halide.execution.runner import Runner
    from tilewright.halide.execution.session import make_inputs
    from tilewright.halide.frontend.source import load
    from tilewright.halide.ir.json import to_json
    from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
    from tilewright.machines import gpu

    results = []
    for program in programs:
        name, mode = program.split(":")
        example = module(ROOT / "examples" / f"{name}.py")
        algorithm = load(getattr(example, name)())
        (planned,) = schedule_gpu(algorithm, gpu("a100"), mode=mode)
        payload = {
            "serialized": algorithm.serialized,
            "schedule": to_json(planned.schedule),
            "target": planned.schedule.target,
            "inputs": make_inputs(algorithm).to_json(),
        }
        Runner(payload).run()
        predicted = sorted(
            [list(g.blocks), list(g.threads), g.shared_bytes] for g in planned.groups if g.threads
        )
        launched = sorted([r["blocks"], r["threads"], r["shared"]] for r in recorder.launches())
        results.append([name, mode, predicted, launched])
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1:])
