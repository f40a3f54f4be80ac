"""``tilewright map``: decides which task of a graph runs on which device, by predicted times."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli import arguments, options
from tilewright.cli.output import show, write_file
from tilewright.cli.provenance import provenance
from tilewright.errors import TilewrightError
from tilewright.shapes import naming, read_json

if TYPE_CHECKING:
    from tilewright.mapping import GraphTask, Platform

# The entries of a graph's file other than its tasks.
_MACHINE = ("devices", "links", "link", "home")


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of the command line."""
    commands.add_parser(
        "map",
        example="tilewright map graph.json --model gpu:matmul=gpu.json --report plan.html",
        help="decide which task of a graph runs on which device",
        description="Place a graph of tasks on devices so that all are done as early as possible. "
        "The graph gives the seconds of each task per device, or models of tilewright predict "
        "fit predict them.",
        options={
            "graph GRAPH.json": "the tasks, what each needs, and the devices with their links",
            "--model DEVICE:KERNEL=MODEL.json ...": "predict tasks of this kernel on this device "
            "by this model; repeatable",
            "--robust": "keep the longest makespan short that the models' intervals allow",
            "--coverage SHARE = 0.9": "nominal probability of the intervals",
            "--method auto|search|heft|peft|exact = auto": "search improves list schedules (heft, "
            "peft); exact proves an optimum of a dozen tasks; auto does both",
            "--seed SEED = 0": "seed of the search",
            "-o --output FILE.json": "write the plan as JSON; - prints it",
            **options.REPORT,
            **options.JSON,
            **options.QUIET,
        },
        run=run,
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    import json

    from tilewright.mapping import graph_from_dict, plan, plan_page, plan_text, predictor
    from tilewright.prediction import load

    arguments.check_outputs(args)
    data = read_json(args.graph, TilewrightError)
    with naming(args.graph):
        graph = graph_from_dict(data)
    given = dict(_model(text) for text in args.model or ())
    platform = _platform(data, [device for _, device in given], graph.tasks)
    for kernel, device in given:
        if device not in platform.names:
            raise TilewrightError(
                f"--model names the device {device!r}; there are {', '.join(platform.names)}"
            )
        if all(task.kernel != kernel for task in graph.tasks):
            raise TilewrightError(f"--model names the kernel {kernel!r}, which no task has")
    models = {pair: load(path) for pair, path in given.items()}
    found = plan(
        graph,
        platform,
        predictor(models, args.coverage),
        method=args.method,
        seed=args.seed,
        robust=args.robust,
    )
    show(args, found.to_dict(), plan_text(found))
    if args.output:
        write_file(args.output, json.dumps(found.to_dict(), indent=1) + "\n")
    if args.report:
        facts = provenance(args.words, args.seed, args.load_before)
        title = f"Plan of {Path(args.graph).name}"
        write_file(args.report, plan_page(found, title, facts=facts))
    return 0


def _model(text: str) -> tuple[tuple[str, str], str]:
    """Return ((kernel, device), path) of ``DEVICE:KERNEL=PATH``."""
    name, found, path = text.partition("=")
    device, colon, kernel = name.rpartition(":")
    if not (found and colon and device and kernel and path):
        raise TilewrightError(
            f"--model {text!r} is not DEVICE:KERNEL=MODEL.json, such as gpu:matmul=gpu.json"
        )
    return (kernel, device), path


def _platform(
    data: Mapping[str, Any], devices: Iterable[str], tasks: Sequence[GraphTask]
) -> Platform:
    """Return the machine that the file describes, or the devices that tasks and models name."""
    from tilewright.mapping import Device, Platform, platform_from_dict

    if "devices" in data:
        return platform_from_dict({key: data[key] for key in _MACHINE if key in data})
    names = [*devices, *(name for task in tasks for name in task.seconds)]
    if not names:
        raise TilewrightError(
            "the graph has no seconds of any task on a device: add them, a list 'devices' with "
            "--model, or models of some device"
        )
    return Platform(tuple(Device(name) for name in dict.fromkeys(names)))
