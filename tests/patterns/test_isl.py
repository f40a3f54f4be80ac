"""Index arithmetic and kernels' indices, proved by isl for all iterations (and all sizes)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright.patterns as tp
from tilewright.arith import (
    Boundary,
    Div,
    LoopVariable,
    Mod,
    Poly,
    Size,
    boundary,
    floor_divide,
    modulo,
    poly,
)
from tilewright.patterns import rewriting as rw
from tilewright.patterns.codegen.code import ForLoop, Store, loads
from tilewright.patterns.codegen.generate import generate
from tilewright.patterns.programs import STENCILS

isl = pytest.importorskip("islpy", reason="islpy is not installed: the extra dev has it")

(N,) = tp.sizes("N")
EXTENTS = {"a": poly(3), "b": poly(8), "c": N}
LOOPS = {name: Poly.of(LoopVariable(name, extent)) for name, extent in EXTENTS.items()}
DOMAIN = "0 <= a < 3 and 0 <= b < 8 and 0 <= c < N"


def text(p):
    """A polynomial in the words of isl; ValueError if it is not affine."""
    terms = []
    for monomial, coefficient in p.terms:
        if sum(q for _, q in monomial) > 1 or any(q < 0 for _, q in monomial):
            raise ValueError(f"{p} is not affine")
        factor = f" * {atom(monomial[0][0])}" if monomial else ""
        if coefficient != int(coefficient):
            raise ValueError(f"{p} has a fraction")
        terms.append(f"{int(coefficient)}{factor}")
    return "(" + (" + ".join(terms) or "0") + ")"


def atom(a):
    if isinstance(a, Size | LoopVariable):
        return a.name
    if isinstance(a, Div):
        return f"floor({text(a.x)} / {number(a.d)})"
    if isinstance(a, Mod):
        return f"({text(a.x)} mod {number(a.d)})"
    assert isinstance(a, Boundary)
    return bounded(a.kind, text(a.x), text(a.n), a.n)


def bounded(kind, x, n, length):
    if kind == "clamp":
        return f"min(max({x}, 0), {n} - 1)"
    if kind == "wrap":
        return f"({x} mod {number(length)})"
    raise ValueError(f"{kind} has no form in isl")


def number(p):
    if not isinstance(p.value, int):
        raise ValueError(f"isl divides by numbers only, not by {p}")
    return p.value


def function(formula):
    return isl.PwAff(f"[N] -> {{ [a, b, c] -> [{formula}] : {DOMAIN} and N >= 1 }}")


@st.composite
def pairs(draw, depth=3):
    """An index in normal form, and the same index as it was written, in isl's words."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        name = draw(st.sampled_from([*LOOPS, "N", 1, 5, -3]))
        if isinstance(name, int):
            return poly(name), f"({name})"
        return (N if name == "N" else LOOPS[name]), name
    x, written = draw(pairs(depth - 1))
    kind = draw(st.sampled_from(["sum", "times", "div", "mod", "clamp", "wrap"]))
    if kind == "sum":
        y, other = draw(pairs(depth - 1))
        return x + y, f"({written} + {other})"
    k = draw(st.sampled_from([1, 2, 3, 4, 8, 12]))
    if kind == "times":
        return x * k, f"({k} * {written})"
    if kind == "div":
        return floor_divide(x, poly(k)), f"floor({written} / {k})"
    if kind == "mod":
        return modulo(x, poly(k)), f"({written} mod {k})"
    return boundary(kind, x, poly(k)), bounded(kind, written, str(k), poly(k))


@given(pairs())
@settings(max_examples=300, deadline=None)
def test_normal_forms_equal_what_was_written_for_all_sizes(pair):
    made, written = pair
    assert function(text(made)).is_equal(function(written)), f"{written} became {made}"


def accesses(block, around=()):
    """Loads and stores of some code, each with the loops around it."""
    for s in block:
        if isinstance(s, ForLoop):
            yield from accesses(s.body, (*around, s.variable))
            continue
        for load in loads([s]):
            yield load.buffer, load.index, (), around
        if isinstance(s, Store):
            yield s.buffer, s.index, s.guards, around


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("jacobi5", "c"),
        ("hotspot", "c"),
        ("hotspot", "gpu"),
        pytest.param("gaussian", "gpu", marks=pytest.mark.thorough),
        pytest.param("gaussian", "c", marks=pytest.mark.thorough),
        pytest.param("jacobi5", "gpu", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.few(1)
def test_every_access_of_explored_kernels_is_inside_its_array(name, target):
    """Images of the iterations under each index, exactly, where the sizes are numbers."""
    program = STENCILS[name].build(13, 18)
    chosen = rw.ExplorationSettings(target=target, tiles=(2, 4, 5), limit=400)
    found = rw.explore(program, chosen)
    rng = np.random.default_rng(0)
    proved = 0
    for i in rng.choice(len(found), 12, replace=False):
        for buffer, index, guards, around in accesses(generate(found[i].program).body):
            names = ", ".join(v.name for v in around)
            tests = [f"0 <= {v.name} < {text(v.extent)}" for v in around]
            tests += [f"{text(p)} < {text(q)}" for p, q in guards]
            where = f" : {' and '.join(tests)}" if tests else ""
            reached = isl.Map(f"{{ [{names}] -> [{text(index)}]{where} }}").range()
            array = isl.Set(f"{{ [i] : 0 <= i < {buffer.size.value} }}")
            assert reached.is_subset(array), f"{buffer.name}[{index}] of {found[i].program}"
            proved += buffer.space == "output"
    assert proved
