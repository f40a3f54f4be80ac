"""Whatever the bytes, there is an answer: an algorithm or an error, never a crash."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import tracemalloc

import halide as hl
import pytest
from halide_constructs import define, image, output, pipeline, x, y
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.errors import TilewrightError
from tilewright.halide.frontend.importer import import_pipeline
from tilewright.halide.frontend.serial.reader import MalformedError, VersionError, read
from tilewright.halide.ir.algorithm import Algorithm

NAMES = ["tuples", "predicated_reduction", "embedded_buffer", "extern_stage", "wrapped_twice"]
FILES = {name: bytes(hl.serialize_pipeline(pipeline(name))) for name in NAMES}


def outcome(data):
    try:
        return import_pipeline(data)
    except TilewrightError as error:
        return error


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), st.data())
def test_truncated_files_are_refused(name, data):
    file = FILES[name]
    size = data.draw(st.integers(0, len(file) - 1))
    with pytest.raises(MalformedError):
        import_pipeline(file[:size])


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(NAMES), st.data())
def test_damaged_files_are_read_or_refused(name, data):
    file = FILES[name]
    damaged = bytearray(file)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(file) - 4))
        kind = data.draw(st.sampled_from(["bit", "byte", "word"]))
        if kind == "bit":
            damaged[place] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "byte":
            damaged[place] = data.draw(st.integers(0, 255))
        else:
            word = data.draw(st.sampled_from([0, 1, 4, 2**16, 2**31 - 1, 2**31, 2**32 - 1]))
            damaged[place : place + 4] = struct.pack("<I", word)
    assert isinstance(outcome(bytes(damaged)), Algorithm | TilewrightError)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_refused(data):
    with pytest.raises(MalformedError, match="not a pipeline serialised by Halide"):
        import_pipeline(data)


FEED = """
import pickle, sys
import halide as hl
from tilewright.halide.execution.binding import halide_type
from tilewright.halide.frontend.importer import import_pipeline
for data in pickle.load(sys.stdin.buffer):
    parameters = {}
    for p in import_pipeline(data).parameters:
        kind = halide_type(p.type)
        new = hl.ImageParam(kind, p.dimensions, p.name) if p.is_buffer else hl.Param(kind, p.name)
        parameters[p.name] = new.parameter()
    try:
        hl.deserialize_pipeline(data, parameters)
    except hl.HalideError:
        pass
print("survived")
"""


def test_halide_survives_what_is_let_through():
    import pickle

    generator = random.Random(11)
    accepted: list = []
    while len(accepted) < 60:
        damaged = bytearray(FILES[generator.choice(NAMES)])
        damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        if isinstance(outcome(bytes(damaged)), Algorithm):
            accepted.append(bytes(damaged))
    child = subprocess.run(
        [sys.executable, "-c", FEED], input=pickle.dumps(accepted), capture_output=True, timeout=600
    )
    assert child.stdout.strip() == b"survived", child.stderr


def test_absurd_lengths_allocate_nothing():
    file = FILES["tuples"]
    root = struct.unpack_from("<I", file, 0)[0]
    back = struct.unpack_from("<i", file, root)[0]
    first_field = struct.unpack_from("<H", file, root - back + 4)[0]
    vector = root + first_field + struct.unpack_from("<I", file, root + first_field)[0]
    damaged = file[:vector] + struct.pack("<I", 2**31) + file[vector + 4 :]
    tracemalloc.start()
    try:
        with pytest.raises(MalformedError, match="outside the file"):
            import_pipeline(damaged)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_shared_tables_are_refused():
    # One table that many offsets refer to would stand for a tree of any size.
    file = bytearray(FILES["tuples"])
    root = read(bytes(file), "Pipeline")
    first, second = (func.position for func in root.funcs[:2])
    place = next(
        i
        for i in range(0, len(file) - 3)
        if i + struct.unpack_from("<I", file, i)[0] == first
        and i + 4 + struct.unpack_from("<I", file, i + 4)[0] == second
    )
    struct.pack_into("<I", file, place + 4, first - place - 4)
    with pytest.raises(MalformedError, match="referred to twice"):
        import_pipeline(bytes(file))


def test_another_version_is_named():
    file = FILES["tuples"].replace(b"18.0.1", b"17.0.0")
    assert file != FILES["tuples"]
    with pytest.raises(VersionError, match=r"17\.0\.0.*Halide 21"):
        import_pipeline(file)


def test_a_buffer_of_another_size_than_its_shape_is_refused():
    table = hl.Buffer(hl.Int(32), [5], "table")
    table.fill(3)
    file = bytes(hl.serialize_pipeline(hl.Pipeline(define("f", x, table[x % 5]))))
    record = read(file, "Pipeline").buffers[0].dims[0]
    assert record.extent == 5
    place = next(
        i
        for i in range(record.position, record.position + 24)
        if file[i : i + 4] == struct.pack("<i", 5)
    )
    damaged = file[:place] + struct.pack("<i", 2**30) + file[place + 4 :]
    with pytest.raises(MalformedError, match="buffer table needs"):
        import_pipeline(damaged)


def test_a_call_of_the_wrong_func_is_refused():
    g = define("g", x, x)
    f = define("f", (x, y), g[x] + y)
    file = bytes(hl.serialize_pipeline(hl.Pipeline(output(f, 3, 3))))
    func = next(func for func in read(file, "Pipeline").funcs if func.name == f.name())
    call = func.init_def.values[0].a
    assert (call.name, call.func_index) == (g.name(), 1)
    place = file.index(struct.pack("<i", 1), call.position)
    damaged = file[:place] + struct.pack("<i", 0) + file[place + 4 :]
    with pytest.raises(MalformedError, match="has the position of another"):
        import_pipeline(damaged)


def test_every_byte_flip_of_a_small_file_is_survived():
    file = bytes(hl.serialize_pipeline(hl.Pipeline(define("f", (), image(hl.Int(8), dims=1)[0]))))
    results = [
        outcome(file[:i] + bytes([file[i] ^ 0x55]) + file[i + 1 :]) for i in range(len(file))
    ]
    refused = [r for r in results if isinstance(r, TilewrightError)]
    assert len(results) > len(refused) > len(results) // 3


@pytest.mark.parametrize("value", [b"\0\0", b"\xff\xff"], ids=["zero", "ones"])
@pytest.mark.few(1)
def test_every_short_of_a_small_file_may_be_extreme(value):
    # Vtables are made of these: sizes of tables and places of fields in them.
    file = bytes(hl.serialize_pipeline(hl.Pipeline(define("f", (), image(hl.Int(8), dims=1)[0]))))
    results = [outcome(file[:i] + value + file[i + 2 :]) for i in range(0, len(file), 2)]
    assert any(isinstance(result, MalformedError) for result in results)


def test_an_empty_file_is_called_empty():
    with pytest.raises(MalformedError, match="empty"):
        import_pipeline(b"")
