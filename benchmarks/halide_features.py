"""The published features and networks against Halide's plugins, and how fast they are here.

For each of 40 programs (the 18 of ``examples/`` and 22 of ``strangers/``) the plugins Adams2019
and Anderson2021 make schedules, `SCHEDULES` each: the first with their own choice at every step,
the others with steps left out at random, so that the schedules differ. Each schedule is read back,
its features are computed by Tilewright, and they are compared with those that the plugin gives,
stage by stage. Features of the definitions (40 x 7 counts a stage, most of them 0) are compared
apart, and only where ours or the plugin's is not 0.

- ``plugin_agreement_adams2019``, ``plugin_agreement_anderson2021``: of all pairs of a stage and a
  schedule feature (39 and 73 a stage), the share within 1%. Every stage of every schedule that a
  plugin made counts, inlined ones too; a schedule of ours that fails counts as wrong in every pair.
- ``algorithm_agreement``: of the counts of definitions that are not 0 on both sides, the share
  within 1%, each definition once.
- ``cost_within_1_percent``: of the schedules, the share for which the plugin's network, with the
  weights in the plugin, gives the same cost within 1% for our features as for the plugin's.
- ``held_out``: the same for ``strangers/`` alone. They had no part in finding mistakes until they
  were looked at once: 99.61% and 99.79% of the pairs agreed. What differed was repaired afterwards.
- ``no_schedule``: searches of a plugin that gave none (crash, error or no time left).
- ``by_feature``: the share of each feature that is not right everywhere.
- ``featurised_per_second``: rows of sizes per CPU second on one core, features and network of
  Adams 2019 for all stages, of one structure with 1024 rows; the mean over the 18 programs, for
  the plugin's first schedule.
- ``structures_per_second``: the same for single schedules, each read again; the mean over the
  18 programs, for the plugin's schedules of each. What is known of a pipeline without its schedule
  is kept, but nothing from one schedule to the next.
- ``least_`` and ``together_`` of these two: the slowest program, and as many rows of each program
  over the time of all.
"""

from __future__ import annotations

import base64
import os
import time
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from typing import Any

# Speeds are those of one core: NumPy reads this when it starts its threads.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402

import common  # noqa: E402

ROWS = 1024
SCHEDULES = 4
CPU_SECONDS = 60.0
WITHIN = 0.01
# Machines of the searches: the second makes coarser tasks. The target is fixed, so that the
# lanes of a vector do not depend on the machine that this runs on.
CORES = (4, 16)
SMS = (80, 16)
TARGETS = {
    "Adams2019": "x86-64-linux-avx-avx2-f16c-fma-sse41",
    "Anderson2021": "x86-64-linux-avx-avx2-f16c-fma-sse41-cuda-cuda_capability_70",
}
REGISTER_BYTES = 32
SPEED_SECONDS = 1.0
LEAST_TIMES = 3
SEED = 20240611
# As in ``halide_nest``, which drew them before any was compared.
STRANGERS = "max_pool softmax gemv resize_linear_down haar gaussian9 summed_area opening".split()


def drawn() -> list[str]:
    """The programs of ``strangers/`` that are used."""
    import halide_nest

    return [*(f"stranger_{name}" for name in STRANGERS), *halide_nest.HELD_OUT]


PLUGINS = ("Adams2019", "Anderson2021")
PROGRAMS: list[str] = [*common.PROGRAMS, *drawn()]


@cache
def algorithm_of(name: str) -> Any:
    """A program at full size, with estimates of all its outputs and inputs."""
    from tilewright.halide.schedulers.task import make_task

    if name in common.PROGRAMS:
        return make_task(common.build(name), name=name).algorithm
    from strangers import PROGRAMS as strangers

    program = strangers[name.removeprefix("stranger_")].pipeline(small=False)
    return make_task(program, name=name).algorithm


def parameters(plugin: str, index: int) -> dict[str, str]:
    """The settings of one search."""
    which = index % 2
    found = {"beam_size": "1"}
    if plugin == "Adams2019":
        found["parallelism"] = str(CORES[which])
    else:
        found |= {"parallelism": str(SMS[which]), "randomize_tilings": "1"}
        found |= {"shared_memory_limit_kb": "48", "shared_memory_sm_limit_kb": "96"}
    if index:
        found |= {"random_dropout": "20", "random_dropout_seed": str(index)}
    return found


