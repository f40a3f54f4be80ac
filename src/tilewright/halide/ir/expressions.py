"""Compare expressions, and take them apart."""

from __future__ import annotations

from collections.abc import Container, Iterator

from tilewright.halide.ir.algorithm import Call, Expr, Op, Variable


def operands_of(e: Expr, name: str) -> Iterator[Expr]:
    """Yield the operands of nested uses of operator `name`: ``a``, ``b``, ``c`` of ``(a + b) + c``.

    A use that occurs several times is split into operands once and yielded whole after that.
    """
    seen: set[int] = set()
    stack = [e]
    while stack:
        node = stack.pop()
        if isinstance(node, Op) and node.name == name and id(node) not in seen:
            seen.add(id(node))
            stack.extend(reversed(node.args))
        else:
            yield node


def uses(e: Expr, names: Container[str], *, reads: bool = True, remainders: bool = True) -> bool:
    """Return whether an expression uses a variable.

    Args:
        e: The expression.
        names: The names of the variables.
        reads: Whether coordinates of values that it reads count, and arguments of C functions.
        remainders: Whether operands of remainders count.
    """
    pending, seen = [e], set()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Variable) and node.name in names:
            return True
        if isinstance(node, Op):
            into = remainders or node.name != "mod"
        else:
            into = isinstance(node, Call) and (reads or node.kind == "intrinsic")
        if into and isinstance(node, Op | Call):
            pending.extend(node.args)
    return False


def same(a: Expr, b: Expr) -> bool:
    """Return whether two expressions are structurally equal, with variables compared by name."""
    seen: set[tuple[int, int]] = set()
    stack = [(a, b)]
    while stack:
        x, y = stack.pop()
        if x is y or (id(x), id(y)) in seen:
            continue
        seen.add((id(x), id(y)))
        if type(x) is not type(y) or x.type != y.type:
            return False
        if isinstance(x, Op | Call) and isinstance(y, Op | Call):
            if x.name != y.name or len(x.args) != len(y.args):
                return False
            if isinstance(x, Call) and isinstance(y, Call) and x.value_index != y.value_index:
                return False
            stack.extend(zip(x.args, y.args, strict=True))
        elif isinstance(x, Variable) and isinstance(y, Variable):
            if x.name != y.name:
                return False
        elif getattr(x, "value", None) != getattr(y, "value", None):
            return False
    return True
