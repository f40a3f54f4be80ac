"""A view of a pipeline in which some Funcs are inlined into their consumers.

Inlining substitutes expressions and merges equal subexpressions, so that operations and loads are
counted as after the compiler's common subexpression elimination.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tilewright.halide.ir.algorithm import Algorithm, Call, Const, Expr, Func, Op, Stage, Variable


class Interner:
    """Create expression nodes such that equal nodes are one object."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[object, ...], Expr] = {}

    def op(self, name: str, args: tuple[Expr, ...], like: Op) -> Expr:
        """Return the node of operator `name` on `args`, with the type of `like`."""
        key = ("op", name, like.type, *map(id, args))
        return self._nodes.setdefault(key, Op(name, args, like.type))

    def call(self, args: tuple[Expr, ...], like: Call) -> Expr:
        """Return the node of the call `like` with arguments `args`."""
        key = ("call", like.name, like.kind, like.value_index, like.type, *map(id, args))
        found = self._nodes.get(key)
        if found is None:
            found = Call(like.name, like.kind, args, like.type, like.value_index)
            self._nodes[key] = found
        return found

    def variable(self, like: Variable) -> Expr:
        """Return the one node for a variable of this name and kind."""
        return self._nodes.setdefault(("variable", like.name, like.kind), like)

    def const(self, like: Const) -> Expr:
        """Return the one node for this literal."""
        return self._nodes.setdefault(("const", repr(like.value), like.type), like)


def rewritten(
    root: Expr,
    memo: dict[int, Expr],
    leaf: Callable[[Variable | Const], Expr],
    rebuilt: Callable[[Op | Call, tuple[Expr, ...]], Expr],
) -> Expr:
    """Return an expression rewritten from its leaves to its root, each node once.

    Args:
        root: The expression.
        memo: The results by the identity of nodes; new ones are added.
        leaf: Returns the result of a variable or literal.
        rebuilt: Returns the result of a node, given those of its arguments.
    """
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, expanded = stack.pop()
        if id(node) in memo:
            continue
        if isinstance(node, Variable | Const):
            memo[id(node)] = leaf(node)
        elif not expanded:
            stack.append((node, True))
            stack.extend((arg, False) for arg in node.args if id(arg) not in memo)
        else:
            memo[id(node)] = rebuilt(node, tuple(memo[id(a)] for a in node.args))
    return memo[id(root)]


class TooLarge(Exception):
    """Inlining makes an expression larger than the limit."""


def settled(node: Op | Call, args: tuple[Expr, ...]) -> Expr | None:
    """Fold ``mux`` with a literal index to the selected operand, as the compiler does.

    Return None for any other node.
    """
    if node.name == "mux" and len(args) > 1 and isinstance(args[0], Const):
        index = args[0].value
        if isinstance(index, int) and node.type.lanes == 1:
            return args[1 + index] if 0 <= index < len(args) - 1 else args[-1]
    return None


def may_inline(algorithm: Algorithm, func: Func) -> bool:
    """Return whether a Func can be inlined: pure, not an output, not read by an extern stage.

    Memoised Funcs are treated like extern ones.
    """
    if not func.pure or func.fixed or func.scheduled or func.name in algorithm.outputs:
        return False
    readers = (algorithm.by_name[name] for name in algorithm.consumers[func.name])
    return all(not reader.fixed for reader in readers)


