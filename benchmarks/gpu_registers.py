"""How well the estimate of a kernel's registers agrees with ``ptxas``, without a GPU.

CUDA schedules of ``examples/``, of ``benchmarks/strangers`` and of random pipelines are compiled
to PTX, and ``ptxas`` says how many registers each kernel takes without a limit, and how many bytes
it spills with Halide's limit of 64. The schedules are drawn at random (groupings, tiles, nesting,
points per thread, unrolled steps of reductions) or are among those that the search by predicted
time considered. Kernels with the same PTX count once. They are kept in
``benchmarks/data/gpu_registers.json.gz``; ``--more SECONDS`` adds to them.

The linear estimate and its learned correction are fitted to nine tenths of the programs, and the
figures are of the others, in turn: ``registers_spearman`` is the rank correlation of estimated and
real registers, ``over64_auc`` the probability that a kernel that takes more than 64 has a higher
estimate than one that takes less. ``_random`` and ``_named`` mark the figures of random pipelines
and of the other programs only, ``_held_out`` those of programs that were drawn after the features
and settings were chosen, by a model fitted to the others (``held_out`` in the file; ``--more``
leaves this list as it is), ``_linear`` those of the linear estimate without correction, and
``_before`` those of the estimate for spills alone, which is the same for all straight-line code.
``flagged`` are the kernels that the search expects to spill, ``flagged_spilling`` those of them
that do. ``--train FILE`` fits the model to all kernels and writes it; the package's is
``src/tilewright/halide/schedulers/analytic/gpu/registers.json``.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import math
import os
import re
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import common

GPUS = ("h100", "rtx2080ti", "a100", "v100")
OLDEST = "sm_75"  # of the ptxas of CUDA 13
CAP, UNCAPPED = 64, 255
RANDOM = tuple(f"random:{seed}" for seed in range(2000, 2900))
# What schedules are drawn from: points per thread, unrolled steps of a reduction, threads.
POINTS: tuple[tuple[int, ...], ...] = (
    *((), ()),
    *((1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (2, 4), (4, 2), (4, 4)),
    *((1, 8), (2, 8), (1, 16), (8, 1)),
)
STEPS = (1, 1, 1, 2, 4, 8)
THREADS = (None, None, 512, 256, 128, 64)
NOISY, UNROLLED = 0.3, 0.9  # share of schedules with random tiles, and with unrolled loops
MODES = ("nested", "nested", "overlapped", "overlapped", "none")
PTXAS_SECONDS = 60.0
CHILD_SECONDS = 150.0
SCHEDULES = 6  # of a program in one process
DATA = common.HERE / "data" / "gpu_registers.json.gz"
COLUMNS = ("program", "gpu", "drawn_by", "registers", "spill", "needed", "words", "loops")
DIGITS = 4  # significant digits of features
# The fit: programs left out in turn, registers beyond which all are alike, the exponent of errors
# relative to them in the linear estimate, and the kernels of a program beyond which each counts
# less.
FOLDS, MOST_FITTED, RELATIVE, FEW = 10, 160.0, 0.8, 40
# The trees: their number, depth and rate, the least kernels per leaf, and the share of kernels and
# the number of features that each tree draws.
TREES, DEPTH, RATE, LEAF, SUBSAMPLE, DRAWN = 300, 5, 0.06, 20, 0.5, 8

Data = dict[str, Any]


# --- in processes of their own --------------------------------------------------------------------


def task_of(name: str, gpu: str) -> Any:
    """The task of a pipeline by name, for a GPU."""
    from tilewright.halide.schedulers.learned import random_pipelines
    from tilewright.halide.schedulers.task import make_task

    if name.startswith("random:"):
        recipe = random_pipelines.random_pipeline(int(name.removeprefix("random:")))
        pipeline = random_pipelines.build(recipe, limited=True)
    elif name in common.ALL_PROGRAMS:
        pipeline = common.build(name)
    else:
        import strangers

        pipeline = strangers.PROGRAMS[name].pipeline(False)
    return make_task(pipeline, machine=gpu, name=name)


def drawn(task: Any, seed: int, count: int) -> Iterator[Any]:
    """Yield random schedules of the planner, some with tiles that are far from the cheapest."""
    import numpy as np

    from support.gpu_sample import SPREADS, TEMPERATURES, RandomSearch
    from tilewright.halide.analysis.inlining import View
    from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
    from tilewright.halide.legality.check import Limits, check
    from tilewright.halide.schedulers.analytic.gpu.assemble import assemble
    from tilewright.halide.schedulers.analytic.gpu.grouping_search import GroupingSearch
    from tilewright.halide.schedulers.analytic.gpu.inline import choose_inlined
    from tilewright.halide.schedulers.analytic.gpu.plan import Options

    algorithm, machine = task.algorithm, task.machine
    base = Analysis(
        View(algorithm), estimated_boxes(View(algorithm)), algorithm.symbols, specialize=True
    )
    limits = Limits(machine.max_threads_per_block, machine.shared_per_block)
    inlined = choose_inlined(base, load_weight=1.0, cache_bytes=machine.l2_bytes)
    plain = GroupingSearch(base, machine, inlined)
    noisy = RandomSearch(base, machine, inlined)
    seen: set[int] = set()
    for index in range(2 * count):
        random = np.random.default_rng([seed, zlib.crc32(task.name.encode()), index])
        pick = partial(_pick, random)
        search = noisy if random.random() < NOISY else plain
        if search is noisy:
            noisy.noisy((seed, index), pick(TEMPERATURES[:3]), pick(SPREADS))
        unroll = random.random() < UNROLLED
        first = Options(mode=pick(MODES), max_threads=pick(THREADS), unroll=unroll)
        plans = [_drawn_plan(search, group, first, pick) for group in search.groups(first)]
        planned = assemble(search.analysis, search.model, plans, first)
        known = hash(planned.schedule.funcs)
        if known not in seen and not check(planned.schedule, algorithm, limits):
            seen.add(known)
            yield planned.schedule
        if len(seen) >= count:
            return


def _pick(random: Any, values: Sequence[Any]) -> Any:
    return values[int(random.integers(len(values)))]


def _drawn_plan(search: Any, group: Any, first: Any, pick: Any) -> Any:
    """A plan of a group with random points per thread, steps and threads, else without points."""
    from tilewright.halide.schedulers.analytic.gpu.group_times import GroupWork

    for points in (pick(POINTS), pick(POINTS), ()):
        options = dataclasses.replace(
            first, max_threads=pick(THREADS), points=points, steps=pick(STEPS)
        )
        plan = GroupWork(search).plan(group, options)
        if plan.kernels:
            break
    return plan


def compiled(task: Any, schedule: Any) -> list[Data]:
    """The kernels of a schedule with their registers, spills and the hash of their PTX."""
    import halide as hl

    from tilewright.halide.emit.apply import apply
    from tilewright.halide.execution import cuda_kernels as cuda
    from tilewright.halide.execution.binding import deserialize
    from tilewright.halide.execution.session import make_inputs

    live = deserialize(task.algorithm.serialized, make_inputs(task.algorithm))
    apply(schedule, task.algorithm, live.pipeline, same_bytes=True)
    ptx, statement = cuda.device_code(live.pipeline, hl.Target(task.target))
    major, minor = task.machine.compute_capability
    architecture = max(f"sm_{major}{minor}", OLDEST)
    ptxas = cuda.find_ptxas()
    if ptxas is None:
        sys.exit("no ptxas: install the CUDA toolkit or the package nvidia-cuda-nvcc")
    free = {k.name: k for k in cuda.assembled(ptx, ptxas, architecture, UNCAPPED, PTXAS_SECONDS)}
    capped = {}
    if any((kernel.registers or 0) > CAP for kernel in free.values()):
        found = cuda.assembled(ptx, ptxas, architecture, CAP, PTXAS_SECONDS)
        capped = {k.name: k.spill_bytes for k in found}
    texts = dict(zip(cuda.entries(ptx), re.split(r"\.visible \.entry", ptx)[1:], strict=True))
    return [
        {
            "name": launch.name,
            "threads": launch.threads,
            "registers": free[launch.name].registers,
            "spill": capped.get(launch.name, 0),
            "code": code_of(architecture, texts[launch.name].replace(launch.name, "")),
        }
        for launch in cuda.launches(statement)
        if launch.name in free
    ]


def code_of(architecture: str, ptx: str) -> str:
    """A hash of a kernel's PTX without what depends on its position among other kernels."""
    plain = re.sub(r"BB\d+_", "BB_", re.sub(r"//.*|\.globl.*", "", ptx)).strip()
    return hashlib.sha256((architecture + plain).encode()).hexdigest()[:16]


