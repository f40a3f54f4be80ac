"""Plans of graphs of kernels: against the optimum, against a lower bound, and as executed.

- `vs_optimum`: 100 random graphs of 8 kernels on 3 devices, local search against the proven
  optimum; `vs_bound`: graphs of 30 to 100 kernels against the lower bound. Graphs are those of
  Topcuoglu et al. (IEEE TPDS 13(3), 2002, section 5): their shape, the share of communication
  (0.1 to 1) and how unlike the devices are vary.
- `makespan_error`: this machine's first two cores as two devices, kernels by NumPy and SciPy
  with one thread each, their times predicted by models of runs in other graphs. Mean of
  |executed / planned - 1|, the median of several executions each.

Usage: ``python benchmarks/prediction_mapping.py --part graphs``, then ``--part execution``; what
was done before is kept, and the result is written when both are there.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import os
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import common
from tilewright.mapping import (
    Device,
    Edge,
    Execution,
    Graph,
    GraphTask,
    Link,
    MappingPlan,
    PlanStep,
    Platform,
    cores_as_devices,
    execute,
    plan,
    predictor,
    task_seconds,
)
from tilewright.mapping.bound import lower_bound
from tilewright.mapping.exact import optimum
from tilewright.mapping.heft import heft, peft
from tilewright.mapping.improve import improve
from tilewright.mapping.instance import instance
from tilewright.prediction.data.work import OTHERS, TICKS, other_seconds
from tilewright.prediction.models.augmented import Augmented

DEVICES = 3
SMALL, SMALL_GRAPHS = 8, 100
LARGE, LARGE_GRAPHS = (30, 50, 75, 100), 6
EXECUTED, RUNS = 16, 15
# The largest block that the C library may keep, and how much it has from the start.
LARGEST_BLOCK, MEMORY = 32 << 20, 512 << 20
TRAINED, TRIES = 50, 5
# Seconds by which the training graphs are planned; only their order of size matters.
GUESSED = {"product": 6e-3, "norm": 1e-3, "sparse product": 1e-3}


def random_graph(count: int, seed: int) -> tuple[Graph, Platform, dict[str, float]]:
    """A graph and a machine; all that varies is drawn from the seed."""
    rng = random.Random(f"{count}, {seed}")
    shape, traffic = rng.choice([0.5, 1, 2]), rng.choice([0.1, 0.3, 1.0])
    unlike = rng.choice([0.25, 0.5, 1, 1.5])
    depth = max(1, round(math.sqrt(count) / shape))
    levels = sorted(rng.randrange(depth) for _ in range(count))
    tasks, edges = [], []
    for i in range(count):
        mean = rng.uniform(0.2, 2)
        seconds = {
            f"d{d}": mean * rng.uniform(max(0.02, 1 - unlike / 2), 1 + unlike / 2)
            for d in range(DEVICES)
        }
        tasks.append(GraphTask(f"t{i}", seconds, result_bytes=rng.uniform(0, 2.2) * traffic * 1e9))
        above = [j for j in range(i) if levels[j] < levels[i]]
        taken = rng.sample(above, min(len(above), rng.randint(1, 3)))
        edges += [Edge(f"t{j}", f"t{i}") for j in taken]
    devices = tuple(Device(f"d{d}") for d in range(DEVICES))
    told = {"shape": shape, "traffic": traffic, "unlike": unlike}
    return Graph(tuple(tasks), tuple(edges)), Platform(devices, link=Link(0, 1e9)), told


def graphs() -> list[dict[str, Any]]:
    """Local search against the optimum of small graphs and the bound of large ones."""
    rows = []
    cases = [(SMALL, i) for i in range(SMALL_GRAPHS)]
    cases += [(n, i) for n in LARGE for i in range(LARGE_GRAPHS)]
    for count, seed in cases:
        graph, platform, told = random_graph(count, seed)
        problem = instance(graph, platform)
        lists = [heft(problem), peft(problem)]
        began = time.process_time()
        found = improve(problem, lists)
        row = {
            "kernels": count,
            **told,
            "makespan": found.makespan,
            "bound": lower_bound(problem),
            "heft": lists[0].makespan,
            "peft": lists[1].makespan,
            "cpu_seconds": time.process_time() - began,
        }
        if count == SMALL:
            row["optimum"] = optimum(problem, found).makespan
        rows.append(row)
    return rows


def keep_memory() -> None:
    """Have the C library keep what is freed, for whichever thread asks next.

    Otherwise every result is made of fresh pages, whose zeroing takes longer than a small
    kernel and varies. Call it before threads are started.
    """
    arenas, trim, mapped = -8, -1, -3
    libc = ctypes.CDLL(None)
    for parameter, value in ((arenas, 1), (trim, 1 << 30), (mapped, LARGEST_BLOCK)):
        libc.mallopt(parameter, value)
    # Pages are there before the first plan is executed.
    blocks = [np.ones(LARGEST_BLOCK // 10) for _ in range(MEMORY // LARGEST_BLOCK)]
    del blocks


def multiply(a: Any, b: Any) -> Any:
    return a @ b


def norm(a: Any, b: Any) -> Any:
    return np.sqrt(a * a + b * b)


def sparse_multiply(a: Any, b: Any) -> Any:
    return b @ a


KERNELS = {"product": multiply, "norm": norm, "sparse product": sparse_multiply}
SIZES = (300, 800)


class Operands:
    """The inputs of tasks of a size, apart from others' results."""

    def __init__(self, n: int, seed: int) -> None:
        from scipy.sparse import random_array

        rng = np.random.default_rng(seed)
        b = rng.uniform(size=(n, n))
        self.n, self.first = n, rng.uniform(size=(n, n))
        # Its columns add up to one, so that products of products stay small.
        self.second = b / b.sum(axis=0)
        self.thin = random_array((n, n), density=0.02, format="csr", rng=rng)

    def work(self, name: str) -> Any:
        """The kernel as a function of the results it needs, what it lacks filled in."""
        run, second = KERNELS[name], self.thin if name == "sparse product" else self.second

        def call(*given: Any) -> Any:
            if name == "norm":
                return run(*(*given, self.first, second)[:2])
            return run(given[0] if given else self.first, second)

        return call


