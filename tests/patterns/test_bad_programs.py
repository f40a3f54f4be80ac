"""Programs that cannot work: each is refused with the reason, at the line that is wrong."""

import re

import numpy as np
import pytest

import tilewright.patterns as tp

N, M = tp.sizes("N M")
A = tp.array("A", tp.f32[N])
EIGHT = tp.array("A", tp.f32[8])
GRID = tp.array("A", tp.f32[N, M])
DOUBLE = tp.fun(lambda v: v + v, "double")
FOUR = np.zeros(4, np.float32)


def run(program, *arrays):
    return tp.compile(program)(*arrays)


def zipped(first, second):
    return tp.zip(tp.array("A", first), tp.array("B", second))


# Of each: what the user writes, and what is said; lines below are those that errors name.
BAD = {
    "no multiple": (
        lambda: tp.type_of(tp.array("A", tp.f32[10]) >> tp.split(4)),
        "a multiple of 4, but gets f32[10]",
    ),
    "size": (
        lambda: run(A >> tp.split(4) >> tp.map(tp.map(DOUBLE)) >> tp.join, FOUR[:3]),
        "N / 4 is 3/4, not a whole number",
    ),
    "windows": (lambda: tp.type_of(EIGHT >> tp.slide(3, 2)), "3 plus a multiple of 2"),
    "too short": (lambda: tp.type_of(EIGHT >> tp.slide(9, 1)), "at least 9 elements"),
    "crop": (lambda: run(A >> tp.crop(5) >> tp.map(DOUBLE), FOUR), "N - 5 is -1, below 0"),
    "scatter": (
        lambda: tp.type_of(EIGHT >> tp.scatter(lambda i, n: i // 2)),
        "not a permutation of 8 elements",
    ),
    "scatter later": (
        lambda: run(A >> tp.map(DOUBLE) >> tp.scatter(lambda i, n: i // 2 * 2), FOUR),
        "not a permutation of 4 elements",
    ),
    "gather": (
        lambda: tp.type_of(EIGHT >> tp.gather(lambda i, n: i + 1)),
        "index 7 leads to 8",
    ),
    "lengths": (
        lambda: tp.type_of(tp.zip(tp.array("A", tp.f32[4]), tp.array("B", tp.f32[5]))),
        "arrays of one length, as of f32[4]",
    ),
    "operands": (
        lambda: tp.type_of(zipped(tp.f32[N], tp.i32[N]) >> tp.map(tp.add)),
        "combines f32 (x0) with i32 (x1)",
    ),
    "no array": (
        lambda: tp.type_of(A >> tp.reduce(tp.add, 0) >> tp.map(DOUBLE)),
        "takes an array, but gets f32",
    ),
    "start": (
        lambda: tp.type_of(tp.array("A", tp.i32[N]) >> tp.reduce(tp.add, 0.5)),
        "a start value of type i32, but gets 0.5",
    ),
    "iterate": (
        lambda: tp.type_of(A >> tp.iterate(3, tp.pad(1, 1, tp.clamp))),
        "keeps the type f32[N]",
    ),
    "dimensions": (lambda: tp.type_of(GRID >> tp.slide3(3, 1)), "takes an array, but gets f32"),
    "level": (
        lambda: tp.source(A >> tp.map_lcl(DOUBLE), "cuda"),
        "map_lcl of dimension 0 outside of map_wrg(..., 0)",
    ),
    "cores of a GPU": (
        lambda: tp.source(A >> tp.map_par(DOUBLE), "opencl"),
        "map_par and map_simd are for CPUs",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_name_the_reason_and_the_line(name):
    write, said = BAD[name]
    with pytest.raises(tp.PatternError, match=re.escape(said)) as caught:
        write()
    place = re.search(r"  at .*test_bad_programs\.py:(\d+)", str(caught.value))
    assert place, caught.value
    first = write.__code__.co_firstlineno
    assert first <= int(place[1]) <= first + 1


def test_what_is_no_pattern_is_refused_where_it_is_written():
    with pytest.raises(tp.PatternTypeError, match=r"A >> <function .* is not a pattern: make a"):
        A >> (lambda x: x)
    with pytest.raises(tp.PatternTypeError, match="cannot branch on a value"):
        tp.fun(lambda v: v if v > 0 else 0)
    with pytest.raises(tp.SizeError, match=r"B is f32\[N\].* shape \(5,\): N should be 4"):
        run(zipped(tp.f32[N], tp.f32[N]) >> tp.map(tp.add), FOUR, np.zeros(5, np.float32))