def considered(task: Any, seed: int, count: int) -> Iterator[Any]:
    """Yield schedules from the plans that the search by predicted time considered."""
    import numpy as np

    from tilewright.halide.analysis.inlining import View
    from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
    from tilewright.halide.schedulers.analytic.gpu import scheduler
    from tilewright.halide.schedulers.analytic.gpu.assemble import schedule_of
    from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
    from tilewright.halide.schedulers.analytic.gpu.group_times import GroupTimes
    from tilewright.halide.schedulers.analytic.gpu.plan import Options
    from tilewright.halide.schedulers.analytic.gpu.time_search import TimeSearch

    view = View(task.algorithm)
    symbols = task.algorithm.symbols
    base = Analysis(view, estimated_boxes(view), symbols, specialize=True)
    searches = scheduler._GroupingSearches(base, symbols, task.machine, GpuConstants())
    search = TimeSearch(GroupTimes(searches[True]), Options())
    best = search.best()
    random = np.random.default_rng(seed)
    if best is None:
        return
    for _ in range(count):
        plans = []
        for each in best.groups:
            tried = search._tried[each.group]
            plans.append(tried[int(random.integers(len(tried)))].plan)
        yield schedule_of(search.search.analysis, search.search.model, plans, search.first)


def child(name: str, gpu: str, seed: int, count: int) -> None:
    """Print a line per kernel: its row and the hash of its code."""
    from tilewright.errors import TilewrightError

    task = task_of(name, gpu)
    for drawn_by in (drawn, considered):
        for schedule in drawn_by(task, seed, count):
            try:
                kernels = compiled(task, schedule)
            except (RuntimeError, TilewrightError):  # Halide refuses some schedules
                continue
            for work, found in matched(task, schedule, kernels):
                row = row_of(name, gpu, drawn_by.__name__, work, found)
                print(json.dumps([*row, found["code"]]), flush=True)


