"""Malformed files: every kind of file that Tilewright reads, damaged in seeded ways.

Each mutant is read, and what was read is used a little, in a worker process: it must be taken
or refused with an error that a user can act upon (`TilewrightError`). `uncaught` counts other
exceptions, `crashes` processes that died, `hangs` mutants that took more than 10 CPU seconds,
and `over_500_mb` those that wanted more memory than that.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import os
import random
import resource
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import common
from support.damage import damaged_bytes, damaged_json, damaged_text
from support.more_files import JSON_PROBLEM, more_files

MUTANTS = 20_000
SECONDS = 10  # of CPU time for a mutant
MEMORY = 500 << 20
# A process that has not answered for so long is stuck where no signal reaches Python.
PATIENCE = 300.0
CHUNK = 500  # mutants per process

Damage = Callable[[Any, random.Random], bytes]


class HangError(BaseException):
    """A mutant has used up its CPU time; not an Exception, so that nothing swallows it."""


@dataclass(frozen=True)
class Kind:
    """A kind of file: good examples, how they are damaged, and what reads and uses one."""

    name: str
    examples: tuple[Any, ...]
    damage: Damage
    use: Callable[[Path], object]
    suffix: str = ".json"


def kinds(folder: Path) -> list[Kind]:
    """Every kind of file that is read; what the examples need is written to `folder`."""
    stored = (_records(folder), _store(folder))
    more = [Kind(name, made, damaged_json, use) for name, made, use in more_files(folder, _blur())]
    return [*_machines(), *_tuning(folder), *_prediction(folder), *_schedules(), *stored, *more]


def _machines() -> list[Kind]:
    from tilewright.cli.arguments import named_machine
    from tilewright.halide.schedulers.registry import plan
    from tilewright.halide.schedulers.task import make_task
    from tilewright.machines import detect_cpu, gpu, machine_to_json
    from tilewright.machines.calibration import (
        Calibration,
        Quantity,
        calibration_to_json,
        processor_of,
        read_calibration,
    )

    cpu, pipeline = detect_cpu(), _blur()

    def use(path: Path) -> None:
        machine = named_machine(str(path))
        machine_to_json(machine)
        plan(make_task(pipeline, machine=machine), k=1)

    quantities = {"rate": Quantity(1e9, "1/s", 0.01, 5, True)}
    calibration = Calibration(processor_of(cpu), "2026-01-01", 3.0, quantities)
    return [
        Kind("machine", (machine_to_json(cpu), machine_to_json(gpu("a100"))), damaged_json, use),
        Kind(
            "calibration",
            (calibration_to_json(calibration),),
            damaged_json,
            lambda path: read_calibration(path, cpu),
        ),
    ]


def _blur() -> Any:
    """A pipeline of two Funcs."""
    import halide as hl

    x, y = hl.vars("x y")
    image, across, out = hl.ImageParam(hl.UInt(16), 2), hl.Func("across"), hl.Func("out")
    across[x, y] = image[x, y] + image[x + 2, y]
    out[x, y] = across[x, y] + across[x, y + 2]
    return out.set_estimates([(0, 640), (0, 360)])


PROBLEM = """name = "kernel"
constraints = ["tile % unroll == 0 or unroll < 4", "order[0] != 'k'"]
[objective]
command = ["true", "--tile={tile}", "--unroll={unroll}", "--order={order}"]
value = "regex"
regex = "took ([0-9.]+) ms"
maximise = true
timeout = 10
memory_mb = 4096
[search]
budget = 60
seed = 0
jobs = 1
converge = 0.005
[[start]]
tile = 16
unroll = 4
order = ["i", "j", "k"]
cache = "all"
[[parameters]]
name = "tile"
type = "ordinal"
values = [4, 8, 16, 32, 64]
scale = "log"
default = 16
[[parameters]]
name = "unroll"
type = "integer"
low = 1
high = 8
when = "tile > 8"
[[parameters]]
name = "order"
type = "permutation"
items = ["i", "j", "k"]
[[parameters]]
name = "cache"
type = "categorical"
values = ["none", "all"]
"""
SCENARIO = {
    "application_name": "example",
    "optimization_objectives": ["time"],
    "optimization_iterations": 20,
    "time_budget": 5,
    "hypermapper_mode": {"mode": "client-server"},
    "design_of_experiment": {"doe_type": "random sampling", "number_of_samples": 5},
    "feasible_output": {"enable_feasible_predictor": True, "true_value": "1"},
    "input_parameters": {
        "tile": {
            "parameter_type": "ordinal",
            "values": [4, 8, 16, 32],
            "parameter_default": 8,
            "transform": "log",
        },
        "unroll": {
            "parameter_type": "integer",
            "values": [1, 8],
            "constraints": ["tile % unroll == 0"],
            "dependencies": ["tile"],
        },
        "flag": {"parameter_type": "categorical", "values": ["a", "b"]},
        "share": {"parameter_type": "real", "values": [0.0, 1.0]},
        "order": {"parameter_type": "permutation", "values": [3]},
    },
}
T1 = {
    "ConfigurationSpace": {
        "TuningParameters": [
            {"Name": "tile", "Type": "int", "Values": "[4, 8, 16]", "Default": 4},
            {"Name": "m", "Type": "int", "Values": [1, 2, 3], "Default": 1},
        ],
        "Conditions": [{"Expression": "tile % m == 0", "Parameters": ["tile", "m"]}],
    }
}
T4 = {
    "schema_version": "1.0.0",
    "results": [
        {
            "configuration": {"tile": 4 << i % 3, "m": 1 + i // 3},
            "invalidity": "correct" if i else "compile",
            "correctness": 1,
            "objectives": ["time"],
            "measurements": [{"name": "time", "value": 1.0 + i, "unit": "ms"}],
        }
        for i in range(6)
    ],
}
CACHE = {
    "device_name": "GPU",
    "kernel_name": "k",
    "tune_params_keys": ["tile", "m"],
    "tune_params": {"tile": [4, 8], "m": [1, 2]},
    "objective": "time",
    "cache": {
        f"{tile},{m}": {"tile": tile, "m": m, "time": 1.0 * tile if m == 1 else "InvalidConfig"}
        for tile in (4, 8)
        for m in (1, 2)
    },
}


def _tuning(folder: Path) -> list[Kind]:
    import gzip

    from tilewright.tuning import Space, Tuner
    from tilewright.tuning.command_line.toml import load_problem
    from tilewright.tuning.interop.hypermapper_scenario import load_scenario
    from tilewright.tuning.interop.replay import read_cache, read_t1, read_t4
    from tilewright.tuning.problems.recordings import FOLDER, read_recording

    def ask(space: Space) -> None:
        _ = space.count
        Tuner(space, seed=0).ask()

    def use_problem(path: Path) -> None:
        problem = load_problem(path)
        ask(problem.space)
        Tuner(problem.space, seed=0, prior=problem.prior).ask()

    def recording(path: Path) -> None:
        path.write_bytes(gzip.compress(path.read_bytes()))
        ask(read_recording(path).space)

    table = gzip.decompress(min(FOLDER.glob("*.json.gz"), key=os.path.getsize).read_bytes())
    return [
        Kind(
            "problem",
            (PROBLEM, JSON_PROBLEM),
            damaged_text,
            use_problem,
            ".toml",
        ),
        Kind(
            "scenario",
            (json.dumps(SCENARIO),),
            damaged_json,
            lambda path: ask(load_scenario(path).space),
        ),
        Kind("t1", (json.dumps(T1),), damaged_json, lambda path: ask(read_t1(path))),
        Kind("t4", (json.dumps(T4),), damaged_json, lambda path: ask(read_t4(path).space)),
        Kind("cache", (json.dumps(CACHE),), damaged_json, lambda path: ask(read_cache(path).space)),
        Kind("recording", (table.decode(),), damaged_json, recording),
    ]


def _prediction(folder: Path) -> list[Kind]:
    import numpy as np

    from tilewright.mapping import graph_from_dict
    from tilewright.prediction import (
        Augmented,
        Boosted,
        C,
        Runs,
        Selector,
        load,
        read_csv,
        write_csv,
    )

    random_ = np.random.default_rng(0)
    sizes = random_.uniform(1, 100, (40, 2))
    times = 1e-6 * sizes.prod(axis=1)
    runs = Runs({"m": "1", "n": "1"}, sizes, times, facts={"complexity": "m*n"})
    csv_path = write_csv(runs, folder / "runs.csv")
    models: list[Any] = [C(complexity="m*n"), Augmented(complexity="m*n"), Boosted()]
    texts = []
    for i, model in enumerate(models):
        model.fit({"m": sizes[:, 0], "n": sizes[:, 1]}, times)
        model.save(folder / f"model{i}.json")
        texts.append((folder / f"model{i}.json").read_text())
    Selector({"a": models[0], "b": models[1]}).save(folder / "selector.json")
    query = {"m": 10.0, "n": 20.0}
    graph = {
        "tasks": [
            {"name": "a", "seconds": {"cpu": 1e-3, "gpu": 1e-4}, "result_bytes": 8000},
            {"name": "b", "kernel": "matmul", "query": {"m": 64}, "needs": ["a"]},
            {"name": "c", "seconds": {"cpu": 2e-3}, "needs": [{"task": "a", "bytes": 100}, "b"]},
        ]
    }

    def use_graph(path: Path) -> None:
        graph_from_dict(_json(path)).to_dict()

    def with_sidecar(path: Path) -> None:
        path.with_suffix(".csv").write_bytes(csv_path.read_bytes())
        read_csv(path.with_suffix(".csv"))

    return [
        Kind("model", tuple(texts), damaged_json, lambda path: load(path).predict([query])),
        Kind(
            "selector",
            ((folder / "selector.json").read_text(),),
            damaged_json,
            lambda path: Selector.load(path).select(query),
        ),
        Kind("graph", (json.dumps(graph),), damaged_json, use_graph),
        Kind("runs", (csv_path.read_text(),), damaged_text, read_csv, ".csv"),
        Kind(
            "description", (csv_path.with_suffix(".json").read_text(),), damaged_json, with_sidecar
        ),
    ]


def _schedules() -> list[Kind]:
    import halide as hl

    from tilewright.halide.frontend.importer import import_pipeline
    from tilewright.halide.ir.json import from_json, to_json
    from tilewright.halide.legality.check import check
    from tilewright.halide.schedulers.registry import plan
    from tilewright.halide.schedulers.task import make_task
    from tilewright.patterns import json_form
    from tilewright.patterns.programs import stencils

    out = _blur()
    task = make_task(out, target="host")
    texts = tuple(to_json(planned.schedule) for planned in plan(task, k=3))

    def use(path: Path) -> None:
        check(from_json(path.read_bytes(), task.algorithm), task.algorithm)

    def use_pattern(path: Path) -> None:
        json_form.from_json(_json(path))

    patterns = (json.dumps(json_form.to_json(stencils.stencil2d(64, 64))),)
    pipeline = bytes(hl.serialize_pipeline(hl.Pipeline(out)))
    return [
        Kind("schedule", texts, damaged_json, use),
        Kind(
            "pipeline",
            (pipeline,),
            damaged_bytes,
            lambda path: import_pipeline(path.read_bytes()),
            ".hlpipe",
        ),
        Kind("pattern", patterns, damaged_json, use_pattern),
    ]


def _records(folder: Path) -> Kind:
    from tilewright.measure import Measurement
    from tilewright.records import MeasurementRecord, Records, read, to_line
    from tilewright.tuning.journal import RecordsJournal
    from tilewright.tuning.trial import Suggestion, Trial

    journal = folder / "journal.sqlite"
    trial = Trial(Suggestion(0, {"tile": 4}, "random", (), None), "ok", (1.0,), False, "", 0.1, {})
    with Records(journal) as records:
        RecordsJournal(records, "p", 0).add(trial)
        records.add(
            MeasurementRecord("p", {"a": 1}, {"m": 1}, {"v": "1"}, Measurement("ok", (1.0, 2.0)))
        )
        lines = "\n".join(to_line(record) for record in records.query())

    def use(path: Path) -> None:
        store = path.with_suffix(".sqlite")
        store.unlink(missing_ok=True)
        with Records(store) as records:
            for record in read(path):
                records.add(record)
            journal = RecordsJournal(records, "p", 0)
            for record in records.query("p"):
                journal.machine = dict(record.machine)
            journal.load()

    def damage(text: str, choose: random.Random) -> bytes:
        lines = text.splitlines()
        place = choose.randrange(len(lines))
        lines[place : place + 1] = [damaged_json(lines[place], choose).decode(errors="replace")]
        return "\n".join(lines).encode(errors="replace")

    return Kind("journal", (lines,), damage, use, ".jsonl")


def _store(folder: Path) -> Kind:
    """A records file in which one text is damaged: that record is lost, and no other."""
    from tilewright.measure import Measurement
    from tilewright.records import (
        MeasurementRecord,
        Records,
        RecordsError,
        chosen,
        merge,
        to_line,
    )
    from tilewright.records.store import TRIGGERS

    path = folder / "store.sqlite"
    with Records(path) as records:
        for number in range(3):
            made = Measurement("ok", (1.0, 2.0), output="text")
            records.add(MeasurementRecord(f"p{number}", {"a": number}, {"m": 1}, {"v": "1"}, made))
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=DELETE")  # a database with a log cannot be read from memory

    def damage(data: bytes, choose: random.Random) -> bytes:
        with closing(sqlite3.connect(":memory:")) as db:
            db.deserialize(data)
            db.execute("DROP TRIGGER measurements_stay")
            column = choose.choice(("body", "measurement", "time", "problem", "status"))
            table, key = ("documents", "digest") if column == "body" else ("measurements", "id")
            texts = db.execute(f"SELECT {key}, {column} FROM {table} ORDER BY {key}").fetchall()
            row, text = choose.choice(texts)
            plain = column in ("time", "problem", "status")
            odd = damaged_bytes(text.encode(), choose) if plain else damaged_json(text, choose)
            db.execute(f"UPDATE {table} SET {column} = CAST(? AS TEXT) WHERE {key} = ?", (odd, row))
            db.execute(TRIGGERS[0])
            db.commit()
            return db.serialize()

    def use(path: Path) -> None:
        with Records(path) as records:
            damaged: list[int] = []
            found = chosen(records, unreadable=damaged)
            lines = [to_line(record) for record in found]
            merge(records, found)
            if len(lines) + len(damaged) != len(records):
                raise AssertionError(f"{len(lines)} and {len(damaged)} of {len(records)} records")
            if damaged:
                records.remove(damaged)
                raise RecordsError(f"{len(damaged)} damaged records")

    return Kind("store", (path.read_bytes(),), damage, use, ".sqlite")


def _json(path: Path) -> Any:
    """What a user of a function that takes plain data would hand over.

    Raises `TilewrightError` where that is not JSON, which is not what is looked for here.
    """
    from tilewright.errors import TilewrightError

    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise TilewrightError(f"not JSON: {error}") from error


def mutant(kind: Kind, seed: int, number: int) -> bytes:
    """The mutant of that number: the same bytes in every run of the same seed."""
    choose = random.Random(f"{seed} {kind.name} {number}")
    return kind.damage(choose.choice(kind.examples), choose)


def outcome(kind: Kind, data: bytes, folder: Path) -> tuple[str, str]:
    """What comes of reading it, and the last words where that is not as it should be."""
    from tilewright.errors import TilewrightError

    path = folder / f"mutant{kind.suffix}"
    path.write_bytes(data)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        kind.use(path)
        return "taken", ""
    except TilewrightError as error:
        return ("refused", "") if str(error).strip() else ("uncaught", "an error without words")
    except HangError:
        return "hangs", _last_words()
    except MemoryError:
        return "over_500_mb", _last_words()
    except Exception:
        return "uncaught", _last_words()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def sound(kind: Kind, folder: Path) -> Iterator[str]:
    """Why examples are not taken, undamaged: what is refused anyway shows nothing."""
    for example in kind.examples:
        path = folder / f"sound{kind.suffix}"
        path.write_bytes(example if isinstance(example, bytes) else example.encode())
        try:
            kind.use(path)
        except Exception as error:
            yield f"{type(error).__name__}: {error}"


def _last_words() -> str:
    lines = traceback.format_exc().strip().splitlines()
    ours = [line.strip() for line in lines if "/tilewright/" in line]
    return f"{lines[-1][:200]} | {ours[-1] if ours else ''}"


def _give_up(number: int, frame: Any) -> None:
    raise HangError


def _work(kind: Kind, seed: int, numbers: range, pipe: Connection) -> None:
    """Inside a worker: every mutant's outcome, as it comes."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, _give_up)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + MEMORY, in_use + MEMORY))
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            pipe.send((number, *outcome(kind, mutant(kind, seed, number), Path(folder))))
    pipe.close()


