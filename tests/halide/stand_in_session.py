"""A session that measures nothing: subclasses say how each schedule would do."""

from contextlib import nullcontext
from types import SimpleNamespace

from tilewright.halide.execution.session import Measured
from tilewright.measure import Finals


class StandInSession:
    """Has what a search by measurements needs of a `Session`; `measured` lists the schedules."""

    def __init__(self, task):
        self.inputs = SimpleNamespace(buffers=())
        self.problem = SimpleNamespace(algorithm=task.algorithm, candidate=self.candidate)
        self.records = self.deadline = None
        self.remeasure = False
        self.note = None
        self.measured = []

    def measurement(self, schedule):
        raise AssertionError("a subclass measures")

    def measure(self, variants):
        for variant in variants:
            self.measured.append(variant.schedule)
            found = self.measurement(variant.schedule)
            yield Measured(variant, found if self.note is None else self.note(found))

    def prepare(self):
        return self.problem

    def candidate(self, variant):
        return SimpleNamespace(key=variant.name)

    def hold(self, variant):
        """A variant whose time is the same whenever it is timed."""
        seconds = self.measurement(variant.schedule).median
        return nullcontext(SimpleNamespace(sample=lambda visit: seconds))

    def finals(self, variants, *_, **__):
        return Finals(
            tuple(map(self.candidate, variants)),
            tuple(self.measurement(variant.schedule) for variant in variants),
        )