def searched(pieces: common.Pieces, name: str, plugin: str, index: int) -> dict[str, Any]:
    """What a plugin makes of a program: its status, the scheduled bytes and the features."""
    from tilewright.halide.execution.session import make_inputs
    from tilewright.halide.schedulers.halide_autoschedulers import Peer, run_peers

    def search() -> dict[str, Any]:
        algorithm = algorithm_of(name)
        peer = Peer(plugin, plugin, parameters(plugin, index))
        (made,) = run_peers(
            algorithm,
            make_inputs(algorithm),
            [peer],
            target=TARGETS[plugin],
            cpu_seconds=CPU_SECONDS,
        )
        serialized = base64.b64encode(made.serialized or b"").decode()
        return {
            "status": made.status,
            "message": made.message[:300],
            "serialized": serialized,
            "featurization": made.featurization,
        }

    found: dict[str, Any] = pieces.get(f"{name}-{plugin}-{index}", search)
    return found


def names_of(plugin: str) -> tuple[str, ...]:
    """The names of a plugin's schedule features."""
    from tilewright.halide.schedulers.learned.published import cpu_features, gpu_features

    return cpu_features.NAMES if plugin == "Adams2019" else gpu_features.NAMES


def features_of(name: str, plugin: str, schedule: Any, parallel: int, factors: Any = None) -> Any:
    """Our features of a schedule: shape (rows, stages, features)."""
    from tilewright.halide.schedulers.learned.published.cpu_features import cpu_features
    from tilewright.halide.schedulers.learned.published.gpu_features import GpuLimits, gpu_features

    pipeline = pipeline_of(name, plugin)
    if plugin == "Adams2019":
        return cpu_features(pipeline, schedule, factors, cores=parallel).values
    return gpu_features(pipeline, schedule, factors, limits=GpuLimits(sms=parallel)).values


def cost(plugin: str, counts: Any, features: Any, parallel: int) -> Any:
    """The plugin's prediction for features, in milliseconds."""
    from tilewright.halide.schedulers.learned.published import network

    predicted = network.predicted_cpu if plugin == "Adams2019" else network.predicted_gpu
    return predicted(weights_of(plugin), counts, features, parallel)


@cache
def pipeline_of(name: str, plugin: str) -> Any:
    """A program as the plugin sees it."""
    from tilewright.halide.schedulers.learned.published.gpu_features import gpu_pipeline
    from tilewright.halide.schedulers.learned.published.pipeline import Pipeline

    if plugin == "Adams2019":
        return Pipeline(algorithm_of(name), REGISTER_BYTES)
    return gpu_pipeline(algorithm_of(name))


@cache
def weights_of(plugin: str) -> Any:
    """The weights in a plugin of the wheel."""
    from tilewright.halide.schedulers.halide_autoschedulers import plugin_path
    from tilewright.halide.schedulers.learned.published.weights import embedded_weights

    return embedded_weights(plugin_path(plugin))


def table_of(made: dict[str, Any], features: int) -> tuple[Any, Any]:
    """The plugin's schedule features and counts of definitions, a row a stage."""
    data = np.frombuffer(base64.b64decode(made["featurization"]), np.float32)
    # Between the two is which of the 7 types are in use.
    rows = data.astype(float).reshape(-1, features + 7 + 280)
    return rows[:, :features], rows[:, features + 7 :]


def near(ours: Any, theirs: Any) -> Any:
    """Where two arrays agree."""
    return np.abs(ours - theirs) <= WITHIN * np.maximum(np.abs(ours), np.abs(theirs))


def parallelism(plugin: str, index: int) -> int:
    """The cores or SMs of a search."""
    return int(parameters(plugin, index)["parallelism"])


def ours_of(name: str, plugin: str, index: int, made: dict[str, Any]) -> Any:
    """Our features of a plugin's schedule, a row a stage."""
    from tilewright.halide.frontend.given import read_schedule

    schedule = read_schedule(base64.b64decode(made["serialized"])).schedule
    return features_of(name, plugin, schedule, parallelism(plugin, index))[0]


