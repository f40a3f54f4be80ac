"""Patterns: how they are written, printed, kept, typed, and what they mean."""

import copy
import json
import pickle
import tracemalloc

import numpy as np
import pytest
from by_hand import arrays, lists, run, same
from hypothesis import given, settings
from hypothesis import strategies as st
from random_patterns import stages

import tilewright.patterns as tp
from tilewright.patterns import nodes as n
from tilewright.patterns import rewriting
from tilewright.patterns.check import requirements

N, M = tp.sizes("N M")
MEAN = tp.fun(lambda w: (w[0, 1] + w[1, 0] + w[1, 2] + w[2, 1]) / 4, "mean")
STENCIL = tp.pad2(1, 1, tp.clamp) >> tp.slide2(3, 1) >> tp.map2(MEAN)


def program():
    return tp.array("A", tp.f32[N, M]) >> STENCIL


def namespace(p):
    """What a printed pattern refers to."""
    known = {name: getattr(tp, name) for name in tp.__all__} | {"N": N, "M": M}
    known |= {a.name: a for a in n.inputs(p)}
    exec(tp.definitions(p), known)
    return known


def test_equal_patterns_are_one_node():
    assert program() is program()
    assert tp.split(4) is not tp.split(2)
    assert n.Literal(1, None) is not n.Literal(1.0, None)
    assert n.Literal(0.0, tp.f32) is not n.Literal(-0.0, tp.f32)
    assert pickle.loads(pickle.dumps(program())) is program()
    assert copy.deepcopy(program()) is program()
    assert (tp.join >> tp.identity) is tp.join
    assert ((tp.join >> tp.split(2)) >> tp.join) is (tp.join >> (tp.split(2) >> tp.join))


def test_programs_print_as_they_are_written():
    assert str(STENCIL) == (
        "pad2(1, 1, clamp) >> slide2(3, 1) >> "
        "map2(fork(at(0, 1), at(1, 0), at(1, 2), at(2, 1)) >> mean)"
    )
    text = "zip2(A, B) >> map(split(N / 4)) >> gather(lambda i, n: -i + n - 1) >> untile2"
    A, B = tp.array("A", tp.f32[N, N]), tp.array("B", tp.f32[N, N])
    made = tp.zip2(A, B) >> tp.map(tp.split(N / 4)) >> tp.gather(lambda i, n: n - 1 - i)
    assert str(made >> tp.untile2) == text


def test_json_of_another_kind_is_refused():
    data = json.loads(json.dumps(tp.to_json(program())))
    assert tp.from_json(data) is program()
    for broken in (
        None,
        {"version": 2, "nodes": []},
        {"version": 1, "nodes": []},
        {"version": 1, "nodes": [{"kind": "Spilt", "length": {"size": "4"}}]},
        {"version": 1, "nodes": [{"kind": "Split", "length": {"size": "import os"}}]},
        {"version": 1, "nodes": [{"kind": "Pipe", "stages": [{"node": 0}]}]},
        {"version": 1, "nodes": [{"kind": "Arg", "index": 0}]},
    ):
        with pytest.raises(tp.PatternError, match="pattern program"):
            tp.from_json(broken)


@given(stages(tp.i32[4, 6], depth=2, most=4))
@settings(max_examples=60)
def test_random_programs_come_back_from_text_and_json(p):
    closed = tp.array("A", tp.i32[4, 6]) >> p
    assert eval(str(closed), namespace(closed)) is closed
    assert tp.from_json(json.loads(json.dumps(tp.to_json(closed)))) is closed


@given(stages(tp.i32[4, 6], depth=3, most=4), st.integers(0, 1000))
@settings(max_examples=150)
def test_interpreter_agrees_with_element_by_element(p, seed):
    given_array = np.random.default_rng(seed).integers(-9, 9, (4, 6)).astype(np.int32)
    closed = tp.array("A", tp.i32[4, 6]) >> p
    expected = arrays(run(closed, (), {"A": lists(given_array)}))
    assert same(tp.interpret(closed, given_array), expected)


