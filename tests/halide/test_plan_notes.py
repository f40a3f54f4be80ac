"""What `plan` says of schedules that it leaves out."""

import halide as hl

from tilewright.halide.legality.check import Problem
from tilewright.halide.schedulers import registry
from tilewright.halide.schedulers.task import make_task


def test_a_schedule_that_is_left_out_is_in_the_notes_of_the_next(monkeypatch):
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    f, g = hl.Func("f"), hl.Func("g")
    f[x, y] = image[x, y] + image[x + 1, y]
    g[x, y] = f[x, y] + f[x, y + 1]
    g.set_estimates([(0, 512), (0, 512)])
    task = make_task(g)
    wanted = registry.plan(task, k=3)
    answers = iter([[Problem("grid", "g", 0, "too many blocks")]])
    monkeypatch.setattr(registry, "check", lambda *args: next(answers, []))
    found = registry.plan(task, k=3)
    assert wanted[0].schedule not in [planned.schedule for planned in found]
    assert "Left out before this one: g: too many blocks" in found[0].notes