def compared(name: str, plugin: str, index: int, made: dict[str, Any]) -> dict[str, Any]:
    """How many features of one schedule agree, and which do not."""
    names = names_of(plugin)
    theirs, counts = table_of(made, len(names))
    try:
        ours = ours_of(name, plugin, index, made)
        if ours.shape != theirs.shape:
            raise ValueError(f"{ours.shape[0]} stages instead of {theirs.shape[0]}")
    except Exception as error:  # recorded as wrong in every pair
        return {
            "pairs": theirs.size,
            "agree": 0,
            "wrong": dict.fromkeys(names, len(theirs)),
            "stages": len(theirs),
            "failed": f"{type(error).__name__}: {error}"[:300],
        }
    right = near(ours, theirs)
    definitions = counts.reshape(-1, 40, 7)
    parallel = parallelism(plugin, index)
    costs = [cost(plugin, definitions, f[None], parallel)[0] for f in (ours, theirs)]
    return {
        "pairs": right.size,
        "agree": int(right.sum()),
        "wrong": {n: int(c) for n, c in zip(names, (~right).sum(axis=0), strict=True) if c},
        "stages": len(theirs),
        "cost_ratio": float(costs[0] / costs[1]) if costs[1] else None,
    }


def definitions(name: str, plugin: str, made: dict[str, Any]) -> dict[str, int]:
    """How many counts of definitions agree, of those that are not 0 on both sides."""
    from tilewright.halide.schedulers.learned.published.algorithm_features import (
        algorithm_features,
    )

    _, theirs = table_of(made, len(names_of(plugin)))
    ours = algorithm_features(pipeline_of(name, plugin)).reshape(len(theirs), -1)
    some = (ours != 0) | (theirs != 0)
    return {"counts": int(some.sum()), "agree": int((near(ours, theirs) & some).sum())}


def agreement(made: list[dict[str, Any]], name: str, plugin: str) -> dict[str, Any]:
    """All schedules of one program by one plugin."""
    found = [
        {"index": i, **compared(name, plugin, i, m)}
        for i, m in enumerate(made)
        if m["status"] == "ok"
    ]
    failed = [f"{m['status']}: {m['message']}" for m in made if m["status"] != "ok"]
    first = next((m for m in made if m["status"] == "ok"), None)
    result: dict[str, Any] = {"schedules": found, "no_schedule": failed}
    if first is not None:
        result["definitions"] = definitions(name, plugin, first)
    return result


def per_second(evaluate: Callable[[], object], rows: int) -> float:
    """Rows per CPU second: the best of several evaluations."""
    best, spent, times = float("inf"), 0.0, 0
    evaluate()
    while times < LEAST_TIMES or spent < SPEED_SECONDS:
        began = time.process_time()
        evaluate()
        taken = time.process_time() - began
        best, spent, times = min(best, taken), spent + taken, times + 1
    return rows / best


