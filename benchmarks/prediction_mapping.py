"""Plans of graphs of kernels: against the optimum, against a lower bound, and as executed.

- `vs_optimum`: 100 random graphs of 8 kernels on 3 devices, local search against the proven
  optimum; `vs_bound`: graphs of 30 to 100 kernels against the lower bound. Graphs are those of
  Topcuoglu et al. (IEEE TPDS 13(3), 2002, section 5): their shape, the share of communication
  (0.1 to 1) and how unlike the devices are vary.
- `makespan_error`: this machine's first two cores as two devices, kernels by NumPy and SciPy,
  their times predicted by models trained on one core before. Mean of |executed / planned - 1|.

Usage: ``python benchmarks/prediction_mapping.py --part graphs``, then ``--part execution``; what
was done before is kept, and the result is written when both are there.
"""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import time
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import common
from tilewright.measure import Timing
from tilewright.measure.timing import median_of, time_runs
from tilewright.prediction.augmented import Augmented
from tilewright.prediction.mapping import (
    Device,
    Edge,
    Graph,
    Link,
    Platform,
    Task,
    cores_as_devices,
    execute,
    plan,
    predictor,
)
from tilewright.prediction.mapping.bound import lower_bound
from tilewright.prediction.mapping.exact import optimum
from tilewright.prediction.mapping.heft import heft, peft
from tilewright.prediction.mapping.improve import improve
from tilewright.prediction.mapping.instance import instance

DEVICES = 3
SMALL, SMALL_GRAPHS = 8, 100
LARGE, LARGE_GRAPHS = (30, 50, 75, 100), 6
EXECUTED, TRIES = 16, 3
TRAINED = 70
TIMING = Timing(min_samples=5, max_samples=15, seconds=0.15, sample_seconds=0.002)


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
        tasks.append(Task(f"t{i}", seconds, result_bytes=rng.uniform(0, 2.2) * traffic * 1e9))
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


def products(rng: np.random.Generator, n: int) -> tuple[Any, ...]:
    """A matrix, and one whose columns add up to one, so that products of products stay small."""
    b = rng.uniform(size=(n, n))
    return rng.uniform(size=(n, n)), b / b.sum(axis=0)


def multiply(a: Any, b: Any) -> Any:
    return a @ b


def add(a: Any, b: Any) -> Any:
    return np.sqrt(a * a + b * b)


def sparse_multiply(a: Any, b: Any) -> Any:
    return b @ a


def sparse(rng: np.random.Generator, n: int) -> Any:
    from scipy.sparse import random_array

    return random_array((n, n), density=0.02, format="csr", rng=rng)


KERNELS = {"product": multiply, "norm": add, "sparse product": sparse_multiply}
SIZES = (250, 700)


def operands(name: str, rng: np.random.Generator, n: int) -> tuple[Any, ...]:
    a, b = products(rng, n)
    return (a, sparse(rng, n)) if name == "sparse product" else (a, b)


def trained() -> dict[str, Augmented]:
    """A model of each kernel from runs on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [min(before)])
    models = {}
    for name, function in KERNELS.items():
        rng = np.random.default_rng(5)
        sizes = [*SIZES, *rng.integers(SIZES[0], SIZES[1], TRAINED)]
        seconds = []
        for n in sizes:
            args = operands(name, rng, int(n))
            seconds.append(median_of(time_runs(lambda f=function, a=args: f(*a), TIMING)))
        model = Augmented(features=("n",), complexity="n**3")
        models[name] = model.fit(np.array(sizes, dtype=float)[:, None], seconds)
    os.sched_setaffinity(0, before)
    return models


def workload(seed: int) -> tuple[Graph, dict[str, Any]]:
    """A graph of square kernels of one size, and their functions."""
    rng = random.Random(seed)
    data = np.random.default_rng(seed)
    count = rng.randint(10, 30)
    n = rng.randint(*SIZES)
    tasks, edges, work = [], [], {}
    first, second = products(data, n)
    thin = sparse(data, n)
    for i in range(count):
        name = rng.choice(list(KERNELS))
        takes = rng.sample(range(i), min(i, rng.randint(0, 2)))
        if name != "norm":
            takes = takes[:1]
        work[f"{i}"] = partial_work(name, first, second, thin)
        tasks.append(Task(f"{i}", kernel=name, query={"n": n}, result_bytes=8.0 * n * n))
        edges += [Edge(f"{j}", f"{i}") for j in takes]
    return Graph(tuple(tasks), tuple(edges)), work


def partial_work(name: str, first: Any, second: Any, thin: Any) -> Any:
    """The kernel of the results it is given, with what it lacks filled in."""

    def run(*given: Any) -> Any:
        a, b = (*given, second)[:2] if given else (first, second)
        if name == "product":
            b = second
        return KERNELS[name](a, thin if name == "sparse product" else b)

    return run


def execution() -> list[dict[str, Any]]:
    """Planned and executed makespans of graphs of kernels on two cores."""
    models = trained()
    platform = cores_as_devices(sorted(os.sched_getaffinity(0))[:2])
    predict = predictor({(k, d): m for k, m in models.items() for d in platform.names})
    rows = []
    for seed in range(EXECUTED):
        graph, work = workload(seed)
        found = plan(graph, platform, predict)
        execute(found, work)  # warm-up
        executed = [execute(found, work).makespan for _ in range(TRIES)]
        middle = statistics.median(executed)
        alone = sum(s.end - s.start for s in found.steps)
        row = {
            "kernels": len(graph.tasks),
            "n": graph.tasks[0].query["n"],
            "planned": found.makespan,
            "executed": middle,
            "tries": executed,
            "bound": found.bound,
            "one_core": alone,
            "error": abs(middle / found.makespan - 1),
        }
        rows.append(row)
        print({k: common.shown(v) for k, v in row.items() if k != "tries"}, flush=True)
    return rows


def main() -> None:
    parser = common.arguments(__doc__ or "", ["graphs", "execution"])
    parser.add_argument("--part", choices=["graphs", "execution"])
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    done = {}
    for name, part in (("graphs", graphs), ("execution", execution)):
        path = args.work / f"prediction_mapping-{name}.json"
        if args.part == name or (args.part is None and (args.fresh or not path.exists())):
            path.write_text(json.dumps(part()))
        if path.exists():
            done[name] = json.loads(path.read_text())
    if len(done) < 2:
        print("run the other part, too")
        return
    small = [r for r in done["graphs"] if "optimum" in r]
    large = [r for r in done["graphs"] if "optimum" not in r]
    to_optimum = [r["makespan"] / r["optimum"] for r in small]
    to_bound = [r["makespan"] / r["bound"] for r in large]
    runs = done["execution"]
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
    }
    rows = [*done["graphs"], *runs]
    common.write(args, "prediction_mapping", rows, summary)


if __name__ == "__main__":
    main()
