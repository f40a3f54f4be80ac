"""Rewrite rules as values, and the sites of a program at which rules are tried.

A rule replaces the first stages of a pipe by stages of the same type, which `apply_at` checks. A
rule's conditions on sizes, such as divisibility by a tile, become requirements of the new program:
type checking of the new stages collects them.
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
    """A place in a program: a stage of a pipe and all later stages.

    Args:
        stages: the stage and those after it.
        given: the type of the first stage's input.
        around: the patterns that this pipe is inside of, outermost first.
        put: returns the complete program with other stages at this place.
        reader: the pattern that reads the result of this pipe; None if it goes to memory.
    """

    stages: Stages
    given: DataType
    around: Stages
    put: Callable[[Stages], n.Pattern]
    reader: n.Pattern | None = None

    def levels(self) -> tuple[n.MapLevel, ...]:
        """The levels of the enclosing maps that have one, outermost first."""
        maps = [p.level for p in self.around if isinstance(p, n.Map)]
        return tuple(level for level in maps if level is not None)


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of a rule: the first ``count`` stages become ``stages``."""

    count: int
    stages: Stages


Step = Callable[[Site], Change | str | None]
"""Applies a rule at a site. Returns None if the stages differ, a text if a condition fails."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rewrite rule with its parameters.

    Args:
        name: its name with parameters, as a Python call.
        before: the form of the stages that it replaces.
        after: the form of the new stages.
        source: the paper or project in which it was published.
        step: the function that applies it.
        condition: the side condition; empty if there is none.
    """

    name: str
    before: str
    after: str
    source: str
    step: Step = field(compare=False, repr=False)
    condition: str = ""

    @property
    def rewriting(self) -> str:
        """The rule on one line: before, after and side condition."""
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
    """Apply a rule at a site.

    Returns:
        The new program; None or a text if the rule does not apply (`Step`).

    Raises:
        RewriteError: the rule is wrong: it changes the type of the stages.
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
    """Apply a rule at the first site where it applies, and return the new program.

    Raises:
        RewriteError: the rule applies nowhere; the message says why.
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
    """Return the message that a rule applies nowhere, with the reasons."""
    if not refused:
        return f"{rule} does not apply: {program} has no {rule.before}"
    reasons = dict.fromkeys(f"  at {_shown(site)}: {reason}" for site, reason in refused)
    return "\n".join([f"{rule} does not apply to {program}", *reasons])


def run_already(*maps: n.Pattern) -> str | None:
    """Return the refusal of rules that rewrite only maps without a level; None if none has one."""
    levels = (p.level for p in maps if isinstance(p, n.Map | n.Reduce))
    return next((f"it is already run by {v.kind}" for v in levels if v is not None), None)


def _shown(site: Site) -> str:
    text = str(n.pipe(*site.stages))
    return text if len(text) <= 60 else text[:57] + "..."