def spawn(name: str, gpu: str, seed: int, count: int, seconds: float) -> list[str]:
    """The lines of a child, also if it crashed or was stopped."""
    argv = [sys.executable, __file__, "--child", name, gpu, str(seed), str(count)]
    process = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
    return [line for line in out.splitlines() if line.startswith("[") and line.endswith("]")]


def matched(task: Any, schedule: Any, kernels: list[Data]) -> Iterator[tuple[Any, Data]]:
    """Yield the work of kernels with what ``ptxas`` says, without variants for other sizes."""
    from tilewright.halide.schedulers.analytic.gpu.nest_work import KernelWork, nest_work
    from tilewright.halide.schedulers.prediction import schedule_nest

    left = [kernel for kernel in kernels if kernel["registers"]]
    for work in nest_work(schedule_nest(task, schedule), task.machine.warp_size):
        if isinstance(work, KernelWork):
            for kernel in left:
                name = re.match(r"_kernel_(.*?)(?:__?\d+)?_s(\d+)_", kernel["name"])
                same = name and (name[1], int(name[2])) == (work.func.split("$")[0], work.stage)
                if same and tuple(kernel["threads"]) == work.block:
                    left.remove(kernel)
                    yield work, kernel
                    break


# --- figures --------------------------------------------------------------------------------------


def row_of(name: str, gpu: str, drawn_by: str, work: Any, found: Data) -> list[Any]:
    """A kernel as `COLUMNS`."""
    from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
    from tilewright.halide.schedulers.analytic.gpu.kernel_time import needed_registers
    from tilewright.halide.schedulers.analytic.gpu.register_features import register_features

    c = GpuConstants()
    plain = dataclasses.replace(c, ahead_registers=math.inf, learned_registers=0.0)
    return [
        name,
        gpu,
        drawn_by,
        found["registers"],
        found["spill"],
        round(needed_registers(work, plain), 2),
        bool(work.registers),
        bool(work.registers) or any(stage.iterations for stage in work.stages),
        *(float(f"{each:.{DIGITS}g}") for each in register_features(work, c)),
    ]


