"""The digest tells computations apart, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import halide as hl
import pytest
from halide_constructs import CONSTRUCTS, define, image, output, pipeline, x, y
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.halide.frontend.importer import import_pipeline

NOT_REPEATABLE = {"random_numbers"}  # every call of random_float is another sequence


def digest(thing):
    built = thing if isinstance(thing, hl.Pipeline) else hl.Pipeline(thing)
    return import_pipeline(hl.serialize_pipeline(built)).digest


@pytest.mark.parametrize("name", sorted(set(CONSTRUCTS) - NOT_REPEATABLE))
def test_the_same_pipeline_built_twice_has_one_digest(name):
    assert digest(pipeline(name)) == digest(pipeline(name))


def test_different_pipelines_have_different_digests():
    digests = {name: digest(pipeline(name)) for name in CONSTRUCTS}
    assert len(set(digests.values())) == len(digests)


def test_another_process_finds_the_same_digests():
    names = ["stencil", "predicated_reduction", "inline_argmin", "unnamed", "wrapped_twice"]
    here = {name: digest(pipeline(name)) for name in names}
    program = (
        "import json, sys, halide as hl, halide_constructs as c\n"
        "from tilewright.halide.frontend.importer import import_pipeline as read\n"
        "other = [hl.Func() for _ in range(7)], [hl.Var() for _ in range(3)]\n"
        "digest = lambda name: read(hl.serialize_pipeline(c.pipeline(name))).digest\n"
        f"print(json.dumps({{name: digest(name) for name in {names}}}))"
    )
    child = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parent,
        env={"PYTHONHASHSEED": "77", "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        timeout=600,
        check=True,
    )
    assert json.loads(child.stdout) == here


# --- random pipelines -----------------------------------------------------------------------

TERM = st.tuples(
    st.integers(-2, 2),  # offset in x
    st.integers(-2, 2),  # offset in y
    st.integers(1, 5),  # factor
    st.sampled_from(["add", "sub", "min", "mul"]),
)
STAGE = st.fixed_dictionaries(
    {
        "terms": st.lists(st.tuples(st.integers(0, 9), TERM), min_size=1, max_size=4),
        "update": st.sampled_from(["none", "sum", "scan", "where"]),
        "extent": st.integers(2, 5),
    }
)
PIPELINE = st.lists(STAGE, min_size=1, max_size=4)


def build(stages, names):
    """A pipeline of the given description; `names` gives names in the order of their use."""
    a, b = hl.Var(next(names)), hl.Var(next(names))
    im = hl.ImageParam(hl.Int(32), 2, "im")
    funcs = [im]
    for stage in stages:
        func = hl.Func(next(names))
        total = None
        for which, (dx, dy, factor, how) in stage["terms"]:
            term = funcs[which % len(funcs)][a + dx, b + dy] * factor
            if total is None:
                total = term
            elif how == "min":
                total = hl.min(total, term)
            else:
                total = {"add": total + term, "sub": total - term, "mul": total * term}[how]
        func[a, b] = total
        r = hl.RDom([(1, stage["extent"])], next(names))
        if stage["update"] == "where":
            r.where(r.x * 2 < 7)
        if stage["update"] in ("sum", "where"):
            func[a, b] += funcs[-1][a + r.x, b]
        elif stage["update"] == "scan":
            func[r.x, b] = func[r.x - 1, b] + 1
        funcs.append(func)
    return hl.Pipeline(funcs[-1])


def numbered(prefix):
    return (f"{prefix}{i}" for i in range(100))


def reversed_alphabet():
    # Sorted by name these come in the opposite order of their use.
    return (f"{chr(122 - i % 26)}{99 - i}" for i in range(100))


@settings(max_examples=40, deadline=None)
@given(PIPELINE)
def test_renaming_everything_changes_nothing(stages):
    assert digest(build(stages, numbered("f"))) == digest(build(stages, reversed_alphabet()))


@settings(max_examples=60, deadline=None)
@given(PIPELINE, st.data())
def test_changing_anything_changes_the_digest(stages, data):
    changed = [dict(stage, terms=list(stage["terms"])) for stage in stages]
    # The last stage is the output: no change there can go unnoticed.
    stage = changed[-1]
    what = data.draw(st.sampled_from(["dx", "dy", "factor", "update", "extent"]))
    if what == "update":
        others = [u for u in ("none", "sum", "scan", "where") if u != stage["update"]]
        stage["update"] = data.draw(st.sampled_from(others))
    elif what == "extent":
        if stage["update"] == "none":
            stage["update"] = "sum"
        stage["extent"] += 1
    else:
        which, (dx, dy, factor, how) = stage["terms"][0]
        new = {
            "dx": (dx + 7, dy, factor, how),
            "dy": (dx, dy - 7, factor, how),
            "factor": (dx, dy, factor + 7, how),
        }[what]
        stage["terms"][0] = (which, new)
    assert digest(build(stages, numbered("f"))) != digest(build(changed, numbered("f")))


# --- single changes ---------------------------------------------------------------------------


def simple(kind=None, constant=3, name="im", twice=False):
    im = image(kind or hl.Int(32), name)
    g = define("g", (x, y), im[x, y] + constant)
    return define("f", (x, y), g[x, y] * g[x, y] if twice else g[x, y] * g[y, x])


def test_constants_types_and_interface_count():
    base = digest(simple())
    assert digest(simple(constant=4)) != base
    assert digest(simple(kind=hl.UInt(8))) != base
    assert digest(simple(name="other")) != base
    assert digest(simple(twice=True)) != base


def test_estimates_do_not_count():
    assert digest(output(simple(), 10, 20)) == digest(simple())


def test_the_order_of_outputs_counts():
    def two(flip):
        im = image(hl.Int(32))
        a, b = define("a", (x, y), im[x, y]), define("b", (x, y), im[x, y] + 1)
        return hl.Pipeline([b, a] if flip else [a, b])

    assert digest(two(False)) != digest(two(True))


def test_the_order_of_arguments_counts():
    im = image(hl.Int(32))
    assert digest(define("f", (x, y), im[x, y])) != digest(define("f", (y, x), im[x, y]))


def test_memoizing_and_bounding_count():
    def variant(change):
        f = simple()
        change(f)
        return digest(f)

    base = digest(simple())
    assert variant(lambda f: f.memoize()) != base
    assert variant(lambda f: f.bound(x, 0, 10)) != base
    assert variant(lambda f: f.bound(x, 0, 10)) != variant(lambda f: f.bound(y, 0, 10))


def test_a_kept_schedule_counts():
    def variant(width):
        f = simple()
        if width:
            f.vectorize(x, width)
        return digest(f)

    assert len({variant(0), variant(4), variant(8)}) == 3
    assert variant(8) == variant(8)


def test_contents_of_embedded_buffers_count_and_their_names_do_not():
    def variant(value, name):
        table = hl.Buffer(hl.Int(32), [4], name)
        table.fill(value)
        return digest(define("f", x, table[x % 4]))

    assert variant(1, "a") == variant(1, "b") != variant(2, "a")
