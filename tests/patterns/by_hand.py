"""The meaning of patterns a second time: element by element on nested lists, without NumPy axes."""

import numpy as np

from tilewright.arith import evaluate
from tilewright.patterns import nodes as n
from tilewright.patterns import scalar

FUNCTIONS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "min": lambda a, b: b if b < a else a,
    "max": lambda a, b: b if a < b else a,
    "abs": abs,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "where": lambda c, a, b: a if c else b,
}


def led_back(kind, i, length):
    if kind == "clamp":
        return min(max(i, 0), length - 1)
    if kind == "wrap":
        return i % length
    i = (-1 - i if i < 0 else i) % (2 * length)
    return i if i < length else 2 * length - 1 - i


def filled(x, value):
    """Like x, with every number replaced."""
    if isinstance(x, list | tuple):
        return type(x)(filled(item, value) for item in x)
    return type(x)(value)


def flat(x):
    return [leaf for item in x for leaf in flat(item)] if isinstance(x, tuple) else [x]


def computed(e, args):
    if isinstance(e, scalar.Arg):
        return args[e.index]
    if isinstance(e, scalar.ScalarConst):
        return e.value
    if isinstance(e, scalar.Cast):
        return e.type.dtype.type(computed(e.x, args))
    return FUNCTIONS[e.name](*(computed(x, args) for x in e.args))


def run(p, x, inputs):
    """A pattern with sizes that are numbers, on nested lists and tuples of NumPy scalars."""
    again = lambda q, y: run(q, y, inputs)  # noqa: E731
    match p:
        case n.Pipe():
            for stage in p.stages:
                x = again(stage, x)
            return x
        case n.Map():
            return [again(p.f, item) for item in x]
        case n.Reduce():
            acc = (
                again(p.init, ())
                if getattr(p.init, "type", True)
                else type(flat_leaf(x))(getattr(p.init, "value", None))
            )
            for item in x:
                acc = again(p.f, (acc, item))
            return acc
        case n.Zip():
            return [tuple(items) for items in zip(*x, strict=True)]
        case n.Unzip():
            return tuple(list(items) for items in zip(*x, strict=True))
        case n.SplitPattern():
            m = p.length.value
            return [x[i : i + m] for i in range(0, len(x), m)]
        case n.Join():
            return [item for row in x for item in row]
        case n.Slide() | n.SlideSeq():
            size, step = p.size.value, p.step.value
            return [x[i : i + size] for i in range(0, len(x) - size + 1, step)]
        case n.Pad():
            each = range(-p.left.value, len(x) + p.right.value)
            return [x[led_back(p.boundary, i, len(x))] for i in each]
        case n.PadValue():
            one = filled(x[0], p.value)
            return [one] * p.left.value + x + [one] * p.right.value
        case n.Crop():
            return x[: p.length.value]
        case n.Transpose():
            return [list(column) for column in zip(*x, strict=True)]
        case n.Gather() | n.Scatter():
            known = {"_n": len(x)}
            found = [evaluate(p.index, {**known, "_i": i}) for i in range(len(x))]
            if isinstance(p, n.Gather):
                return [x[i] for i in found]
            return [x[found.index(i)] for i in range(len(x))]
        case n.Iterate():
            for _ in range(p.count):
                x = again(p.f, x)
            return x
        case n.At():
            return x[p.index.value]
        case n.Get():
            return x[p.index]
        case n.Fork():
            return tuple(again(item, x) for item in p.items)
        case n.Par():
            return tuple(again(f, item) for f, item in zip(p.items, x, strict=True))
        case n.Repeat():
            return [x] * p.length.value
        case n.Indices():
            return [np.int32(i) for i in range(p.length.value)]
        case n.Literal():
            return p.type.dtype.type(p.value)
        case n.TablePattern():
            return [p.type.dtype.type(v) for v in p.values]
        case n.Input():
            return inputs[p.name]
        case n.UserFun():
            return computed(p.body, flat(x))
        case n.To():
            return again(p.f, x)
    raise AssertionError(p)


def flat_leaf(x):
    while isinstance(x, list | tuple):
        x = x[0]
    return x


def lists(array):
    """A NumPy array as nested lists of NumPy scalars."""
    return [lists(item) for item in array] if np.ndim(array) else array[()]


def arrays(x):
    """Nested lists and tuples as the interpreter returns them: tuples of arrays."""
    if isinstance(x, tuple):
        return tuple(arrays(item) for item in x)
    if not isinstance(x, list):
        return np.asarray(x)
    items = [arrays(item) for item in x]
    if isinstance(items[0], tuple):
        return gathered(items)
    return np.array(items)


def gathered(items):
    if isinstance(items[0], tuple):
        return tuple(gathered(list(column)) for column in zip(*items, strict=True))
    return np.array(items)


def same(a, b):
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)
