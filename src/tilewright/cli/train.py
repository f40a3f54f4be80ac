"""``tilewright train``: adapts the learned scheduler's cost model to recorded measurements."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tilewright.cli import arguments, options

if TYPE_CHECKING:
    from tilewright.halide import TrainedModel


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of the command line."""
    commands.add_parser(
        "train",
        example="tilewright train harris.py blur.py -o model.json",
        help="adapt the learned scheduler's cost model to measurements of this machine",
        description="Fit the cost model of --scheduler learned to the schedules that the records "
        "have of these pipelines on this machine, starting from the model that comes with "
        "Tilewright. More records come from tilewright schedule with --mode tune. Use the result "
        "with tilewright schedule --scheduler learned --model MODEL.json.",
        options={
            "pipelines PIPELINE ...": "the pipelines: file.py:function, file.py:Generator, or "
            ".hlpipe files, with estimates of all sizes",
            **options.records("measurements to learn from"),
            "--from MODEL.json": "adapt this model instead of the one that comes with Tilewright",
            "--no-calibration": "use the cost model's default rates for the CPU's family instead "
            "of those of tilewright machine --calibrate",
            "--seed SEED = 0": "which schedules are left out together to judge the model",
            "-o --output MODEL.json required": "write the model",
            **options.JSON,
            **options.QUIET,
        },
        run=run,
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    arguments.check_outputs(args)
    from tilewright.cli.output import show, write_file
    from tilewright.cli.pipeline import load_pipeline
    from tilewright.halide import train_model

    pipelines = {text: load_pipeline(text).pipeline for text in args.pipelines}
    found = train_model(
        pipelines,
        records=args.records,
        model=getattr(args, "from"),
        calibration=not args.no_calibration,
        seed=args.seed,
    )
    show(args, _data(found), _text(found))
    write_file(args.output, found.model.to_json())
    return 0


def _data(found: TrainedModel) -> dict[str, Any]:
    """Return what was found as JSON data."""
    return {
        "schedules": dict(found.schedules),
        "misordered_before": found.misordered_before,
        "misordered": found.misordered,
        "better": found.better,
        "coefficients": dict(found.model.coefficients),
    }


def _text(found: TrainedModel) -> str:
    """Return what was found as lines of text."""
    count = sum(found.schedules.values())
    lines = [f"{name}: {number} recorded schedules" for name, number in found.schedules.items()]
    lines.append(
        f"Of the differences between two schedules of a pipeline, {found.misordered_before:.1%} "
        f"were in the wrong order before, and {found.misordered:.1%} are now, for schedules that "
        "the fit did not see."
    )
    if not found.better:
        lines.append(
            f"The {count} schedules do not improve the model: the one before is as good, and more "
            "measurements may help."
        )
    return "\n".join(lines)