def measured(made: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The speeds, or why there are none: a failure of ours is a result too."""
    try:
        return speed(made, name)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"[:300]}


def speed(made: list[dict[str, Any]], name: str) -> dict[str, float]:
    """Rows of sizes, and structures, per CPU second."""
    from tilewright.halide.frontend.given import read_schedule
    from tilewright.halide.ir.schedule import Split
    from tilewright.halide.schedulers.learned.published.algorithm_features import (
        algorithm_features,
    )

    plugin = "Adams2019"
    schedules = [
        read_schedule(base64.b64decode(m["serialized"])).schedule
        for m in made
        if m["status"] == "ok"
    ]
    counts = algorithm_features(pipeline_of(name, plugin))
    random = np.random.default_rng(SEED)
    factors = {
        (e, s, i): change.factor * random.choice([1.0, 2.0, 4.0], ROWS)
        for e, entry in enumerate(schedules[0].funcs)
        for s, nest in enumerate(entry.stages)
        for i, change in enumerate(nest.splits)
        if isinstance(change, Split)
    }

    def rows() -> object:
        found = features_of(name, plugin, schedules[0], CORES[0], factors)
        return cost(plugin, counts, found, CORES[0])

    def structures() -> object:
        return [
            cost(plugin, counts, features_of(name, plugin, s, CORES[0]), CORES[0])
            for s in schedules
        ]

    return {
        "rows_per_second": per_second(rows, ROWS),
        "structures_per_second": per_second(structures, len(schedules)),
    }


def main() -> None:
    """Search, compare, measure, print, write."""
    parser = common.arguments(__doc__.splitlines()[0], PROGRAMS)
    parser.add_argument("--prepare", action="store_true", help="only search the plugins' schedules")
    parser.add_argument("--plugin", choices=PLUGINS, help="only this one")
    args = parser.parse_args()
    plugins = [args.plugin] if args.plugin else list(PLUGINS)
    searches = common.Pieces(args.work, "halide_features_plugins", args.fresh, ours=False)
    pieces = common.Pieces(args.work, "halide_features", args.fresh)
    rows = []
    for name in common.chosen(args, PROGRAMS):
        row: dict[str, Any] = {"program": name, "held_out": name.startswith("stranger_")}
        for plugin in plugins:
            made = [searched(searches, name, plugin, i) for i in range(SCHEDULES)]
            if args.prepare:
                print(name, plugin, [m["status"] for m in made], flush=True)
                continue
            row[plugin] = pieces.get(f"{name}-{plugin}", partial(agreement, made, name, plugin))
            if plugin == "Adams2019" and name in common.PROGRAMS and any_ok(made):
                row["speed"] = pieces.get(f"{name}-speed", partial(measured, made, name))
        rows.append(row)
        if not args.prepare:
            print(name, {p: share(row[p]["schedules"]) for p in plugins}, flush=True)
    if not args.prepare:
        common.write(args, "halide_features", rows, summary(rows, plugins))


def any_ok(made: list[dict[str, Any]]) -> bool:
    """Whether a plugin made a schedule."""
    return any(m["status"] == "ok" for m in made)


def share(schedules: list[dict[str, Any]]) -> float | None:
    """Of all pairs, those that agree."""
    pairs = sum(s["pairs"] for s in schedules)
    return sum(s["agree"] for s in schedules) / pairs if pairs else None


def summary(rows: list[dict[str, Any]], plugins: list[str]) -> dict[str, Any]:
    """The figures of the claim."""
    result: dict[str, Any] = {"programs": len(rows)}
    for plugin in plugins:
        parts = [row[plugin] for row in rows]
        slug = plugin.lower()
        result[f"plugin_agreement_{slug}"] = share([s for p in parts for s in p["schedules"]])
        result[slug] = of_plugin(plugin, rows)
    every = [row["speed"] for row in rows if "speed" in row]
    speeds = [s for s in every if "failed" not in s]
    result["speed_failures"] = len(every) - len(speeds)
    for key, name in (
        ("featurised_per_second", "rows_per_second"),
        ("structures_per_second", "structures_per_second"),
    ):
        result[key] = float(np.mean([s[name] for s in speeds])) if speeds else None
        result[f"least_{key}"] = min((s[name] for s in speeds), default=None)
        if speeds:
            result[f"together_{key}"] = len(speeds) / sum(1 / s[name] for s in speeds)
    return result


def of_plugin(plugin: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What is known of one plugin."""
    parts = [row[plugin] for row in rows]
    schedules = [s for part in parts for s in part["schedules"]]
    stages = sum(s["stages"] for s in schedules)
    wrong: Counter[str] = Counter()
    for schedule in schedules:
        wrong.update(schedule["wrong"])
    counts = [part["definitions"] for part in parts if "definitions" in part]
    ratios = [s.get("cost_ratio") for s in schedules]
    held = [s for row in rows if row["held_out"] for s in row[plugin]["schedules"]]
    every = sum(c["counts"] for c in counts)
    return {
        "schedules": len(schedules),
        "stages": stages,
        "pairs": sum(s["pairs"] for s in schedules),
        "failed": sum("failed" in s for s in schedules),
        "no_schedule": sum(len(part["no_schedule"]) for part in parts),
        "algorithm_agreement": sum(c["agree"] for c in counts) / every if every else None,
        "cost_within_1_percent": sum(r is not None and abs(r - 1) <= WITHIN for r in ratios)
        / max(1, len(ratios)),
        "held_out": share(held),
        "held_out_schedules": len(held),
        "by_feature": {
            name: round(1 - wrong[name] / stages, 4) for name, _ in wrong.most_common() if stages
        },
    }


if __name__ == "__main__":
    main()
