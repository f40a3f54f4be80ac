"""Random well-typed patterns over arrays of fixed sizes, for property tests."""

from hypothesis import strategies as st

import tilewright.patterns as tp
from tilewright.patterns import nodes as n
from tilewright.patterns.check import type_of
from tilewright.patterns.types import ArrayType, ScalarType, TupleType

double = tp.fun(lambda x: x + x, "twice")
smaller = tp.fun(lambda a, b: tp.minimum(a, b), "smaller", associative=True)
swapped = tp.fun(lambda a, b: b - a, "swapped")
halves = tp.fun(lambda x: tp.where(x < 2, x * 3, x - 1), "halves")


def divisors(length):
    return [d for d in range(1, length + 1) if length % d == 0]


@st.composite
def stage(draw, given, depth=2):
    """A pattern that takes a value of this type, or None."""
    if isinstance(given, ScalarType):
        return draw(st.sampled_from([double, halves, tp.fork(double, tp.identity)]))
    if isinstance(given, TupleType):
        return draw(tuple_stage(given, depth))
    length = given.length.value
    choices = [
        "map",
        "split",
        "slide",
        "pad",
        "value",
        "reverse",
        "crop",
        "shift",
        "at",
        "fork",
        "iterate",
    ]
    if isinstance(given.item, ArrayType):
        choices += ["join", "transpose", "map"]
    if isinstance(given.item, TupleType):
        choices += ["unzip"]
    if isinstance(given.item, ScalarType):
        choices += ["reduce", "repeat"]
    kind = draw(st.sampled_from(choices))
    if kind == "map":
        return tp.map(draw(stages(given.item, depth - 1)))
    if kind == "slide":
        size = draw(st.integers(1, length))
        steps = divisors(length - size) if length > size else [1, 2]
        made = draw(st.sampled_from([tp.slide, tp.slide, tp.slide, tp.slide_seq]))
        return made(size, draw(st.sampled_from(steps)))
    if kind == "pad":
        kinds = st.sampled_from(["clamp", "wrap", "mirror"])
        return tp.pad(draw(st.integers(0, 2)), draw(st.integers(0, 2)), draw(kinds))
    fixed = {
        "split": lambda: tp.split(draw(st.sampled_from(divisors(length)))),
        "value": lambda: tp.pad(draw(st.integers(0, 2)), 1, draw(st.integers(-2, 2))),
        "reverse": lambda: tp.gather(lambda i, m: m - 1 - i),
        "shift": lambda: tp.scatter(lambda i, m: (i + 1) % m),
        "crop": lambda: tp.crop(draw(st.integers(1, length))),
        "at": lambda: tp.at(draw(st.integers(0, length - 1))),
        "fork": lambda: tp.fork(tp.identity, tp.gather(lambda i, m: m - 1 - i)) >> tp.zip,
        "iterate": lambda: tp.iterate(
            draw(st.integers(0, 3)), tp.scatter(lambda i, m: (i + 1) % m)
        ),
        "join": lambda: tp.join,
        "transpose": lambda: tp.transpose,
        "unzip": lambda: tp.unzip,
        "reduce": lambda: tp.reduce(draw(st.sampled_from([tp.add, smaller, swapped])), 0),
        "repeat": lambda: tp.repeat(draw(st.integers(1, 3))),
    }
    return fixed[kind]()


@st.composite
def tuple_stage(draw, given, depth):
    count = len(given.items)
    choices = ["get", "par"]
    if all(isinstance(t, ScalarType) for t in given.items) and count == 2:
        choices += ["fun"] * 2
    arrays = all(isinstance(t, ArrayType) for t in given.items)
    if arrays and len({t.length for t in given.items}) == 1:
        choices += ["zip"] * 2
    kind = draw(st.sampled_from(choices))
    if kind == "get":
        return tp.get(draw(st.integers(0, count - 1)))
    if kind == "fun":
        return draw(st.sampled_from([tp.add, tp.mul, swapped, smaller]))
    if kind == "zip":
        return tp.zip
    return n.Par(tuple(draw(stages(t, depth - 1, 1)) for t in given.items))


@st.composite
def stages(draw, given, depth=2, most=2):
    """A few stages one after the other that take a value of this type."""
    made: n.Pattern = n.IDENTITY
    current = given
    for _ in range(draw(st.integers(0, most)) if depth >= 0 else 0):
        added = draw(stage(current, depth))
        made, current = n.pipe(made, added), type_of(added, current)
    return made
