"""Code that the commands of ``tilewright patterns`` share: options, programs, entries of files."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli.suggestions import meant
from tilewright.errors import TilewrightError
from tilewright.shapes import damaged, read_json

if TYPE_CHECKING:
    from tilewright.patterns import Pattern, ThreadGrid
    from tilewright.patterns.rewriting import Derivation, ExplorationSettings

FORMAT, VERSION = "tilewright-patterns-derived", 1

PROGRAM = {
    "[program PROGRAM]": "the program: file.py:name, where name is a pattern or a function that "
    "returns one (default name: that of the file)",
    "--example NAME": "use a program that comes with Tilewright instead of PROGRAM, such as "
    "jacobi5 or matmul",
    "--arg NAME=VALUE ...": "argument of the function; repeatable",
    "--sizes M=512,N=64": "values of the program's sizes",
}
EXPLORATION = {
    "--depth N = 2": "maximum number of algorithmic rules (tilings, splits, fusions, ...) in a "
    "derivation",
    "--tiles 4,8,16": "edges of tiles and lengths of chunks to try (default: 2 to 128, powers of "
    "two)",
    "--mappings A,B": "what may run loops: global, group (of a grid), cores, lanes (of a CPU); "
    "default: all",
    "--memory A,B": "where intermediate results may be stored: global, local, private; "
    "default: global,local",
    "--limit N = 1000": "number of derived programs after which the search stops",
    "--sliding": "also keep windows in registers from one iteration of a loop to the next",
    "--vectors 2,4": "also load and store vectors of this many elements on a GPU (default: none)",
    "--top N = 10": "number of programs that are shown and written",
}


def load_program(args: argparse.Namespace) -> Pattern:
    """Return the program that the command line names, checked before any of its sizes.

    Raises:
        TilewrightError: none or two are named, the name is unknown, the user's code fails, or the
            program is not well typed.
    """
    from tilewright.patterns import check_pattern

    program = _named(args)
    check_pattern(program)
    return program


def _named(args: argparse.Namespace) -> Pattern:
    arguments = dict(args.arg)
    if args.example is not None:
        if args.program is not None:
            raise TilewrightError(f"give {args.program} or --example {args.example}, not both")
        return _example(args.example, arguments)
    if args.program is None:
        raise TilewrightError(
            "name a program as file.py:name, or an example, as in --example jacobi5"
        )
    return _from_file(args.program, arguments)


def _example(name: str, arguments: dict[str, Any]) -> Pattern:
    from tilewright.cli.pipeline import check_arguments
    from tilewright.patterns.programs import APPLICATIONS, LINEAR_ALGEBRA, STENCILS

    known: dict[str, Callable[..., Pattern]] = {s.name: s.build for s in STENCILS.values()}
    known |= LINEAR_ALGEBRA | APPLICATIONS
    if name not in known:
        raise TilewrightError(
            f"{name!r} is not an example{meant(name, known)}; the examples are {', '.join(known)}"
        )
    check_arguments(Path("--example"), name, known[name], arguments)
    return known[name](**arguments)


def _from_file(text: str, arguments: dict[str, Any]) -> Pattern:
    from tilewright.cli.pipeline import call_user, check_arguments, load_module
    from tilewright.patterns import Pattern

    path_text, _, name = text.partition(":") if ".py:" in text else (text, "", "")
    path = Path(path_text)
    if not path.is_file() or path.suffix != ".py":
        what = "is not a Python file" if path.exists() else "does not exist"
        raise TilewrightError(f"{path_text} {what}: name a program as file.py:name")
    name = name or path.stem
    module = load_module(path)
    found = getattr(module, name, None)
    if found is None:
        there = [k for k, v in vars(module).items() if isinstance(v, Pattern) and k[0] != "_"]
        raise TilewrightError(
            f"{path} has no program {name!r}{meant(name, there)}; its patterns are "
            f"{', '.join(there) or 'none'}"
        )
    if isinstance(found, Pattern):
        if arguments:
            raise TilewrightError(
                f"{text} is a pattern and takes no --arg; for its sizes use --sizes"
            )
        return found
    if not callable(found):
        raise TilewrightError(f"{path}:{name} is {_kind(found)}, not a pattern: {_CURE}")
    check_arguments(path, name, found, arguments)
    program = call_user(path, found, **arguments)
    if not isinstance(program, Pattern):
        raise TilewrightError(f"{path}:{name} returned {_kind(program)}, not a pattern: {_CURE}")
    return program


_CURE = "make one that starts at its inputs, as in array('A', f32[N]) >> map(f)"


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a value of type {type(value).__name__}"


def settings(args: argparse.Namespace, target: str) -> ExplorationSettings:
    """Return the settings of an exploration that the options give."""
    from tilewright.patterns.rewriting import ExplorationSettings

    names = ("tiles", "mappings", "memory")
    given: dict[str, Any] = {k: tuple(getattr(args, k)) for k in names if getattr(args, k)}
    return ExplorationSettings(
        target=target,
        depth=args.depth,
        limit=args.limit,
        sliding=args.sliding,
        vectors=args.vectors or (),
        **given,
    )


def all_sizes(program: Pattern, args: argparse.Namespace) -> dict[str, int]:
    """Return the values of all sizes of a program.

    Raises:
        TilewrightError: the command line lacks the value of one.
    """
    from tilewright.patterns import size_names

    known = dict(args.sizes or {})
    names = size_names(program)
    if missing := [name for name in names if name not in known]:
        wanted = ",".join(f"{name}={known.get(name, 1024)}" for name in names)
        raise TilewrightError(
            f"the program has no value for {', '.join(missing)}: give it, as in --sizes {wanted}"
        )
    return known


def entry(number: int, derivation: Derivation, launch: ThreadGrid | None = None) -> dict[str, Any]:
    """Return a derived program as JSON data, which `read_entry` reads."""
    from tilewright.patterns import to_json

    return {
        "number": number,
        "steps": [str(rule) for rule, _ in derivation.steps],
        "text": str(derivation.program),
        "launch": None if launch is None else launch.to_json(),
        "program": to_json(derivation.program),
    }


def document(args: argparse.Namespace, target: str, entries: Sequence[Any]) -> dict[str, Any]:
    """Return derived programs as a JSON document."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "program": args.program or args.example,
        "sizes": dict(args.sizes or {}),
        "target": target,
        "derived": list(entries),
    }


