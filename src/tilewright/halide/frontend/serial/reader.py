"""Read FlatBuffers safely, driven by a description of the tables (`schema`).

A FlatBuffer's offsets between tables are unsigned and point forwards, so a walk always ends. Every
position, length and string is checked against the file. The bytes that the tables cover are
counted, so a file with overlapping vectors or huge lengths cannot cost more time or memory than a
valid file of the same size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flatbuffers import packer

from tilewright.errors import TilewrightError
from tilewright.halide.frontend.serial.schema import SCALARS, TABLES, UNIONS, Field

_PACKERS: dict[str, struct.Struct] = {
    "bool": packer.uint8,
    "i8": packer.int8,
    "u8": packer.uint8,
    "i32": packer.int32,
    "i64": packer.int64,
    "u64": packer.uint64,
    "f64": packer.float64,
}

# Maximum number of times that a byte of the file may be counted on average. A valid file counts an
# offset in a vector with the vector and when it is followed, and the vtable of its target again.
_COUNTS = 4
_MAX_TABLES = 2_000_000


class Record:
    """A table that has been read. Its fields are attributes, named as in the schema.

    Scalars and strings have Python's types, a table is a `Record`, and a vector is a tuple, or
    `bytes` for a vector of bytes. A missing string, table or union is None, a missing scalar is
    zero, and a missing vector is an empty tuple.
    """

    __slots__ = ("__dict__", "position", "table")

    def __init__(self, table: str, position: int) -> None:
        """Create an empty record of table `table`, whose data start at byte `position`."""
        self.table = table
        self.position = position

    def __getattr__(self, name: str) -> Any:
        """Raise an error that names the missing field and its table."""
        raise AttributeError(f"table {self.table} has no field {name}")


class MalformedError(TilewrightError):
    """The bytes are not a Halide pipeline, or a damaged one."""

    def __init__(self, detail: str) -> None:
        """`detail` completes the message: it says what is wrong."""
        super().__init__(
            f"the bytes are not a pipeline serialised by Halide 21, or damaged: {detail}. "
            "Write the file again with halide.serialize_pipeline"
        )


class VersionError(TilewrightError):
    """The pipeline was serialised by another version of Halide."""


def read(data: bytes, root: str, check: Callable[[Record], None] | None = None) -> Record:
    """Return the root table, with all tables reachable from it.

    Args:
        data: The file.
        root: The name of the root's table in the schema.
        check: Called with the root before other tables are read, while these are still empty.

    Raises:
        MalformedError: The bytes are not a FlatBuffer with these tables.
    """
    return _Reader(data).read(root, check)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The content of a vtable: the table's size, its present fields, and defaults of the others.

    `present` has, for each field, its offset in the table and that of the type code of a union (0
    for other fields).
    """

    size: int
    present: tuple[tuple[Field, int, int], ...]
    absent: dict[str, Any]


