import halide as hl
import pytest
from gpu_pipelines import analysed, full

from tilewright.halide.analysis.summaries import nothing_to_do
from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers.analytic.gpu.fusable import (
    why_not_member,
    why_not_read,
)

x, y = hl.vars("x y")


def read_at(coordinate):
    """An analysis of ``out[x] = inner[coordinate]``, and the names of the two."""
    image = hl.ImageParam(hl.Int(32), 1, "image")
    inner, out = hl.Func("inner"), hl.Func("out")
    inner[x] = image[x] + 1
    out[x] = inner[coordinate]
    out.set_estimates([(0, 100)])
    algorithm = load(out)
    return analysed(algorithm), full(algorithm, "out"), full(algorithm, "inner")


@pytest.mark.parametrize(
    ("coordinate", "fits"),
    [
        (x + 3, True),
        (2 * x - 1, True),
        (x // 2 + 1, True),
        (x % 2 + x // 2, True),
        (hl.clamp(x, 3, 50), True),
        (hl.select(x > 5, x, 5), True),
        (x % 16, False),
        (x & 15, False),
    ],
)
def test_coordinates_that_move_with_the_tile(coordinate, fits):
    assert (why_not_read(*read_at(coordinate)) == "") == fits


def test_a_member_has_parallel_loops_and_scatters_within_bounds():
    image = hl.ImageParam(hl.Int(32), 2, "image")
    r = hl.RDom([(0, 64), (0, 64)], "r")
    histogram, rows, out = hl.Func("histogram"), hl.Func("rows"), hl.Func("out")
    clamped = hl.Func("clamped")
    histogram[x] = 0
    histogram[hl.clamp(image[r.x, r.y], 0, 255)] += 1
    rows[x, y] = 0
    rows[image[r.x, y], y] += 1
    clamped[x, y] = 0
    clamped[hl.clamp(image[r.x, y], 0, 255), y] += 1
    out[x, y] = histogram[x] + rows[x, y] + clamped[x, y]
    out.set_estimates([(0, 256), (0, 64)])
    algorithm = load(out)
    why = {
        name: why_not_member(analysed(algorithm, "image_im"), full(algorithm, name))
        for name in ("histogram", "rows", "clamped", "out")
    }
    assert "without parallel loops" in why["histogram"]
    assert "scatters to places without bounds" in why["rows"]
    assert why["clamped"] == ""
    assert why["out"] == ""


def test_stages_that_compute_nothing():
    f = hl.Func("f")
    f[x] = hl.undef(hl.Float(32))
    f[x] = 1.0
    f.set_estimates([(0, 10)])
    stages = load(f).funcs[0].stages
    assert [nothing_to_do(stage) for stage in stages] == [True, False]