def test_types_have_open_sizes():
    assert str(tp.type_of(program())) == "f32[N, M]"
    tiled = tp.array("A", tp.f32[N + 2]) >> tp.slide(18, 16)
    assert str(tp.type_of(tiled)) == "f32[N / 16, 18]"
    assert [str(r.value) for r in requirements(tiled)] == ["N - 16", "(N - 16) / 16"]
    a, b = tp.array("a", tp.f32[N]), tp.array("b", tp.f32[N])
    dot = tp.zip(a, b) >> tp.map(tp.mul) >> tp.reduce(tp.add, 0)
    assert str(tp.type_of(dot)) == "f32"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: tp.array("A", tp.f32[6]) >> tp.split(4), r"multiple of 4, but gets f32\[6\]"),
        (lambda: tp.array("A", tp.f32[N]) >> tp.join, r"array of arrays, but gets f32\[N\]"),
        (
            lambda: tp.zip(tp.array("A", tp.f32[N]), tp.array("B", tp.f32[M])),
            r"length, as of f32\[N\], but gets f32\[N\] \(length N\) and f32\[M\] \(length M\)",
        ),
        (lambda: tp.array("A", tp.f32[2]) >> tp.slide(3, 1), r"at least 3 elements, but gets f32"),
        (lambda: tp.array("A", tp.f32[2]) >> tp.at(2), r"more than 2 elements"),
        (lambda: tp.array("A", tp.f32[2, 3]) >> tp.iterate(2, tp.transpose), "keeps the type"),
        (
            lambda: tp.join >> tp.split(2),
            r"an array of arrays, but gets nothing \(it needs an input\)",
        ),
        (lambda: tp.array("A", tp.i32[N]) >> tp.map(tp.fun(lambda x: x / 2)), "f32 or f64"),
        (
            lambda: tp.zip(tp.array("A", tp.i32[N]), tp.array("B", tp.f32[N])) >> tp.map(tp.add),
            r"a \+ b combines|x0 \+ x1 combines i32",
        ),
        (lambda: tp.array("A", tp.i32[N]) >> tp.reduce(tp.add, 0.5), "start value of type i32"),
        (lambda: tp.array("A", tp.f32[N]) >> tp.pad(1, 1, True), "values such as True"),
        (
            lambda: tp.array("A", tp.f32[8]) >> tp.scatter(lambda i, n: i // 2),
            "a permutation of 8 elements, but gets another function: .*occurs twice",
        ),
        (
            lambda: tp.array("A", tp.f32[8]) >> tp.gather(lambda i, n: i + 1),
            "indices of 8 elements, but gets another function: index 7 leads to 8",
        ),
        (
            lambda: (
                tp.array("A", tp.f64[N])
                >> tp.slide(2, 1)
                >> tp.map(tp.fun(lambda w: w[0] + w[1], "s", types=[tp.f32]))
            ),
            "f32 as w_0, but gets f64",
        ),
    ],
)
def test_type_errors_show_both_types_and_the_place(wrong, message):
    with pytest.raises(tp.PatternTypeError, match=message) as caught:
        tp.type_of(wrong())
    assert "test_language.py:" in str(caught.value)


def test_a_pattern_made_twice_is_found_where_the_program_uses_it(tmp_path):
    other = tmp_path / "other.py"
    other.write_text("import tilewright.patterns as tp\nmade = tp.split(7)\n")
    p = tp.array("A", tp.f32[6]) >> tp.split(7)
    exec(compile(other.read_text(), str(other), "exec"), {})
    with pytest.raises(tp.PatternTypeError) as caught:
        tp.type_of(p)
    assert "test_language.py:" in str(caught.value)
    assert "other.py" not in str(caught.value)


def test_type_errors_point_into_the_program():
    p = tp.array("A", tp.f32[N, 6]) >> tp.map(tp.split(4) >> tp.join)
    with pytest.raises(tp.PatternTypeError) as caught:
        tp.type_of(p)
    lines = str(caught.value).splitlines()
    assert lines[1] == "  in A >> map(split(4) >> join)"
    assert lines[2].index("^") == lines[1].index("split(4)")
    assert lines[2].count("^") == len("split(4)")


