"""``tilewright predict collect``: measures runs and writes them as a CSV file."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli import arguments
from tilewright.cli.predict import shared
from tilewright.cli.signals import interrupted
from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.prediction import Kernel, Runs
    from tilewright.records import Records
    from tilewright.report import Progress

_FAMILIES = ("halide_blur", "halide_blur_gpu", "halide_fft")


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of ``tilewright predict``."""
    parser = commands.add_parser(
        "collect",
        example="tilewright predict collect matmul --count 50 -o runs.csv",
        help="measure runs to fit a model to",
        description="Measure instances drawn at random and write them as a CSV file. The instances "
        "are of a kernel that comes with Tilewright, of a family of Halide schedules, of a Python "
        "function, or of a command in which {name} stands for a value. Every measurement is "
        "recorded, so that an interrupted collection continues where it stopped.",
    )
    parser.add_argument(
        "what",
        nargs="+",
        metavar="WHAT",
        help="a kernel (matmul), a family (halide_blur), file.py:function, or the words of a "
        "command after --",
    )
    parser.add_argument(
        "--variant", metavar="NAME", help="the kernel's variant (default: its first)"
    )
    parser.add_argument(
        "--range",
        dest="ranges",
        type=_range,
        action="append",
        default=[],
        metavar="N=1:1000",
        help="values of a parameter of a function or command: a range, or a list N=1,2,4; "
        "repeatable",
    )
    parser.add_argument(
        "--complexity", metavar="EXPRESSION", help="the number of operations, such as 'm*n*k'"
    )
    parser.add_argument(
        "--count",
        type=arguments.positive,
        default=250,
        metavar="N",
        help="instances, or schedules of each size (default: 250)",
    )
    parser.add_argument(
        "--sizes",
        type=shared.names,
        metavar="A,B",
        help="sizes of the family's pipeline (default: those of the paper)",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="measure each instance once (default: twice, for the noise floor)",
    )
    parser.add_argument(
        "--rounds",
        type=arguments.positive,
        metavar="N",
        help="maximum rounds of timing; the quickest sample counts (default: 6; for schedules: 1)",
    )
    arguments.add_seed(parser, "the instances")
    parser.add_argument("--time-limit", type=arguments.duration, metavar="TIME", help="such as 10m")
    arguments.add_records(parser)
    parser.add_argument(
        "-o", "--output", required=True, metavar="RUNS.csv", help="the file to write; - prints it"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    arguments.add_quiet(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    arguments.check_outputs(args)
    if args.output != "-" and not args.output.endswith(".csv"):
        raise TilewrightError(f"the runs are written as CSV: name a .csv file, not {args.output}")
    from tilewright.cli.progress import show_progress
    from tilewright.prediction import check_description_place, csv_text, write_csv
    from tilewright.records import Records

    if args.output != "-":
        check_description_place(args.output)
    deadline = None if args.time_limit is None else time.monotonic() + args.time_limit
    with Records(args.records) as records, show_progress(args.quiet) as show:
        runs, whole = _collect(args, records, deadline, show)
    why = "the collection was interrupted" if interrupted() else "the time ran out"
    more = "" if whole else f"{why}; run the same command again to continue"
    if args.output == "-":
        print(csv_text(runs), end="")
        if more:
            shared.warn(more)
        return 0
    write_csv(runs, args.output)
    if args.json:
        result = {
            "output": args.output,
            "rows": len(runs),
            "dropped": list(runs.dropped),
            "noise": runs.facts.get("noise"),
            "complete": whole,
        }
        print(json.dumps(result, indent=2))
        return 0
    _say(args, runs)
    if more:
        print(f"{more[0].upper()}{more[1:]}.")
    return 0


def _say(args: argparse.Namespace, runs: Runs) -> None:
    """Print what has been written, and how good it is."""
    from tilewright.report import units

    if not args.quiet:
        print(f"wrote {args.output}: {units.plural(len(runs), 'run')}")
    if runs.dropped:
        print(shared.left_out(runs))
    if runs.floor is not None:
        print(f"noise floor: {units.percent(runs.floor)}")
    noise = runs.facts.get("noise") or {}
    if noise.get("still_dirty"):
        shared.warn(f"{noise['still_dirty']} measurements were disturbed by other processes")


def _collect(
    args: argparse.Namespace,
    records: Records,
    deadline: float | None,
    show: Callable[[Progress], None],
) -> tuple[Runs, bool]:
    """Return the runs, and whether all were measured."""
    from tilewright.prediction import ROUNDS, collect
    from tilewright.prediction import CollectionProgress as Collected
    from tilewright.report import Progress

    if args.what[0] in _FAMILIES and len(args.what) == 1:
        return _collect_family(args, records, deadline, show)
    kernel = _kernel(args)
    variant = args.variant or next(iter(kernel.variants))
    last: list[Collected] = []

    def on_progress(p: Collected) -> None:
        last[:] = [p]
        failed = {"instances": p.failed} if p.failed else {}
        said = f"{p.dirty} measured again" if p.dirty else ""
        show(Progress(f"measuring {p.kernel}", p.done, p.total, failed, message=said))

    runs = collect(
        kernel,
        variant,
        args.count,
        args.seed,
        records,
        retime=not args.once,
        rounds=args.rounds or ROUNDS,
        deadline=deadline,
        keep_interrupted=True,
        on_progress=on_progress,
    )
    return runs, bool(last) and last[-1].done == last[-1].total


def _collect_family(
    args: argparse.Namespace,
    records: Records,
    deadline: float | None,
    show: Callable[[Progress], None],
) -> tuple[Runs, bool]:
    from tilewright.prediction import collect_schedules, schedule_family
    from tilewright.report import Progress

    found = schedule_family(args.what[0])
    try:
        sizes = found.sizes if args.sizes is None else tuple(int(size) for size in args.sizes)
    except ValueError:
        raise TilewrightError(f"--sizes are whole numbers, not {','.join(args.sizes)}") from None
    return collect_schedules(
        found,
        sizes,
        args.count,
        args.seed,
        records,
        retime=not args.once,
        rounds=args.rounds or 1,
        deadline=deadline,
        keep_interrupted=True,
        on_progress=lambda done, total: show(Progress(f"measuring {found.name}", done, total)),
    )


def _kernel(args: argparse.Namespace) -> Kernel:
    """Return the kernel, file function or command that the words name."""
    from tilewright.prediction import from_command
    from tilewright.prediction.kernels import kernel as registered
    from tilewright.prediction.kernels import kernels

    first, ranges = args.what[0], dict(args.ranges)
    if len(args.what) == 1 and first in kernels():
        if ranges or args.complexity:
            raise TilewrightError(
                f"{first} draws its own instances: leave out --range and --complexity"
            )
        return registered(first)
    if len(args.what) == 1 and ".py:" in first:
        return _from_file(first, ranges, args.complexity)
    if not ranges and len(args.what) == 1:
        registered(first)  # the error lists the kernels
    _needs(first, ranges, args.complexity)
    return from_command(args.what, ranges, args.complexity)


def _from_file(text: str, ranges: dict[str, Any], complexity: str | None) -> Kernel:
    """Return the kernel of a function in a Python file, or a `Kernel` defined there."""
    from tilewright.prediction import Kernel, KernelVariant, from_callable

    path, _, name = text.rpartition(":")
    found = shared.load_object(text)
    if isinstance(found, Kernel):
        return found
    if not callable(found):
        raise TilewrightError(f"{name} of {path} is neither a function nor a Kernel")
    _needs(text, ranges, complexity)
    kernel = from_callable(found, ranges, complexity or "", name=f"{Path(path).stem}:{name}")
    # The file's content is part of the key in the records, so that an edited file is new.
    content = _content(Path(path))
    variants: dict[str, KernelVariant] = {
        label: dataclasses.replace(variant, versions=partial(_both, variant.versions, content))
        for label, variant in kernel.variants.items()
    }
    return dataclasses.replace(kernel, variants=variants)


def _both(versions: Callable[[], dict[str, str]], content: dict[str, str]) -> dict[str, str]:
    return {**versions(), **content}


def _content(path: Path) -> dict[str, str]:
    import hashlib

    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16]}


def _needs(what: str, ranges: dict[str, Any], complexity: str | None) -> None:
    if not ranges:
        raise TilewrightError(f"give the parameters of {what}, as in --range n=1:1000")
    if not complexity:
        raise TilewrightError(
            f"give the number of operations of {what}, as in --complexity 'n*log2(n)'; any "
            "expression that grows as its time does will do"
        )
    from tilewright.prediction import Complexity

    Complexity(complexity, tuple(ranges))


def _range(text: str) -> tuple[str, Any]:
    """Parse a parameter and its values: ``n=1:1000`` is a range, ``n=1,2,4`` a list."""
    name, equals, values = text.partition("=")
    try:
        if not equals or not name.strip():
            raise ValueError
        if ":" in values:
            low, high = (float(value) for value in values.split(":"))
            return name.strip(), (low, high)
        return name.strip(), [float(value) for value in values.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a range such as n=1:1000 or n=1,2,4"
        ) from None
