"""Every construct comes through: what is imported computes what Halide computes."""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest
from evaluator import Evaluator
from halide_constructs import CONSTRUCTS, EVALUABLE, define, image, output, pipeline, x, y

from tilewright.halide.execution.binding import bind, deserialize, output_array
from tilewright.halide.execution.contents import from_bfloat16
from tilewright.halide.execution.inputs import describe_inputs
from tilewright.halide.frontend.importer import import_pipeline
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.algorithm import Call, Const, Op, Span, Type, Variable, walk

TARGET = hl.get_jit_target_from_environment()


def imported(thing):
    built = thing if isinstance(thing, hl.Pipeline) else hl.Pipeline(thing)
    return import_pipeline(hl.serialize_pipeline(built))


def embedded(algorithm):
    """The contents of embedded buffers, which only the constructs here know."""
    table = {"table": lambda i, j: 10 * i + j}
    return {b.name: table[b.name] for b in algorithm.buffers}


@pytest.mark.parametrize("name", EVALUABLE)
@pytest.mark.few(29)
def test_the_imported_algorithm_computes_what_halide_computes(name):
    algorithm = load(pipeline(name))
    inputs = describe_inputs(algorithm, seed=3)
    live = deserialize(algorithm.serialized, inputs)
    outputs = bind(live, inputs, TARGET)
    live.pipeline.realize(outputs)

    images = embedded(algorithm)
    for buffer, array in zip(inputs.buffers, live.arrays, strict=True):
        bound = live.images[buffer.name].get()
        lows = [bound.dim(d).min() for d in range(len(buffer.dims))]
        values = from_bfloat16(array) if buffer.type.code == "bfloat" else array

        def read(*place, values=values, lows=lows):
            at = tuple(p - low for p, low in zip(place, lows, strict=True))
            assert all(i >= 0 for i in at)
            return values[at]

        images[buffer.name] = read

    evaluator = Evaluator(algorithm, images)
    expected = [
        (kind, array)
        for shape in inputs.outputs
        for kind, array in zip(
            shape.types,
            evaluator.func(shape.name, [(s.min, s.extent) for s in shape.dims]),
            strict=True,
        )
    ]
    assert len(expected) == len(outputs)
    for (kind, array), buffer in zip(expected, outputs, strict=True):
        found = output_array(buffer, kind)
        if kind.code == "float":
            assert found == pytest.approx(array.astype(found.dtype), rel=2e-6, abs=1e-6)
        else:
            np.testing.assert_array_equal(found, array.astype(found.dtype))


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_the_parts_of_the_algorithm_fit_together(name):
    algorithm = imported(pipeline(name))
    names = [func.name for func in algorithm.funcs]
    assert len(set(names)) == len(names)
    assert set(algorithm.outputs) <= set(names)
    place = {name: i for i, name in enumerate(names)}
    for func in algorithm.funcs:
        assert not func.scheduled
        for producer in algorithm.producers[func.name]:
            assert place[producer] < place[func.name]
        for stage in func.stages:
            assert len(stage.args) == len(func.args)
            assert len(stage.values) == len(func.types)
            assert [v.type for v in stage.values] == list(func.types)
            variables = {n.name for n in walk(*stage.values) if isinstance(n, Variable)}
            loops = {loop.name for loop in stage.loops}
            params = {p.name for p in algorithm.parameters}
            assert {v for v in variables if "." not in v} <= loops | params


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_equal_subexpressions_are_one_object(name):
    for func in imported(pipeline(name)).funcs:
        for stage in func.stages:
            seen = {}
            for node in walk(*stage.values, *stage.args, *stage.predicates):
                key: tuple[object, ...]
                if isinstance(node, Const):
                    key = ("const", node.type, repr(node.value))
                elif isinstance(node, Variable):
                    key = ("variable", node.type, node.kind, node.name)
                else:
                    index = node.value_index if isinstance(node, Call) else 0
                    what = node.kind if isinstance(node, Call) else "op"
                    key = (what, node.type, node.name, index, tuple(map(id, node.args)))
                assert key not in seen
                seen[key] = node


