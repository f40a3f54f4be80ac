"""A schedule without a copy that the analytic one makes does not come before it."""

from dataclasses import replace

import halide as hl
import pytest

from tilewright.halide.schedulers.learned.cost_model import shipped
from tilewright.halide.schedulers.learned.scheduler import plan_learned
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import make_task
from tilewright.machines import Cache, CpuMachine

CACHES = (Cache(1, 32 << 10, 64, 1), Cache(2, 512 << 10, 64, 1), Cache(3, 32 << 20, 64, 2))
MACHINE = CpuMachine("test", "x86-64", 2, ("avx2", "fma"), 256, CACHES)


def product(width=1536, height=48, depth=512):
    """A product of matrices, one with rows pages apart."""
    a, b = (hl.ImageParam(hl.Float(32), 2, name) for name in ("a", "b"))
    x, y = hl.vars("x y")
    k = hl.RDom([(0, depth)], "k")
    total, out = hl.Func("total"), hl.Func("out")
    total[x, y] = 0.0
    total[x, y] += a[x, k] * b[k, y]
    out[x, y] = total[x, y]
    out.set_estimates([(0, width), (0, height)])
    a.set_estimates([(0, width), (0, depth)])
    b.set_estimates([(0, depth), (0, height)])
    return hl.Pipeline(out)


@pytest.mark.parametrize("auto", [False, True])
def test_a_panel_is_kept_whatever_the_model_expects_of_doing_without(auto):
    made = make_task(product(), machine=MACHINE)
    (analytic,) = plan(made)
    assert any("is copied to a panel" in n for group in analytic.groups for n in group.notes)
    # Any other schedule comes first that is expected to be faster, however little.
    bold = replace(shipped(), drift=0.0, residual=0.0)
    found = plan_learned(made, model=bold, auto=auto)
    copied = {e.func for e in analytic.schedule.funcs if e.compute.kind == "at"}
    assert len(copied) == 2  # the panel and the sum
    assert copied <= {e.func for e in found[0].schedule.funcs if e.compute.kind == "at"}
