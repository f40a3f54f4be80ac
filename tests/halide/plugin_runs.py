"""Runs of Halide's own autoschedulers, for tests that compare with what they print and return."""

import re
import subprocess
import sys

import numpy as np

from tilewright.halide.schedulers.halide_autoschedulers import plugin_path

SEARCH = """
import json, sys
import halide as hl
plugin, name, target, parameters = sys.argv[1:]
hl.load_plugin(plugin)
f, g = hl.Func("f"), hl.Func("g")
x, y = hl.Var("x"), hl.Var("y")
f[x, y] = hl.sqrt(hl.f32(x * y))
g[x, y] = f[x, y] + f[x + 1, y + 1]
g.set_estimates([hl.Range(0, 1000), hl.Range(0, 1000)])
parameters = hl.AutoschedulerParams(name, json.loads(parameters))
found = hl.Pipeline(g).apply_autoscheduler(hl.Target(target), parameters)
sys.stdout.buffer.write(bytes(found.featurization))
"""


def printed_cost(name, target, parameters, features):
    """The cost that a search prints, and its features, whose number per schedule is `features`.

    Returns:
        The cost, the features of definitions (stages, 40, 7), and those of the schedule (1, stages,
        `features`).
    """
    ran = subprocess.run(
        [sys.executable, "-c", SEARCH, str(plugin_path(name)), name, target, parameters],
        env={"HL_DEBUG_AUTOSCHEDULE": "1"},
        capture_output=True,
        check=True,
    )
    said = re.search(rb"Best cost: ([0-9.e+-]+)", ran.stderr)
    assert said is not None
    table = np.frombuffer(ran.stdout, np.float32).reshape(-1, features + 7 + 280).astype(float)
    return float(said[1]), table[:, -280:].reshape(-1, 40, 7), table[None, :, :features]
