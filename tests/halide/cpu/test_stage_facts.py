"""At which ends of their rows stages clamp coordinates: worked out by hand."""

import halide as hl
import pytest

from tilewright.halide.analysis.bounds import stage_env
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.schedulers.analytic.cpu.blocks import Block
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.analytic.cpu.register_block import border_share
from tilewright.halide.schedulers.analytic.cpu.stage_facts import StageFacts, clamped_ends
from tilewright.halide.schedulers.task import make_task
from tilewright.machines import CpuMachine

WIDTH, HEIGHT = 64, 48
MACHINE = CpuMachine("test", "x86-64", 4, ("avx2",), 256, ())


def ends(define, width=WIDTH, border=hl.BoundaryConditions.repeat_edge):
    """The ends along both loops of ``out[x, y] = define(edge, x, y)``."""
    x, y = hl.vars("x y")
    image, out = hl.ImageParam(hl.Float(32), 2, "image"), hl.Func("out")
    image.set_estimates([(0, width), (0, HEIGHT)])
    out[x, y] = define(border(image), x, y)
    out.set_estimates([(0, WIDTH), (0, HEIGHT)])
    algorithm = make_task(out, target="host", machine=MACHINE).algorithm
    view = View(algorithm, frozenset(f.name for f in algorithm.funcs if f.name != out.name()))
    analysis = Analysis(view, estimated_boxes(view), algorithm.symbols)
    (stage,) = view.stages(out.name())
    env = stage_env(view.by_name[out.name()], stage, analysis.regions[out.name()], analysis.bounder)
    facts = StageFacts(analysis, model_of(MACHINE), lambda name: 0)
    found = {a.name: clamped_ends(stage, a.name, env, analysis.bounder) for a in stage.args}
    assert facts.ends(out.name(), 0) == ((0, found["x"]), (1, found["y"]))
    return found["x"], found["y"]


@pytest.mark.parametrize(
    ("define", "found"),
    [
        (lambda f, x, y: f[x, y], (0, 0)),
        (lambda f, x, y: f[x + 1, y], (1, 0)),
        (lambda f, x, y: f[x - 1, y] + f[x, y + 1], (1, 1)),
        (lambda f, x, y: f[x - 1, y] + f[x + 1, y + 2] + f[x, y - 1], (2, 2)),
        (lambda f, x, y: f[WIDTH - x, y], (1, 0)),
        (lambda f, x, y: f[2 * x, y // 2], (1, 0)),
    ],
)
def test_an_end_counts_if_a_coordinate_leaves_the_input_there(define, found):
    assert ends(define) == found


def test_a_larger_input_has_its_end_elsewhere():
    assert ends(lambda f, x, y: f[x - 1, y] + f[x + 1, y], width=WIDTH + 1) == (1, 0)
    assert ends(lambda f, x, y: f[x, y], width=WIDTH - 1) == (1, 0)


def test_other_borders_count_at_both_ends():
    def zero(image):
        return hl.BoundaryConditions.constant_exterior(image, 0.0)

    assert ends(lambda f, x, y: f[hl.select(x > 3, x, y), y]) == (2, 2)
    assert ends(lambda f, x, y: f[x + 1, y], border=zero)[0] in (1, 2)


def test_minima_of_data_are_no_clamps():
    assert ends(lambda f, x, y: hl.min(f[x, y], 3.0) + hl.max(f[x, y], hl.f32(x))) == (0, 0)


def test_the_share_of_blocks():
    model, block = model_of(MACHINE), Block(vector=0, lanes=8)
    for count, share in ((0, 0.0), (1, 0.125), (2, 0.25)):
        assert border_share(block, {0: 64.0}, model, ((0, count),)) == share
    assert border_share(block, {0: 64.0}, model, ()) == 0.25
    assert border_share(Block(), {0: 64.0}, model, ()) == 0.0


def test_a_last_block_that_is_not_whole_is_border():
    model, block = model_of(MACHINE), Block(vector=0, lanes=16)
    for width, count, blocks in ((160.0, 0, 0), (152.0, 0, 1), (152.0, 1, 1), (152.0, 2, 2)):
        share = border_share(block, {0: width}, model, ((0, count),))
        assert share == pytest.approx(blocks * 16 / width)
