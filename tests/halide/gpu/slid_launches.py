"""Run in a process of its own: what schedules that slide launch, against what the model says.

Prints a JSON list of ``[seed, [kernel, nest, launched], sliding members]``, where the three are
``[blocks, threads, shared bytes]``: as the search predicts, as `ScheduledNest` does, as launched.
"""

import json
import random
import sys
from dataclasses import replace
from pathlib import Path

import halide as hl
import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "benchmarks"), str(Path(__file__).parent)]
DEPTH = 70


def pipeline(draw, depth=DEPTH, width=64):
    """A random chain of three-dimensional stencils; each reads one or two Funcs before it."""
    x, y, z = hl.vars("x y z")
    image = hl.ImageParam(draw.choice([hl.Float(32), hl.UInt(16)]), 3, "image")
    made = [hl.BoundaryConditions.repeat_edge(image)]
    for i in range(draw.randint(2, 4)):
        func = hl.Func(f"f{i}")
        value = hl.cast(image.type(), 1)
        for source in made[-draw.randint(1, 2) :]:
            for _ in range(draw.randint(2, 5)):
                dx, dy, dz = (draw.randint(-2, 2) for _ in range(3))
                value = value + source[x + dx, y + dy, z + dz]
            value = value + source[x, y, z - draw.randint(0, 2)] * source[x, y, z + 1]
        func[x, y, z] = value
        made.append(func)
    made[-1].set_estimates([(0, width), (0, width), (0, depth)])
    image.set_estimates([(0, width), (0, width), (0, depth)])
    return hl.Pipeline(made[-1])


def plan(draw, algorithm, machine):
    """A random kernel with all Funcs in one group, whose members slide; None if it does not fit."""
    from gpu_pipelines import analysed

    from tilewright.halide.schedulers.analytic.gpu.grouping_search import GroupingSearch
    from tilewright.halide.schedulers.analytic.gpu.plan import Options
    from tilewright.halide.schedulers.analytic.gpu.sliding import sliding_plan
    from tilewright.halide.schedulers.analytic.grouping import Group

    base = analysed(algorithm, specialize=True)
    made = {name for name in base.view.by_name if name.startswith("f")}
    search = GroupingSearch(base, machine, frozenset(set(base.view.by_name) - made))
    order = sorted(made, key=algorithm.order.__getitem__)
    output = algorithm.outputs[0]
    planes = draw.choice([1, 2, 3, 4])
    each = draw.choice([n for n in (1, 2, 4) if planes % n == 0])
    points = (1, draw.choice([1, 2]), each)
    tile = (draw.choice([8, 16, 32]), draw.choice([4, 8]), planes * draw.randint(2, 48 // planes))
    options = Options(points=points, tiles=((output, 0, tile),), planes=planes)
    group = Group((*(name for name in order if name != output), output))
    found = sliding_plan(search, group, options)
    return (search, options, found) if found.kernels else None


def case(seed, machine):
    """The random algorithm of a seed, its schedule and the report on its only kernel."""
    from tilewright.halide.frontend.source import load
    from tilewright.halide.schedulers.analytic.gpu.assemble import assemble

    draw = random.Random(seed)
    algorithm = load(pipeline(draw))
    with np.errstate(invalid="ignore", over="ignore"):
        found = plan(draw, algorithm, machine)
        if found is None:
            return None
        search, options, group = found
        planned = assemble(search.analysis, search.model, [group], options)
    return algorithm, planned, tuple(group.kernels[0].sliding)


def main(seeds):
    from support.recording_cuda import Recorder

    recorder = Recorder()

    from tilewright.halide.analysis.gpu_launches import launches, number, numbers
    from tilewright.halide.analysis.scheduled_nest import sized_nest
    from tilewright.halide.execution.runner import Runner
    from tilewright.halide.execution.session import make_inputs
    from tilewright.halide.ir.json import to_json
    from tilewright.machines import gpu

    machine = replace(gpu("v100"), max_threads_per_block=1024)
    results = []
    for seed in seeds:
        made = case(seed, machine)
        if made is None:
            continue
        algorithm, planned, sliding = made
        payload = {
            "serialized": algorithm.serialized,
            "schedule": to_json(planned.schedule),
            "target": planned.schedule.target,
            "inputs": make_inputs(algorithm).to_json(),
        }
        Runner(payload).run()
        (report,) = planned.groups
        (launch,) = launches(sized_nest(algorithm, planned.schedule))
        (ran,) = recorder.launches()
        rows = [
            [list(report.blocks), list(report.threads), report.shared_bytes],
            [list(numbers(launch.grid)), list(numbers(launch.block)), number(launch.shared_bytes)],
            [ran["blocks"], ran["threads"], ran["shared"]],
        ]
        results.append([seed, rows, sliding])
    print(json.dumps(results))


if __name__ == "__main__":
    main([int(seed) for seed in sys.argv[1:]])