def _plan(table: str, size: int, slots: tuple[int, ...]) -> _Plan:
    if size < 4:
        raise MalformedError(f"a {table} of {size} bytes")
    present = []
    absent: dict[str, Any] = {}
    for field in TABLES[table]:
        slot = field.slot
        at = slots[slot] if slot < len(slots) else 0
        tag = slots[slot - 1] if field.kind in UNIONS and slot - 1 < len(slots) else 0
        if at >= size or tag >= size:
            raise MalformedError(f"field {table}.{field.name} lies outside its table")
        if at:
            present.append((field, at, tag))
        elif field.vector:
            absent[field.name] = ()
        else:
            absent[field.name] = 0 if field.kind in SCALARS else None
        if not at and not field.optional and (field.vector or field.kind not in SCALARS):
            raise MalformedError(f"{table} has no {field.name}")
    return _Plan(size, tuple(present), absent)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.seen: set[int] = set()
        self.pending: list[Record] = []
        self.plans: dict[tuple[str, int], _Plan] = {}
        self.budget = _COUNTS * len(data) + 64

    def read(self, root: str, check: Callable[[Record], None] | None) -> Record:
        # A FlatBuffer is padded to the alignment of its offsets.
        if len(self.data) % 4:
            raise MalformedError(f"a length of {len(self.data)} bytes is not a multiple of four")
        try:
            record = self.table(root, self.follow(0))
            self.fill(self.pending.pop())
            if check is not None:
                check(record)
            while self.pending:
                self.fill(self.pending.pop())
        except struct.error:
            raise MalformedError("an offset points outside the file") from None
        return record

    def claim(self, start: int, size: int) -> None:
        """Check that `size` bytes at `start` exist, and count them."""
        if start < 0 or size < 0 or start + size > len(self.data):
            raise MalformedError(
                f"{size} bytes at {start} lie outside the file of {len(self.data)} bytes"
            )
        self.budget -= size
        if self.budget < 0:
            raise MalformedError("the tables overlap")

    def follow(self, position: int) -> int:
        """Return the position that the offset at `position` points to."""
        (offset,) = packer.uoffset.unpack_from(self.data, position)
        if offset < 4:
            raise MalformedError(f"an offset at {position} does not point forwards")
        return position + int(offset)

    def length(self, position: int, size: int) -> int:
        """Return the length of the vector at `position`, whose elements have `size` bytes each."""
        self.claim(position, 4)
        (length,) = packer.uoffset.unpack_from(self.data, position)
        self.claim(position + 4, length * size)
        return int(length)

    def plan(self, table: str, position: int) -> _Plan:
        """Return the plan for the table at `position`; tables with the same vtable share it."""
        (back,) = packer.soffset.unpack_from(self.data, position)
        at = position - back
        found = self.plans.get((table, at))
        if found is None:
            self.claim(at, 4)
            vtable_size, size = struct.unpack_from("<HH", self.data, at)
            if vtable_size < 4 or vtable_size % 2:
                raise MalformedError(f"the vtable at {at} has size {vtable_size}")
            self.claim(at, vtable_size)
            slots = struct.unpack_from(f"<{vtable_size // 2 - 2}H", self.data, at + 4)
            found = self.plans[table, at] = _plan(table, size, slots)
        return found

    def table(self, name: str, position: int) -> Record:
        # Halide writes trees. With shared tables, a small file could describe an enormous tree,
        # and Halide's reader, which walks it as a tree, would crash.
        if position in self.seen:
            raise MalformedError(f"the table at {position} is referred to twice")
        self.seen.add(position)
        if len(self.seen) > _MAX_TABLES:
            raise MalformedError(f"it has more than {_MAX_TABLES} tables")
        record = Record(name, position)
        self.pending.append(record)
        return record

    def fill(self, record: Record) -> None:
        base = record.position
        plan = self.plan(record.table, base)
        self.claim(base, plan.size)
        values = record.__dict__
        values.update(plan.absent)
        for field, at, tag in plan.present:
            kind = field.kind
            if kind in UNIONS:
                values[field.name] = self.union(field, base, tag, at)
            elif field.vector:
                values[field.name] = self.vector(field, self.follow(base + at))
            elif kind in SCALARS:
                values[field.name] = _PACKERS[kind].unpack_from(self.data, base + at)[0]
            elif kind == "string":
                values[field.name] = self.string(self.follow(base + at))
            else:
                values[field.name] = self.table(kind, self.follow(base + at))

    def string(self, position: int) -> str:
        length = self.length(position, 1)
        raw = self.data[position + 4 : position + 4 + length]
        if self.data[position + 4 + length : position + 5 + length] != b"\0":
            raise MalformedError(f"the string at {position} does not end in a zero")
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise MalformedError(f"the string at {position} is not UTF-8") from error

    def vector(self, field: Field, position: int) -> tuple[Any, ...] | bytes:
        if field.kind in SCALARS:
            reader = _PACKERS[field.kind]
            length = self.length(position, reader.size)
            raw = self.data[position + 4 : position + 4 + length * reader.size]
            if field.kind == "u8":
                return raw
            return tuple(value for (value,) in reader.iter_unpack(raw))
        length = self.length(position, 4)
        targets = [self.follow(position + 4 + 4 * i) for i in range(length)]
        if field.kind == "string":
            return tuple(self.string(target) for target in targets)
        return tuple(self.table(field.kind, target) for target in targets)

    def member(self, field: Field, code: int) -> str:
        members = UNIONS[field.kind]
        if not 1 <= code <= len(members):
            raise MalformedError(f"{code} is not the code of a kind of {field.kind}")
        return members[code - 1]

    def union(self, field: Field, base: int, tag: int, at: int) -> Any:
        if not field.vector:
            code = self.data[base + tag] if tag else 0
            return self.table(self.member(field, code), self.follow(base + at))
        if not tag:
            raise MalformedError(f"{field.name} has values but no codes")
        codes_at = self.follow(base + tag)
        count = self.length(codes_at, 1)
        codes = self.data[codes_at + 4 : codes_at + 4 + count]
        position = self.follow(base + at)
        if self.length(position, 4) != count:
            raise MalformedError(f"{field.name} has {count} codes but another number of values")
        return tuple(
            self.table(self.member(field, code), self.follow(position + 4 + 4 * i))
            for i, code in enumerate(codes)
        )
