"""Reduction loops whose iterations do not depend on each other within a round.

A round is one iteration of the reduction loops further out::

    for t in 1 .. 6:         # the rounds, in order
      for y in 0 .. 2560:    # reads only what earlier rounds stored: any order, or in parallel
        f[x, y, t] = max(f[x, y, t - 1], f[x, y + step, t - 1])

Halide 21 renames all reduction variables of the other iteration before it compares what one stores
with what the other loads (``ParallelRVar.cpp``). So it takes different rounds for a race, and runs
the loop in parallel only with ``allow_race_conditions``.
"""

from __future__ import annotations

from tilewright.halide.analysis.linear_forms import Linear, Linearizer
from tilewright.halide.ir.algorithm import Call, Expr, Func, Stage, Variable, walk


def independent_rvar(func: Func, stage: Stage) -> str | None:
    """Return the name of the innermost reduction loop if its iterations are independent in a round.

    The proof holds for all sizes and values of parameters. Two iterations of the loop, in the same
    round, must store at different places: the loop alone moves a coordinate of the store. And each
    value of the Func that an iteration loads must be the one that it stores itself, or lie at a
    coordinate that no iteration of the round stores at.

    Returns:
        The name of the loop. None if it is the only reduction loop, or if nothing is proved.
    """
    reductions = [loop for loop in stage.loops if loop.kind != "pure"]
    if len(reductions) < 2 or reductions[0].kind != "impure_rvar":
        return None
    name = reductions[0].name
    rounds = {loop.name for loop in reductions[1:]}
    linear = Linearizer({})  # without estimates of parameters, which only hold for some calls
    stored = [linear(arg) for arg in stage.args]
    own = [d for d, form in enumerate(stored) if _moved_only_by(form, name, rounds)]
    fixed = [d for d, form in enumerate(stored) if _moved_only_by(form, None, rounds)]
    if not own:
        return None
    for loads in _loads(func, stage):
        loaded = [linear(arg) for arg in loads]
        same = any(_distance(stored[d], loaded[d]) == 0.0 for d in own)
        apart = any((_distance(stored[d], loaded[d]) or 0.0) != 0.0 for d in fixed)
        if not same and not apart:
            return None
    return name


def _loads(func: Func, stage: Stage) -> list[tuple[Expr, ...]]:
    """Return the coordinates of all loads of a Func in its own stage."""
    roots = (*stage.values, *stage.args, *stage.predicates)
    return [
        node.args
        for node in walk(*roots)
        if isinstance(node, Call) and node.kind == "func" and node.name == func.name
    ]


def _moved_only_by(form: Linear, loop: str | None, rounds: set[str]) -> bool:
    """Return whether a coordinate changes along `loop` and otherwise only from round to round.

    Without a loop: whether it is the same in all iterations of a round.
    """
    if not form.affine:
        return False
    names = {
        atom.name for atom, _ in form.terms if isinstance(atom, Variable) and atom.kind != "param"
    }
    return names - rounds == ({loop} if loop else set())


def _distance(a: Linear, b: Linear) -> float | None:
    """Return the difference of two coordinates; None if it is not constant."""
    if not (a.affine and b.affine):
        return None
    terms: dict[str, float] = {}
    for form, sign in ((a, 1.0), (b, -1.0)):
        for atom, coefficient in form.terms:
            assert isinstance(atom, Variable)
            terms[atom.name] = terms.get(atom.name, 0.0) + sign * coefficient
    return None if any(terms.values()) else a.const - b.const