def undisturbed(
    plans: Sequence[tuple[MappingPlan, dict[Any, Any]]], count: int
) -> list[tuple[float, list[Execution]]]:
    """Rounds in which all plans are executed in turn, the `count` least disturbed of them.

    With each the share of a CPU that other processes used. More rounds are executed while too
    few were undisturbed, up to three times as many. A plan is executed twice a round, the first
    time to warm up.
    """
    rounds: list[tuple[float, list[Execution]]] = []
    while len(rounds) < 3 * count and sum(share <= OTHERS for share, _ in rounds) < count:
        others, began = other_seconds(), time.perf_counter()
        done = []
        for found, work in plans:
            execute(found, work)
            done.append(execute(found, work))
        share = max(0.0, other_seconds() - others - TICKS) / (time.perf_counter() - began)
        rounds.append((share, done))
    return sorted(rounds, key=lambda r: r[0])[:count]


def trained(platform: Platform) -> tuple[dict[str, Augmented], dict[str, Any]]:
    """A model of each kernel from executions of other graphs, and how well it fits.

    Cores share caches, memory, and power, and operands come from the other core's cache: a
    kernel alone on the machine, its operands in its cache, is faster than in a plan.
    """
    graphs = [workload(1000 + seed) for seed in range(TRAINED)]
    plans = [plan(graph, platform, lambda t, _: GUESSED[t.kernel]) for graph, _ in graphs]
    tries: list[list[dict[str, float]]] = [[] for _ in plans]
    for _, done in undisturbed(
        [(found, work) for found, (_, work) in zip(plans, graphs, strict=True)], TRIES
    ):
        for place, execution in enumerate(done):
            tries[place].append(task_seconds(plans[place], execution))
    rows: list[tuple[str, float, float]] = []
    for (graph, _), taken in zip(graphs, tries, strict=True):
        for task in graph.tasks:
            middle = statistics.median(t[task.name] for t in taken)
            rows.append((task.kernel, task.query["n"], middle))
    models, told = {}, {}
    for name in KERNELS:
        table = np.array([[n] for kernel, n, _ in rows if kernel == name], dtype=float)
        seconds = np.array([s for kernel, _, s in rows if kernel == name])
        models[name] = Augmented(features=("n",), complexity="n**3").fit(table, seconds)
        residual = models[name].predict(table) / seconds - 1
        told[name] = {
            "runs": len(table),
            "median_residual": float(np.median(abs(residual))),
            "predicted_over_measured": float(models[name].predict(table).sum() / seconds.sum()),
        }
    return models, told


