"""Halide's own loop nest of a scheduled pipeline: loops, their extents and allocations, in numbers.

Halide prints the statement after each pass of its lowering where ``HL_DEBUG_CODEGEN`` is 2. That
text is read here and run symbolically: every loop stands at one iteration, chosen by a fraction (0
the first, 1 the last), every let is evaluated when it is needed. ``HL_DEBUG_CODEGEN`` must be
set before Halide is first used in the process.
"""

from __future__ import annotations

import math
import os
import re
import resource
import select
import signal
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

os.environ.setdefault("HL_DEBUG_CODEGEN", "2")

BOUNDS = "computation bounds inference"
STORAGE = "storage flattening"
# Seconds of wall time that a process may take for each CPU second it is allowed: on a machine
# with much else to do, the limit is still one of CPU time.
PATIENCE = 30.0


class Unreadable(Exception):
    """Text or a value that this reader does not understand."""


class DataDependent(Unreadable):
    """A value that hangs on what an input holds."""


# --- running Halide ---------------------------------------------------------------------------


def passes(lower: Callable[[], None], wanted: tuple[str, ...], seconds: float) -> dict[str, str]:
    """The statements after the passes called `wanted`, from a forked process running `lower`.

    The process is ended once the last of them has been printed. A missing pass means that Halide
    refused or took more than `seconds` of CPU time; the text is then under ``"error"``.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.dup2(write, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds) + 1))
        try:
            lower()
        except BaseException as error:
            os.write(2, f"\nRAISED {error}\n".encode())
        finally:
            os._exit(0)
    os.close(write)
    chunks: list[str] = []
    text = ""
    deadline = time.monotonic() + PATIENCE * seconds
    end = f"Lowering after {wanted[-1]}"
    tail = ""
    finished = False
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            tail = "timeout"
            break
        ready, _, _ = select.select([read], [], [], left)
        if not ready:
            continue
        data = os.read(read, 1 << 20)
        if not data:
            break
        chunks.append(data.decode(errors="replace"))
        window = chunks[-2][-4096:] + chunks[-1] if len(chunks) > 1 else chunks[-1]
        finished = finished or end in window
        if finished:
            text = "".join(chunks)
            # The statement ends where the next pass is announced.
            if re.search(r"\n\n\S[^\n]*\n", text[text.index(end) :]):
                break
    os.close(read)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        tail = f"took more than {seconds:g} CPU seconds"
    return _statements("".join(chunks), wanted, tail)


def _statements(text: str, wanted: tuple[str, ...], failure: str) -> dict[str, str]:
    """The statements after the passes called `wanted`; `failure` says why the text ends early."""
    found = {}
    for name in wanted:
        match = re.search(rf"^Lowering after {re.escape(name)}:?(?: \(unchanged\))?\n", text, re.M)
        if match:
            rest = text[match.end() :]
            stop = re.search(r"\n\n\S", rest)
            if stop or not failure:  # else the time was up in the middle of a statement
                found[name] = rest[: stop.start()] if stop else rest
    if len(found) < len(wanted):
        lines = [line for line in text.splitlines() if line.strip()]
        found["error"] = failure or " | ".join(lines[-3:])[-400:]
    return found


# --- expressions ------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"\s*(?:(\d+\.?\d*(?:e[+-]?\d+)?f?h?)|([A-Za-z_$][\w$.]*(?:::\w+)*)|(\"(?:[^\"\\]|\\.)*\")"
    r"|(<=|>=|==|!=|&&|\|\||[-+*/%()<>!,\[\].~{}:=]))"
)
_TYPES = re.compile(r"(u?int|float|bfloat|handle)\d*(x\d+)?$")
_BINARY: dict[str, tuple[int, Callable[[Any, Any], Any]]] = {
    "||": (1, lambda a, b: bool(a) or bool(b)),
    "&&": (2, lambda a, b: bool(a) and bool(b)),
    "==": (3, lambda a, b: a == b),
    "!=": (3, lambda a, b: a != b),
    "<": (4, lambda a, b: a < b),
    "<=": (4, lambda a, b: a <= b),
    ">": (4, lambda a, b: a > b),
    ">=": (4, lambda a, b: a >= b),
    "+": (5, lambda a, b: a + b),
    "-": (5, lambda a, b: a - b),
    "*": (6, lambda a, b: a * b),
    "/": (6, lambda a, b: a / b if isinstance(a, float) else _div(a, b)),
    "%": (6, lambda a, b: _mod(a, b)),
}


def _div(a: int, b: int) -> int:
    """Halide's division of integers: the remainder is never negative, by zero gives zero."""
    if b == 0:
        return 0
    return a // b if b > 0 else -(a // -b)


