"""Checks of a problem file; errors name the line and the cure."""

from __future__ import annotations

import ast
import math
import re
import shlex
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.arith import ExpressionError, parse_expression
from tilewright.measure import filled, names_in
from tilewright.tuning.errors import ConstraintError, SpaceError, nearest
from tilewright.tuning.space.expressions import Constraint, parse
from tilewright.tuning.space.parameters import Integer, Parameter, Permutation, Real
from tilewright.tuning.space.space import Space

TOP = {"name", "parameters", "constraints", "objective", "search", "start", "prior"}
SCRATCH = "scratch"  # in braces: a new folder per evaluation
OBJECTIVE = {
    "command",
    "build",
    "directory",
    "env",
    "value",
    "json",
    "regex",
    "require",
    "maximise",
    "timeout",
    "build_timeout",
    "memory_mb",
    "repeat",
}
SEARCH = {"budget", "seed", "jobs", "time_limit", "converge", "confirm", "cutoff"}


def known(where: str, entries: Any, names: Collection[str]) -> None:
    """Reject entries of a table that are not among ``names``."""
    if not isinstance(entries, Mapping):
        raise SpaceError(f"'{where.rstrip('.')}' must be a table")
    for key in entries:
        if key not in names:
            raise SpaceError(
                f"'{where}{key}' is unknown{nearest(key, names)}; use {', '.join(sorted(names))}"
            )


def check_objective(objective: Any, parameters: Collection[str], folder: Path) -> None:
    """Reject an ``[objective]`` that cannot be run.

    Args:
        objective: the table.
        parameters: the names that commands may have in braces.
        folder: where relative directories begin.

    Raises:
        SpaceError: naming the entry.
    """
    if not isinstance(objective, dict) or not objective.get("command"):
        raise SpaceError("[objective] needs a 'command', a list of words")
    _check_words(objective, parameters)
    value = objective.get("value", "time")
    if value not in ("time", "json", "regex"):
        raise SpaceError(f"objective.value is {value!r}; use time, json or regex")
    if value == "regex":
        _check_regex(objective)
    keys = objective.get("json", "time")
    keys = keys if isinstance(keys, list) else [keys]
    if not keys or not all(isinstance(key, str) and key for key in keys):
        raise SpaceError(
            f"objective.json is {objective['json']!r}; give a key in quotes, such as "
            '"result.seconds", or a list of keys'
        )
    requirements(objective)
    if not isinstance(objective.get("maximise", False), bool):
        raise SpaceError(f"objective.maximise is {objective['maximise']!r}; use true or false")
    if objective.get("maximise") and value == "time":
        raise SpaceError("objective.maximise is for value = 'json' or 'regex'; a time is minimised")
    for key in ("timeout", "build_timeout", "memory_mb", "repeat"):
        _check_number("objective", key, objective, whole=key == "repeat")
    directory = objective.get("directory", ".")
    if not isinstance(directory, str) or not (folder / directory).is_dir():
        raise SpaceError(
            f"objective.directory: {directory!r} is not a directory in {folder}: make it, or "
            "leave the entry out"
        )


def _check_words(objective: Mapping[str, Any], parameters: Collection[str]) -> None:
    """Refuse empty commands, and words that name what is not a parameter."""
    for key in ("command", "build", "env"):
        lists = lists_of(objective, key)
        if key in objective and key != "env" and not all(lists):
            raise SpaceError(f"objective.{key} is empty, or a step of it: give words in quotes")
        for name in names_in([word for words in lists for word in words]):
            if name not in parameters and name != SCRATCH:
                raise SpaceError(
                    f"objective.{key} names {{{name}}}, which is not a parameter"
                    f"{nearest(name, parameters)}; the parameters are {', '.join(parameters)}"
                    f"; the text itself is written {{{{{name}}}}}"
                )


def check_formats(objective: Mapping[str, Any], space: Space) -> None:
    """Reject words whose formats, such as ``{tile:03d}``, do not suit the parameter's values.

    Raises:
        SpaceError: naming the entry, the word and the value.
    """
    for key in ("command", "build", "env"):
        for word in (word for words in lists_of(objective, key) for word in words):
            for name in names_in([word]):
                for value in _examples(space[name]) if name in space.index else ():
                    try:
                        filled([word], {name: value})
                    except (TypeError, ValueError) as error:
                        raise SpaceError(
                            f"objective.{key}: the format in {word!r} does not suit {name} = "
                            f"{value!r}: {error}"
                        ) from None


def _examples(parameter: Parameter) -> Sequence[Any]:
    """Return values of a parameter, among them one of each type."""
    if isinstance(parameter, Integer | Real):
        return [parameter.low, parameter.high]
    if isinstance(parameter, Permutation):
        return [parameter.item_names]
    return parameter.values


def check_program(objective: Mapping[str, Any], folder: Path) -> None:
    """Reject an ``[objective]`` whose program does not exist.

    Args:
        objective: the table, checked by `check_objective`.
        folder: where relative directories begin.

    Raises:
        SpaceError: naming the entry.
    """
    directory = folder / objective.get("directory", ".")
    # a program that the command builds does not exist yet
    key = "build" if "build" in objective else "command"
    words = lists_of(objective, key)[0]
    program = words[0]
    if names_in([program]):
        return
    # a path is relative to the directory in which it is run; other words are looked up in PATH
    place = directory / program if "/" in program else program
    if shutil.which(place) is None:
        where = f"from {directory}" if "/" in program else "in PATH"
        raise SpaceError(
            f"objective.{key}: cannot run {program!r}: no executable of that name {where}; "
            f"install it, or give its path from {directory} ('./{Path(program).name}' for a file "
            "in that folder)"
        )


