"""``tilewright patterns tune``: the kernels that are ranked best, verified and measured."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tilewright.cli import arguments, options
from tilewright.cli.output import present, write_file
from tilewright.cli.patterns import rank, shared
from tilewright.cli.provenance import provenance
from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.patterns import Pattern
    from tilewright.patterns.tuning import MeasuredKernel, PatternTuning, RankedKernel


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of ``tilewright patterns``."""
    exploration = {**shared.EXPLORATION}
    exploration["--top N = 20"] = "number of kernels that are measured, from the top of the ranking"
    del exploration["--top N = 10"]
    commands.add_parser(
        "tune",
        example="tilewright patterns tune --example jacobi5 --sizes N=1024,M=1024",
        help="measure the kernels that are ranked best, and keep the fastest",
        description="Derive kernels, rank them before any is run, then compile those ranked best, "
        "compare their results with the interpreter's, and time them. C kernels are ranked "
        "by a model that has learnt from measured kernels of other programs: by default those that "
        "come with Tilewright. Those of OpenCL and CUDA are ranked as by tilewright patterns rank.",
        options={
            **shared.PROGRAM,
            "--target c|opencl|cuda = c": "C for the cores of this CPU, the first OpenCL device, "
            "or CUDA GPU",
            "--threads N": "cores of a C kernel (default: all)",
            **{k: v for k, v in rank.MODEL.items() if k != "--seed SEED = 0"},
            **exploration,
            "--seed SEED = 0": "seed of the random inputs and of the choice of launches",
            **options.budget(),
            **options.REPORT,
            **options.RESULT,
        },
        run=run,
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 if no kernel can be derived or gives the right result."""
    arguments.check_outputs(args)
    deadline = arguments.deadline(args)
    program = shared.load_program(args)
    from tilewright.cli.progress import show_progress
    from tilewright.patterns import with_sizes
    from tilewright.records import Records
    from tilewright.report import Progress

    fixed = with_sizes(program, shared.all_sizes(program, args))
    with Records(args.records) as records, show_progress(args.quiet) as progress:
        ranked, called = _ranked(fixed, args, progress)
        done: list[MeasuredKernel] = []
        failed: dict[str, int] = {}
        total = 1 + min(args.top, len(ranked))

        def on_measured(m: MeasuredKernel) -> None:
            done.append(m)
            if not m.measurement.ok:
                failed[m.measurement.status] = failed.get(m.measurement.status, 0) + 1
            best = min((x.measurement.median for x in done if x.measurement.ok), default=None)
            progress(Progress("measuring", len(done), total, dict(failed), best))

        from tilewright.patterns.tuning import tune_kernels

        tuned = tune_kernels(
            fixed, ranked, args.target, _options(args, deadline), records, on_measured
        )
    _present(args, tuned, called)
    return 0 if tuned.best is not None else 1


def _options(args: argparse.Namespace, deadline: float | None) -> Any:
    from tilewright.measure import RunLimits
    from tilewright.patterns.tuning import TuningOptions

    limits = RunLimits(build_seconds=args.candidate_time, memory_bytes=args.candidate_memory)
    return TuningOptions(
        args.top, args.threads, args.seed, limits, args.jobs, deadline, args.remeasure
    )


def _ranked(
    program: Pattern, args: argparse.Namespace, progress: Any
) -> tuple[list[RankedKernel], str]:
    """Return the kernels of a program, best first, and what ranked them."""
    from tilewright.patterns.tuning import ranked_for_cpu, ranked_for_gpu

    if args.target != "c":
        if args.threads is not None:
            raise TilewrightError(
                f"--threads is for C kernels: leave it out with --target {args.target}"
            )
        from tilewright.cli.progress import counted

        model, called = rank.model_of(args)
        settings = shared.settings(args, "gpu")
        shown = counted(progress, "deriving")
        return ranked_for_gpu(program, {}, settings, model, args.launches, shown), called
    if args.machine:
        raise TilewrightError(
            "--machine is for --target opencl or cuda: leave it out for C kernels"
        )
    from tilewright.patterns.ranking import CPU_FEATURES, cpu_model, cpu_points, read_measured

    given = [p for path in args.measured or () for p in read_measured(path, CPU_FEATURES)]
    if args.measured or args.model:
        model, called = rank.learnt(args, given if args.measured else cpu_points())
    else:
        model, called = cpu_model(program)
    settings = shared.settings(args, "c")
    return ranked_for_cpu(program, {}, settings, model, args.threads), called


def _present(args: argparse.Namespace, tuned: PatternTuning, called: str) -> None:
    from tilewright.report import units
    from tilewright.report.table import table

    best = tuned.best
    order = sorted(
        (m for m in tuned.measured if m.number),
        key=lambda m: (m is not best, not m.measurement.ok, m.final is None, m.seconds),
    )
    entries = [
        {
            **shared.entry(i, m.kernel.derivation, m.kernel.launch),
            "rank": m.number,
            "predicted": m.kernel.predicted,
            "measurement": m.measurement.to_json(),
        }
        for i, m in enumerate(order, 1)
    ]
    speedup = None if tuned.speedup is None else tuned.speedup.estimate
    result = {
        **shared.document(args, "c" if tuned.target == "c" else "gpu", entries),
        "model": called,
        "count": tuned.considered,
        "speedup": speedup,
    }
    rows = [
        (
            str(i),
            m.time,
            "final rounds" if m.final else "",
            str(m.number),
            ", ".join(str(rule) for rule, _ in m.kernel.derivation.steps),
        )
        for i, m in enumerate(order, 1)
    ]
    lines: list[Any] = [table(">number | >time | taken | >rank | ~steps", rows)] if rows else []
    if best is None:
        lines.append("no kernel gave the right result: give more --tiles, or a larger --top")
    elif tuned.standing is not None:
        lines.append(f"number 1 is {tuned.standing.words}")
    else:
        lines.append("number 1 was not timed in turn with the program as it is written")
    head = f"{units.plural(tuned.considered, 'kernel')}, ranked by {called}"
    present(args, result, *([] if args.quiet else [head]), *lines)
    if args.report:
        from tilewright.patterns.page import patterns_page

        facts = provenance(args.words, args.seed, args.load_before)
        write_file(args.report, patterns_page(tuned, called, facts))
        if not args.quiet and not args.json and args.report != "-":
            print(f"wrote {args.report}")
