"""Strategies: combinations of rules, after ELEVATE (Hagedorn 2020).

A strategy extends a derivation, or raises `RewriteError`. A `Rule` is used as the strategy that
applies it at the first possible site, outermost and leftmost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.patterns import nodes as n
from tilewright.patterns.errors import RewriteError
from tilewright.patterns.rewriting.rule import Rule, Site, apply_at, no_site, sites


@dataclass(frozen=True, slots=True)
class Derivation:
    """A derived program: the original one and the rules applied to it.

    Args:
        start: the original program.
        steps: the rules in order, each with the program after it.
    """

    start: n.Pattern
    steps: tuple[tuple[Rule, n.Pattern], ...] = ()

    @property
    def program(self) -> n.Pattern:
        """The derived program."""
        return self.steps[-1][1] if self.steps else self.start

    def then(self, rule: Rule, program: n.Pattern) -> Derivation:
        """Return the derivation with one more step."""
        return Derivation(self.start, (*self.steps, (rule, program)))

    def __str__(self) -> str:
        lines = [f"  {self.start}"]
        for rule, program in self.steps:
            lines += [f"= {{ {rule}: {rule.rewriting} }}", f"  {program}"]
        return "\n".join(lines)


Strategy = Callable[[Derivation], Derivation]
MOST_REPEATS = 1000  # applications after which `repeat` is assumed not to terminate


def derive(program: n.Pattern, *parts: Rule | Strategy) -> Derivation:
    """Apply rules and strategies to a program in order, and return the derivation.

    Raises:
        RewriteError: one does not apply; the message says which, and why.
    """
    return sequence(*parts)(Derivation(program))


def top_down(rule: Rule) -> Strategy:
    """Return the strategy of a rule at the first site where it applies, outer before inner."""
    return lambda d: _at(rule, d, 0, False)


def bottom_up(rule: Rule) -> Strategy:
    """Return the strategy of a rule at the last site where it applies, inner before outer."""
    return lambda d: _at(rule, d, 0, True)


def at_site(rule: Rule, number: int) -> Strategy:
    """Return the strategy of a rule at site ``number`` of those where it applies, from 0."""
    return lambda d: _at(rule, d, number, False)


def _at(rule: Rule, d: Derivation, number: int, reverse: bool) -> Derivation:
    refused: list[tuple[Site, str]] = []
    order = list(sites(d.program))
    seen = 0
    for site in reversed(order) if reverse else order:
        found = apply_at(rule, site)
        if isinstance(found, n.Pattern):
            if seen == number:
                return d.then(rule, found)
            seen += 1
        elif found:
            refused.append((site, found))
    if seen:
        raise RewriteError(
            f"{rule} applies at {seen} sites, so `number` is below {seen}, not {number}"
        )
    raise RewriteError(no_site(rule, d.program, refused))


def _strategy(part: Rule | Strategy) -> Strategy:
    if not callable(part) and not isinstance(part, Rule):
        raise RewriteError(f"{part!r} is neither a rule nor a strategy")
    return top_down(part) if isinstance(part, Rule) else part


def sequence(*parts: Rule | Strategy) -> Strategy:
    """Return a strategy that applies all parts in order."""

    def run(d: Derivation) -> Derivation:
        for part in parts:
            d = _strategy(part)(d)
        return d

    return run


def one(*parts: Rule | Strategy) -> Strategy:
    """Return a strategy that applies the first part that applies."""

    def run(d: Derivation) -> Derivation:
        reasons = []
        for part in parts:
            try:
                return _strategy(part)(d)
            except RewriteError as error:
                reasons.append(str(error))
        raise RewriteError("\n".join(reasons) or "one() of no strategy")

    return run


def attempt(part: Rule | Strategy) -> Strategy:
    """Return a strategy that applies a part if it applies (ELEVATE's ``try``)."""
    return one(part, sequence())


def repeat(part: Rule | Strategy) -> Strategy:
    """Return a strategy that applies another one as often as possible.

    Raises:
        RewriteError: the strategy still applies after `MOST_REPEATS` applications.
    """

    def run(d: Derivation) -> Derivation:
        for _ in range(MOST_REPEATS):
            try:
                d = _strategy(part)(d)
            except RewriteError:
                return d
        raise RewriteError(f"a strategy still applies after {MOST_REPEATS} times; use it once")

    return run


def everywhere(rule: Rule) -> Strategy:
    """Return a strategy that applies a rule once at every possible site (ELEVATE's ``all``).

    Results of the rule are not rewritten again: sites are visited inner first, right to left.
    """

    def run(d: Derivation) -> Derivation:
        count = sum(isinstance(apply_at(rule, site), n.Pattern) for site in sites(d.program))
        if not count:
            return _at(rule, d, 0, False)
        for number in reversed(range(count)):
            d = _at(rule, d, number, False)
        return d

    return run