class Rewriter:
    """Substitute variables and inline calls, with results shared between call sites.

    Args:
        bodies: Maps an inlined Func to its arguments and its definition, in which inlined calls
            have already been replaced; None for other Funcs.
        interner: Creates the nodes.
        limit: Largest number of nodes to create before `TooLarge` is raised.
    """

    def __init__(
        self,
        bodies: Callable[[str], tuple[tuple[str, ...], Stage] | None],
        interner: Interner,
        limit: int,
    ) -> None:
        self._bodies = bodies
        self._interner = interner
        self._limit = limit
        self._made = 0
        self._inlined: dict[tuple[object, ...], Expr] = {}

    def rewrite(self, root: Expr, bindings: Mapping[str, Expr]) -> Expr:
        """Return `root` with its variables replaced by `bindings` and its calls inlined."""

        def leaf(node: Variable | Const) -> Expr:
            if isinstance(node, Const):
                return self._interner.const(node)
            bound = bindings.get(node.name) if node.kind != "param" else None
            return self._interner.variable(node) if bound is None else bound

        return rewritten(root, {}, leaf, self._rebuild)

    def _rebuild(self, node: Op | Call, args: tuple[Expr, ...]) -> Expr:
        self._made += 1
        if self._made > self._limit:
            raise TooLarge
        chosen = settled(node, args)
        if chosen is not None:
            return chosen
        if isinstance(node, Op):
            return self._interner.op(node.name, args, node)
        callee = self._bodies(node.name) if node.kind == "func" else None
        if callee is None:
            return self._interner.call(args, node)
        key = (node.name, node.value_index, *map(id, args))
        known = self._inlined.get(key)
        if known is None:
            names, stage = callee
            body = stage.values[node.value_index]
            known = self.rewrite(body, dict(zip(names, args, strict=True)))
            self._inlined[key] = known
        return known


@dataclass
class Shared:
    """Results that views of one algorithm share.

    `stages` maps a Func and the set of Funcs inlined into it to its stages; None if too large.
    """

    interner: Interner = field(default_factory=Interner)
    stages: dict[tuple[str, frozenset[str]], tuple[Stage, ...] | None] = field(default_factory=dict)


