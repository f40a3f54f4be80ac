"""The threads of the launches in a lowered pipeline, at the pipeline's estimates.

Halide launches as many threads per block as the largest thread loop of a kernel may have. Where it
cannot relate the ends of such a loop to each other, because they are quotients or multiples of
coordinates, it takes the last end over all blocks minus the first begin: the whole width of an
image, for example. `ScheduledNest` bounds each block exactly, so its launches are too small then.
This module evaluates the launch's arguments in the statement that Halide's lowering emits.

An expression is evaluated only where it is used, with the definitions before the launch. What this
module does not know (loads, other functions) makes the argument unknown.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

_LAUNCH = re.compile(r"= halide_(?:cuda|opencl)_run\(")
_LET = re.compile(r"\s*let ([\w.$]+) = (.*)")
_METADATA = re.compile(
    r"_halide_buffer_get_(min|extent)\(\(struct halide_buffer_t \*\)([\w.$]+)\.buffer, (\d+)\)"
)
_NAME = re.compile(r"[A-Za-z_][\w.$]*")
_TOKEN = re.compile(
    r"\s*(?:(?P<cast>\((?:u?int\d+|void \*|struct [\w ]+\*+)\))|(?P<number>\d+)"
    r"|(?P<name>[A-Za-z_][\w.$]*)|(?P<op>&&|\|\||[<>=!]=|[-+*/%<>=!(),]))"
)
_THREADS = slice(5, 8)  # among the arguments: context, kernel, blocks, threads, shared memory, …
Operator = Callable[[int, int], int]
_FUNCTIONS: Mapping[str, Callable[..., int]] = {
    "max": lambda a, b: max(a, b),
    "min": lambda a, b: min(a, b),
    "select": lambda condition, yes, no: yes if condition else no,
    "likely": lambda value: value,
    "likely_if_innermost": lambda value: value,
}
# Operators by precedence, the loosest first. Halide's quotients of integers are rounded so that
# remainders are not negative, and those by 0 are 0.
_LEVELS: tuple[Mapping[str, Operator], ...] = (
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {
        "==": lambda a, b: int(a == b),
        "!=": lambda a, b: int(a != b),
        "<": lambda a, b: int(a < b),
        "<=": lambda a, b: int(a <= b),
        ">": lambda a, b: int(a > b),
        ">=": lambda a, b: int(a >= b),
    },
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {
        "*": lambda a, b: a * b,
        "/": lambda a, b: 0 if b == 0 else (a - a % abs(b)) // b,
        "%": lambda a, b: 0 if b == 0 else a % abs(b),
    },
)


class LoweredLaunch(NamedTuple):
    """A launch: the kernel's name and its threads per block in x, y and z."""

    kernel: str
    threads: tuple[int, int, int]

    @property
    def per_block(self) -> int:
        """The number of threads per block."""
        return math.prod(self.threads)


class _UnknownError(Exception):
    """An expression that this module cannot evaluate."""


def lowered_launches(
    text: str, spans: Mapping[str, Iterable[tuple[int, int]]]
) -> list[LoweredLaunch]:
    """Return the launches in a lowered statement whose threads can be evaluated.

    Args:
        text: the statement, as Halide prints it.
        spans: (first coordinate, extent) of each dimension of the inputs and outputs, by name.
    """
    boxes = {name: tuple(box) for name, box in spans.items()}
    defined: dict[str, str] = {}
    found = []
    for line in text.splitlines():
        launch = _LAUNCH.search(line)
        if launch:
            arguments = call_arguments(line, launch.end())
            scope = _Scope(defined, boxes)
            try:
                x, y, z = (scope.value(each) for each in arguments[_THREADS])
            except (_UnknownError, ValueError):
                continue
            found.append(LoweredLaunch(arguments[1].strip('"'), (x, y, z)))
            continue
        let = _LET.match(line)
        if let:
            defined.pop(let[1], None)  # in the order of the last definitions
            defined[let[1]] = let[2]
    return found


