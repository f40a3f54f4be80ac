"""Options of commands, declared as tables from usage text to help text."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from tilewright.cli.values import KINDS

# Options of several commands.
JSON = {"--json": "print the result as JSON"}
QUIET = {"-q --quiet": "print no progress and no notes"}
RESULT = {"-o --output FILE.json": "write the result as JSON; - prints it", **JSON, **QUIET}
REPORT = {"--report PAGE.html": "write an HTML report; - prints it"}
SERVE = {
    "--serve": "show the run on a page while it goes on; its address, which works on this machine "
    "only, is printed first"
}
TIME_LIMIT = {"--time-limit TIME": "total time, such as 90s, 10m or 2h"}
PIPELINE = {
    "[pipeline PIPELINE]": "the pipeline: file.py:function, file.py:Generator, or a .hlpipe file",
    "--example NAME": "use a program that comes with Tilewright instead of PIPELINE, such as "
    "harris (tilewright new lists them)",
    "--target TARGET": "host, cuda, opencl, or a Halide target string (default: that of the "
    "machine)",
    "--machine NAME": "schedule for this machine: a GPU by name (tilewright machine --list), or a "
    "JSON file written by tilewright machine --json (default: this one)",
    "--no-calibration": "use the cost model's default rates for the CPU's family, or the GPU's "
    "default constants, instead of those of tilewright machine --calibrate and --calibrate-gpu",
    "--estimate NAME=SIZES ...": "sizes of an output or input for which the pipeline has no "
    "estimate, such as out=1536x2560x3 or out=-1:1536,0:2560 (min:extent); repeatable: the n-th "
    "estimate of a name belongs to the n-th size, and the schedule has separate loops for each "
    "size",
    "--set NAME=VALUE ...": "value of a scalar parameter; repeatable",
    "--arg NAME=VALUE ...": "argument of the function, or parameter of the Generator; repeatable",
    "--inputs FILE": "inputs to run with: an .npz file with one array per input, or a "
    "file.py:function that returns a dict of arrays; axis d of an array is dimension d of the "
    "input (default: random)",
    "--seed SEED = 0": "seed of the random inputs, and of the learned scheduler",
}
# For pipelines whose Funcs already have schedules; they exclude each other.
SCHEDULED = {
    "--keep": "keep the schedules that Funcs already have",
    "--discard-schedule": "drop the schedules that Funcs already have; estimates and bounds stay",
}


def records(text: str = "keep measurements in this file") -> dict[str, str]:
    """Return the option for the file of measurements."""
    from tilewright.records import default_path

    place = str(default_path()).replace("%", "%%")
    return {"--records FILE": f"{text} (default: {place})"}


def budget() -> dict[str, str]:
    """Return the options that limit time and memory, and those of builds and records."""
    return {
        **TIME_LIMIT,
        "--jobs N": "number of builds at the same time (default: one per core)",
        "--candidate-time TIME = 120s": "time limit for building one candidate",
        "--candidate-memory SIZE = 8G": "memory limit of one candidate",
        **records(),
        "--remeasure": "measure candidates again even if they are recorded",
    }


def add_options(parser: argparse._ActionsContainer, options: Mapping[str, str]) -> None:
    """Add options to a parser or to a group.

    Args:
        parser: the parser or group.
        options: the help by what is typed, written as in a usage line: the names of an option and
            the placeholder of its value, which decides how it is parsed (`KINDS`); ``a|b`` are the
            values to choose from; ``...`` means that it may be repeated, ``required`` that it
            must be given, ``= VALUE`` is its default. An argument without dashes is positional,
            optional in brackets.

    >>> parser = argparse.ArgumentParser()
    >>> add_options(parser, {"runs RUNS.csv": "the runs", "-n --count N = 250": "how many"})
    >>> parser.parse_args(["a.csv"])
    Namespace(runs='a.csv', count=250)
    """
    for typed, text in options.items():
        names, how = _declared(typed)
        stated = f" (default: {how['default']})" if how.get("default") else ""
        parser.add_argument(*names, help=text + stated, **how)


def _declared(typed: str) -> tuple[list[str], dict[str, Any]]:
    """Return the names and keyword arguments that ``add_argument`` takes."""
    usage, _, default = typed.partition(" = ")
    inner = usage.removeprefix("[").removesuffix("]") if usage.startswith("[") else usage
    words = inner.removesuffix(" ...").removesuffix(" required").split()
    named = [word for word in words if word.startswith("-")]
    names = named or words[:1]
    several, optional = inner.endswith(" ..."), inner != usage
    how: dict[str, Any] = {}
    for placeholder in words[len(names) :]:
        if "|" in placeholder:
            how["choices"] = placeholder.split("|")
        else:
            how |= {"metavar": placeholder, "type": KINDS.get(placeholder, str)}
    if named and not how:
        how["action"] = "store_true"
    elif named and several:
        how |= {"action": "append", "default": []}
    elif several or optional:
        how["nargs"] = ("*" if optional else "+") if several else "?"
    if usage.endswith(" required"):
        how["required"] = True
    if default:
        how["default"] = default
    return names, how