def _mod(a: Any, b: Any) -> Any:
    return 0 if b == 0 else a % abs(b)


class Expression:
    """An expression of Halide's statement text, parsed once."""

    _known: ClassVar[dict[str, Expression]] = {}

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        at = 0
        text = text.strip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise Unreadable(text[at : at + 60])
            self.tokens.append(match.group(0).strip())
            at = match.end()
        self.at = 0
        self.tree = self._binary(0)
        if self.at != len(self.tokens):
            raise Unreadable(text)

    @classmethod
    def of(cls, text: str) -> Expression:
        """The expression for a text, kept for the next time."""
        found = cls._known.get(text)
        if found is None:
            found = cls._known[text] = cls(text)
        return found

    def _peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _take(self, expected: str = "") -> str:
        token = self._peek()
        if not token or (expected and token != expected):
            raise Unreadable(f"{expected!r} expected, not {token!r}")
        self.at += 1
        return token

    def _binary(self, least: int) -> Any:
        left = self._unary()
        while self._peek() in _BINARY and _BINARY[self._peek()][0] > least:
            name = self._take()
            right = self._binary(_BINARY[name][0])
            left = ("op", name, left, right)
        return left

    def _unary(self) -> Any:
        token = self._peek()
        if token in ("-", "!"):
            self._take()
            return (token, self._unary())
        if token == "(":
            self._take()
            kind = self._cast()
            if kind:
                return ("cast", self._unary(), kind)
            inner = self._binary(0)
            self._take(")")
            return inner
        self._take()
        if token == "let":
            name = self._take()
            self._take("=")
            value = self._binary(0)
            self._take("in")
            return ("let", name, value, self._binary(0))
        if token[0].isdigit():
            if re.fullmatch(r"\d+", token):
                return ("const", int(token))
            return ("const", _single(float(token.rstrip("fh"))))
        if token[0] == '"':
            return ("const", token)
        if self._peek() == "(":
            self._take()
            args = []
            while self._peek() != ")":
                args.append(self._binary(0))
                if self._peek() == ",":
                    self._take()
            self._take(")")
            return ("call", token, args)
        if self._peek() == "[":
            self._take()
            self._binary(0)
            self._take("]")
            return ("load", token)
        return ("name", token)

    def _cast(self) -> str:
        """The type in brackets that follows, which is taken; else nothing."""
        at, kind = self.at, self._peek()
        if _TYPES.match(kind):
            self.at += 1
            if self._peek() == ")":
                self.at += 1
                return kind
        self.at = at
        return ""


def _single(value: Any) -> Any:
    """A number as single precision holds it, the only one that coordinates are worked out in."""
    return struct.unpack("f", struct.pack("f", value))[0] if isinstance(value, float) else value


def _converted(value: Any, kind: str) -> Any:
    """A value as another type holds it."""
    if kind.startswith(("int", "uint")):
        return int(value)
    return _single(float(value)) if kind.startswith("float") else value