def call_arguments(text: str, start: int = 0) -> list[str]:
    """Return the arguments of a call from position `start` up to its closing parenthesis."""
    found, depth = [], 0
    for at in range(start, len(text)):
        letter = text[at]
        if letter in "([":
            depth += 1
        elif letter in ")]" and depth:
            depth -= 1
        elif letter in ",)" and not depth:
            found.append(text[start:at].strip())
            start = at + 1
            if letter == ")":
                break
    return found


class _Scope:
    """Evaluates expressions with the definitions before a line."""

    def __init__(
        self, defined: Mapping[str, str], boxes: Mapping[str, tuple[tuple[int, int], ...]]
    ) -> None:
        self._defined = defined
        self._boxes = boxes
        self._known: dict[str, int] = {}

    def value(self, text: str) -> int:
        """Return the value of an expression. Raises `_UnknownError`."""
        needed: set[str] = set()
        new = {text}
        while new:
            names = {name for each in new for name in _NAME.findall(each)} - needed
            needed |= names
            new = {self._defined[name] for name in names if name in self._defined}
        for name, definition in self._defined.items():
            if name in needed and name not in self._known:
                with contextlib.suppress(_UnknownError):
                    self._known[name] = self._evaluated(definition)
        return self._evaluated(text)

    def _evaluated(self, text: str) -> int:
        return _Parser(self._with_metadata(text), self._variable).whole()

    def _variable(self, name: str) -> int:
        if name not in self._known:
            raise _UnknownError(name)
        return self._known[name]

    def _with_metadata(self, text: str) -> str:
        return _METADATA.sub(self._metadata, text)

    def _metadata(self, match: re.Match[str]) -> str:
        box = self._boxes.get(match[2], ())
        dimension = int(match[3])
        if dimension >= len(box):
            raise _UnknownError(match[0])
        low, extent = box[dimension]
        return f"({low if match[1] == 'min' else extent})"


class _Parser:
    """A recursive-descent parser that evaluates an expression as it reads it."""

    def __init__(self, text: str, variable: Callable[[str], int]) -> None:
        self._text = text
        self._at = 0
        self._variable = variable
        self._local: dict[str, int] = {}

    def whole(self) -> int:
        """Return the value of the whole text."""
        value = self._expression()
        if self._text[self._at :].strip():
            raise _UnknownError(self._text)
        return value

    def _peek(self) -> tuple[str, str]:
        """Return the kind and the text of the next token; empty at the end."""
        match = _TOKEN.match(self._text, self._at)
        if not match:
            return "", ""
        kind = match.lastgroup or ""
        return kind, match[kind]

    def _take(self, expected: str = "") -> tuple[str, str]:
        match = _TOKEN.match(self._text, self._at)
        if not match or (expected and match[0].strip() != expected):
            raise _UnknownError(self._text)
        self._at = match.end()
        kind = match.lastgroup or ""
        return kind, match[kind]

    def _expression(self) -> int:
        if self._peek() != ("name", "let"):
            return self._binary(0)
        self._take()
        name = self._take()[1]
        self._take("=")
        value = self._expression()
        self._take("in")
        outside = self._local
        self._local = {**outside, name: value}
        result = self._expression()
        self._local = outside
        return result

    def _binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._unary()
        value = self._binary(level + 1)
        while (operator := self._peek()[1]) in _LEVELS[level]:
            self._take()
            value = _LEVELS[level][operator](value, self._binary(level + 1))
        return value

    def _unary(self) -> int:
        kind, word = self._take()
        if kind == "cast":
            return self._unary()
        if word == "-":
            return -self._unary()
        if word == "!":
            return int(not self._unary())
        if kind == "number":
            return int(word)
        if word == "(":
            value = self._expression()
            self._take(")")
            return value
        if kind != "name":
            raise _UnknownError(word)
        if self._peek()[1] == "(":
            return self._call(word)
        return self._local[word] if word in self._local else self._variable(word)

    def _call(self, name: str) -> int:
        if name not in _FUNCTIONS:
            raise _UnknownError(name)
        self._take("(")
        arguments = [self._expression()]
        while self._peek()[1] == ",":
            self._take()
            arguments.append(self._expression())
        self._take(")")
        try:
            return _FUNCTIONS[name](*arguments)
        except TypeError as error:
            raise _UnknownError(name) from error