def handing_on(platform: Platform) -> float:
    """Seconds from the end of a task to the start of one on the other device that needs it."""
    count, devices = 400, platform.names
    tasks = tuple(GraphTask(f"{i}") for i in range(count))
    edges = tuple(Edge(f"{i}", f"{i + 1}") for i in range(count - 1))
    steps = tuple(PlanStep(f"{i}", devices[i % len(devices)], 0.0, 0.0) for i in range(count))
    given = MappingPlan(Graph(tasks, edges), platform, steps, 0.0, False, "given")
    work: dict[str, Any] = {f"{i}": lambda *_: None for i in range(count)}
    done = execute(given, work).steps
    return statistics.median(b.start - a.end for a, b in itertools.pairwise(done))


def workload(seed: int) -> tuple[Graph, dict[str, Any]]:
    """A graph of square kernels of one size, and their functions."""
    rng = random.Random(seed)
    count, n = rng.randint(10, 30), rng.randint(*SIZES)
    data = Operands(n, seed)
    tasks, edges, work = [], [], {}
    for i in range(count):
        name = rng.choice(list(KERNELS))
        takes = rng.sample(range(i), min(i, rng.randint(0, 2)))
        if name != "norm":
            takes = takes[:1]
        work[f"{i}"] = data.work(name)
        tasks.append(GraphTask(f"{i}", kernel=name, query={"n": n}, result_bytes=8.0 * n * n))
        edges += [Edge(f"{j}", f"{i}") for j in takes]
    return Graph(tuple(tasks), tuple(edges)), work


def executed(plans: Sequence[tuple[MappingPlan, dict[Any, Any]]]) -> list[dict[str, Any]]:
    """Each plan's makespan as planned and as executed.

    All plans are executed in turn, so that what disturbs the machine for a while does not meet
    one of them every time.
    """
    rounds = undisturbed(plans, RUNS)
    rows = []
    for place, (found, _) in enumerate(plans):
        runs = [done[place] for _, done in rounds]
        tries = [d.makespan for d in runs]
        middle = statistics.median(tries)
        taken = [task_seconds(found, d) for d in runs]
        lasts = {s.task: s.end - s.start for s in found.steps}
        row = {
            "planned": found.makespan,
            "executed": middle,
            "error": abs(middle / found.makespan - 1),
            "tries": tries,
            "others": max(share for share, _ in rounds),
            "bound": found.bound,
            "one_core": sum(lasts.values()),
            "tasks_over_predicted": {
                t: statistics.median(row[t] for row in taken) / seconds
                for t, seconds in lasts.items()
            },
        }
        rows.append(row)
    return rows


def execution() -> dict[str, Any]:
    """Planned and executed makespans of graphs of kernels on two cores."""
    cores = cores_as_devices(sorted(os.sched_getaffinity(0))[:2])
    latency = handing_on(cores)
    platform = Platform(cores.devices, link=Link(latency))
    models, told = trained(platform)
    predict = predictor({(k, d): m for k, m in models.items() for d in platform.names})
    graphs = [workload(seed) for seed in range(EXECUTED)]
    rows = executed([(plan(graph, platform, predict), work) for graph, work in graphs])
    for (graph, _), row in zip(graphs, rows, strict=True):
        row.update(kernels=len(graph.tasks), n=graph.tasks[0].query["n"])
        shown = {k: common.shown(v) for k, v in row.items() if isinstance(v, float | int)}
        print(shown, flush=True)
    return {
        "rows": rows,
        "models": told,
        "handing_on_seconds": latency,
        "introduction": introduction(platform),
    }


