"""Matrix products dispatched over NumPy, SciPy sparse, Eigen and Boost, by predicted time.

Products are drawn as in the paper's Table II. An operand of density below a half comes dense or
sparse with equal chance, else dense; the result is wanted sparse where both operands are. Every
call is timed as a whole: conversions, the product, and the result's conversion. The models are
trained on other instances, each variant in its own storage, and on the conversions alone.

Every library uses one thread: the pools of OpenBLAS and of OpenMP in one process wait actively
on each other's CPUs, and a product takes many times as long after one of the other's.

Of every product, all routes and the dispatched call are timed in turn, in rounds, the dispatched
call also with its decisions forgotten before each call (``new``), as for a shape that it has not
seen; routes that are far behind the fastest leave the rounds early. `vs_oracle` and `regret`
compare the dispatched calls with the fastest route of each product, `vs_best_single` the route that
is the fastest in total, used for every product, with the dispatched calls.

``--seconds`` measures for so long; a rerun goes on where it was, and writes the result when all
is measured.

Usage: ``python benchmarks/prediction_dispatch.py --seconds 100``
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

import common
from prediction_dispatch_latency import latency
from tilewright.measure import Timing
from tilewright.prediction.data.work import OTHERS, TICKS, error_of, other_seconds
from tilewright.prediction.decisions.dispatcher import Dispatcher
from tilewright.prediction.decisions.library_dispatcher import dispatcher
from tilewright.prediction.decisions.selector import Selector, train_selector
from tilewright.prediction.kernels import Kernel, kernel
from tilewright.prediction.kernels.storage import csr, is_sparse
from tilewright.records import Records

VARIANTS = ["numpy", "scipy_sparse", "eigen_dense", "eigen_sparse", "ublas_dense", "ublas_sparse"]
TRAIN, TEST = 250, 250
TRAIN_SEED, TEST_SEED = 1, 2
TIMING = Timing(
    warmup=2, min_samples=3, max_samples=15, seconds=0.05, sample_seconds=0.002, precision=0.01
)
ROUNDS, SAMPLE_SECONDS = 7, 0.002
# A route that is slower than the fastest by this factor leaves after the second round.
BEHIND = 2.0
# Of a product during which other processes used the CPUs.
TRIES = 4


def operands_of(product: Kernel, index: int) -> list[Any]:
    """A test product's operands in the storage in which they come."""
    instance = product.draw(np.random.default_rng([TEST_SEED, index, 0]))
    rng = np.random.default_rng([TEST_SEED, index, 2])
    operands = product.make(instance, rng)
    return [
        csr(thing) if instance[d] < 0.5 and rng.random() < 0.5 else thing
        for thing, d in zip(operands.values(), ("d1", "d2"), strict=True)
    ]


def single_threaded(product: Kernel) -> Kernel:
    """The kernel with those of its variants that are dispatched to, with one thread each."""
    variants = {}
    for name in VARIANTS:
        variant = product.variant(name)
        settings = dict.fromkeys(variant.settings, (1,))
        variants[name] = dataclasses.replace(variant, settings=settings)
    return dataclasses.replace(product, variants=variants)


def visit(run: Callable[..., Any], operands: list[Any]) -> float:
    """Seconds a call: one to warm up, then the mean of as many as fill a sample."""
    began = time.perf_counter()
    run(*operands)
    once = time.perf_counter() - began
    count = max(1, min(1000, round(SAMPLE_SECONDS / once)))
    began = time.perf_counter()
    for _ in range(count):
        run(*operands)
    return (time.perf_counter() - began) / count


def rounds(runs: dict[str, Callable[..., Any]], operands: list[Any]) -> dict[str, float]:
    """The median seconds of each route, all timed in turn."""
    found: dict[str, list[float]] = {route: [] for route in runs}
    for turn in range(ROUNDS):
        ahead = min(min(times, default=np.inf) for times in found.values())
        for route in list(runs) if turn % 2 == 0 else list(reversed(runs)):
            near = turn < 2 or min(found[route]) < BEHIND * ahead
            if near or route in ("dispatched", "new"):
                found[route].append(visit(runs[route], operands))
    return {route: statistics.median(times) for route, times in found.items()}