def read_entry(path: str, number: int) -> tuple[Pattern, ThreadGrid | None, str]:
    """Return a program of a file that ``derive`` or ``rank`` wrote, its launch and its target.

    Raises:
        TilewrightError: it is not such a file, or has no program of this number.
    """
    from tilewright.patterns import ThreadGrid, from_json

    data = read_json(Path(path), TilewrightError)
    given = (data.get("format"), data.get("version")) if isinstance(data, dict) else None
    if given != (FORMAT, VERSION):
        raise TilewrightError(f"{path} is not written by tilewright patterns derive or rank")
    with damaged(f"{path}: program {number} cannot be read", TilewrightError):
        entries: Mapping[int, Any] = {item["number"]: item for item in data["derived"]}
        if number not in entries:
            raise TilewrightError(
                f"{path} has no program {number}; it has {', '.join(map(str, entries)) or 'none'}"
            )
        found = entries[number]
        launch = None if found["launch"] is None else ThreadGrid.from_json(found["launch"])
        return from_json(found["program"]), launch, str(data["target"])


def product(numbers: Sequence[int | str]) -> str:
    """Return sizes by dimension as text, without ones at the end.

    >>> product([32, 4, 1]), product([1, 1, 1])
    ('32x4', '1')
    """
    last = max((i for i, number in enumerate(numbers) if number != 1), default=0)
    return "x".join(map(str, numbers[: last + 1]))
