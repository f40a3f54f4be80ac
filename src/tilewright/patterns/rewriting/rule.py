"""A rewrite rule as a value, and the sites of a program at which rules are tried.

A rule replaces the first stages of a pipe. Wherever a rule applies, the replaced stages have the
type of the new ones: `apply_at` checks it. Conditions of a rule on the sizes (tiles that divide)
become requirements of the new program, because type checking the new stages collects them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tilewright.patterns import nodes as n
from tilewright.patterns.check import Mismatch, child_inputs, infer, type_of
from tilewright.patterns.errors import RewriteError
from tilewright.patterns.types import UNIT, DataType

Stages = tuple[n.Pattern, ...]


@dataclass(frozen=True, slots=True)
class Site:
    """A place in a program: stages from one of a pipe to its end.

    Args:
        stages: that stage and those after it.
        given: the type of the first stage's input.
        around: the patterns that this pipe is inside of, outermost first.
        put: makes the complete program with other stages here.
        reader: the pattern that reads the result of this pipe, if it does not go to memory.
    """

    stages: Stages
    given: DataType
    around: Stages
    put: Callable[[Stages], n.Pattern]
    reader: n.Pattern | None = None

    def levels(self) -> tuple[n.MapLevel, ...]:
        """Who runs the enclosing maps, outermost first; undecided ones are left out."""
        maps = [p.level for p in self.around if isinstance(p, n.Map)]
        return tuple(level for level in maps if level is not None)


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of a rule: the first ``count`` stages become ``stages``."""

    count: int
    stages: Stages


Step = Callable[[Site], Change | str | None]
"""Applies a rule at a site. None: the stages are not of its form; a text: why it does not apply."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rewrite rule with its parameters.

    Args:
        name: its name with parameters, as it is written in Python.
        before: the form of the stages that it replaces.
        after: the form of the new stages.
        source: the paper or project that it is from.
        step: the function that applies it.
        condition: what must hold besides the form; empty if nothing.
    """

    name: str
    before: str
    after: str
    source: str
    step: Step = field(compare=False, repr=False)
    condition: str = ""

    @property
    def rewriting(self) -> str:
        """What it does on one line: before, after and the side condition."""
        return f"{self.before} -> {self.after}" + (f" if {self.condition}" * bool(self.condition))

    def __str__(self) -> str:
        return self.name


def sites(program: n.Pattern) -> Iterator[Site]:
    """Return all sites of a program, outer before inner, left to right.

    Raises:
        PatternTypeError: the program is not well typed.
    """
    type_of(program)
    return _sites(program, UNIT, (), lambda stages: n.pipe(*stages), None)


def _sites(
    p: n.Pattern,
    given: DataType,
    around: Stages,
    put: Callable[[Stages], n.Pattern],
    reader: n.Pattern | None,
) -> Iterator[Site]:
    stages = n.stages(p)
    for k, stage in enumerate(stages):
        before = stages[:k]
        yield Site(stages[k:], given, around, _suffix(put, before), reader)
        later = next((s for s in stages[k + 1 :] if n.computes(s)), reader)
        if isinstance(stage, n.To):
            later = None
        elif isinstance(stage, n.Reduce):
            later = stage
        inner = n.children(stage)
        for i, (child, kind) in enumerate(zip(inner, child_inputs(stage, given), strict=True)):
            if isinstance(child, n.Literal):
                continue  # the start value of a reduction, whose type follows from its elements
            inside = _inside(put, before, stage, i, stages[k + 1 :])
            yield from _sites(child, kind, (*around, stage), inside, later)
        given = infer(stage, given)[0]


def _suffix(put: Callable[[Stages], n.Pattern], before: Stages) -> Callable[[Stages], n.Pattern]:
    return lambda new: put((*before, *new))


def _inside(
    put: Callable[[Stages], n.Pattern], before: Stages, stage: n.Pattern, i: int, after: Stages
) -> Callable[[Stages], n.Pattern]:
    def changed(new: Stages) -> n.Pattern:
        inner = n.children(stage)
        made = n.rebuilt(stage, (*inner[:i], n.pipe(*new), *inner[i + 1 :]))
        return put((*before, *n.stages(made), *after))

    return changed


def apply_at(rule: Rule, site: Site) -> n.Pattern | str | None:
    """Return the program after a rule at a site; None or a text if it does not apply (`Step`).

    Raises:
        RewriteError: the new stages have another type than the old ones (a wrong rule).
    """
    change = rule.step(site)
    if not isinstance(change, Change):
        return change
    old = infer(n.pipe(*site.stages[: change.count]), site.given)[0]
    try:
        new = infer(n.pipe(*change.stages), site.given)[0]
    except Mismatch as error:
        return f"{error.trail[0]} would take {error.expected}, but get {error.found}"
    if new != old:
        raise RewriteError(f"{rule} turned the type {old} into {new} at {_shown(site)}")
    return site.put((*change.stages, *site.stages[change.count :]))


def apply(rule: Rule, program: n.Pattern) -> n.Pattern:
    """Return the program after a rule at the first site where it applies.

    Raises:
        RewriteError: it applies nowhere; says why.
    """
    refused: list[tuple[Site, str]] = []
    for site in sites(program):
        found = apply_at(rule, site)
        if isinstance(found, n.Pattern):
            return found
        if found:
            refused.append((site, found))
    raise RewriteError(no_site(rule, program, refused))


def no_site(rule: Rule, program: n.Pattern, refused: list[tuple[Site, str]]) -> str:
    """Return why a rule applies nowhere."""
    if not refused:
        return f"{rule} does not apply: {program} has no {rule.before}"
    reasons = dict.fromkeys(f"  at {_shown(site)}: {reason}" for site, reason in refused)
    return "\n".join([f"{rule} does not apply to {program}", *reasons])


def run_already(*maps: n.Pattern) -> str | None:
    """Return that a map has a level, for rules that only rewrite undecided ones."""
    levels = (p.level for p in maps if isinstance(p, n.Map | n.Reduce))
    return next((f"it is already run by {v.kind}" for v in levels if v is not None), None)


def _shown(site: Site) -> str:
    text = str(n.pipe(*site.stages))
    return text if len(text) <= 60 else text[:57] + "..."
