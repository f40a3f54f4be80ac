"""``tilewright predict collect``: measures runs and writes them as a CSV file."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli import arguments, options
from tilewright.cli.output import show, warn, write_file
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
    commands.add_parser(
        "collect",
        example="tilewright predict collect matmul --count 50 -o runs.csv",
        help="measure runs to fit a model to",
        description="Measure instances drawn at random and write them as a CSV file. The instances "
        "are of a kernel that comes with Tilewright, of a family of Halide schedules, of a Python "
        "function, or of a command in which {name} stands for a value. Every measurement is "
        "recorded, so that an interrupted collection continues where it stopped.",
        options={
            "what WHAT ...": "what to measure: a kernel such as matmul, a family of schedules such "
            "as halide_blur, file.py:function, or a command after --",
            "--variant NAME": "the kernel's variant (default: its first)",
            "--range N=1:1000 ...": "values of a parameter of a function or command: a range, or a "
            "list N=1,2,4; repeatable",
            "--complexity EXPRESSION": "the number of operations, such as 'm*n*k'",
            "--count N = 250": "number of instances, or of schedules per size",
            "--sizes A,B": "sizes of the family's pipeline (default: those of the paper)",
            "--once": "measure each instance once (default: twice, for the noise floor)",
            "--rounds N": "maximum number of rounds of timing; the quickest sample of all counts "
            "(default: 6; for schedules: 1)",
            "--seed SEED = 0": "seed of the instances",
            **options.TIME_LIMIT,
            **options.records(),
            "-o --output RUNS.csv required": "the file to write; - prints it",
            **options.JSON,
            **options.QUIET,
        },
        run=run,
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    arguments.check_outputs(args)
    printed = args.output == "-"
    if not printed and not args.output.endswith(".csv"):
        raise TilewrightError(f"the runs are written as CSV: name a .csv file, not {args.output}")
    from tilewright.cli.progress import show_progress
    from tilewright.prediction import check_description_place, csv_text, write_csv
    from tilewright.records import Records

    if not printed:
        check_description_place(args.output)
    measure = _collect_family if args.what[0] in _FAMILIES and len(args.what) == 1 else _collect
    with Records(args.records) as records, show_progress(args.quiet) as progress:
        runs, whole = measure(args, records, progress)
    why = "the collection was interrupted" if interrupted() else "the time ran out"
    more = "" if whole else f"{why}; run the same command again to continue"
    if printed:
        write_file(args.output, csv_text(runs))
        if more:
            warn(more)
        return 0
    write_csv(runs, args.output)
    noise = runs.facts.get("noise")
    result = {
        "output": args.output,
        "rows": len(runs),
        "dropped": list(runs.dropped),
        "noise": noise,
        "complete": whole,
    }
    show(args, result, *_text(args, runs), *([f"{more[0].upper()}{more[1:]}."] if more else []))
    if noise and noise.get("still_dirty"):
        warn(f"{noise['still_dirty']} measurements were disturbed by other processes")
    return 0


def _text(args: argparse.Namespace, runs: Runs) -> list[str]:
    """Return what has been written, and how good it is."""
    from tilewright.report import units

    wrote = "" if args.quiet else f"wrote {args.output}: {units.plural(len(runs), 'run')}"
    floor = "" if runs.floor is None else f"noise floor: {units.percent(runs.floor)}"
    return [line for line in (wrote, shared.left_out(runs), floor) if line]


def _collect(
    args: argparse.Namespace, records: Records, progress: Callable[[Progress], None]
) -> tuple[Runs, bool]:
    """Return runs of a kernel, and whether all were measured."""
    from tilewright.prediction import ROUNDS, CollectionProgress, collect

    kernel = _kernel(args)
    last: list[CollectionProgress] = []

    def on_progress(p: CollectionProgress) -> None:
        last[:] = [p]
        progress(shared.progress_of(p, f"measuring {p.kernel}"))

    runs = collect(
        kernel,
        args.variant or next(iter(kernel.variants)),
        args.count,
        args.seed,
        records,
        retime=not args.once,
        rounds=args.rounds or ROUNDS,
        deadline=arguments.deadline(args),
        keep_interrupted=True,
        on_progress=on_progress,
    )
    return runs, bool(last) and last[-1].done == last[-1].total


def _collect_family(
    args: argparse.Namespace, records: Records, progress: Callable[[Progress], None]
) -> tuple[Runs, bool]:
    """Return runs of a family of schedules, and whether all were measured."""
    from tilewright.cli.progress import counted
    from tilewright.prediction import collect_schedules, schedule_family

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
        deadline=arguments.deadline(args),
        keep_interrupted=True,
        on_progress=counted(progress, f"measuring {found.name}"),
    )


def _kernel(args: argparse.Namespace) -> Kernel:
    """Return the kernel, file function or command that the words name."""
    from tilewright.cli.pipeline import load_object
    from tilewright.prediction import Kernel, from_callable, from_command, kernels

    first, ranges = args.what[0], dict(args.range)
    one = len(args.what) == 1
    if one and first in kernels.kernels():
        if ranges or args.complexity:
            raise TilewrightError(
                f"{first} draws its own instances: leave out --range and --complexity"
            )
        return kernels.kernel(first)
    if one and ".py:" in first:
        path, _, name = first.rpartition(":")
        found = load_object(first)
        if isinstance(found, Kernel):
            return found
        if not callable(found):
            raise TilewrightError(f"{name} of {path} is neither a function nor a Kernel")
        _check_given(args)
        named = f"{Path(path).stem}:{name}"
        return from_callable(found, ranges, args.complexity, name=named, files=[path])
    if one and not ranges:
        kernels.kernel(first)  # the error lists the kernels
    _check_given(args)
    return from_command(args.what, ranges, args.complexity)


def _check_given(args: argparse.Namespace) -> None:
    """Refuse a function or command whose parameters or complexity are unknown."""
    if not args.range:
        raise TilewrightError(f"give the parameters of {args.what[0]}, as in --range n=1:1000")
    if not args.complexity:
        raise TilewrightError(
            f"give the number of operations of {args.what[0]}, as in --complexity 'n*log2(n)'; any "
            "expression that grows in proportion to its time will do"
        )