_CALLS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "select": lambda c, a, b: a if c else b,
    "likely": lambda a: a,
    "likely_if_innermost": lambda a: a,
    "promise_clamped": lambda a, low, high: a,
    "unsafe_promise_clamped": lambda a, low, high: a,
    "abs": abs,
    **{
        f"strict_{name}": _BINARY[operator][1]
        for name, operator in {"add": "+", "sub": "-", "mul": "*", "div": "/"}.items()
    },
    "shift_left": lambda a, b: a << b if b >= 0 else a >> -b,
    "shift_right": lambda a, b: a >> b if b >= 0 else a << -b,
    "strict_min": min,
    "strict_max": max,
    "exp_f32": math.exp,
    "log_f32": lambda a: math.log(a) if a > 0 else -math.inf,
    "sqrt_f32": lambda a: math.sqrt(a) if a >= 0 else math.nan,
    "ceil_f32": lambda a: float(math.ceil(a)),
    "floor_f32": lambda a: float(math.floor(a)),
    "round_f32": lambda a: float(round(a)),
    "round": lambda a: float(round(a)),
    "trunc_f32": lambda a: float(math.trunc(a)),
    "_halide_buffer_is_bounds_query": lambda *a: 0,
}


class Scope:
    """Names with their values, worked out when first asked for."""

    def __init__(self, values: Mapping[str, Any], outer: Scope | None = None) -> None:
        self.values: dict[str, Any] = dict(values)
        self.texts: dict[str, tuple[str, Scope]] = {}
        self.outer = outer

    def let(self, name: str, text: str) -> Scope:
        """A scope with one more name."""
        inner = Scope({}, self)
        inner.texts[name] = (text, self)
        return inner

    def bind(self, name: str, value: Any) -> Scope:
        """A scope with one more value."""
        return Scope({name: value}, self)

    def get(self, name: str) -> Any:
        """The value of a name; raises `Unreadable` where it has none."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            if name in scope.texts:
                text, where = scope.texts[name]
                value = where.evaluate(text)
                scope.values[name] = value
                return value
            scope = scope.outer
        raise Unreadable(f"no value for {name}")

    def evaluate(self, text: str) -> Any:
        """The value of an expression."""
        return self._value(Expression.of(text).tree)

    def _value(self, tree: Any) -> Any:
        kind = tree[0]
        if kind == "const":
            return tree[1]
        if kind == "name":
            return self.get(tree[1])
        if kind == "load":
            raise DataDependent(tree[1])
        if kind == "op":
            name = tree[1]
            left = self._value(tree[2])
            if name == "&&" and not left:
                return False
            if name == "||" and left:
                return True
            return _single(_BINARY[name][1](left, self._value(tree[3])))
        if kind == "-":
            return -self._value(tree[1])
        if kind == "!":
            return not self._value(tree[1])
        if kind == "cast":
            return _converted(self._value(tree[1]), tree[2])
        if kind == "let":
            return self.bind(tree[1], self._value(tree[2]))._value(tree[3])
        name, args = tree[1], tree[2]
        if name == "select":
            return self._value(args[1] if self._value(args[0]) else args[2])
        if _TYPES.match(name):
            return _converted(self._value(args[0]), name)
        if name not in _CALLS:
            raise Unreadable(f"the function {name}")
        if name == "_halide_buffer_is_bounds_query":
            return 0
        return _single(_CALLS[name](*(self._value(arg) for arg in args)))


# --- statements -------------------------------------------------------------------------------

_POINTER = re.compile(r"\((?:struct )?\w+ \*\)")
_FOR = re.compile(
    r"(for|parallel|vectorized|unrolled|gpu_\w+|extern)(?:<(\w+)>)?(?: \w+)*\s*"
    r"\((.*)\) (?:\w+ )*\{$"
)
_LET = re.compile(r"let ([\w$.]+) = (.*)$")
_ALLOCATE = re.compile(r"allocate ([\w$.]+)\[([^\s\]]+)((?: \* .*)?)\](.*)$")


@dataclass(frozen=True)
class Loop:
    """A loop as Halide runs it at the chosen iterations of the loops around it."""

    name: str
    kind: str
    lo: int
    extent: int
    path: tuple[str, ...]


@dataclass(frozen=True)
class Allocated:
    """An allocation: `extents` are those in memory, innermost first.

    None where they hang on what an input holds.
    """

    name: str
    type: str
    extents: tuple[int, ...] | None
    rest: str
    path: tuple[str, ...]


def run(
    text: str, values: Mapping[str, Any], fraction: float
) -> tuple[list[Loop], list[Allocated], list[str]]:
    """The loops and allocations that are met, and the lines that could not be evaluated."""
    done = _Run(text, fraction)
    done.block(0, len(done.lines), Scope(values), ())
    return done.loops, done.allocations, done.failed


class _Run:
    """One pass over a statement, each loop at one iteration."""

    def __init__(self, text: str, fraction: float) -> None:
        self.lines = _POINTER.sub("", text).splitlines()
        self.loops: list[Loop] = []
        self.allocations: list[Allocated] = []
        self.failed: list[str] = []
        self._closing = _matching(self.lines)
        self._fraction = fraction

    def block(self, at: int, end: int, scope: Scope, path: tuple[str, ...]) -> None:
        """The lines from `at` to before `end`."""
        while at < end:
            line = self.lines[at].strip()
            match = _LET.match(line)
            if match:
                scope = scope.let(match[1], match[2])
            elif match := _ALLOCATE.match(line):
                self._allocate(line, match, scope, path)
            elif line.endswith("{"):
                stop = self._closing[at]
                self._inside(line, at, stop, scope, path)
                at = stop
                while self.lines[at].strip().startswith("} else"):
                    at = self._closing[at]
            at += 1

    def _allocate(
        self, line: str, match: re.Match[str], scope: Scope, path: tuple[str, ...]
    ) -> None:
        extents: tuple[int, ...] | None = None
        try:
            extents = tuple(scope.evaluate(e) for e in _factors(match[3]))
        except DataDependent:
            pass
        except Unreadable as why:
            self.failed.append(f"{line}: {why}")
            return
        self.allocations.append(Allocated(match[1], match[2], extents, match[4], path))

    def _inside(self, line: str, at: int, stop: int, scope: Scope, path: tuple[str, ...]) -> None:
        """What the line at `at` opens and the one at `stop` closes."""
        match = _FOR.match(line)
        try:
            if match:
                name, low_text, extent_text = _arguments(match[3])
                low, extent = scope.evaluate(low_text), scope.evaluate(extent_text)
            elif line.startswith(("if (", "} else if (")):
                holds = bool(scope.evaluate(line[line.index("if (") + 3 : -1].strip()))
            else:
                holds = True
        except Unreadable as why:
            self.failed.append(f"{line}: {why}")
            return
        if match:
            self.loops.append(Loop(name, match[1], low, extent, path))
            if extent > 0:
                index = low + int(self._fraction * (extent - 1) // 1)
                self.block(at + 1, stop, scope.bind(name, index), (*path, name))
        elif holds:
            self.block(at + 1, stop, scope, path)
        elif self.lines[stop].strip().startswith("} else"):
            self._inside(self.lines[stop].strip(), stop, self._closing[stop], scope, path)


def _matching(lines: list[str]) -> dict[int, int]:
    """For each line that opens a block, the line that closes it."""
    found: dict[int, int] = {}
    stack: list[int] = []
    for at, line in enumerate(lines):
        text = line.strip()
        if text.startswith("}") and stack:
            found[stack.pop()] = at
        if text.endswith("{"):
            stack.append(at)
    for at in stack:
        found[at] = len(lines)
    return found


def _split(text: str, by: str) -> Iterator[str]:
    """The parts of a text between separators outside brackets."""
    depth, start, at = 0, 0, 0
    while at < len(text):
        if text[at] in "([":
            depth += 1
        elif text[at] in ")]":
            depth -= 1
        elif depth == 0 and text.startswith(by, at):
            yield text[start:at]
            start = at = at + len(by)
            continue
        at += 1
    yield text[start:]


def _arguments(text: str) -> tuple[str, str, str]:
    parts = [part.strip() for part in _split(text, ", ")]
    if len(parts) != 3:
        raise Unreadable(text)
    return parts[0], parts[1], parts[2]


def _factors(text: str) -> list[str]:
    return [part for part in _split(text, " * ") if part.strip()]
