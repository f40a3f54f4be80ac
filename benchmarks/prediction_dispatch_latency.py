"""The cost of a dispatched call on top of its work: for other benchmarks to import.

`latency` times a dispatcher of matrix products, `toy_dispatcher` makes one whose variants do
nothing from models fitted to made-up times.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

REPEATS = 9


def latency(call: Any, calls: int = 2000) -> dict[str, float]:
    """Microseconds of a call whose signature was seen, and of a new one by route.

    Every route is replaced by one that does nothing. Operands are dense and sparse 200 x 200
    matrices of float64, the slower kind counts. New shapes are asked one by one, each once.
    """
    from scipy.sparse import csr_array

    from tilewright.prediction.decisions.dispatcher import Dispatcher

    bare = Dispatcher(
        {name: lambda *args: None for name in call.routes},
        call._forecast,
        default=call.default,
        samples=call._samples,
        size=100_000,
        with_signature=call._with_signature,
    )
    rng = np.random.default_rng(0)
    a, b = rng.uniform(size=(200, 200)), rng.uniform(size=(200, 200))
    c, d = (csr_array(np.where(x < 0.02, x, 0.0)) for x in (a, b))
    seen = max(_median_of_best(bare, pair, calls) for pair in ((a, b), (c, d), (c, b)))
    nothing = _median_of_best(lambda *args: None, (a, b), calls)
    return {
        "us_dispatch": 1e6 * (seen - nothing),
        "us_dispatch_new": 1e6 * (_new(bare, a) - nothing) / variants(call),
        "routes": float(len(call.routes)),
    }


def variants(call: Any) -> int:
    """How many routes there are; a variant counts once for each of its settings."""
    return len(call.routes)


def _median_of_best(call: Any, args: tuple[Any, ...], calls: int) -> float:
    """Seconds of a call: the median over repeats of the mean of many."""
    call(*args)
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        for _ in range(calls):
            call(*args)
        found.append((time.perf_counter() - began) / calls)
    return statistics.median(found)


def _new(call: Any, a: np.ndarray[Any, Any]) -> float:
    """Seconds of a call whose shapes are new: the median over many shapes."""
    pairs = [(a[:, :n].copy(), a[:n, :m].copy()) for n in range(60, 100) for m in range(60, 90)]
    found = []
    for pair in pairs:
        began = time.perf_counter()
        call(*pair)
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def toy_dispatcher(variants: int = 4) -> Any:
    """A dispatcher of products over models of 75 numbers fitted to made-up times."""
    from tilewright.prediction import Augmented
    from tilewright.prediction.decisions.dispatcher import Dispatcher, by_models
    from tilewright.prediction.decisions.signature import GLANCE, outline

    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 513, (250, 3)).astype(float)
    table = np.column_stack([sizes, 2.0 ** -rng.uniform(0, 15, (250, 2))])
    models = {}
    for i in range(variants):
        seconds = 1e-6 + 1e-9 * (i + 1) * sizes.prod(axis=1) * table[:, 3] ** (i / variants)
        model = Augmented(features=("m", "n", "k", "d1", "d2"), complexity="m*n*k", folds=0)
        models[f"variant {i}"] = model.fit(table, seconds)

    def describe(a: Any, b: Any) -> dict[str, float]:
        one, other = outline(a), outline(b)
        (m, n), k = one.shape, other.shape[1]
        return {"m": m, "n": n, "k": k, "d1": one.nnz / (m * n), "d2": other.nnz / (n * k)}

    routes = {name: lambda a, b: None for name in models}
    return Dispatcher(routes, by_models(models, describe), samples=GLANCE)


if __name__ == "__main__":
    print(latency(toy_dispatcher()))
