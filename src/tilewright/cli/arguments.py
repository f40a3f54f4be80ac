"""Code that several commands share to interpret their arguments."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.files import check_writable
from tilewright.shapes import naming, read_json


def pipeline_of(args: argparse.Namespace) -> str:
    """Return the pipeline that the command line names; for an example, its file.

    Raises:
        TilewrightError: the command line names no pipeline, or two.
    """
    from tilewright.cli.examples import path_of

    if args.example is not None and args.pipeline is not None:
        raise TilewrightError(f"give {args.pipeline} or --example {args.example}, not both")
    if args.example is not None:
        return str(path_of(args.example))
    if args.pipeline is None:
        raise TilewrightError(
            "name a pipeline as file.py:function, file.py:Generator or a .hlpipe file, or an "
            "example, as in --example harris"
        )
    return str(args.pipeline)


def common(args: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments that `schedule` and `compare` share."""
    from tilewright.cli.pipeline import load_inputs

    return {
        "target": args.target,
        "machine": named_machine(args.machine),
        "k": args.k,
        "estimates": sizes_of(args.estimate, dict(args.set)),
        "inputs": load_inputs(args.inputs),
        "seed": args.seed,
        "time_limit": args.time_limit,
        "jobs": args.jobs,
        "candidate_time": args.candidate_time,
        "candidate_memory": args.candidate_memory,
        "records": args.records,
        "remeasure": args.remeasure,
        "calibration": not args.no_calibration,
    }


def sizes_of(estimates: list[tuple[str, Any]], values: dict[str, Any]) -> Any:
    """Return the estimates by name, or one such dictionary per size if names are repeated.

    The n-th estimate of each name belongs to the n-th size. A single estimate of a name holds for
    all sizes, as do the values of scalars. Raises `TilewrightError` if the numbers of estimates of
    repeated names differ.

    >>> sizes_of([("out", ((0, 8),)), ("w", ((0, 3),)), ("out", ((0, 4),))], {})
    [{'out': ((0, 8),), 'w': ((0, 3),)}, {'out': ((0, 4),), 'w': ((0, 3),)}]
    """
    found: dict[str, list[Any]] = {}
    for name, spans in estimates:
        found.setdefault(name, []).append(spans)
    count = max([1, *map(len, found.values())])
    for name, given in found.items():
        if len(given) not in (1, count):
            most = next(other for other, its in found.items() if len(its) == count)
            raise TilewrightError(
                f"{most} has {count} estimates and {name} {len(given)}: give one of {name} "
                "for each size, in the same order, or one for all"
            )
    sizes = [
        {**{name: given[i % len(given)] for name, given in found.items()}, **values}
        for i in range(count)
    ]
    return sizes[0] if count == 1 else sizes


def named_machine(name: str | None) -> Any:
    """Return the machine that ``--machine`` names: a known GPU, or a JSON file; None for None."""
    if name is None:
        return None
    from tilewright.machines import gpu, machine_from_dict

    path = Path(name)
    if path.suffix != ".json":
        return gpu(name)
    data = read_json(path, TilewrightError)
    if isinstance(data, dict) and "cpu" in data:
        # What `tilewright machine --json` prints: the CPU and the GPUs of a computer.
        data = data["cpu"]
    with naming(path):
        return machine_from_dict(data)


def check_outputs(args: argparse.Namespace) -> None:
    """Refuse files that cannot be written, before hours of work depend on them.

    These are the files of the options ``--output``, ``--report``, ``--host``, ``--header`` and
    ``--export``, if the command has them; ``-`` is standard output, which takes one document.

    Raises:
        TilewrightError: a file cannot be written, or standard output is to take several documents.
    """
    given = vars(args)
    paths = [given.get(name) for name in ("output", "report", "host", "header")]
    paths += given.get("export", [])
    for path in paths:
        if path is not None and path != "-":
            check_writable(path)
    if paths.count("-") + given.get("json", False) > 1:
        raise TilewrightError(
            "standard output takes one document: give only one of -o -, --report - and --json"
        )


def deadline(args: argparse.Namespace) -> float | None:
    """Return the value of ``time.monotonic`` at which ``--time-limit`` ends; None without one."""
    return None if args.time_limit is None else time.monotonic() + args.time_limit
