"""CUDA schedules under the released weights of Anderson 2021, ours over the plugin's own; no GPU.

For the 18 programs of ``examples/`` and the 22 of ``strangers/`` that ``halide_features`` uses,
the plugin Anderson2021 makes its schedule for an A100, with its default settings and a limit of 120
CPU seconds. Its cost and those of our schedules are computed by the published features and network
with the weights in the plugin (`tilewright.halide.schedulers.learned.published`).

Nothing is compiled: ``halide_cuda_static`` counts launches, grids and spills of the analytic
scheduler. Four schedules of ours are rated:

- ``released_model_score``: the analytic scheduler's one-shot schedule;
- ``released_model_score_plans``: that of the analytic scheduler's plans (8 per fusion mode) which
  the released network likes best;
- ``released_model_score_tuned``: the same, with factors tuned by coordinate descent for the
  network's prediction (`tilewright.halide.search.published_model`);
- ``released_model_score_search``: that of the learned scheduler's search over whole loop nests by
  the network (`tilewright.halide.schedulers.learned.gpu`). ``search_refused`` counts those that
  Halide does not lower, or launches with too many threads.

Each is a geometric mean, over the programs for which the plugin found a schedule, of our cost
over the plugin's; ``_low`` and ``_high`` are its 95% bootstrap interval over programs, and
``_held_out`` is the mean over ``strangers/`` alone. ``search_ratio`` keys are the same for CPU
seconds, ``search_seconds_of_plugin`` keys the ratio of the sums of CPU seconds: where the plugin
takes milliseconds, no search in Python can take a tenth, but such programs hardly count in a sum.
A schedule of ours without published features counts as a failure; where the plugin has no
schedule, ours are not rated.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import common
import halide_cuda_static
import halide_features
import halide_learned_search

GPU = halide_cuda_static.GPU
PEER = halide_cuda_static.PEER
# Our schedules, by the suffix of their keys.
KINDS = {"oneshot": "", "plans": "_plans", "tuned": "_tuned", "search": "_search"}


def task_of(name: str) -> Any:
    """A program of ``halide_features`` for the GPU."""
    from tilewright.halide.schedulers.task import make_task

    if name in common.PROGRAMS:
        program = common.build(name)
    else:
        from strangers import PROGRAMS as strangers

        program = strangers[name.removeprefix("stranger_")].pipeline(small=False)
    return make_task(program, target="cuda", machine=GPU, name=name)


def model_of(task: Any) -> Any:
    """The released network for a program."""
    from tilewright.halide.search.published_model import PublishedGpuModel

    return PublishedGpuModel(task, halide_features.weights_of(PEER))


def ours(name: str) -> dict[str, Any]:
    """In a process of its own: the costs of our schedules, and the CPU seconds of each search."""
    import tilewright.halide.schedulers.analytic.gpu.scheduler  # noqa: F401 (imports are not timed)
    from tilewright.halide.schedulers.registry import plan
    from tilewright.halide.search.published_model import preferred, ranked

    task = task_of(name)
    model = model_of(task)
    found: dict[str, Any] = {}

    def note(kind: str, began: float, milliseconds: float) -> None:
        seconds = time.process_time() - began
        known = milliseconds if math.isfinite(milliseconds) else None
        found[kind] = {"milliseconds": known, "cpu_seconds": seconds}

    began = time.process_time()
    note("oneshot", began, model.rated(plan(task)[0].schedule).milliseconds)
    began = time.process_time()
    among = ranked(model)
    note("plans", began, among[0].milliseconds)
    note("tuned", began, preferred(model, among=among).milliseconds)
    return found


def learned(name: str) -> dict[str, Any]:
    """In a process of its own: the schedule of the learned scheduler's search."""
    import tilewright.halide.schedulers.learned.gpu.scheduler as scheduler
    from tilewright.halide.execution.lowering import refusal
    from tilewright.halide.schedulers.registry import device_limits, why_illegal

    task = task_of(name)
    model = model_of(task)
    began = time.process_time()
    found = scheduler.searched(model)
    seconds = time.process_time() - began
    if not found:
        return {"milliseconds": None, "cpu_seconds": seconds}
    best = found[0].schedule
    limits = device_limits(task)
    return {
        "milliseconds": model.milliseconds(best),  # by the whole schedule, not by parts
        "cpu_seconds": seconds,
        "illegal": why_illegal(best, task),
        "refusal": refusal(best, task.algorithm, limits.threads_per_block),
    }


def rated(name: str, made: dict[str, Any]) -> dict[str, Any]:
    """The plugin's schedule: how its search ended, and its cost."""
    from tilewright.halide.frontend.given import read_schedule

    result = {key: made[key] for key in ("status", "message", "cpu_seconds")}
    if made["serialized"] is not None:
        schedule = read_schedule(made["serialized"]).schedule
        result["milliseconds"] = model_of(task_of(name)).milliseconds(schedule)
    return result


