"""The search of Anderson 2021 as published, over the plugin's own and our search; no GPU.

For the 18 programs of ``examples/`` and the 22 of ``strangers/`` that ``halide_features`` uses, the
plugin Anderson2021 searches with the settings of its paper (``randomize_tilings=1``,
``freeze_inline_compute_root=1``: one beam search of width 32 in five passes), for an A100 and at
most 120 CPU seconds. Tilewright's search as published does the same in Python. All costs are the
released network's predictions, by the published features of the whole schedule; nothing is run.

- ``published_over_plugin``: cost of our search as published over the plugin's. Near 1 says that
  the search is faithful; ``released_freezing_over_plugin`` is the same with the plugin's way of
  freezing;
- ``tilewright_over_published``: cost of our own search over that of the search as published;
- ``VARIANT_over_published``: cost with one idea switched off over that with all: no freezing
  (``no_freezing``), freezing by the costs of the wrong stages (``released_freezing``), the pre-pass
  and one pass (``one_pass``), all options instead of draws from buckets (``no_buckets``), no
  penalties of states that look alike (``no_penalties``). Above 1, the idea lowers the cost;
- ``quick_over_published``: cost of the quick setting (beam 8, 3 passes, 8 greedy samples);
- ``…_seconds``: the same ratios of CPU seconds.

Each is a geometric mean over the programs where both are known, with their number
(``…_programs``) and its 95% bootstrap interval over programs (``…_low``, ``…_high``). A search that
does not end within its limit of CPU seconds (120, and 20 for what is switched off) has no cost.
``refused`` counts schedules that Halide does not lower, ``illegal`` those that our checks reject.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import common
import halide_cuda_static
import halide_features
import halide_learned_search
import halide_learned_static

GPU = halide_cuda_static.GPU
PEER = "Anderson2021, as published"
OWN, PUBLISHED = "tilewright", "published"
# What is switched off, by name.
SWITCHED_OFF: dict[str, dict[str, Any]] = {
    "no_freezing": {"freeze": False},
    "released_freezing": {"as_released": True},
    "one_pass": {"passes": 2},
    "no_buckets": {"buckets": False},
    "no_penalties": {"penalties": False},
}
VARIANTS = (PUBLISHED, "quick", *SWITCHED_OFF)
CPU_SECONDS = {PUBLISHED: 120, "quick": 120, OWN: 120}
OTHER_CPU_SECONDS = 20  # of what is switched off


def settings_of(variant: str) -> Any:
    """The settings of one search."""
    from tilewright.halide.schedulers.learned.gpu.published_search import constants

    if variant == "quick":
        return constants.QUICK
    return dataclasses.replace(constants.PUBLISHED, greedy=0, **SWITCHED_OFF.get(variant, {}))


def searched(name: str, variant: str) -> dict[str, Any]:
    """In a process of its own: the cost of the best schedule of a search, and its CPU seconds."""
    from tilewright.halide.execution.lowering import refusal
    from tilewright.halide.schedulers.learned.gpu import scheduler
    from tilewright.halide.schedulers.learned.gpu.published_search.scheduler import (
        searched_as_published,
    )
    from tilewright.halide.schedulers.registry import device_limits, why_illegal
    from tilewright.measure import collection_paused

    task = halide_learned_static.task_of(name)
    model = halide_learned_static.model_of(task)
    began = time.process_time()
    limit = int(began + CPU_SECONDS.get(variant, OTHER_CPU_SECONDS)) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    with collection_paused():
        if variant == OWN:
            found = scheduler.searched(model)
        else:
            found = searched_as_published(model, settings_of(variant))
    seconds = time.process_time() - began
    resource.setrlimit(resource.RLIMIT_CPU, (limit + 4, limit + 5))
    if not found:
        return {"milliseconds": None, "cpu_seconds": seconds}
    best = found[0].schedule
    return {
        "milliseconds": model.milliseconds(best),  # by the whole schedule, not by parts
        "cpu_seconds": seconds,
        "illegal": why_illegal(best, task),
        "refusal": refusal(best, task.algorithm, device_limits(task).threads_per_block),
    }


def row_of(
    name: str, pieces: common.Pieces, peer_pieces: common.Pieces, variants: Sequence[str]
) -> dict[str, Any]:
    """Everything about one program."""
    from tilewright.halide.execution.session import make_inputs

    task = halide_learned_static.task_of(name)
    row: dict[str, Any] = {
        "program": name,
        "held_out": name not in common.PROGRAMS,
        "plugin": {"status": "not measured"},
    }
    with contextlib.suppress(LookupError):
        inputs = make_inputs(task.algorithm)
        found = common.peer_schedules(peer_pieces, task, inputs, only=(PEER,), published=True)
        row["plugin"] = halide_learned_static.rated(name, dataclasses.asdict(found[PEER]))
    for variant in (OWN, *variants):
        run = partial(halide_cuda_static.child, name, variant, script=__file__)
        row[variant] = {"status": "not measured"}
        with contextlib.suppress(LookupError):
            row[variant] = pieces.get(f"{name}-{variant}", run)
    return row


def ratios(rows: Sequence[dict[str, Any]], a: str, b: str, key: str) -> list[float]:
    """One search over another, where both have a schedule."""
    found = []
    for row in rows:
        costs = [row.get(each, {}).get("milliseconds") for each in (a, b)]
        values = [row.get(each, {}).get(key) for each in (a, b)]
        if all(costs) and all(values):
            found.append(values[0] / values[1])
    return found


def compared(rows: Sequence[dict[str, Any]], a: str, b: str) -> dict[str, Any]:
    """The ratios of costs and of CPU seconds, as geometric means."""
    import numpy as np

    from tilewright.measure.statistics import bootstrap_interval

    costs, key = ratios(rows, a, b, "milliseconds"), f"{a}_over_{b}"
    found: dict[str, Any] = {key: common.geometric_mean(costs)}
    if len(costs) > 1:
        logs = bootstrap_interval([math.log(cost) for cost in costs], statistic=np.mean)
        found[f"{key}_low"], found[f"{key}_high"] = math.exp(logs.low), math.exp(logs.high)
    found[f"{key}_programs"] = len(costs)
    found[f"{key}_seconds"] = common.geometric_mean(ratios(rows, a, b, "cpu_seconds"))
    return found


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures that the claim is about."""
    ours = [row[v] for row in rows for v in VARIANTS if v in row]
    found: dict[str, Any] = {
        "programs": len(rows),
        "not_measured": [r["program"] for r in rows if r[PUBLISHED]["status"] == "not measured"],
        "refused": sum(bool(each.get("refusal")) for each in ours),
        "illegal": sum(bool(each.get("illegal")) for each in ours),
        "plugin_status": dict(Counter(row["plugin"]["status"] for row in rows)),
        "published_status": dict(Counter(row[PUBLISHED]["status"] for row in rows)),
    }
    found |= compared(rows, PUBLISHED, "plugin")
    found |= compared(rows, "released_freezing", "plugin")
    found |= compared(rows, OWN, PUBLISHED)
    found |= compared(rows, OWN, "plugin")
    for variant in VARIANTS[1:]:
        found |= compared(rows, variant, PUBLISHED)
    return found


def main() -> None:
    """Search, rate, print, write."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"  # one core; set before NumPy is imported
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(searched(*sys.argv[2:4])))
        return
    parser = common.arguments(__doc__.splitlines()[0], halide_features.PROGRAMS)
    parser.add_argument("--kept", action="store_true", help="start no searches")
    args = parser.parse_args()
    kind = halide_learned_search.Kept if args.kept else common.Pieces
    pieces = kind(args.work, "halide_published_search", args.fresh)
    peer_pieces = kind(args.work, "peers", args.fresh, ours=False)
    rows = []
    for name in common.chosen(args, halide_features.PROGRAMS):
        row = row_of(name, pieces, peer_pieces, VARIANTS)
        rows.append(row)
        costs = [row[each].get("milliseconds") for each in ("plugin", OWN, *VARIANTS)]
        print(name, *map(common.shown, costs), row["plugin"]["status"], flush=True)
    common.write(args, "halide_published_search", rows, summary(rows), gpu=GPU)


if __name__ == "__main__":
    main()
