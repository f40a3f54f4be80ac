"""What a prediction costs: in batches of 1000, for a single query from Python, in exported C.

The models are fitted to 250 made-up matrix products. ``us_dispatch`` and ``us_dispatch_new`` are
a dispatched call on top of its work, of a shape seen before and (for each variant) of a new one.
Run it on an idle machine.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import common
from tilewright.prediction import (
    LRC,
    NLRC,
    NN,
    NNC,
    Augmented,
    Boosted,
    C,
    GaussianProcess,
    compile_single,
    export_c,
)

FEATURES = ("m", "n", "k", "d1", "d2", "threads")
REPEATS = 15
PROGRAM = r"""
#include <stdio.h>
#include <time.h>
#include "model.h"
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * t.tv_sec + t.tv_nsec;
}
int main(void) {
    static double q[1000][6];
    for (int i = 0; i < 1000; ++i)
        for (int j = 0; j < 6; ++j)
            if (scanf("%lf", &q[i][j]) != 1) return 1;
    double best = 1e30, sum = 0.0;
    for (int repeat = 0; repeat < 15; ++repeat) {
        const double start = now();
        for (int i = 0; i < 1000; ++i)
            sum += predict_seconds(q[i][0], q[i][1], q[i][2], q[i][3], q[i][4], q[i][5]);
        const double spent = (now() - start) / 1000;
        if (spent < best) best = spent;
    }
    printf("%.17g %.17g\n", best, sum / 15000);
    return 0;
}
"""


def products(count: int, seed: int) -> tuple[Any, Any]:
    """Matrix products with densities and threads, and what they might take."""
    random = np.random.default_rng(seed)
    m, n, k = random.integers(1, 1025, (3, count))
    d1, d2 = 2.0 ** -random.integers(0, 10, (2, count))
    threads = random.integers(1, 9, count)
    work = m * n * k * d1 * d2
    seconds = 3e-6 + 4e-10 * work / threads + 1e-9 * (m * k * d1 + k * n * d2) + 1e-6 * threads
    seconds *= np.where(m * k * d1 > 1e5, 1.4, 1.0) * np.exp(0.02 * random.normal(size=count))
    return np.stack([m, n, k, d1, d2, threads], axis=1).astype(float), seconds


def best(call: Callable[[], Any], calls: int = 1) -> float:
    """Microseconds of a call, the best of some repeats."""
    call()
    spent = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        spent.append((time.perf_counter() - start) / calls)
    return 1e6 * min(spent)


def in_c(model: Any, queries: Any) -> tuple[float, float] | None:
    """Nanoseconds a query in C, and the largest relative difference from Python's mean."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "model.h").write_text(export_c(model))
        (place / "main.c").write_text(PROGRAM)
        command = [compiler, "-O2", "-o", "main", "main.c", "-lm"]
        subprocess.run(command, cwd=place, check=True)
        text = "\n".join(" ".join(map(repr, query)) for query in queries.tolist())
        done = subprocess.run(
            [place / "main"], input=text, capture_output=True, text=True, check=True
        )
    nanoseconds, mean = map(float, done.stdout.split())
    return nanoseconds, abs(mean / float(model.predict(queries).mean()) - 1)


def row(kind: Any, X: Any, y: Any, queries: Any) -> dict[str, Any]:
    """One model's costs."""
    model = kind(features=FEATURES, complexity="m*n*k", folds=0).fit(X, y)
    single = compile_single(model)
    asked = queries[:100].tolist()

    def one_by_one() -> None:
        for query in asked:
            single(*query)

    c = in_c(model, queries)
    return {
        "model": kind.__name__,
        "fitted_numbers": model.parameter_count_,
        "us_batch": best(lambda: model.predict(queries)) / len(queries),
        "us_single": best(one_by_one) / len(asked),
        "us_single_array": best(lambda: model.predict(queries[:1]), 20),
        "ns_c": None if c is None else c[0],
        "c_differs": None if c is None else c[1],
    }


def scikit_forest(X: Any, y: Any, queries: Any) -> dict[str, Any]:
    """Scikit-learn's own inference of the random forest, as a user would call it."""
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(n_estimators=100, random_state=0).fit(X, y)
    alone = best(lambda: forest.predict(queries[:1]))
    return {
        "model": "RandomForestRegressor",
        "fitted_numbers": sum(tree.tree_.node_count for tree in forest.estimators_),
        "us_batch": best(lambda: forest.predict(queries)) / len(queries),
        "us_single": alone,
        "us_single_array": alone,
        "ns_c": None,
        "c_differs": None,
    }


def main() -> None:
    args = common.arguments(__doc__ or "", ["nothing"]).parse_args()
    X, y = products(250, 0)
    queries, _ = products(1000, 1)
    kinds = (Augmented, NNC, NN, C, LRC, NLRC, Boosted, GaussianProcess)
    rows = [row(kind, X, y, queries) for kind in kinds]
    rows.append(scikit_forest(X, y, queries))
    columns = list(rows[0])
    common.print_table(columns, [[r[c] for c in columns] for r in rows])
    ours, forest = rows[0], rows[-1]
    summary = {
        "us_batch": ours["us_batch"],
        "us_single": ours["us_single"],
        "ns_c": ours["ns_c"],
        "forest_us_batch": forest["us_batch"],
        "forest_us_single": forest["us_single"],
        "max_c_difference": max(r["c_differs"] for r in rows if r["c_differs"] is not None),
    }
    summary.update(dispatch())
    common.write(args, "prediction_latency", rows, summary)


def dispatch() -> dict[str, float]:
    """What a dispatched call adds, of a seen and of a new shape; the median of three."""
    from prediction_dispatch_latency import latency, toy_dispatcher

    found = [latency(toy_dispatcher()) for _ in range(3)]
    return {key: statistics.median(f[key] for f in found) for key in found[0]}


if __name__ == "__main__":
    main()
