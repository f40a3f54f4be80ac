"""How long it takes to derive, featurise and rank the kernels of a stencil, none of them run.

Each of Lift's eight stencils, at 4096 x 4096 points, is derived into at most 1000 expressions with
at most 10 launches each (the paper's section 8.1), in a fresh process. The kernels are ranked by
the estimate for a GPU, which needs no measurements, and by the paper's nearest neighbours, fitted
to as many points as a campaign on the other seven stencils has. Those points are random numbers:
only the time of the ranking depends on them, and no figure of its quality is taken.

Keys of the summary:

- ``max_seconds``: the longest CPU time of one stencil, from the program to both sorted lists.
  CPU time of all threads, because other processes may be running.
- ``max_memory_mb``: the largest resident memory of such a process (VmHWM), imports included.
- ``expressions_least``, ``points_least``: of any stencil, those that can be launched.
- ``source_bytes_max``: the longest source of any expression, as CUDA or OpenCL C.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import common

SIZE = 4096
EXPRESSIONS, LAUNCHES = 1000, 10
TRAINING_POINTS = 7 * EXPRESSIONS * LAUNCHES
TIMEOUT_SECONDS = 1800
PHASES = ("candidates", "estimate", "neighbours")


def explored(name: str) -> dict[str, Any]:
    """The row of one stencil; runs in a process of its own."""
    import numpy as np

    from tilewright.machines import gpu
    from tilewright.patterns import ranking, rewriting
    from tilewright.patterns.programs import STENCILS

    program = STENCILS[name].build(SIZE, SIZE)
    settings = rewriting.ExplorationSettings(target="gpu", limit=EXPRESSIONS)
    times = [time.process_time()]
    found = ranking.candidates(program, {}, settings, LAUNCHES)
    times.append(time.process_time())
    ranking.rank(found, ranking.StaticEstimate(gpu("a100")))
    times.append(time.process_time())
    rng = np.random.default_rng(0)
    training = np.abs(rng.normal(size=(TRAINING_POINTS, len(ranking.FEATURES))))
    model = ranking.NearestNeighbours().fit(training, rng.random(TRAINING_POINTS))
    ranking.rank(found, model)
    times.append(time.process_time())
    memory = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert memory is not None
    expressions = list(dict.fromkeys(c.derivation.program for c in found))
    return {
        "stencil": name,
        "expressions": len(expressions),
        "points": len(found),
        "seconds": times[-1] - times[0],
        **{f"{p}_seconds": b - a for p, a, b in zip(PHASES, times, times[1:], strict=False)},
        "memory_mb": int(memory[1]) / 1024,
        "source_bytes_max": max(map(source_bytes, expressions)),
    }


def source_bytes(program: Any) -> int:
    """The length of a program's longest source."""
    from tilewright import patterns

    return max(len(patterns.source(program, target).encode()) for target in ("cuda", "opencl"))


def main() -> None:
    """Explore each stencil and write the result."""
    if sys.argv[1:2] == ["--row"]:
        print(json.dumps(explored(sys.argv[2])))
        return
    from tilewright.patterns.programs import STENCILS

    args = common.arguments(__doc__.splitlines()[0], list(STENCILS)).parse_args()
    pieces = common.Pieces(args.work, "patterns_explore", args.fresh)
    rows = []
    for name in common.chosen(args, list(STENCILS)):

        def made(name: str = name) -> Any:
            done = subprocess.run(
                [sys.executable, __file__, "--row", name],
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
                check=True,
            )
            return json.loads(done.stdout.splitlines()[-1])

        rows.append(pieces.get(name, made))
        print(rows[-1], flush=True)
    summary = {
        "max_seconds": max(row["seconds"] for row in rows),
        "max_memory_mb": max(row["memory_mb"] for row in rows),
        "expressions_least": min(row["expressions"] for row in rows),
        "points_least": min(row["points"] for row in rows),
        "source_bytes_max": max(row["source_bytes_max"] for row in rows),
    }
    common.write(args, "patterns_explore", rows, summary)


if __name__ == "__main__":
    main()