def test_shared_subexpressions_stay_shared():
    algorithm = imported(pipeline("shared_subexpressions"))
    # Written out as a tree it would have 2**20 leaves.
    stage = algorithm.by_name[algorithm.outputs[0]].stages[0]
    assert 40 < len(list(walk(*stage.values))) < 100


def test_types_estimates_and_parameters_are_read():
    im, gain = image(hl.UInt(16), dims=3), hl.Param(hl.Float(64), "gain")
    im.set_estimates([(0, 10), (1, 20), (2, 3)])
    f = define("f_types", (x, y), hl.Tuple([im[x, y, 0], x > 1]))
    g = define("g_types", (x, y), hl.Tuple([f[x, y][0] * gain, f[x, y][1]]))
    algorithm = imported(output(g, 4, 5))
    assert algorithm.by_name[f.name()].types == (Type("uint", 16), Type("uint", 1))
    assert algorithm.by_name[g.name()].types == (Type("float", 64), Type("uint", 1))
    assert algorithm.by_name[g.name()].estimates == {"x": Span(0, 4), "y": Span(0, 5)}
    first, second = algorithm.parameters
    assert (first.name, first.dimensions, first.is_buffer) == ("gain", 0, False)
    assert (second.name, second.type, second.dimensions) == ("im", Type("uint", 16), 3)
    assert second.estimates == (Span(0, 10), Span(1, 20), Span(2, 3))


def test_reduction_variables_are_distinguished_from_others():
    algorithm = imported(pipeline("predicated_reduction"))
    stage = algorithm.by_name[algorithm.outputs[0]].stages[1]
    assert [loop.kind for loop in stage.loops] == ["impure_rvar", "impure_rvar", "pure"]
    assert [rvar.name for rvar in stage.rvars] == [loop.name for loop in stage.loops[:2]]
    assert len(stage.predicates) == 2
    variables = [n for n in walk(*stage.predicates, *stage.values) if isinstance(n, Variable)]
    assert {v.kind for v in variables if v.name != "x"} == {"rvar"}


def test_pure_reduction_variables_are_known():
    r = hl.RDom([(0, 4)], "r")
    im = image(hl.Int(32), dims=1)
    f = define("f_pure", x, 0)
    f[r.x] = im[r.x]
    algorithm = imported(output(f, 4))
    stage = algorithm.by_name[f.name()].stages[1]
    assert [loop.kind for loop in stage.loops] == ["pure_rvar"]


def test_a_partial_reduction_keeps_its_loop_order():
    algorithm = imported(pipeline("factored_split_reduction"))
    partial = next(f for f in algorithm.funcs if "_intm" in f.name)
    update = partial.stages[1]
    assert partial.args == ("u",)
    assert {loop.name for loop in update.loops} == {"u", update.rvars[0].name}
    assert algorithm.producers[algorithm.outputs[0]] == (partial.name,)


def test_wrappers_stand_between_producer_and_consumer():
    algorithm = imported(pipeline("wrapped_once"))
    (link,) = algorithm.wrappers
    assert algorithm.producers[link.caller] == (link.wrapper,)
    assert algorithm.producers[link.wrapper] == (link.wrapped,)
    assert len(algorithm.consumers[link.wrapped]) == 2


def test_an_extern_stage_is_fixed_and_its_arguments_are_known():
    algorithm = imported(pipeline("extern_stage"))
    func = next(f for f in algorithm.funcs if f.extern is not None)
    assert func.fixed
    assert not func.pure
    assert func.stages == ()
    assert func.extern.function == "user_stage"
    assert func.extern.arguments == ("func", "image", "expression", "buffer")
    producer, im, table = func.extern.reads
    assert (im, table) == ("im", "table")
    assert algorithm.producers[func.name] == (producer,)
    assert isinstance(func.extern.expressions[0], Op)


def test_a_memoized_func_is_fixed_and_not_refused():
    algorithm = load(pipeline("memoized"))
    memoized = [f for f in algorithm.funcs if f.memoized]
    assert len(memoized) == 1
    assert memoized[0].fixed
    assert not memoized[0].scheduled


def test_requirements_and_bounds_are_read():
    assert len(imported(pipeline("requirement")).requirements) == 1
    algorithm = imported(pipeline("bounded"))
    assert algorithm.by_name[algorithm.outputs[0]].bounds == {"c": Span(0, 3)}


