"""What keeps the iterations of a stage from running as fast as their operations allow.

An update that reads its own earlier value makes a chain: each step waits for the operations between
the two, and longer if the value read is the index of a table::

    crc[y] = table[crc[y] ^ data[r, y]]     # one operation and one load per step

A condition of a reduction domain (``RDom.where``) becomes a branch. Where it differs between the
lanes of a vector, Halide makes masked loads and stores of neighbouring values; all others are
executed lane by lane, each after a branch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tilewright.halide.ir.algorithm import Call, Expr, Op, Stage, Variable, walk

_NO_TIME = frozenset(("cast", "reinterpret", "likely", "promise_clamped", "unsafe_promise_clamped"))


class Chain(NamedTuple):
    """The longest path from a stage's own earlier value to the new one.

    Attributes:
        floats: Operations on floating-point numbers, where a product and its sum count as one.
        others: All other operations.
        loads: Loads whose place depends on the earlier value.
    """

    floats: int = 0
    others: int = 0
    loads: int = 0

    @property
    def length(self) -> int:
        """The number of operations and loads."""
        return sum(self)


@dataclass(frozen=True, slots=True)
class StageWaits:
    """The chain of a stage and its conditions.

    Attributes:
        chain: The longest chain; None if the stage does not read its own values.
        masked: The loops that a condition depends on.
        doubtful: Whether a condition depends on loaded data, so that no processor predicts it.
    """

    chain: Chain | None = None
    masked: frozenset[str] = frozenset()
    doubtful: bool = False


NO_WAITS = StageWaits()


def waits_of(func: str, stage: Stage) -> StageWaits:
    """Return the chain and the conditions of a stage of a Func."""
    found: dict[int, Chain | None] = {}
    own = any(call.kind == "func" and call.name == func for call in stage.calls)
    chains = [_chain(value, func, found) for value in stage.values] if own else []
    longest = max((c for c in chains if c is not None), key=lambda c: c.length, default=None)
    nodes = list(walk(*stage.predicates))
    loops = {loop.name for loop in stage.loops}
    return StageWaits(
        longest,
        frozenset(n.name for n in nodes if isinstance(n, Variable) and n.name in loops),
        any(isinstance(n, Call) and n.kind in ("func", "image") for n in nodes),
    )


def _chain(root: Expr, func: str, found: dict[int, Chain | None]) -> Chain | None:
    """Return the longest chain from a value of `func` to an expression; None if there is none."""
    for node in walk(root):  # operands come before the operations on them
        if not isinstance(node, Op | Call):
            found[id(node)] = None
            continue
        inside = [(found[id(arg)], arg) for arg in node.args]
        behind = [(chain, arg) for chain, arg in inside if chain is not None]
        if behind:
            chain, arg = max(behind, key=lambda each: each[0].length)
            found[id(node)] = _longer(chain, node, arg)
        else:
            own = isinstance(node, Call) and node.kind == "func" and node.name == func
            found[id(node)] = Chain() if own else None
    return found[id(root)]


def _longer(chain: Chain, node: Op | Call, behind: Expr) -> Chain:
    """Return a chain with one more operation or load; `behind` is the operand on the chain."""
    if isinstance(node, Call) and node.kind in ("func", "image"):
        return chain._replace(loads=chain.loads + 1)
    fused = node.name in ("add", "sub") and isinstance(behind, Op) and behind.name == "mul"
    if node.name in _NO_TIME or (fused and node.type.code == "float"):
        return chain
    if node.type.code == "float" and node.name in ("add", "sub", "mul"):
        return chain._replace(floats=chain.floats + 1)
    return chain._replace(others=chain.others + 1)