def outcomes(kind: Kind, seed: int, count: int) -> Iterator[tuple[int, str, str]]:
    """Number, outcome and last words of `count` mutants of a kind."""
    context = multiprocessing.get_context("fork")
    following = 0
    while following < count:
        ours, theirs = context.Pipe(duplex=False)
        numbers = range(following, min(count, following + CHUNK))
        worker = context.Process(target=_work, args=(kind, seed, numbers, theirs))
        worker.start()
        theirs.close()
        died = ""
        while following < numbers.stop:
            try:
                if not ours.poll(PATIENCE):
                    died = "hangs"
                    break
                number, what, said = ours.recv()
            except EOFError:
                died = "crashes"
                break
            yield number, what, said
            following = number + 1
        if died:
            worker.kill()
            worker.join()
            yield following, died, f"exit code {worker.exitcode}"
            following += 1
        worker.join()


def main() -> None:
    """Damage, read, count, write."""
    names = (
        "machine calibration problem scenario t1 t4 cache recording model selector graph runs "
        "description schedule pipeline pattern journal store gpu_calibration gpu_records measured "
        "derived"
    ).split()
    parser = common.arguments(__doc__.splitlines()[0], names)
    parser.add_argument("--count", type=int, default=MUTANTS, help="mutants in all")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    wanted = common.chosen(args, names)
    with tempfile.TemporaryDirectory() as folder:
        there = kinds(Path(folder))
        if missing := set(names) - {kind.name for kind in there}:
            sys.exit(f"no examples of {', '.join(sorted(missing))}")
        wrong = [f"{kind.name}: {said}" for kind in there for said in sound(kind, Path(folder))]
        if wrong:
            sys.exit("\n".join(["examples are not taken as they are:", *wrong]))
        each = -(-args.count // len(there))
        rows = [count(kind, args, each) for kind in there if kind.name in wanted]
    figures = ("uncaught", "crashes", "hangs", "over_500_mb")
    summary = {
        "mutants": sum(row["mutants"] for row in rows),
        **{name: sum(row[name] for row in rows) for name in figures},
    }
    common.write(args, "malformed_inputs", rows, summary, seed=args.seed)


def count(kind: Kind, args: argparse.Namespace, each: int) -> dict[str, Any]:
    """One kind's row; what is not as it should be is printed, once per reason."""
    began = time.monotonic()
    found: collections.Counter[str] = collections.Counter()
    reasons: dict[str, list[int]] = {}
    for number, what, said in outcomes(kind, args.seed, each):
        found[what] += 1
        if said:
            reasons.setdefault(f"{what}: {said}", []).append(number)
    for reason, numbers in reasons.items():
        print(f"  {kind.name} {numbers[0]} and {len(numbers) - 1} more: {reason}", flush=True)
    row = {name: found[name] for name in ("taken", "refused", "uncaught", "crashes", "hangs")}
    row["over_500_mb"] = found["over_500_mb"]
    print(f"{kind.name:12} {row} in {time.monotonic() - began:.0f} s", flush=True)
    return {"kind": kind.name, "mutants": each, **row}


if __name__ == "__main__":
    main()