def measured(call: Dispatcher, product: Kernel, index: int) -> dict[str, Any]:
    """One product by every route and as dispatched."""
    operands = operands_of(product, index)
    decision = call.decision(*operands)
    runs: dict[str, Callable[..., Any]] = dict(zip(call.routes, call._runs, strict=True))
    named = dict(zip("ab", operands, strict=True))
    for route, run in runs.items():
        _, wrong = error_of(run(*operands), product, named)
        if wrong:
            raise SystemExit(f"product {index} by {route}: {wrong}")

    def new(*operands: Any) -> Any:
        call.clear()
        return call(*operands)

    runs |= {"dispatched": call, "new": new}
    tries: list[tuple[float, dict[str, float]]] = []
    while not tries or (len(tries) < TRIES and tries[-1][0] > OTHERS):
        others, began = other_seconds(), time.perf_counter()
        seconds = rounds(runs, operands)
        share = max(0.0, other_seconds() - others - TICKS) / (time.perf_counter() - began)
        tries.append((share, seconds))
    others, seconds = min(tries, key=lambda t: t[0])
    return {
        "instance": {k: float(v) for k, v in decision.query.items()},
        "stored": ["sparse" if is_sparse(thing) else "dense" for thing in operands],
        "chosen": decision.route,
        "outside": decision.outside,
        "predicted": dict(decision.seconds),
        "others": others,
        "tries": len(tries),
        "seconds": seconds,
    }


def main() -> None:
    parser = common.arguments(__doc__ or "", ["all"])
    parser.add_argument("--seconds", type=float, default=3600.0, help="measure for so long")
    args = parser.parse_args()
    pieces = args.work / "prediction_dispatch" / common.code_hash()
    pieces.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + args.seconds
    product = single_threaded(kernel("matmul"))
    with Records(args.work / "prediction_dispatch.sqlite") as records:
        selector = trained(args, pieces, product, records, deadline)
    if selector is None:
        print("time is up while training; run it again to go on")
        return
    call = dispatcher(product, selector, wanted="like")
    path: Path = pieces / "rows.jsonl"
    if args.fresh:
        path.unlink(missing_ok=True)
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    with path.open("a") as file:
        while len(rows) < TEST and time.monotonic() < deadline:
            rows.append(measured(call, product, len(rows)))
            file.write(json.dumps(rows[-1]) + "\n")
            file.flush()
    print(f"{len(rows)} of {TEST} products", flush=True)
    if len(rows) < TEST:
        print("time is up; run it again to go on")
        return
    report(args, call, rows)


def trained(
    args: argparse.Namespace, pieces: Path, product: Kernel, records: Records, deadline: float
) -> Selector | None:
    """The models; None where not everything they are trained on was measured in time."""
    path = pieces / "selector.json"
    if path.exists() and not args.fresh:
        return Selector.load(path)
    how: dict[str, Any] = {"count": TRAIN, "seed": TRAIN_SEED, "timing": TIMING}
    done: list[bool] = []
    try:
        selector = train_selector(
            product,
            VARIANTS,
            **how,
            records=records,
            path=path.with_suffix(".partial"),
            deadline=deadline,
            on_progress=lambda p: done.append(True) if p.done == p.total else None,
        )
    except Exception as error:  # nothing of a variant was measured in time
        if time.monotonic() < deadline:
            raise
        print(error)
        return None
    if len(done) < len(VARIANTS) + len(selector.conversions):
        return None
    path.with_suffix(".partial").replace(path)
    return selector


def report(args: argparse.Namespace, call: Dispatcher, rows: list[dict[str, Any]]) -> None:
    """The cost of dispatching, compared with the fastest route of each product."""
    times = np.array([[r["seconds"][route] for route in call.routes] for r in rows])
    taken = np.array([r["seconds"]["dispatched"] for r in rows])
    first = np.array([r["seconds"]["new"] for r in rows])
    best = times.min(axis=1)
    single = dict(zip(call.routes, times.sum(axis=0).tolist(), strict=True))
    best_single = min(single, key=single.__getitem__)
    chosen = np.array([r["seconds"][r["chosen"]] for r in rows])
    predicted = np.array([r["predicted"][r["chosen"]] for r in rows])
    summary = {
        "vs_oracle": float(taken.sum() / best.sum()),
        "regret": float(np.exp(np.log(taken / best).mean())),
        "regret_mean": float((taken / best).mean() - 1),
        "regret_worst": float((taken / best).max() - 1),
        "vs_best_single": single[best_single] / float(taken.sum()),
        "best_single": best_single,
        "right": float((chosen <= best).mean()),
        "vs_oracle_of_choices": float(chosen.sum() / best.sum()),
        "regret_of_choices": float(np.exp(np.log(chosen / best).mean())),
        # Every product is of a new shape: with the time of the decision.
        "vs_oracle_new": float(first.sum() / best.sum()),
        "regret_new": float(np.exp(np.log(first / best).mean())),
        "median_error_of_chosen": float(np.median(abs(predicted / chosen - 1))),
        "queries": len(rows),
        "outside": sum(r["outside"] for r in rows),
        "disturbed": sum(r["others"] > OTHERS for r in rows),
        **latency(call),
    }
    common.write(args, "prediction_dispatch", rows, summary, seconds_of_single=single)


if __name__ == "__main__":
    main()
