"""Conformance checks for journals of tuning."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.tuning import Journal, Suggestion, Trial


def trials() -> tuple[Trial, ...]:
    """Return one trial of each kind that a tuner reports."""
    suggestion = Suggestion(0, {"tile": 8, "order": (1, 0), "word": "a b"}, "random")
    return (
        Trial(suggestion, "ok", (1.5,), details={"times": [1.5, 1.75]}),
        Trial(_next(suggestion, 1), "ok", (0.1, 2.0), seconds=0.25),
        Trial(_next(suggestion, 2), "ok", (3.0,), lower_bound=True),
        Trial(_next(suggestion, 3), "crashed", message='said "no"\nand died'),
        Trial(_next(suggestion, 4), "ok", (1e-300,)),
    )


def check_journal(opened: Callable[[], Journal]) -> None:
    """Check a journal: trials that were added are loaded again, in order, by the next reader.

    Args:
        opened: opens the journal, which is empty at first. It is called several times; each
            journal must load the trials that earlier ones added.

    Raises:
        AssertionError: the journal fails a check; the message names it.
    """
    journal = opened()
    found = journal.load()
    assert found == [], f"a fresh journal has {len(found)} trials"
    wanted: list[Trial] = []
    for trial in trials():
        journal.add(trial)
        wanted.append(trial)
        _check_same(opened().load(), wanted)
    _check_same(journal.load(), wanted)
    journal.load().clear()
    _check_same(journal.load(), wanted)
    second = opened()
    more = Trial(_next(wanted[0].suggestion, len(wanted)), "timeout")
    second.add(more)
    _check_same(opened().load(), [*wanted, more])


def _check_same(found: list[Trial], wanted: list[Trial]) -> None:
    assert len(found) == len(wanted), (
        f"{len(wanted)} trials were added, but {len(found)} are loaded"
    )
    for one, other in zip(found, wanted, strict=True):
        assert one == other, f"a trial was added as {other} and is loaded as {one}"


def _next(suggestion: Suggestion, index: int) -> Suggestion:
    """Return a later suggestion of the same configuration."""
    return Suggestion(index, suggestion.configuration, "model", (0.5, -1.25), 0.01)
