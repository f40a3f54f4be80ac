"""The syntax of printed schedules in Python and C++, and the calls that add Funcs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.halide.ir.clones import CloneCall
from tilewright.halide.ir.factored import FactorCall
from tilewright.halide.ir.loops import origin


@dataclass(frozen=True)
class Language:
    """The syntax in which Python and C++ differ.

    Attributes:
        constant: Format of an enumeration's constant, from its type and value.
        outermost: The outermost loop.
        several: Format of a list.
        pair: Format of a pair.
        truth: The words for false and true.
        methods: Names of methods that differ from Python's, because they are Python keywords.
        loop: Format of a new loop, from its class and name.
        calls: Format of a statement that sets a Func, from its name and the lines of its calls.
        indent: What separates these lines.
    """

    constant: str
    outermost: str
    several: str
    pair: str
    truth: tuple[str, str]
    methods: Mapping[str, str]
    loop: str
    calls: str
    indent: str


PYTHON = Language(
    "hl.{0}.{1}",
    "hl.Var.outermost()",
    "[{0}]",
    "({0}, {1})",
    ("False", "True"),
    {},
    'hl.{0}("{1}")',
    "    {0} = (\n        {1}\n    )",
    "\n        ",
)
CPP = Language(
    "{0}::{1}",
    "Var::outermost()",
    "{{{0}}}",
    "{{{0}, {1}}}",
    ("false", "true"),
    {"async_": "async", "in_": "in"},
    '{0}("{1}")',
    "    Func {0} = {1};",
    "\n        ",
)


def cloning(call: CloneCall, names: Mapping[int, str], language: Language) -> str:
    """Return the expression that makes a copy; `names` are the identifiers of the Funcs."""
    readers = ", ".join(names[reader] for reader in call.readers)
    several = language.several if len(call.readers) > 1 else "{0}"
    method = language.methods.get("in_", "in_") if call.wrapper else "clone_in"
    return f"{names[call.func]}.{method}({several.format(readers)})"


def factoring(call: FactorCall, names: Mapping[int, str], language: Language) -> str:
    """Return the statement that splits a reduction; `names` are the identifiers of the Funcs."""
    func = names[call.func]

    def loop(name: str) -> str:
        if name in call.names:
            return language.loop.format("RVar", call.names[name])
        place = origin(name)
        assert place is not None
        return f"{func}.rvars({call.stage - 1})[{place[1]}]"

    tail = language.constant.format("TailStrategy", "GuardWithIf")
    lines = [f"{func}.update({call.stage - 1})"]
    for split in call.splits:
        loops = ", ".join(map(loop, (split.old, split.outer, split.inner)))
        lines.append(f".split({loops}, {split.factor}, {tail})")
    pairs = ", ".join(
        language.pair.format(loop(rvar), language.loop.format("Var", var))
        for rvar, var in zip(call.rvars, call.vars, strict=True)
    )
    lines.append(f".rfactor({language.several.format(pairs)})")
    return language.calls.format(names[call.result], language.indent.join(lines))
