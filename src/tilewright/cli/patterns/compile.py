"""``tilewright patterns compile``: the source of a kernel, checked against the interpreter."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tilewright.cli import arguments, options
from tilewright.cli.output import show, warn, write_file
from tilewright.cli.patterns import shared
from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.arith import Poly
    from tilewright.patterns import Pattern, ThreadGrid

# Relative to the largest number of the result. f32 rounds by 6e-8, and sums are regrouped.
_TOLERANCE = 1e-4


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of ``tilewright patterns``."""
    program = {
        "[program PROGRAM]": "the program: file.py:name, or a .json file that derive or rank wrote"
    }
    commands.add_parser(
        "compile",
        example="tilewright patterns compile --example jacobi5 -o jacobi5.c",
        help="write the source of a program's kernel",
        description="Write a program as C, OpenCL or CUDA source. With --verify, also compile it, "
        "run it on random inputs and compare the result with the interpreter's.",
        options={
            **program,
            **{k: v for k, v in shared.PROGRAM.items() if not k.startswith("[")},
            "--number N": "the number of the program in the .json file (default: 1)",
            "--target c|opencl|cuda": "the language (default: c; for a .json file of GPU kernels, "
            "opencl)",
            "--name NAME = kernel": "the name of the function",
            "--verify": "run the kernel and compare it with the interpreter",
            "--seed SEED = 0": "seed of the random inputs",
            "-o --output FILE": "write the source; - prints it (default: print it)",
            "--host FILE": "write a file that runs the kernel without Python: C, or CUDA C++",
            "--header FILE": "write a C header that declares what the file of --host defines",
            **options.JSON,
            **options.QUIET,
        },
        run=run,
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 if the kernel's result is wrong."""
    arguments.check_outputs(args)
    program, launch, target = _program(args)
    from tilewright.patterns import header, host, source, with_sizes
    from tilewright.patterns import launches as launches_of

    fixed = with_sizes(program, dict(args.sizes or {}))
    text = source(fixed, target, args.name, launch)
    launches = {}
    if target != "c":
        launches = {
            kernel: ([_number(g) for g in groups], threads)
            for kernel, (groups, threads) in launches_of(fixed, args.name, launch).items()
        }
    error = _error(fixed, target, launch, args) if args.verify else None
    right = None if error is None else error <= _TOLERANCE
    result = {
        "name": args.name,
        "target": target,
        "launches": {k: {"groups": g, "threads": t} for k, (g, t) in launches.items()},
        "source": text,
        "relative_error": error,
        "verified": right,
    }
    lines = [
        f"{kernel}: {shared.product(groups)} groups of {shared.product(threads)} threads"
        for kernel, (groups, threads) in launches.items()
    ]
    if error is not None:
        word = "verified" if right else "WRONG"
        lines.append(f"{word}: relative error {error:.2g} of the interpreter's result")
    written = {}
    if args.host:
        written[args.host] = host(fixed, target, args.name, launch)
    if args.header:
        written[args.header] = header(fixed, args.name)
    _present(args, text, result, lines, right is not False, written)
    return 1 if right is False else 0


def _number(size: Poly) -> int | str:
    """Return a number of groups, as text where it depends on the program's sizes."""
    text = str(size)
    plain = text.isidentifier() or (text.startswith("((") and text.endswith(")"))
    return size.value if isinstance(size.value, int) else text if plain else f"({text})"


def _present(
    args: argparse.Namespace,
    text: str,
    result: dict[str, Any],
    lines: list[str],
    right: bool,
    written: dict[str, str],
) -> None:
    """Print the result, and write the source and other files if it is right."""
    printed = args.output == "-" or (args.output is None and not written)
    if args.output and not printed:
        written = {args.output: text, **written}
    if not args.json and printed:
        for line in lines if not args.quiet or not right else []:
            warn(line)
        if right:
            write_file("-", text)
    else:
        show(args, result, *lines)
    for path, content in written.items() if right else ():
        write_file(path, content)
        if not args.quiet and not args.json and not printed:
            print(f"wrote {path}")


def _program(args: argparse.Namespace) -> tuple[Pattern, ThreadGrid | None, str]:
    """Return the program, its launch and the target."""
    from tilewright.patterns import check_pattern

    if args.program is None or not args.program.endswith(".json"):
        if args.number is not None:
            raise TilewrightError("--number is for a .json file that derive or rank wrote")
        return shared.load_program(args), None, args.target or "c"
    if args.example is not None or args.arg:
        raise TilewrightError(f"{args.program} has the program: leave out --example and --arg")
    program, launch, derived_for = shared.read_entry(args.program, args.number or 1)
    check_pattern(program)
    usual = "c" if derived_for == "c" else "opencl"
    return program, launch, args.target or usual


def _error(
    program: Pattern, target: str, launch: ThreadGrid | None, args: argparse.Namespace
) -> float:
    """Return the relative error of the compiled kernel on random inputs."""
    from tilewright.patterns import compile, interpret, random_inputs, relative_error

    shared.all_sizes(program, args)
    inputs = random_inputs(program, None, args.seed)
    kernel = compile(program, target, args.name, launch)
    return relative_error(kernel(*inputs), interpret(program, *inputs))