def test_fixed_strides_of_inputs_and_outputs_are_known():
    algorithm = load(pipeline("interleaved"))
    assert algorithm.parameters[0].strides == (3, None, 1)
    assert algorithm.by_name[algorithm.outputs[0]].strides == (3, None, 1)
    assert algorithm.symbols["im.stride.0"] == 3
    assert algorithm.symbols["im.extent.2"] == 3


def test_embedded_buffers_are_distinguished_by_contents():
    def table_of(value):
        table = hl.Buffer(hl.Int(32), [4], "table")
        table.fill(value)
        return imported(define("f_table", x, table[x % 4]))

    (one,), (same,), (other,) = (table_of(v).buffers for v in (1, 1, 2))
    assert one.dims == (Span(0, 4),)
    assert one.content == same.content != other.content


def test_expressions_of_thousands_of_nodes_are_read():
    algorithm = imported(pipeline("deep"))
    stage = algorithm.by_name[algorithm.outputs[0]].stages[0]
    assert len(list(walk(*stage.values))) > 6000


SCHEDULES = {
    "vectorize": lambda f, g: f.vectorize(x, 4),
    "parallel": lambda f, g: f.parallel(y),
    "split": lambda f, g: f.split(x, hl.Var("xo"), hl.Var("xi"), 4),
    "reorder": lambda f, g: f.reorder(y, x),
    "tile": lambda f, g: f.tile(x, y, hl.Var("xi"), hl.Var("yi"), 4, 4),
    "update": lambda f, g: f.update().unroll(x, 2),
    "gpu": lambda f, g: f.gpu_tile(x, y, hl.Var("xi"), hl.Var("yi"), 4, 4),
    "specialize": lambda f, g: f.specialize(f.output_buffer().dim(0).extent() > 4),
    "compute_root": lambda f, g: g.compute_root(),
    "compute_at": lambda f, g: g.compute_at(f, y),
    "store_at": lambda f, g: g.compute_at(f, x).store_at(f, y),
    "store_in": lambda f, g: g.store_in(hl.MemoryType.Stack),
    "reorder_storage": lambda f, g: g.reorder_storage(y, x),
    "align_storage": lambda f, g: g.align_storage(x, 16),
    "fold_storage": lambda f, g: g.fold_storage(y, 4),
    "async": lambda f, g: g.compute_root().async_(),
    "prefetch": lambda f, g: f.prefetch(g, y, y, 2),
    "partition": lambda f, g: f.never_partition([x]),
    "atomic": lambda f, g: f.update().atomic(),
    "align_bounds": lambda f, g: g.align_bounds(x, 8),
}


@pytest.mark.parametrize("directive", SCHEDULES)
def test_a_schedule_is_noticed(directive):
    im = image(hl.Int(32))
    g = define("g_scheduled", (x, y), im[x, y] + 1)
    f = define("f_scheduled", (x, y), g[x, y] + g[x, y + 1])
    f[x, y] += 1
    SCHEDULES[directive](f, g)
    algorithm = imported(f)
    target = g if directive in _ON_PRODUCER else f
    # Where g is computed at a loop of f, that loop is the user's as well.
    expected = [g, f] if directive in ("compute_at", "store_at") else [target]
    found = [func.name for func in algorithm.funcs if func.scheduled]
    assert found == [func.name() for func in expected]
    stage = algorithm.by_name[f.name()].stages[0]
    assert [loop.name for loop in stage.loops] in (["x", "y"], ["y", "x"])


_ON_PRODUCER = {
    "compute_root",
    "compute_at",
    "store_at",
    "store_in",
    "reorder_storage",
    "align_storage",
    "fold_storage",
    "async",
    "align_bounds",
}


def test_an_output_at_root_counts_as_unscheduled():
    im = image(hl.Int(32))
    f = define("f_root", (x, y), im[x, y] + 1)
    f.compute_root()
    assert not imported(f).funcs[-1].scheduled


def test_funcs_that_no_output_needs_are_left_out():
    im = image(hl.Int(32))
    g = define("g_unused", (x, y), im[x, y])
    f = define("f_alone", (x, y), im[x, y] + 1)
    assert g.defined()
    assert "g_unused" not in imported(f).by_name