def test_user_functions_cannot_branch_or_loop():
    with pytest.raises(tp.PatternTypeError, match="where"):
        tp.fun(lambda x: 1 if x < 0 else x)
    with pytest.raises(tp.PatternError, match="use reduce"):
        tp.fun(lambda w: sum(w))
    with pytest.raises(tp.PatternError, match="fixed number"):
        tp.fun(lambda *xs: xs[0])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: tp.fun(lambda x: x == 0), r"write equal\(x, y\)"),
        (lambda: tp.fun(lambda x: x + 1 != x), r"write equal\(x, y\)"),
        (lambda: tp.fun(lambda x: x**0.5), "power of 0.5"),
        (lambda: tp.fun(lambda x: x // 3), r"no //: write i32\(f64\(x\) / f64\(y\)\)"),
        (lambda: tp.fun(lambda x: 7 % x), r"no %: write x - y \* i32"),
        (lambda: tp.fun(lambda x: x / N), "N in a user function"),
        (lambda: tp.map(lambda x: x + 1), r"fun\(\)"),
        (lambda: tp.map(tp.copy, "glb"), "use map_glb"),
        (lambda: tp.pad2(1, 1, "clmp"), "'clmp'; give clamp"),
        (lambda: tp.array("A", float), "is not a type"),
        (lambda: tp.f32[2.5], "length 2.5"),  # type: ignore[index]
        (lambda: tp.f32[0], "give at least 1"),
        (lambda: tp.gather(lambda i: i), "a function of an index and a length"),  # type: ignore[misc]
        (lambda: tp.split(2.5), "split's length is 2.5"),
        (lambda: tp.interpret(program(), [[1, 2], [3]]), "argument is not an array"),
        (lambda: tp.compile(twice_named()), "two inputs are called A"),
    ],
)
def test_mistakes_in_writing_are_named(wrong, message):
    with pytest.raises(tp.PatternError, match=message):
        wrong()


def twice_named():
    return tp.zip(tp.array("A", tp.f32[N]), tp.array("A", tp.f64[N])) >> tp.map(tp.get(0))


def test_user_functions_may_use_numpys_numbers_and_powers():
    f = tp.fun(lambda x: np.float32(0.5) * x**2 + np.pi)
    assert np.isclose(tp.interpret(tp.array("x", tp.f64) >> f, 2.0), 2 + np.pi)


def test_user_functions_read_parameters_in_any_order():
    reversed_ = tp.fun(lambda a, b: b - a * 2)
    A, B = tp.array("A", tp.f32[3]), tp.array("B", tp.f32[3])
    found = tp.interpret(tp.zip(A, B) >> tp.map(reversed_), np.arange(3), np.ones(3))
    assert found.tolist() == [1, -1, -3]
    mixed = tp.fun(lambda w, b: b + w[1] - w[0])
    rows = tp.array("W", tp.f32[3, 2])
    found = tp.interpret(tp.zip(rows, B) >> tp.map(mixed), np.arange(6).reshape(3, 2), np.ones(3))
    assert found.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("p", "arrays", "message"),
    [
        (tp.array("A", tp.f32[N]) >> tp.split(4), [np.ones(6)], "N / 4 is 6/4, not a whole"),
        (tp.array("A", tp.f32[N, N]), [np.ones((2, 3))], "N should be 2"),
        (tp.array("A", tp.f32[N + 4]), [np.ones(3)], r"no size N makes N \+ 4 equal to 3"),
        (tp.array("A", tp.f32[N]), [np.ones((2, 3))], r"has shape \(2, 3\)"),
        (tp.array("A", tp.f32[N]), [], "0 arrays for the inputs A"),
        (tp.array("A", tp.f32[N]) >> tp.slide(3, 1), [np.ones(2)], "N - 3 is -1, below 0"),
        (
            tp.array("A", tp.f32[N]) >> tp.scatter(lambda i, n: (2 * i) % n),
            [np.ones(4)],
            "not a permutation of 4",
        ),
        (
            tp.array("A", tp.f32[N]) >> tp.gather(lambda i, n: i + 1),
            [np.ones(4)],
            r"index 3 leads to 4, outside of \[0, 4\)",
        ),
    ],
)
def test_sizes_that_do_not_fit_are_refused(p, arrays, message):
    with pytest.raises(tp.SizeError, match=message):
        tp.interpret(p, *arrays)


