"""Arguments that several commands share, and the parsers of their values."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.files import check_writable
from tilewright.shapes import read_json

_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|min|h)?")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([KMG])?i?B?", re.IGNORECASE)
_SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_LONGEST = (2**31 - 1) / 1000  # seconds; poll takes milliseconds as a signed number of 32 bits
_LARGEST = 2**63 - 1  # bytes; setrlimit takes a signed number of 64 bits
# The random forests of scikit-learn take seeds of 32 bits.
_LARGEST_SEED = 2**32 - 1
_SPAN = re.compile(r"(?:(-?\d+):)?(\d+)")


def duration(text: str) -> float:
    """Parse a duration such as ``90``, ``90s``, ``1.5m``, ``2h`` or ``300ms`` into seconds.

    >>> duration("1.5m")
    90.0
    """
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match.group(1)) * _SECONDS[match.group(2) or "s"] if match else 0.0
    if not 0 < seconds <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90s, 10m or 2h")
    return seconds


def memory(text: str) -> int:
    """Parse a size such as ``8G``, ``512M`` or ``2GiB`` into bytes.

    >>> memory("2K")
    2048
    """
    match = _SIZE.fullmatch(text.strip())
    size = float(match.group(1)) * _SIZES[(match.group(2) or "").upper()] if match else 0.0
    if not 0 < size <= _LARGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 512M or 8G")
    return int(size)


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def seed(text: str) -> int:
    """Parse the seed of random numbers, a whole number from 0 of at most 32 bits."""
    if not text.isdecimal() or int(text) > _LARGEST_SEED:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a seed, a whole number from 0 to {_LARGEST_SEED}"
        )
    return int(text)


def estimate(text: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Parse an estimate such as ``out=1536x2560x3`` or ``out=-1:10,0:20``.

    Returns the name and the (min, extent) of each dimension.

    >>> estimate("out=1536x3"), estimate("in=-1:10,5")
    (('out', ((0, 1536), (0, 3))), ('in', ((-1, 10), (0, 5))))
    """
    name, equals, spans = text.partition("=")
    found = [_SPAN.fullmatch(part.strip()) for part in re.split("[x,]", spans)]
    if not name or not equals or not all(found):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an estimate such as out=1536x2560x3 or out=0:1536,0:2560"
        )
    return name.strip(), tuple((int(m.group(1) or 0), int(m.group(2))) for m in found if m)


def assignment(text: str) -> tuple[str, int | float | bool | str]:
    """Parse a name and its value: a whole number, a number, true/false, or text.

    >>> assignment("sigma=1.5"), assignment("on=true")
    (('sigma', 1.5), ('on', True))
    """
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name.strip(), _value(value.strip())


def _value(text: str) -> int | float | bool | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def add_pipeline(parser: argparse.ArgumentParser) -> None:
    """Add arguments for the pipeline, its sizes and the machine."""
    parser.add_argument(
        "pipeline",
        nargs="?",
        metavar="PIPELINE",
        help="file.py:function, file.py:Generator, or a .hlpipe file",
    )
    parser.add_argument(
        "--example",
        metavar="NAME",
        help="use a program that comes with Tilewright instead of PIPELINE, such as harris "
        "(tilewright new lists them)",
    )
    parser.add_argument(
        "--target",
        help="host, cuda, opencl, or a Halide target string (default: that of the machine)",
    )
    parser.add_argument(
        "--machine",
        metavar="NAME",
        help="schedule for this machine: a GPU by name (tilewright machine --list), or a JSON file "
        "written by tilewright machine --json (default: this one)",
    )
    parser.add_argument(
        "--no-calibration",
        action="store_true",
        help="use the cost model's default rates for the CPU's family instead of those measured "
        "by tilewright machine --calibrate",
    )
    _add_values(parser)


