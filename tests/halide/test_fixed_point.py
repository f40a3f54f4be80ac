"""Arithmetic on narrow integers that is written with wider ones."""

from collections import Counter

import halide as hl
import pytest

from tilewright.halide.analysis.fixed_point import fixed_point
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.frontend.source import load

X, Y = hl.vars("x y")


def summary(build, kind=None):
    """The summary of a Func that computes ``build(a, b)`` from two images of bytes."""
    images = [hl.ImageParam(kind or hl.UInt(8), 2, name) for name in "ab"]
    func = hl.Func("f")
    func[X, Y] = build(*(image[X, Y] for image in images))
    func.set_estimates([(0, 64), (0, 64)])
    algorithm = load(func)
    analysis = Analysis(View(algorithm), estimated_boxes(View(algorithm)), {})
    return analysis.summaries(algorithm.outputs[0])[0]


def counted(build, kind=None):
    """The operations that a CPU executes, by name and type."""
    found: Counter[tuple[str, str]] = Counter()
    for op in summary(build, kind).vector_ops:
        found[op.name, str(op.type)] += op.count
    return dict(found)


def average(a, b, rounding, kind, wide):
    return hl.cast(kind, (hl.cast(wide, a) + hl.cast(wide, b) + rounding) // 2)


U8, U16, U32 = hl.UInt(8), hl.UInt(16), hl.UInt(32)
I8, I16, I32 = hl.Int(8), hl.Int(16), hl.Int(32)


@pytest.mark.parametrize(
    ("build", "kind", "expected"),
    [
        (lambda a, b: average(a, b, 1, U8, U16), U8, {("rounding_halving_add", "uint8"): 1}),
        (lambda a, b: average(a, b, 0, U8, U16), U8, {("halving_add", "uint8"): 1}),
        (lambda a, b: average(a, b, 1, U16, U32), U16, {("rounding_halving_add", "uint16"): 1}),
        (lambda a, b: average(a, b, 1, I16, I32), I16, {("rounding_halving_add", "int16"): 1}),
        # A byte is converted to the type of the operation first.
        (
            lambda a, b: average(a, b, 1, U16, U32),
            U8,
            {("rounding_halving_add", "uint16"): 1, ("cast", "uint16"): 2},
        ),
        (
            lambda a, b: hl.cast(U8, (1 + (hl.u16(a) + hl.u16(b))) >> 1),
            U8,
            {("rounding_halving_add", "uint8"): 1},
        ),
        (
            lambda a, b: hl.cast(U16, (hl.u32(a) * hl.u32(b)) // 65536),
            U16,
            {("mul_shift_right", "uint16"): 1},
        ),
        (
            lambda a, b: hl.cast(U8, hl.min(hl.u16(a) + hl.u16(b), hl.u16(255))),
            U8,
            {("saturating_add", "uint8"): 1},
        ),
        (
            lambda a, b: hl.cast(I16, hl.clamp(hl.i32(a) + hl.i32(b), -32768, 32767)),
            I16,
            {("saturating_add", "int16"): 1},
        ),
        (
            lambda a, b: hl.cast(U8, hl.max(hl.i16(a) - hl.i16(b), hl.i16(0))),
            U8,
            {("saturating_sub", "uint8"): 1},
        ),
        (
            lambda a, b: hl.cast(U8, hl.clamp(a, 0, 255)),
            I32,
            {("saturating_cast", "uint8"): 1},
        ),
        (lambda a, b: a // 8 + a % 8, I32, {
            ("shift_right", "int32"): 1, ("bitwise_and", "int32"): 1, ("add", "int32"): 1,
        }),
    ],
)  # fmt: skip
def test_operations_that_halide_finds(build, kind, expected):
    assert counted(build, kind) == expected


@pytest.mark.parametrize(
    ("build", "kind"),
    [
        (lambda a, b: average(a, b, 2, U8, U16), U8),  # no average
        (lambda a, b: hl.cast(U8, (hl.u16(a) + hl.u16(b) + 1) // 4), U8),
        (lambda a, b: hl.cast(U8, (hl.u16(a) + 1) // 2), U8),
        (lambda a, b: average(a, b, 1, U32, hl.UInt(64)), U32),  # of 32 bits
        (lambda a, b: average(a, b, 1, U8, U16), U16),  # its operands are not widened
        (lambda a, b: hl.cast(U8, hl.min(hl.u16(a) + hl.u16(b), hl.u16(254))), U8),
        (lambda a, b: hl.cast(U8, hl.clamp(hl.i16(a) - hl.i16(b), hl.i16(1), hl.i16(255))), U8),
        (lambda a, b: hl.cast(U8, hl.min(a, 255)), I32),  # not limited below
        (lambda a, b: hl.cast(I8, hl.min(hl.i16(a) + hl.i16(b), hl.i16(127))), I8),
        (lambda a, b: a // 6 + a % 6, I32),
        (lambda a, b: a / 2, hl.Float(32)),
    ],
)
def test_other_expressions_are_counted_as_written(build, kind):
    found = summary(build, kind)
    names = {op.name for op in found.vector_ops}
    assert not names & {"halving_add", "rounding_halving_add", "saturating_add", "saturating_sub",
                        "saturating_cast", "mul_shift_right", "bitwise_and"}  # fmt: skip


def test_operands_that_are_used_elsewhere_count_once_more():
    def both(a, b):
        total = hl.u16(a) + hl.u16(b)
        return hl.u16(hl.cast(U8, (total + 1) // 2)) + total

    found = counted(both)
    assert found["rounding_halving_add", "uint8"] == 1
    # The sum and its conversions, the conversion of the average, and the last sum.
    assert found["add", "uint16"] == 2
    assert found["cast", "uint16"] == 3


def test_operations_as_written_are_kept_too():
    found = summary(lambda a, b: average(a, b, 1, U8, U16))
    assert {op.name for op in found.ops} == {"cast", "add", "div"}
    plain = summary(lambda a, b: a + b)
    assert plain.vector_ops is plain.ops
    assert not fixed_point([])


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda a, b: hl.select(X % 2 == 0, a, b), {"x": 2}),
        (lambda a, b: hl.select((X + 3 * Y) % 6 == 0, a, b), {"x": 6, "y": 2}),
        (lambda a, b: a + hl.u8(X // 4), {"x": 4}),
        # A remainder of loaded values has no period in the loop.
        (lambda a, b: a % 4 + b, {}),
        (lambda a, b: hl.select(X < 5, a, b), {}),
    ],
)
def test_remainders_of_loops(build, expected):
    found = summary(build)
    loops = [loop.name for loop in found.loops]
    names = dict(zip(("x", "y"), loops, strict=True))
    assert found.remainders == {names[loop]: by for loop, by in expected.items()}


def test_divisions_in_coordinates_of_loads_are_not_among_them():
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    func = hl.Func("f")
    func[X, Y] = image[X // 2, Y % 2]
    func.set_estimates([(0, 64), (0, 64)])
    algorithm = load(func)
    analysis = Analysis(View(algorithm), estimated_boxes(View(algorithm)), {})
    assert not analysis.summaries(algorithm.outputs[0])[0].remainders
