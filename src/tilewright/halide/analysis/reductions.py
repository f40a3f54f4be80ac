"""Reductions: stages that combine many values into each point that they store."""

from __future__ import annotations

from tilewright.halide.analysis.summaries import Analysis, StageSummary
from tilewright.halide.ir.algorithm import Func, Variable


def accumulates(summary: StageSummary) -> bool:
    """Return whether the stage combines many values into each point of its pure dimensions."""
    return (
        any(loop.kind != "pure" for loop in summary.loops)
        and not summary.scatter
        and not summary.scans
    )


def only_reduces(analysis: Analysis, func: Func) -> bool:
    """Return whether every update of a Func reduces values into each of its points."""
    stages = analysis.summaries(func.name)
    return (
        len(stages) > 1
        and not func.fixed
        and not func.scheduled
        and all(accumulates(s) for s in stages[1:])
        and all(_covers(s.args, func.args) for s in stages)
    )


def _covers(args: tuple[object, ...], names: tuple[str, ...]) -> bool:
    return all(isinstance(a, Variable) and a.kind == "var" for a in args) and len(args) == len(
        names
    )
