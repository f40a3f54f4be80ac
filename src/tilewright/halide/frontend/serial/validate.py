"""Check the assumptions of Halide's reader that `reader` does not check.

Halide reads files without checking them: unknown names, lists of unequal length or buffers of a
wrong size would crash it. Files that pass these checks are safe to read.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.halide.frontend.serial.reader import MalformedError, Record
from tilewright.halide.frontend.serial.schema import TYPE_CODES

# Halide's reader recurses; an expression of this depth needs about half of a stack of 8 MB.
_MAX_DEPTH = 10_000
_MAX_DIMENSIONS = 100


def validate(root: Record) -> None:
    """Raise `MalformedError` if the parts of a pipeline are inconsistent."""
    names = [func.name for func in root.funcs]
    _check_funcs(root, names)
    parameters = [*root.parameters, *root.external_parameters]
    _check_parameters(root, parameters)
    _distinct("buffer", [buffer.name for buffer in root.buffers])
    for buffer in root.buffers:
        _check_buffer(buffer)
    for requirement in root.requirements:
        if requirement.table != "AssertStmt":
            raise MalformedError("a requirement of the pipeline is not an AssertStmt")
    known = {None, "", *(p.name for p in parameters)}
    buffers = {None, "", *(b.name for b in root.buffers)}
    for record, depth in _walk(root):
        if depth > _MAX_DEPTH:
            raise MalformedError(f"tables are nested more than {_MAX_DEPTH} deep")
        _check_references(record, known, buffers)
        _check_table(record, names)


def _check_funcs(root: Record, names: list[str]) -> None:
    """Check that Funcs have distinct names, and that the outputs are Funcs."""
    if list(root.func_names_in_order) != names:
        raise MalformedError("func_names_in_order differs from the names of the Funcs")
    _distinct("Func", names)
    if not root.output_names:
        raise MalformedError("the pipeline has no outputs")
    _distinct("output", root.output_names)
    for name in root.output_names:
        if name not in names:
            raise MalformedError(f"the output {name} is not defined in the pipeline")


def _check_parameters(root: Record, parameters: list[Record]) -> None:
    """Check that parameters have distinct names and that buffers describe all their dimensions."""
    _distinct("parameter", [p.name for p in parameters])
    for parameter in parameters:
        if not 0 <= parameter.dimensions <= _MAX_DIMENSIONS:
            raise MalformedError(f"{parameter.name} has {parameter.dimensions} dimensions")
    for parameter in root.parameters:
        if len(parameter.buffer_constraints) != parameter.dimensions or not parameter.is_buffer:
            raise MalformedError(f"{parameter.name} has no constraint for one of its dimensions")


def _check_references(
    record: Record, parameters: set[str | None], buffers: set[str | None]
) -> None:
    """Check that the parameters and buffers that a table names are in the pipeline."""
    fields = record.__dict__
    for field in ("param_name", "image_param_name"):
        if fields.get(field) not in parameters:
            raise MalformedError(f"the parameter {fields[field]} is not in the pipeline")
    for field in ("image_name", "buffer_name"):
        if fields.get(field) not in buffers:
            raise MalformedError(f"the buffer {fields[field]} is not in the pipeline")


def _check_table(record: Record, names: list[str]) -> None:
    """Check a table that is a type, a call (of a position in `names`) or a fused loop."""
    if record.table == "Type":
        _check_type(record)
    elif record.table == "Call" and not -1 <= record.func_index < len(names):
        raise MalformedError(f"{record.name} is called, but is not in the pipeline")
    elif record.table == "Call" and record.func_index >= 0:
        if record.name != names[record.func_index]:
            raise MalformedError(f"a call of {record.name} has the position of another Func")
    elif record.table == "FuseLoopLevel" and len(record.align_strategies) != len(
        record.align_dimension_names
    ):
        raise MalformedError("a fused loop has no alignment")


def _walk(root: Record) -> Iterable[tuple[Record, int]]:
    """Yield every table with its nesting depth."""
    stack = [(root, 0)]
    while stack:
        record, depth = stack.pop()
        yield record, depth
        for value in record.__dict__.values():
            if isinstance(value, Record):
                stack.append((value, depth + 1))
            elif isinstance(value, tuple):
                stack.extend((v, depth + 1) for v in value if isinstance(v, Record))


def _distinct(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen or not name:
            raise MalformedError(f"there are two {what}s called {name!r}, or one without a name")
        seen.add(name)


def _check_type(record: Record) -> None:
    if not 0 <= record.code < len(TYPE_CODES):
        raise MalformedError(f"{record.code} is not the code of a type")
    if record.bits not in _BITS[TYPE_CODES[record.code]]:
        raise MalformedError(f"there is no type {TYPE_CODES[record.code]} of {record.bits} bits")
    if not 1 <= record.lanes <= 65535:
        raise MalformedError(f"a type has {record.lanes} lanes")


_BITS = {
    "int": (8, 16, 32, 64),
    "uint": (1, 8, 16, 32, 64),
    "float": (16, 32, 64),
    "bfloat": (16,),
    "handle": (64,),
}


def _check_buffer(buffer: Record) -> None:
    """Check that a buffer's contents have the size of its shape."""
    if not buffer.defined or len(buffer.dims) != buffer.dimensions:
        raise MalformedError(f"the buffer {buffer.name} has no description of its dimensions")
    _check_type(buffer.type)
    size = (buffer.type.bits + 7) // 8 * buffer.type.lanes
    for dim in buffer.dims:
        if dim.extent < 0:
            raise MalformedError(f"the buffer {buffer.name} has a negative extent")
        size *= dim.extent
    if size != len(buffer.data):
        raise MalformedError(
            f"the buffer {buffer.name} needs {size} bytes and has {len(buffer.data)}"
        )