def test_the_readme_stencil_means_what_it_says():
    a = np.random.default_rng(0).random((5, 7), np.float32)
    b = np.pad(a, 1, mode="edge")
    expected = (b[:-2, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] + b[2:, 1:-1]) / np.float32(4)
    assert np.array_equal(tp.interpret(program(), a), expected)


def test_windows_are_interpreted_in_little_memory():
    windows = tp.array("A", tp.f32[N, M]) >> tp.slide2(9, 1)
    corners = windows >> tp.map2(tp.fun(lambda w: w[0, 0] + w[8, 8], "corners"))
    a = np.ones((256, 256), np.float32)
    tracemalloc.start()
    tp.interpret(corners, a)
    assert tracemalloc.get_traced_memory()[1] < 9 * a.nbytes
    tracemalloc.stop()


def test_a_type_applied_to_a_number_is_a_literal():
    assert tp.f32(2) == n.Literal(2, tp.f32)
    assert tp.f64(np.float64(0.5)) == n.Literal(0.5, tp.f64)
    with pytest.raises(tp.PatternTypeError, match="use its parameters and numbers"):
        tp.f32("2")


def test_literals_of_a_type_are_parts_of_user_functions():
    count = tp.fun(lambda n, x: n + tp.where(x > tp.f32(0.5), tp.i64(1), 0), "count")
    program = tp.array("A", tp.f32[N]) >> tp.reduce(count, tp.i64(0))
    a = np.random.default_rng(0).random(100, np.float32)
    assert tp.interpret(program, a) == (a > 0.5).sum()
    assert tp.compile(program)(a) == (a > 0.5).sum()
    assert eval(tp.definitions(program).partition(" = ")[2], vars(tp)) is count


def test_declared_types_are_printed_and_read_back():
    def scaled(x, k):
        return x * tp.f32(k)

    scaled.__annotations__ = {"x": tp.f32, "k": tp.i32}
    made = tp.fun(scaled)
    text = tp.definitions(made)
    assert text.endswith("'scaled', types=[f32, i32])")
    assert eval(text.partition(" = ")[2], vars(tp)) is made
    with pytest.raises(tp.PatternError, match="1 types for 2 parameters"):
        tp.fun(lambda a, b: a + b, types=[tp.f32])


@pytest.mark.parametrize("target", ["c", "gpu"])
def test_programs_that_do_not_fit_are_refused_before_any_rule(target):
    wrong = tp.array("A", tp.f32[9]) >> tp.split(4) >> tp.map(tp.reduce(tp.add, 0))
    chosen = rewriting.ExplorationSettings(target=target)
    with pytest.raises(tp.PatternTypeError, match="multiple of 4"):
        rewriting.explore(wrong, chosen)
    with pytest.raises(tp.PatternTypeError, match="multiple of 4"):
        rewriting.derive(wrong, rewriting.lower_reduce(n.SEQ))
    opened = tp.array("A", tp.f32[N]) >> tp.split(4) >> tp.map(tp.reduce(tp.add, 0))
    with pytest.raises(tp.SizeError, match=r"9/4, not a whole number\n  at .*test_language.py"):
        tp.with_sizes(opened, {"N": 9})


def test_user_functions_print_as_numpy():
    """Names of NumPy's functions are those of the expression language."""
    f = tp.fun(lambda x, y: tp.where(x < y, tp.sqrt(tp.absolute(x)), tp.exp(-y)) + tp.sin(x), "f")
    program = tp.zip(tp.array("x", tp.f64[N]), tp.array("y", tp.f64[N])) >> tp.map(f)
    x, y = np.random.default_rng(0).random((2, 50))
    numpy_only = {**vars(np), "fun": lambda function, name: function}
    assert np.allclose(
        eval(tp.definitions(program).partition(" = ")[2], numpy_only)(x, y),
        tp.interpret(program, x, y),
    )


def test_files_name_nodes_without_the_suffix_of_their_class():
    double = tp.fun(lambda x: 2 * x, "double")
    program = tp.array("A", tp.f32[N]) >> tp.split(4) >> tp.map(tp.map(double))
    kinds = {entry["kind"] for entry in tp.to_json(program)["nodes"]}
    assert {"Split", "Map", "Op", "Const"} <= kinds
    assert tp.from_json(tp.to_json(program)) is program