def lists_of(objective: Mapping[str, Any], key: str) -> list[list[str]]:
    """Return the lists of words of an entry: a command, the steps of a build, or `env`'s texts."""
    entry = objective.get(key, [])
    if key == "env":
        entry = objective.get(key, {})
        if not isinstance(entry, dict) or not all(isinstance(v, str) for v in entry.values()):
            raise SpaceError('objective.env must be a table of texts, such as {THREADS = "{jobs}"}')
        for name, text in entry.items():
            if not name or "=" in name or "\0" in name + text:
                raise SpaceError(f"objective.env: no variable can be {name!r} = {text!r}")
        return [list(entry.values())]
    steps = key == "build" and isinstance(entry, list) and any(isinstance(e, list) for e in entry)
    return [_words(each, key) for each in (entry if steps else [entry])]


def _words(words: Any, key: str) -> list[str]:
    """Return the words of a command: a list, or a text that is split like in a shell."""
    if isinstance(words, str):
        try:
            return shlex.split(words)
        except ValueError as error:
            raise SpaceError(f"objective.{key}: {error}; close it, or give a list") from None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        steps = ", or a list of such lists" if key == "build" else ""
        raise SpaceError(f"objective.{key} must be a list of words in quotes{steps}")
    return words


def requirements(objective: Mapping[str, Any]) -> list[Constraint]:
    """Return the constraints on what the command prints.

    Raises:
        SpaceError: they cannot be read, or the objective is not read from JSON.
    """
    texts = objective.get("require", [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise SpaceError('objective.require must be a list of texts, such as ["error < 1e-3"]')
    if texts and objective.get("value") != "json":
        raise SpaceError("objective.require is about the JSON that is printed: use value = 'json'")
    found = []
    for text in texts:
        try:
            names = {n.id for n in ast.walk(parse_expression(text)) if isinstance(n, ast.Name)}
            found += parse(text, dict.fromkeys(names))
        except (ExpressionError, ConstraintError) as error:
            raise SpaceError(f"objective.require: {text!r}: {error}") from None
    return found


def _check_regex(objective: Mapping[str, Any]) -> None:
    try:
        groups = re.compile(objective["regex"]).groups
    except KeyError:
        raise SpaceError("objective.value = 'regex' needs objective.regex") from None
    except (re.error, TypeError) as error:
        raise SpaceError(f"objective.regex is not a regular expression: {error}") from None
    if groups != 1:
        raise SpaceError("objective.regex needs one group in parentheses: the number")


def check_search(search: Mapping[str, Any]) -> None:
    """Reject a ``[search]`` with invalid numbers.

    Raises:
        SpaceError: naming the entry.
    """
    for key in ("budget", "jobs", "time_limit", "converge"):
        _check_number("search", key, search, whole=key in ("budget", "jobs"))
    for key in ("seed", "confirm"):
        number = search.get(key, 0)
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise SpaceError(f"search.{key} is {number!r}; give a whole number from 0")
    _check_number("search", "cutoff", search, whole=False, above=1)


def _check_number(
    table: str, key: str, entries: Mapping[str, Any], *, whole: bool, above: int = 0
) -> None:
    number = entries.get(key, above + 1)
    right = isinstance(number, int if whole else int | float) and not isinstance(number, bool)
    if not right or not math.isfinite(number) or number <= above:
        kind = "a whole number" if whole else "a number"
        limit = "zero" if above == 0 else str(above)
        raise SpaceError(f"{table}.{key} is {number!r}; give {kind} above {limit}")


def line_of(text: str, message: str) -> int | None:
    """Return the number of the line that a message is about, counted from 1; None if not found."""
    lines = text.splitlines()
    found = re.search(r"constraint '(.+?)'(?: |:)|constraint \"(.+?)\"(?: |:)", message)
    if found:
        wanted = found.group(1) or found.group(2)
        for number, line in enumerate(lines, 1):
            if wanted in line:
                return number
    found = re.match(r"parameter '?(\w+)", message)
    if found:
        return _line_after(lines, None, rf"\s*name\s*=\s*[\"']{found.group(1)}[\"']")
    found = re.match(r"'?\[?(objective|search|start|prior)(?:\.(\w+))?", message)
    if found:
        table, key = found.groups()
        head = rf"\s*\[+\s*{table}\s*\]"
        return _line_after(lines, head, rf"\s*{key}\s*=") if key else _line_after(lines, None, head)
    found = re.match(r"'(\w+)' ", message)
    if found:
        return _line_after(lines, None, rf"\s*(\[+\s*)?{found.group(1)}\s*[\]=]")
    return None


def _line_after(lines: list[str], head: str | None, wanted: str) -> int | None:
    """Return the first line that begins with ``wanted``, after one that begins with ``head``."""
    begun = head is None
    for number, line in enumerate(lines, 1):
        if begun and re.match(wanted, line):
            return number
        begun = begun or (head is not None and re.match(head, line) is not None)
    return None