def introduction(platform: Platform) -> dict[str, Any]:
    """The example of the paper's introduction, a small and a large product at once.

    A GPU is faster at both. Its part has a core with OpenBLAS, and the CPU's one with uBLAS;
    the small product belongs on the slow device, so that the fast one is free for the large.
    """
    from tilewright.prediction.kernels import kernel

    slow, fast = platform.names
    sizes = {"small": 150, "large": 1000}
    ublas = kernel("matmul").variant("ublas_dense")
    ways = {slow: lambda a, b: ublas.prepare({"a": a, "b": b})(), fast: multiply}
    rng = np.random.default_rng(0)
    data = {t: (rng.uniform(size=(n, n)), rng.uniform(size=(n, n))) for t, n in sizes.items()}
    work = {
        (task, device): functools.partial(run, *data[task])
        for task in sizes
        for device, run in ways.items()
    }
    seconds: dict[str, dict[str, float]] = {}
    for task in sizes:
        for device in platform.names:
            graph = Graph((GraphTask(task, {device: 1.0}),))
            alone = plan(graph, platform)
            execute(alone, work)
            spans = [execute(alone, work).makespan for _ in range(3)]
            seconds.setdefault(task, {})[device] = statistics.median(spans)
    graph = Graph(tuple(GraphTask(t, seconds[t], "matmul", {"n": n}) for t, n in sizes.items()))
    found = plan(graph, platform)
    return {
        "sizes": sizes,
        "seconds": {t: {"slow": s[slow], "fast": s[fast]} for t, s in seconds.items()},
        "placed": {t: "slow" if found.device_of(t) == slow else "fast" for t in sizes},
        "all_on_the_fast": sum(s[fast] for s in seconds.values()),
        **executed([(found, work)])[0],
    }


def main() -> None:
    parser = common.arguments(__doc__ or "", ["graphs", "execution"])
    parser.add_argument("--part", choices=["graphs", "execution"])
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    keep_memory()
    pieces = common.Pieces(args.work, "prediction_mapping", args.fresh)
    parts = {"graphs": graphs, "execution": execution}
    if args.part is not None:
        pieces.get(args.part, parts[args.part])
        if not all(map(pieces.has, parts)):
            print("run the other part, too")
            return
    done = {name: pieces.get(name, part) for name, part in parts.items()}
    small = [r for r in done["graphs"] if "optimum" in r]
    large = [r for r in done["graphs"] if "optimum" not in r]
    to_optimum = [r["makespan"] / r["optimum"] for r in small]
    to_bound = [r["makespan"] / r["bound"] for r in large]
    told = done["execution"]
    runs = told.pop("rows")
    summary = {
        "vs_optimum": statistics.mean(to_optimum),
        "vs_optimum_worst": max(to_optimum),
        "vs_optimum_heft": statistics.mean(r["heft"] / r["optimum"] for r in small),
        "vs_bound": statistics.mean(to_bound),
        "vs_bound_worst": max(to_bound),
        "vs_bound_heft": statistics.mean(r["heft"] / r["bound"] for r in large),
        "cpu_seconds_large": statistics.mean(r["cpu_seconds"] for r in large),
        "makespan_error": statistics.mean(r["error"] for r in runs),
        "makespan_error_worst": max(r["error"] for r in runs),
        "speedup_of_two_cores": common.geometric_mean(r["one_core"] / r["executed"] for r in runs),
        "introduction_error": told["introduction"]["error"],
        "introduction_small_on_slow": told["introduction"]["placed"]["small"] == "slow",
        "introduction_speedup": told["introduction"]["all_on_the_fast"]
        / told["introduction"]["executed"],
    }
    rows = [*done["graphs"], *runs]
    common.write(args, "prediction_mapping", rows, summary, **told)


if __name__ == "__main__":
    main()