def mapped(function, kind):
    return tp.array("k", kind[4]) >> tp.map(tp.fun(function, "f"))


I32 = r"i32 holds whole numbers from -2147483648 to 2147483647: convert to i64"
I64 = r"i64 holds whole numbers from -9223372036854775808 to 9223372036854775807: give"
K = tp.array("k", tp.i32[4])
L = tp.array("k", tp.i64[4])
F = tp.array("k", tp.f32[4])
OUTSIDE = {
    "operand": (mapped(lambda a: a + 2**40, tp.i32), I32),
    "negative": (mapped(lambda a: a + (-(2**31) - 1), tp.i32), I32),
    "comparison": (mapped(lambda a: tp.where(a < 2**31, a, 0), tp.i32), I32),
    "selection": (mapped(lambda a: tp.where(a < 2, a, 2**31), tp.i32), I32),
    "without a type": (mapped(lambda a: tp.minimum(2**40, 3) + a, tp.i32), I32),
    "result": (mapped(lambda a: 2**31, tp.i32), I32),
    "conversion": (mapped(lambda a: tp.i32(2**31) + a, tp.i32), I32),
    "converted nan": (mapped(lambda a: tp.i32(np.nan) + a, tp.i32), "i32 holds whole numbers only"),
    "nan": (mapped(lambda a: a + np.nan, tp.i32), "combines i32 with the fraction nan"),
    "long": (mapped(lambda a: a * 2**63, tp.i64), I64),
    "float": (mapped(lambda a: a + 1e300, tp.f32), r"f32 holds finite numbers .*: convert to f64"),
    "huge whole number": (mapped(lambda a: a + 10**400, tp.i64), I64),
    "huge": (mapped(lambda a: a + 10**400, tp.f64), "f64 holds finite numbers"),
    "start": (K >> tp.reduce(tp.add, 2**31), I32),
    "start of a type": (K >> tp.reduce(tp.add, tp.i32(-(2**31) - 1)), I32),
    "long start": (L >> tp.reduce(tp.add, -(2**63) - 1), I64),
    "infinite start": (K >> tp.reduce(tp.add, tp.i32(np.inf)), "i32 holds whole numbers only"),
    "float start": (F >> tp.reduce(tp.add, 1e39), "f32 holds finite numbers"),
    "padding": (K >> tp.pad(1, 1, 2**31), I32),
    "infinite padding": (K >> tp.pad(1, 1, np.inf), "array of values such as inf"),
    "table": (tp.table([1, 2**31], tp.i32), I32),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_numbers_outside_of_their_type_are_refused(name):
    program, said = OUTSIDE[name]
    for use in (tp.type_of, tp.source):
        with pytest.raises(tp.PatternTypeError, match=said):
            use(program)


@pytest.mark.parametrize("kind", [tp.i32, tp.i64])
def test_the_least_and_the_largest_numbers_of_a_type_are_allowed(kind):
    low, high = int(np.iinfo(kind.dtype).min), int(np.iinfo(kind.dtype).max)
    data = np.array([low, low + 1, 0, high], kind.dtype)
    zero, one = kind(0), kind(1)
    programs = [
        mapped(lambda a: tp.where(a <= low, one, zero) + tp.where(a < high, one, zero), kind),
        mapped(lambda a: tp.maximum(tp.minimum(a, high), low), kind),
        tp.array("k", kind[4]) >> tp.pad(1, 1, low) >> tp.map(tp.copy),
        tp.array("k", kind[4]) >> tp.reduce(tp.fun(lambda a, b: tp.maximum(a, b), "larger"), low),
        tp.table([low, high], kind) >> tp.map(tp.copy),
    ]
    for p in programs:
        given = [data] if n.inputs(p) else []
        assert np.array_equal(tp.compile(p)(*given), tp.interpret(p, *given))


def test_infinity_and_rounded_numbers_are_allowed_for_fractions():
    for number in (np.inf, -np.inf, 3.4028235e38, -3.4028235e38, 2**40, 1e-300):
        tp.type_of(F >> tp.reduce(tp.add, number))