def table(rows: list[list[Any]]) -> tuple[Any, Any]:
    """The features of every kernel, and its registers."""
    import numpy as np

    features = np.array([row[len(COLUMNS) :] for row in rows], dtype=float)
    return features, np.array([float(row[COLUMNS.index("registers")]) for row in rows])


def fitted(rows: list[list[Any]]) -> tuple[Any, Any]:
    """The constants with the linear estimate's, and the trees that correct it.

    Kernels of programs that have many weigh less.
    """
    import numpy as np
    from scipy.optimize import nnls
    from sklearn.ensemble import GradientBoostingRegressor

    from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
    from tilewright.halide.schedulers.analytic.gpu.register_features import RegisterTerms
    from tilewright.halide.schedulers.analytic.gpu.registers import inputs
    from tilewright.halide.schedulers.boosted_trees import BoostedTrees

    features, real = table(rows)
    real = np.minimum(real, MOST_FITTED)
    count = Counter(row[0] for row in rows)
    few = np.array([min(1.0, math.sqrt(FEW / count[row[0]])) for row in rows])
    weight = few / real**RELATIVE
    names = ("base", *RegisterTerms._fields)
    terms = np.column_stack([np.ones(len(rows)), features[:, : len(names) - 1]])
    found = nnls(terms * weight[:, None], real * weight)[0]
    constants = {f"ptxas_{n}": float(f"{v:.3g}") for n, v in zip(names, found, strict=True)}
    c = dataclasses.replace(GpuConstants(), **constants)
    given = inputs(features, c)
    trees = GradientBoostingRegressor(
        n_estimators=TREES,
        max_depth=DEPTH,
        learning_rate=RATE,
        min_samples_leaf=LEAF,
        subsample=SUBSAMPLE,
        max_features=DRAWN,
        init="zero",
        random_state=0,
    ).fit(given, np.log(real / given[:, -1]), sample_weight=few)
    return c, BoostedTrees.of(list(trees.estimators_[:, 0]), RATE, DEPTH)


def estimates(known: list[list[Any]], rows: list[list[Any]]) -> tuple[Any, Any]:
    """Estimates for `rows` by a model fitted to `known`: with the correction, and linear ones."""
    import numpy as np

    from tilewright.halide.schedulers.analytic.gpu.registers import inputs

    c, trees = fitted(known)
    given = inputs(table(rows)[0], c)
    return given[:, -1] * np.exp(trees(given)), given[:, -1]


def held_out(rows: list[list[Any]]) -> tuple[Any, Any]:
    """`estimates` for every row by a model fitted to other programs."""
    import numpy as np

    fold = np.array([zlib.crc32(row[0].encode()) % FOLDS for row in rows])
    found, linear = np.zeros(len(rows)), np.zeros(len(rows))
    for at in range(FOLDS):
        own = [row for row, of in zip(rows, fold, strict=True) if of == at]
        others = [row for row, of in zip(rows, fold, strict=True) if of != at]
        if own:
            found[fold == at], linear[fold == at] = estimates(others, own)
    return found, linear


def agreement(estimate: Any, real: Any, suffix: str = "") -> Data:
    """The two figures of an estimate."""
    from scipy.stats import rankdata, spearmanr

    over = real > CAP
    above = rankdata(estimate)[over].sum() - over.sum() * (over.sum() + 1) / 2
    pairs = over.sum() * (~over).sum()
    return {
        f"registers_spearman{suffix}": float(spearmanr(estimate, real)[0]),
        f"over64_auc{suffix}": float(above / pairs) if pairs else None,
    }


