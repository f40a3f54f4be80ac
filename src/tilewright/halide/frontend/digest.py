"""Compute the digest of a computation: a hash that does not depend on automatic names.

The hash identifies a Func by its position in realisation order, a variable by its position among
the Func's arguments or the stage's reduction variables, and an embedded buffer by the hash of its
contents. It includes the names of parameters, except those that Halide generates (``p0``), which
are numbered in order of appearance. It does not include estimates.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from tilewright.halide.frontend.serial.reader import Record
from tilewright.halide.ir.algorithm import (
    Algorithm,
    Call,
    Const,
    Expr,
    Func,
    Op,
    Stage,
    Variable,
    walk,
)

_AUTOMATIC = re.compile(r"p\d+$")
_METADATA = re.compile(r"(.+?)((?:\.\d+)?\.(?:min|extent|stride|max)\.\d+)$")


def digest(algorithm: Algorithm, scheduled: Mapping[str, Record]) -> str:
    """Return the SHA-256 digest, in hexadecimal, of the computation of `algorithm`.

    `scheduled` has the tables of the Funcs that keep the user's schedules, which are included.
    """
    return _Digest(algorithm, scheduled).result()


class _Digest:
    def __init__(self, algorithm: Algorithm, scheduled: Mapping[str, Record]) -> None:
        self.algorithm = algorithm
        self.scheduled = scheduled
        self.hash = hashlib.sha256()
        self.buffers = {b.name: f"{b.type}{b.dims}{b.content}" for b in algorithm.buffers}
        self.interface = {p.name: f"{p.type} {p.dimensions}" for p in algorithm.parameters}
        self.automatic: dict[str, str] = {}

    def put(self, *words: object) -> None:
        for word in words:
            raw = str(word).encode("utf-8", "surrogatepass")
            self.hash.update(b"%d:" % len(raw))
            self.hash.update(raw)
        self.hash.update(b"\n")

    def result(self) -> str:
        algorithm = self.algorithm
        for func in algorithm.funcs:
            self.func(func)
        self.put("outputs", *(algorithm.order[name] for name in algorithm.outputs))
        self.put("requirements")
        self.expressions(algorithm.requirements, {})
        # A parameter that nothing reads is still part of the interface.
        names = sorted((self.name(p.name), self.interface[p.name]) for p in algorithm.parameters)
        self.put("parameters", *(word for pair in names for word in pair))
        return self.hash.hexdigest()

    def func(self, func: Func) -> None:
        self.put("func", len(func.args), *func.types, func.memoized)
        for d, arg in enumerate(func.args):
            if arg in func.bounds:
                self.put("bound", d, func.bounds[arg])
        if func.extern is not None:
            self.put("extern", func.extern.function, *func.extern.arguments)
            self.put("reads", *(self.name(name) for name in func.extern.reads))
            self.expressions(func.extern.expressions, {})
        for stage in func.stages:
            self.stage(func, stage)
        if func.name in self.scheduled:
            self.schedule(func, self.scheduled[func.name])

    def stage(self, func: Func, stage: Stage) -> None:
        variables = {name: f"v{i}" for i, name in enumerate(func.args)}
        variables.update((rvar.name, f"r{i}") for i, rvar in enumerate(stage.rvars))
        self.put("stage", len(stage.values), len(stage.predicates), len(stage.rvars))
        self.put("loops", *(f"{variables[loop.name]} {loop.kind}" for loop in stage.loops))
        roots = [*stage.values, *stage.args, *stage.predicates]
        for rvar in stage.rvars:
            roots += [rvar.min, rvar.extent]
        self.expressions(roots, variables)

    def expressions(self, roots: Any, variables: Mapping[str, str]) -> None:
        number: dict[Expr, int] = {}
        for node in walk(*roots):
            number[node] = len(number)
            if isinstance(node, Const):
                self.put("const", node.type, repr(node.value))
            elif isinstance(node, Variable):
                name = variables.get(node.name) or self.name(node.name)
                self.put("variable", node.type, node.kind, name)
            elif isinstance(node, Op):
                self.put("op", node.type, node.name, *(number[arg] for arg in node.args))
            elif isinstance(node, Call):
                named = node.kind in ("func", "image")
                name = self.name(node.name) if named else node.name
                args = (number[arg] for arg in node.args)
                self.put("call", node.type, node.kind, name, node.value_index, *args)
        self.put("roots", *(number[root] for root in roots))

    def name(self, name: str) -> str:
        """Return the text hashed for the name of a Func, buffer or parameter, or of its bounds."""
        place = self.algorithm.order.get(name)
        if place is not None:
            return f"func {place}"
        if name in self.buffers:
            return f"buffer {self.buffers[name]}"
        if name in self.interface:
            if not _AUTOMATIC.match(name):
                return f"parameter {name}"
            return self.automatic.setdefault(name, f"automatic {len(self.automatic)}")
        metadata = _METADATA.match(name)
        if metadata is not None and metadata[1] != name:
            return self.name(metadata[1]) + metadata[2]
        return f"other {name}"

    def schedule(self, func: Func, record: Record) -> None:
        """Hash the user's schedule; number the names that it introduces in order of appearance."""
        names = {name: f"v{i}" for i, name in enumerate(func.args)}
        names.update((f.name, f"func {i}") for i, f in enumerate(self.algorithm.funcs))
        stack: list[Any] = [(record.func_schedule, "schedule")]
        stack += [(record.updates, "updates"), (record.init_def, "init_def")]
        while stack:
            value, field = stack.pop()
            # The scopes of a Let are a cache of `Expressions`, not part of the file.
            if field in ("estimates", "source_location", "func_index", "scopes"):
                continue
            if isinstance(value, Record):
                self.put(field, value.table)
                stack.extend((v, k) for k, v in reversed(value.__dict__.items()))
            elif isinstance(value, tuple):
                self.put(field, len(value))
                stack.extend((v, field) for v in reversed(value))
            elif isinstance(value, str):
                self.put(field, names.setdefault(value, f"name {len(names)}"))
            else:
                self.put(field, value)