def _add_values(parser: argparse.ArgumentParser) -> None:
    """Add arguments for the sizes, parameters, arguments and inputs of the pipeline."""
    parser.add_argument(
        "--estimate",
        dest="estimates",
        type=estimate,
        action="append",
        default=[],
        metavar="NAME=SIZES",
        help="sizes of an output or input for which the pipeline has no estimate, "
        "e.g. out=1536x2560x3 or out=-1:1536,0:2560 (min:extent); repeatable: the n-th estimate "
        "of a name belongs to the n-th size, and the schedule has separate loops for each size",
    )
    parser.add_argument(
        "--set",
        dest="params",
        type=assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="value of a scalar parameter; repeatable",
    )
    parser.add_argument(
        "--arg",
        dest="arguments",
        type=assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="argument of the function, or parameter of the Generator; repeatable",
    )
    parser.add_argument(
        "--inputs",
        metavar="FILE",
        help="inputs to run with: an .npz file with one array per input, or a file.py:function "
        "that returns a dict of arrays, whose axis d is dimension d (default: random)",
    )
    add_seed(parser, "the random inputs")


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


def add_scheduled(parser: argparse.ArgumentParser) -> Any:
    """Add flags for pipelines whose Funcs already have schedules.

    Returns the group of flags, which exclude each other.
    """
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--keep", action="store_true", help="keep the schedules that Funcs already have"
    )
    choice.add_argument(
        "--discard-schedule",
        action="store_true",
        help="drop the schedules that Funcs already have; estimates and bounds stay",
    )
    return choice


def add_budget(parser: argparse.ArgumentParser) -> None:
    """Add arguments for limits on time and memory, parallel builds, and the records."""
    parser.add_argument(
        "--time-limit", type=duration, metavar="TIME", help="total time, e.g. 90s, 10m or 2h"
    )
    parser.add_argument("--jobs", type=positive, help="parallel builds (default: one per core)")
    parser.add_argument(
        "--candidate-time",
        type=duration,
        default=120.0,
        metavar="TIME",
        help="time limit of one build (default: 120s)",
    )
    parser.add_argument(
        "--candidate-memory",
        type=memory,
        default=8 << 30,
        metavar="SIZE",
        help="memory limit of one candidate (default: 8G)",
    )
    add_records(parser)
    parser.add_argument(
        "--remeasure", action="store_true", help="measure recorded candidates again"
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add arguments for the output and its format."""
    parser.add_argument("--report", metavar="PAGE.html", help="write an HTML report")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_quiet(parser)


def add_records(parser: argparse.ArgumentParser) -> None:
    """Add the argument for the file of measurements."""
    from tilewright.records import default_path

    place = str(default_path()).replace("%", "%%")
    parser.add_argument(
        "--records", metavar="FILE", help=f"keep measurements in this file (default: {place})"
    )


def add_seed(
    parser: argparse.ArgumentParser, of: str = "all random choices", default: int | None = 0
) -> None:
    """Add the argument for the seed of random numbers; `of` says what they decide."""
    parser.add_argument("--seed", type=seed, default=default, help=f"seed of {of} (default: 0)")


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add the option that prints only the result and errors."""
    parser.add_argument("-q", "--quiet", action="store_true", help="print no progress and no notes")


def common(args: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments that `schedule` and `compare` share."""
    from tilewright.cli.pipeline import load_inputs

    return {
        "target": args.target,
        "machine": named_machine(args.machine),
        "k": args.k,
        "estimates": sizes_of(args.estimates, dict(args.params)),
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
                f"{most} is given {count} estimates and {name} {len(given)}: give one of {name} "
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
    return machine_from_dict(data)


def check_outputs(args: argparse.Namespace) -> None:
    """Refuse files that cannot be written, before hours of work depend on them.

    They are those of the options ``--output``, ``--report`` and ``--export``, as far as the command
    has them; ``-`` is standard output, which takes one document.

    Raises:
        TilewrightError: a file cannot be written, or standard output is to take several documents.
    """
    given = vars(args)
    paths = [given.get("output"), given.get("report"), *given.get("export", [])]
    for path in paths:
        if path is not None and path != "-":
            check_writable(path)
    if paths.count("-") + given.get("json", False) > 1:
        raise TilewrightError(
            "standard output takes one document: give only one of -o -, --report - and --json"
        )


def prints_text(args: argparse.Namespace) -> bool:
    """Return whether the result is printed as text: standard output takes no document."""
    return not args.json and "-" not in (args.output, vars(args).get("report"))