def summary(rows: list[list[Any]], unknown: Sequence[str]) -> Data:
    """The figures of the claim, and counts; `unknown` are programs that chose nothing."""
    import numpy as np

    from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH, GpuConstants

    c = GpuConstants()
    _, real = table(rows)
    of = {name: np.array([row[i] for row in rows]) for i, name in enumerate(COLUMNS)}
    unseen, linear = held_out(rows)
    random = np.char.startswith(of["program"], "random:")
    ahead = of["loops"] & ~of["words"] & (unseen - c.ahead_registers > of["needed"])
    most = SEARCH.most_estimated_registers
    needed = np.where(ahead, unseen - c.ahead_registers, of["needed"])
    spills = of["spill"] > 0
    constants = fitted(rows)[0]
    late = [row for row in rows if row[0] in unknown]
    last: Data = {}
    if late:
        estimate, _ = estimates([row for row in rows if row[0] not in unknown], late)
        last = agreement(estimate, table(late)[1], "_held_out")
    return {
        "kernels": len(rows),
        "pipelines": len(set(of["program"])),
        "random_pipelines": len(set(of["program"][random])),
        "over64": int((real > CAP).sum()),
        "spilling": int(spills.sum()),
        **agreement(unseen, real),
        **agreement(unseen[random], real[random], "_random"),
        **agreement(unseen[~random], real[~random], "_named"),
        "kernels_held_out": len(late),
        **last,
        **agreement(linear, real, "_linear"),
        **agreement(of["needed"], real, "_before"),
        "flagged": int((needed > most).sum()),
        "flagged_spilling": int(((needed > most) & spills).sum()),
        "flagged_before": int((of["needed"] > most).sum()),
        "flagged_spilling_before": int(((of["needed"] > most) & spills).sum()),
        "constants_fitted": [
            getattr(constants, each.name)
            for each in dataclasses.fields(constants)
            if each.name.startswith("ptxas_")
        ],
    }


def train(data: Data, found: Data, path: str) -> None:
    """Write the model fitted to all kernels."""
    from tilewright.halide.schedulers.analytic.gpu.registers import RegisterModel

    keys = ("kernels", "pipelines", "registers_spearman", "over64_auc")
    about = {key: found[key] for key in keys}
    about |= {"made_by": "benchmarks/gpu_registers.py", "seed": 0, "ptxas": data["ptxas"]}
    about["date"] = time.strftime("%Y-%m-%d")
    text = RegisterModel(fitted(data["rows"])[1], about).to_json()
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def more(data: Data, seconds: float) -> None:
    """Add kernels until the time is over: a few schedules of each program in turn."""
    import strangers

    until = time.monotonic() + seconds
    known = set(data["codes"])
    names = [*common.ALL_PROGRAMS, *strangers.PROGRAMS, *RANDOM]
    while True:
        data["turn"] += 1
        for name in names:
            if time.monotonic() > until:
                return
            gpu = GPUS[(data["turn"] + zlib.crc32(name.encode())) % len(GPUS)]
            for line in spawn(name, gpu, data["turn"], SCHEDULES, CHILD_SECONDS):
                *row, code = json.loads(line)
                if code not in known:
                    known.add(code)
                    data["codes"].append(code)
                    data["rows"].append(row)
            print(f"{name}: {len(data['rows'])} kernels", flush=True)


def main() -> None:
    """Read or extend the data, print, write."""
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
        return
    parser = common.arguments(__doc__.splitlines()[0], common.PROGRAMS)
    parser.add_argument("--more", type=float, default=0.0, metavar="SECONDS", help="add kernels")
    parser.add_argument("--train", metavar="FILE", help="write the model fitted to all kernels")
    args = parser.parse_args()
    with gzip.open(DATA, "rt") as file:
        data = json.load(file)
    if args.more:
        more(data, args.more)
        with gzip.open(DATA, "wt") as file:
            json.dump(data, file)
    found = summary(data["rows"], data["held_out"])
    common.print_table(["", "figure"], [[key, value] for key, value in found.items()])
    if args.train:
        train(data, found, args.train)
    programs = sorted(Counter(row[0] for row in data["rows"]).items())
    rows = [{"program": name, "kernels": count} for name, count in programs]
    common.write(args, "gpu_registers", rows, found)


if __name__ == "__main__":
    main()
