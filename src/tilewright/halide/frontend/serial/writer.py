"""Write records as a FlatBuffer that Halide can read: the inverse of `reader.read`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flatbuffers
from flatbuffers import number_types

from tilewright.halide.frontend.serial.reader import Record
from tilewright.halide.frontend.serial.schema import SCALARS, TABLES, UNIONS, Field

_FLAGS: dict[str, Any] = {
    "bool": number_types.BoolFlags,
    "i8": number_types.Int8Flags,
    "u8": number_types.Uint8Flags,
    "i32": number_types.Int32Flags,
    "i64": number_types.Int64Flags,
    "u64": number_types.Uint64Flags,
    "f64": number_types.Float64Flags,
}
_FIRST_SIZE = 1 << 16  # bytes; the builder doubles it as needed


def write(root: Record) -> bytes:
    """Return the bytes of a `Pipeline` table and all tables that it refers to.

    The tables must form a tree, like those of `reader.read`. The code does not recurse, because
    expressions may be thousands of tables deep.
    """
    builder = flatbuffers.Builder(_FIRST_SIZE)
    offsets: dict[int, int] = {}
    stack: list[tuple[Record, bool]] = [(root, False)]
    while stack:
        record, children_written = stack.pop()
        if children_written:
            offsets[id(record)] = _table(builder, record, offsets)
            continue
        stack.append((record, True))
        for value in record.__dict__.values():
            if isinstance(value, Record):
                stack.append((value, False))
            elif isinstance(value, tuple):
                stack.extend((item, False) for item in value if isinstance(item, Record))
    builder.Finish(offsets[id(root)])
    return bytes(builder.Output())


def _table(builder: Any, record: Record, offsets: dict[int, int]) -> int:
    """Write one table whose children have been written; return its offset."""
    fields = TABLES[record.table]
    values = record.__dict__
    codes: dict[str, int] = {}
    parts: dict[str, int] = {}
    for field in fields:
        value = values[field.name]
        if field.vector:
            if field.kind in UNIONS:
                codes[field.name] = _codes(builder, field, value)
            parts[field.name] = _vector(builder, field, value, offsets)
        elif field.kind == "string" and value is not None:
            parts[field.name] = builder.CreateString(value)
        elif field.kind not in SCALARS and value is not None:
            parts[field.name] = offsets[id(value)]
    builder.StartObject(1 + max((field.slot for field in fields), default=-1))
    for field in fields:
        value = values[field.name]
        if field.kind in SCALARS and not field.vector:
            value = bool(value) if field.kind == "bool" else value
            builder.PrependSlot(_FLAGS[field.kind], field.slot, value, 0)
        elif field.name in parts:
            builder.PrependUOffsetTRelativeSlot(field.slot, parts[field.name], 0)
            if field.name in codes:
                builder.PrependUOffsetTRelativeSlot(field.slot - 1, codes[field.name], 0)
            elif field.kind in UNIONS:
                code = UNIONS[field.kind].index(value.table) + 1
                builder.PrependUint8Slot(field.slot - 1, code, 0)
    return int(builder.EndObject())


def _vector(builder: Any, field: Field, value: Any, offsets: dict[int, int]) -> int:
    if field.kind == "u8":
        return int(builder.CreateByteVector(bytes(value)))
    if field.kind in SCALARS:
        flags = _FLAGS[field.kind]
        return _elements(builder, value, flags.bytewidth, lambda v: builder.Prepend(flags, v))
    if field.kind == "string":
        items = [builder.CreateString(text) for text in value]
    else:
        items = [offsets[id(item)] for item in value]
    return _elements(builder, items, 4, builder.PrependUOffsetTRelative)


def _codes(builder: Any, field: Field, value: tuple[Record, ...]) -> int:
    """Write the type codes of a vector of unions; return their offset."""
    members = UNIONS[field.kind]
    return int(builder.CreateByteVector(bytes(members.index(v.table) + 1 for v in value)))


def _elements(builder: Any, items: Any, width: int, prepend: Callable[[Any], object]) -> int:
    builder.StartVector(width, len(items), width)
    for item in reversed(items):
        prepend(item)
    return int(builder.EndVector())
