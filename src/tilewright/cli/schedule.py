"""``tilewright schedule``: finds, verifies, measures and explains a schedule."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli import arguments, options
from tilewright.cli.halide_errors import with_flags
from tilewright.cli.provenance import with_provenance
from tilewright.cli.signals import interrupted
from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.report import Progress

_WRITERS = {".json": "to_json", ".py": "to_python", ".h": "to_cpp"}


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of the command line."""
    parser = commands.add_parser(
        "schedule",
        example="tilewright schedule --example harris --mode top -o harris_schedule.py",
        help="find a schedule for a Halide pipeline",
        description="Find a schedule for a Halide pipeline, and say how fast it is and why.",
        options={
            **options.PIPELINE,
            "--mode oneshot|top|tune|given": "oneshot: the model's best, not compiled; top: build, "
            "verify and measure the best few and keep the fastest; tune: top, then tune tile "
            "sizes, vector widths and unrolls; given: no search, the schedule that the pipeline "
            "came with (default: oneshot; with --improve, top)",
            "--k N": "number of schedules that the modes top and tune plan (default: 5; 10 to "
            "tune on CPUs)",
            "--evaluations N": "number of further schedules that --mode tune measures "
            "(default: 60)",
            "--fusion none|overlapped|nested = nested": "how Funcs are fused on a GPU: not at all, "
            "in overlapping tiles, or also inside the loops of a thread",
            "--objective time|sioutas = time": "what the search for a GPU minimises: the predicted "
            "time, or the cost of Sioutas et al. 2020, as published",
            "--scheduler analytic|learned|auto = analytic": "the analytic search, a beam search "
            "with a learned cost model (for CUDA: the released one of Anderson 2021), or, for CPUs "
            "only, the latter's best where it expects a clear gain (auto)",
            "--search tilewright|published|published-quick = tilewright": "how --scheduler learned "
            "searches for CUDA: our own search, that of Anderson 2021 as published (a beam search "
            "and 79 greedy samples), or the same with fewer samples",
            "--model MODEL.json": "with --scheduler learned or auto: the cost model of tilewright "
            "train (default: the one that comes with Tilewright)",
            "--verify": "with --mode oneshot: compile the schedule, run it and check its answers",
            "--no-check": "with --mode oneshot: skip the check that Halide can lower the schedule; "
            "with --mode top for CUDA: do not ask ptxas which schedules spill registers",
        },
        run=run,
    )
    improve = {
        "--improve": "like --discard-schedule, but make the present schedule a candidate of top "
        "and tune: the result is never slower"
    }
    scheduled = parser.add_mutually_exclusive_group()
    options.add_options(scheduled, {**options.SCHEDULED, **improve})
    options.add_options(
        parser,
        {
            "--exact-sizes": "make a schedule for the estimated sizes only, which may fail at "
            "others (default: correct at every size that the pipeline allows)",
            **options.budget(),
            "-o --output FILE": "write the schedule: .json, .py (Python) or .h (C++); - prints "
            "JSON",
            "--runtime-checks": "add a function to the written .py or .h that checks, at run time, "
            "whether outputs have the sizes that the schedule requires",
            **options.REPORT,
            **options.SERVE,
            **options.JSON,
            **options.QUIET,
        },
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    writer = _writer(args.output)
    if args.runtime_checks and writer == "to_json":
        raise TilewrightError("--runtime-checks is for schedules written with -o FILE.py or .h")
    arguments.check_outputs(args)
    given = arguments.common(args)

    from tilewright.cli.live import ProgressPage, live_page
    from tilewright.cli.output import show, write_file
    from tilewright.cli.pipeline import load_pipeline
    from tilewright.cli.progress import show_progress

    given |= _planning(args)
    pipeline = load_pipeline(arguments.pipeline_of(args), dict(args.arg))
    from tilewright.halide import schedule

    with live_page(args.serve) as page, show_progress(args.quiet) as progress, with_flags():
        watch = page and ProgressPage(f"Scheduling {pipeline.name}", page)

        def on_progress(step: Progress) -> None:
            progress(step)
            if watch:
                watch(step)

        result = schedule(
            pipeline.pipeline,
            name=pipeline.name,
            mode=args.mode or ("top" if args.improve else "oneshot"),
            fusion=args.fusion,
            objective=args.objective,
            scheduler=args.scheduler,
            search=args.search,
            verify=args.verify,
            check=not args.no_check,
            keep_schedule=args.keep,
            discard_schedule=args.discard_schedule,
            exact_sizes=args.exact_sizes,
            improve=args.improve,
            on_progress=on_progress,
            **given,
        )
    report = result.report()
    show(args, report.to_dict(), report)
    if interrupted() and report.verified is not True:
        raise TilewrightError("interrupted before a schedule was verified: no file is written")
    if args.output:
        checks = {"runtime_checks": True} if args.runtime_checks else {}
        write_file(args.output, getattr(result, writer)(**checks))
    if args.report:
        from tilewright.cli.page import write_page

        made = with_provenance(report, args.words, args.seed, args.load_before)
        write_page(args.report, made, "schedule", result, args.records)
    return 1 if report.verified is False else 0


def _planning(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options that only some modes and schedulers have.

    Raises:
        TilewrightError: The mode or the scheduler has no such option.
    """
    given: dict[str, Any] = {}
    if args.evaluations is not None:
        if args.mode != "tune":
            raise TilewrightError("--evaluations is for --mode tune: give both, or neither")
        given["evaluations"] = args.evaluations
    if args.model is not None:
        if args.scheduler == "analytic":
            raise TilewrightError("--model is for --scheduler learned or auto: give both")
        given["model"] = args.model
    if args.search != "tilewright" and args.scheduler != "learned":
        raise TilewrightError(
            f"--search {args.search} is for --scheduler learned on CUDA: give both"
        )
    return given


def _writer(output: str | None) -> str:
    if output is None or output == "-":
        return "to_json"
    try:
        return _WRITERS[Path(output).suffix]
    except KeyError:
        raise TilewrightError(
            f"cannot tell from {output!r} how to write the schedule: name a .json, .py or .h file"
        ) from None