class View:
    """An algorithm with a set of pure Funcs inlined.

    `funcs` are the remaining Funcs in realisation order. Their stages are rewritten on demand.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        inlined: frozenset[str] = frozenset(),
        limit: int = 20_000,
        shared: Shared | None = None,
    ) -> None:
        for name in inlined:
            self._refuse(algorithm, name)
        self.algorithm = algorithm
        self.inlined = inlined
        self.limit = limit
        self.shared = Shared() if shared is None else shared
        self._absorbed: dict[str, frozenset[str]] = {}
        # The view that this one was derived from, and the Funcs whose stages differ.
        self._origin: View | None = None
        self._changed: frozenset[str] = frozenset()

    @staticmethod
    def _refuse(algorithm: Algorithm, name: str) -> None:
        if not algorithm.by_name[name].pure or name in algorithm.outputs:
            raise ValueError(f"{name} cannot be inlined: it is an output or not pure")

    def toggled(self, name: str) -> View:
        """Return the view in which `name` is inlined if it is not here, and the reverse.

        Results of unaffected Funcs are reused.
        """
        self._refuse(self.algorithm, name)
        other = View(self.algorithm, frozenset(), self.limit, self.shared)
        other.inlined = self.inlined ^ {name}
        other._changed = frozenset((name, *self.reached(name)))
        other._absorbed = {**self._absorbed}
        for changed in other._changed:
            other._absorbed.pop(changed, None)
        # Drop the origin's own origin, so that chains of views do not keep memory alive.
        if "consumers" in self.__dict__:
            other._origin = self
            self._origin = None
        return other

    def reached(self, name: str) -> frozenset[str]:
        """Return the Funcs, inlined ones included, into which `name` is substituted if inlined."""
        found: set[str] = set()
        pending = list(self.algorithm.consumers[name])
        while pending:
            reader = pending.pop()
            if reader not in found:
                found.add(reader)
                if reader in self.inlined:
                    pending += self.algorithm.consumers[reader]
        return frozenset(found)

    @cached_property
    def funcs(self) -> tuple[Func, ...]:
        """The Funcs that remain, in realisation order."""
        return tuple(f for f in self.algorithm.funcs if f.name not in self.inlined)

    @cached_property
    def by_name(self) -> dict[str, Func]:
        """The Funcs that remain, by name."""
        return {f.name: f for f in self.funcs}

    def absorbed(self, name: str) -> frozenset[str]:
        """Return the Funcs that are inlined into the stages of `name`, also indirectly."""
        known = self._absorbed.get(name)
        if known is None:
            found: set[str] = set()
            pending = list(self.algorithm.producers[name])
            while pending:
                callee = pending.pop()
                if callee in self.inlined and callee not in found:
                    found.add(callee)
                    pending += self.algorithm.producers[callee]
            known = self._absorbed[name] = frozenset(found)
        return known

    def stages(self, name: str) -> tuple[Stage, ...]:
        """Return the stages of a Func with inlined callees substituted.

        Raises:
            TooLarge: The expressions exceed the view's limit.
        """
        key = (name, self.absorbed(name))
        if key not in self.shared.stages:
            # Producers first, because a long chain would exceed the recursion limit.
            for callee in sorted(key[1], key=self.algorithm.order.__getitem__):
                self._rewrite(callee)
            self._rewrite(name)
        known = self.shared.stages[key]
        if known is None:
            raise TooLarge
        return known

    def _rewrite(self, name: str) -> None:
        """Cache the stages of a Func after inlining, or None if they are too large."""
        key = (name, self.absorbed(name))
        if key in self.shared.stages:
            return
        stages = self.algorithm.by_name[name].stages
        if not key[1]:
            self.shared.stages[key] = stages
            return
        try:
            self.shared.stages[key] = tuple(self._rewrite_stage(s) for s in stages)
        except TooLarge:
            self.shared.stages[key] = None

    def _body(self, name: str) -> tuple[tuple[str, ...], Stage] | None:
        if name not in self.inlined:
            return None
        return self.algorithm.by_name[name].args, self.stages(name)[0]

    def _rewrite_stage(self, stage: Stage) -> Stage:
        rewriter = Rewriter(self._body, self.shared.interner, self.limit)

        def all_of(exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
            return tuple(rewriter.rewrite(e, {}) for e in exprs)

        return Stage(
            stage.func,
            stage.index,
            all_of(stage.args),
            all_of(stage.values),
            all_of(stage.predicates),
            stage.loops,
            stage.rvars,
        )

    @cached_property
    def producers(self) -> dict[str, tuple[str, ...]]:
        """The other remaining Funcs that each remaining Func reads, in order."""
        if self._origin is None:
            return {func.name: self._read_by(func) for func in self.funcs}
        result = {**self._origin.producers}
        for name in self._changed:
            if name in self.inlined:
                result.pop(name, None)
            else:
                result[name] = self._read_by(self.algorithm.by_name[name])
        return result

    def _read_by(self, func: Func) -> tuple[str, ...]:
        read = {c.name for s in self.stages(func.name) for c in s.calls if c.kind == "func"}
        if func.extern is not None:
            known = self.algorithm.by_name
            read.update(n for n in func.extern.reads if n in known and n not in self.inlined)
        read.discard(func.name)
        return tuple(sorted(read, key=self.algorithm.order.__getitem__))

    @cached_property
    def consumers(self) -> dict[str, tuple[str, ...]]:
        """The other remaining Funcs that read each remaining Func, in order."""
        if self._origin is not None:
            return self._changed_consumers(self._origin)
        result: dict[str, list[str]] = {f.name: [] for f in self.funcs}
        for func in self.funcs:
            for producer in self.producers[func.name]:
                result[producer].append(func.name)
        return {name: tuple(readers) for name, readers in result.items()}

    def _changed_consumers(self, origin: View) -> dict[str, tuple[str, ...]]:
        """Return the consumers by updating those of the view that this one was derived from."""
        producers = self.producers
        result = {**origin.consumers}
        readers: dict[str, set[str]] = {}
        for name in self._changed:
            before = set(origin.producers.get(name, ()))
            after = set(producers.get(name, ()))
            for producer in before ^ after:
                known = readers.setdefault(producer, set(result.get(producer, ())))
                (known.add if producer in after else known.discard)(name)
        order = self.algorithm.order
        for producer, names in readers.items():
            result[producer] = tuple(sorted(names, key=order.__getitem__))
        for name in self._changed:
            if name in self.inlined:
                result.pop(name, None)
            else:
                result.setdefault(name, ())
        self._origin = None
        return result
