"""What one iteration of a level loads, for the features of Adams et al. 2019."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.halide.analysis.bounds import Bound
from tilewright.halide.schedulers.learned.published.derivatives import Jacobian, entry, through
from tilewright.halide.schedulers.learned.published.levels import LevelNode, PublishedNest, StageKey
from tilewright.halide.schedulers.learned.published.pipeline import (
    FuncNode,
    FuncReads,
    StageNode,
    pick,
)


@dataclass(eq=False)
class Loads:
    """Loads at one site.

    Attributes:
        bytes, lines: Distinct bytes, and contiguous runs of them.
        allocated: Bytes of the whole allocations.
        dense, stride_2, stride_3, stride_4: Vector loads per vector, by the step between lanes.
        broadcasts: Loads of one value for all lanes.
        gathers: Other vector loads.
        count: All loads.
    """

    bytes: Bound = 0.0
    lines: Bound = 0.0
    allocated: Bound = 0.0
    dense: Bound = 0.0
    stride_2: Bound = 0.0
    stride_3: Bound = 0.0
    stride_4: Bound = 0.0
    broadcasts: Bound = 0.0
    gathers: Bound = 0.0
    count: Bound = 0.0


def loads_of(
    nest: PublishedNest,
    level: LevelNode,
    instances: Bound,
    found: Mapping[StageKey, Mapping[str, Bound]],
    as_released: bool,
) -> Loads:
    """Return the loads of a stage at a level, through Funcs that are inlined.

    Args:
        nest: The nest.
        level: The stage's outermost or innermost level.
        instances: How often the level is reached.
        found: The features of the stages so far.
        as_released: As in `cpu_features`.
    """
    stage = level.stage
    assert stage is not None
    loads = Loads()
    feature = found[stage.node.id, stage.index]
    site = nest.sites[stage.node.id, stage.index]
    store = level.parent if level.innermost else site.store
    assert store is not None
    times = instances if level.innermost else feature["num_realizations"]
    for edge, accesses in _reached(nest, stage, as_released):
        if level.innermost:
            for matrix, count in accesses:
                _count(nest, level, edge.producer, matrix, count, feature, loads)
    for producer in _producers(nest, stage):
        _add_footprint(nest, store, producer, times, found, loads)
    return loads


def _producers(nest: PublishedNest, stage: StageNode) -> list[FuncNode]:
    """Return the Funcs and inputs that are not inlined and that a stage reads."""
    found: dict[int, FuncNode] = {}
    pending, seen = [stage], {id(stage)}
    while pending:
        for edge in pending.pop().edges:
            reader = edge.producer.stages[0]
            if not nest.sites[edge.producer.id, 0].inlined:
                found.setdefault(edge.producer.id, edge.producer)
            elif id(reader) not in seen:
                seen.add(id(reader))
                pending.append(reader)
    return list(found.values())


Accesses = list[tuple[Jacobian, int]]


def _reached(
    nest: PublishedNest, stage: StageNode, as_released: bool
) -> list[tuple[FuncReads, Accesses]]:
    """Return the loads of Funcs that are not inlined, by the loops of the stage."""
    return _reached_as_released(nest, stage) if as_released else _reached_once(nest, stage)


def _reached_once(nest: PublishedNest, stage: StageNode) -> list[tuple[FuncReads, Accesses]]:
    found: list[tuple[FuncReads, Accesses]] = []

    def follow(edge: FuncReads, accesses: Accesses) -> None:
        if not nest.sites[edge.producer.id, 0].inlined:
            found.append((edge, accesses))
            return
        for inner in edge.producer.stages[0].edges:
            more = [(through(a, b), m * n) for b, n in accesses for a, m in inner.jacobians]
            follow(inner, more)

    for edge in stage.edges:
        follow(edge, list(edge.jacobians))
    return found


def _reached_as_released(nest: PublishedNest, stage: StageNode) -> list[tuple[FuncReads, Accesses]]:
    """Return the loads as the released code follows them.

    One list of loads is kept. The first read of an inlined Func by another replaces all loads of
    the reader, so that its further reads find none; and the loads of a Func are taken from the list
    each time that a path reaches it.
    """
    found: list[tuple[FuncReads, Accesses]] = []
    listed: list[tuple[FuncNode, Jacobian, int]] = []
    pending = [stage]
    while pending:
        reader = pending.pop()
        for edge in reader.edges:
            if reader is stage:
                listed += [(edge.producer, matrix, n) for matrix, n in edge.jacobians]
            else:
                listed = _replaced(listed, edge)
            if nest.sites[edge.producer.id, 0].inlined:
                pending.append(edge.producer.stages[0])
            else:
                own = [(m, n) for producer, m, n in listed if producer is edge.producer]
                found.append((edge, own))
    return found


def _replaced(
    listed: list[tuple[FuncNode, Jacobian, int]], edge: FuncReads
) -> list[tuple[FuncNode, Jacobian, int]]:
    result = []
    for producer, matrix, n in listed:
        if producer is edge.consumer.node:
            result += [(edge.producer, through(m, matrix), n * k) for m, k in edge.jacobians]
        else:
            result.append((producer, matrix, n))
    return result


def _count(
    nest: PublishedNest,
    level: LevelNode,
    producer: FuncNode,
    matrix: Jacobian,
    count: int,
    feature: Mapping[str, Bound],
    loads: Loads,
) -> None:
    """Add loads of one kind, shared among the iterations of unrolled loops where equal."""
    stage, parent = level.stage, level.parent
    assert stage is not None
    assert parent is not None
    shared: Bound = 1.0
    for i in range(len(stage.loops)):
        fixed = all(entry(matrix, d, i) == 0 for d in range(producer.dimensions))
        if fixed and not stage.reduction[i] and parent.size:
            shared = shared * parent.size[i]
    shared = pick(feature["unrolled_loop_extent"] > 1.0, shared, 1.0)
    n = count / shared
    loads.count = loads.count + n
    kind = _vector_kind(nest, level, producer, matrix)
    setattr(loads, kind, getattr(loads, kind) + n)


def _vector_kind(
    nest: PublishedNest, level: LevelNode, producer: FuncNode, matrix: Jacobian
) -> str:
    """Return the kind of a load by its steps along the vectorised loop."""
    if level.vector_loop < 0:
        return "broadcasts"
    site = nest.sites[producer.id, 0]
    innermost = 0 if producer.input or site.produce is None else site.produce.vector_dim
    steps = [entry(matrix, d, level.vector_loop) for d in range(producer.dimensions)]
    if all(step == 0 for step in steps):
        return "broadcasts"
    if any(step != 0 for d, step in enumerate(steps) if d != innermost):
        return "gathers"
    step = steps[innermost]
    kinds = {1: "dense", 2: "stride_2", 3: "stride_3", 4: "stride_4"}
    whole = int(step) if step is not None and step.denominator == 1 else 0
    return kinds.get(whole, "gathers")


def _add_footprint(
    nest: PublishedNest,
    store: LevelNode,
    producer: FuncNode,
    times: Bound,
    found: Mapping[StageKey, Mapping[str, Bound]],
    loads: Loads,
) -> None:
    site = nest.sites[producer.id, 0]
    read = nest.region_at(store, producer).required
    stored = nest.region_at(site.store, producer).required
    computed = nest.region_at(site.compute, producer).computed
    dense = 0 if producer.input or site.produce is None else site.produce.vector_dim
    size = stored_size = allocated = float(producer.bytes)  # type: Bound
    lines: Bound = 1.0
    stored_lines: Bound = 1.0
    for d, span in enumerate(read):
        extent, stored_extent = span.extent, stored[d].extent
        size, stored_size = size * extent, stored_size * stored_extent
        allocated = allocated * computed[d].extent
        if d != dense:
            lines, stored_lines = lines * extent, stored_lines * stored_extent
    loads.allocated = loads.allocated + allocated
    if not producer.input:
        feature = found.get((producer.id, 0))
        inside = feature["num_realizations"] if feature else 0.0
        # The producer is stored inside: it is read as a whole, several times.
        nested = (inside // times) * (inside > times) > 1.0
        size, lines = pick(nested, stored_size, size), pick(nested, stored_lines, lines)
    loads.bytes, loads.lines = loads.bytes + size, loads.lines + lines