def row_of(
    name: str, pieces: common.Pieces, peer_pieces: common.Pieces, kept: dict[str, Any]
) -> dict[str, Any]:
    """Everything about one program; `kept` has our other schedules of an earlier run, if any."""
    import dataclasses

    from tilewright.halide.execution.session import make_inputs

    task = task_of(name)
    run = partial(halide_cuda_static.child, "ours", name, script=__file__)
    row: dict[str, Any] = {
        "program": name,
        "held_out": name not in common.PROGRAMS,
        "ours": {},
        "plugin": {"status": "not measured"},
    }
    with contextlib.suppress(LookupError):
        inputs = make_inputs(task.algorithm)
        peer = common.peer_schedules(peer_pieces, task, inputs, only=(PEER,))[PEER]
        row["plugin"] = rated(name, dataclasses.asdict(peer))
    if "milliseconds" in row["plugin"]:
        search = partial(halide_cuda_static.child, "learned", name, script=__file__)
        row["ours"] = {**(kept or pieces.get(name, run))}
        row["ours"]["search"] = pieces.get(f"{name}-search", search)
    return row


def earlier(results: Path) -> dict[str, Any]:
    """Our schedules in the result of an earlier run, without those of the search, by program."""
    found = json.loads((results / "halide_learned_static.json").read_text())
    kinds = {"status", *KINDS} - {"search"}
    return {
        row["program"]: {kind: row["ours"][kind] for kind in kinds if kind in row["ours"]}
        for row in found["rows"]
    }


def compared(rows: Sequence[dict[str, Any]], kind: str, key: str) -> list[float]:
    """Ours over the plugin's, where both are known."""
    found = []
    for row in rows:
        mine, theirs = row["ours"].get(kind, {}).get(key), row["plugin"].get(key)
        if mine and theirs and "milliseconds" in row["plugin"]:
            found.append(mine / theirs)
    return found


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures that the claim is about."""
    import numpy as np

    from tilewright.measure.statistics import bootstrap_interval

    own = [row["ours"] for row in rows if "milliseconds" in row["plugin"]]
    lacking = [o for o in own for kind in KINDS if not o.get(kind, {}).get("milliseconds")]
    found: dict[str, Any] = {
        "programs": len(rows),
        "failures": len(lacking),
        "search_refused": sum(bool(o.get("search", {}).get("refusal")) for o in own),
        "search_illegal": sum(bool(o.get("search", {}).get("illegal")) for o in own),
        "plugin_status": dict(Counter(row["plugin"]["status"] for row in rows)),
    }
    for kind, suffix in KINDS.items():
        costs = compared(rows, kind, "milliseconds")
        key = f"released_model_score{suffix}"
        found[key] = common.geometric_mean(costs)
        if len(costs) > 1:
            logs = bootstrap_interval([math.log(cost) for cost in costs], statistic=np.mean)
            found[f"{key}_low"], found[f"{key}_high"] = math.exp(logs.low), math.exp(logs.high)
        held = [row for row in rows if row["held_out"]]
        found[f"{key}_held_out"] = common.geometric_mean(compared(held, kind, "milliseconds"))
        found[f"{key}_programs"] = len(costs)
        seconds = compared(rows, kind, "cpu_seconds")
        found[f"search_ratio{suffix}"] = common.geometric_mean(seconds)
        both = [row for row in rows if row["ours"].get(kind, {}).get("cpu_seconds")]
        total = sum(row["plugin"]["cpu_seconds"] for row in both)
        spent = sum(row["ours"][kind]["cpu_seconds"] for row in both)
        found[f"search_seconds_of_plugin{suffix}"] = spent / total if total else None
    return found


def main() -> None:
    """Search, rate, print, write."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"  # one core; set before NumPy is imported
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps({"ours": ours, "learned": learned}[sys.argv[2]](sys.argv[3])))
        return
    parser = common.arguments(__doc__.splitlines()[0], halide_features.PROGRAMS)
    parser.add_argument("--kept-peers", action="store_true", help="start no searches of the plugin")
    parser.add_argument(
        "--kept-ours",
        action="store_true",
        help="take all our schedules but those of the search from the result that is there",
    )
    args = parser.parse_args()
    pieces = common.Pieces(args.work, "halide_learned_static", args.fresh)
    kind = halide_learned_search.Kept if args.kept_peers else common.Pieces
    peer_pieces = kind(args.work, "peers", args.fresh, ours=False)
    rows = []
    known = earlier(args.results) if args.kept_ours else {}
    for name in common.chosen(args, halide_features.PROGRAMS):
        row = row_of(name, pieces, peer_pieces, known.get(name, {}))
        rows.append(row)
        costs = [row["ours"].get(kind, {}).get("milliseconds") for kind in KINDS]
        theirs = row["plugin"].get("milliseconds")
        print(name, *map(common.shown, [*costs, theirs]), row["plugin"]["status"], flush=True)
    common.write(args, "halide_learned_static", rows, summary(rows), gpu=GPU)


if __name__ == "__main__":
    main()
