"""Restore a pipeline from its bytes, bind its inputs and allocate its outputs."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.halide.execution.contents import fill, thin
from tilewright.halide.execution.inputs import (
    BufferInput,
    InputError,
    Inputs,
    OutputShape,
    ScalarInput,
    default_range,
)
from tilewright.halide.ir.algorithm import Span, Type
from tilewright.halide.ir.types import numpy_type

# The alignment of a buffer's first element, in bytes. Halide's own buffers have 128. An output may
# require more (``set_host_alignment``); we assume at most a page.
_ALIGNMENT = 4096
_HOST_OFFSET = 16  # offset of the host pointer in a halide_buffer_t
# In halide_buffer_t: the offset of the pointer to the dimensions. In halide_dimension_t (min,
# extent, stride, flags): its size and the offset of the stride (HalideRuntime.h of Halide 21).
_SHAPE_OFFSET = 40
_DIMENSION_BYTES = 16
_STRIDE_OFFSET = 8


@dataclass
class LivePipeline:
    """A fresh ``halide.Pipeline`` and its rebuilt parameters, by name.

    `arrays` keeps the memory of the inputs alive: Halide only points to it. `boxes` holds the
    allocated box of each input, which contains the region that the scheduled pipeline requires.
    """

    pipeline: Any
    images: dict[str, Any]
    scalars: dict[str, Any]
    arrays: list[npt.NDArray[Any]] = field(default_factory=list)
    boxes: dict[str, tuple[Span, ...]] = field(default_factory=dict)


def halide_type(kind: Type) -> Any:
    """Return the ``halide.Type`` of a type."""
    import halide as hl

    makers = {"int": hl.Int, "uint": hl.UInt, "float": hl.Float, "bfloat": hl.BFloat}
    if kind.code == "handle":
        return hl.Handle(kind.lanes)
    return makers[kind.code](kind.bits, kind.lanes)


def deserialize(serialized: bytes, inputs: Inputs) -> LivePipeline:
    """Return a fresh pipeline with new parameters and the schedule in the bytes, if any.

    `serialized` must have been checked by `tilewright.halide.frontend.importer.import_pipeline`:
    Halide crashes on damaged bytes. The parameters have the strides and values of `inputs`, but no
    contents yet.
    """
    import halide as hl

    images = {}
    for buffer in inputs.buffers:
        image = hl.ImageParam(halide_type(buffer.type), len(buffer.dims), buffer.name)
        for d, stride in enumerate(buffer.strides):
            if stride is not None:
                image.dim(d).set_stride(stride)
        if buffer.strides and buffer.strides[0] is None and 1 in buffer.strides:
            image.dim(0).set_stride(hl.Expr())
        images[buffer.name] = image
    scalars = {scalar.name: scalar_param(scalar) for scalar in inputs.scalars}
    parameters = {name: p.parameter() for name, p in {**images, **scalars}.items()}
    return LivePipeline(hl.deserialize_pipeline(serialized, parameters), images, scalars)


def scalar_param(scalar: ScalarInput) -> Any:
    """Return a fresh ``halide.Param`` with the scalar's name, type and value."""
    import halide as hl

    param = hl.Param(halide_type(scalar.type), scalar.name)
    _set(param.set, scalar.name, scalar.type, scalar.value)
    return param


def _set(setter: Any, name: str, kind: Type, value: int | float) -> None:
    if kind.code == "bfloat" or (kind.code == "float" and kind.bits == 16):
        raise InputError(f"the scalar {name}: Halide's Python binding cannot pass the type {kind}")
    if kind.code == "float":
        setter(float(value))
    else:
        setter(bool(value) if kind.bits == 1 else int(value))


def set_estimates(live: LivePipeline, inputs: Inputs) -> None:
    """Set all estimates of the pipeline that Halide's autoschedulers require."""
    for buffer in inputs.buffers:
        if buffer.dims:
            live.images[buffer.name].set_estimates([(s.min, s.extent) for s in buffer.dims])
    for scalar in inputs.scalars:
        if scalar.type.code != "handle":
            _set(live.scalars[scalar.name].set_estimate, scalar.name, scalar.type, scalar.value)
    for output, func in zip(inputs.outputs, live.pipeline.outputs(), strict=True):
        if output.dims:
            func.set_estimates([(span.min, span.extent) for span in output.dims])


def bind(live: LivePipeline, inputs: Inputs, target: Any) -> list[Any]:
    """Compile the pipeline, bind its inputs and return buffers for its outputs.

    The sizes of inputs depend on the schedule: a tile that is rounded up reads more than the sizes
    of the outputs require. Therefore the pipeline is compiled first and asked for these sizes.

    Args:
        live: the scheduled pipeline.
        inputs: the inputs to bind.
        target: the ``halide.Target`` to run on.

    Returns:
        a ``halide.Buffer`` per value of each output, in order, for ``pipeline.realize``.

    Raises:
        halide.HalideError: Halide cannot compile the pipeline.
    """
    live.pipeline.compile_jit(target)
    outputs = [
        allocate(kind, output.dims, output.strides, output.name)[0]
        for output in inputs.outputs
        for kind in output.types
    ]
    boxes = live.boxes = _input_boxes(live, inputs, outputs, target)
    live.arrays.clear()
    for buffer in inputs.buffers:
        halide_buffer, array = allocate(
            buffer.type, boxes[buffer.name], buffer.strides, buffer.name
        )
        live.arrays.append(array)
        live.images[buffer.name].set(halide_buffer)
    fill_inputs(live, inputs)
    return outputs


def fill_inputs(live: LivePipeline, inputs: Inputs, share: float = 1.0) -> None:
    """Write the contents of all bound inputs; of a `share` below 1, the other elements are 0."""
    for index, buffer in enumerate(inputs.buffers):
        box, array = live.boxes[buffer.name], live.arrays[index]
        fill(array, buffer, box, inputs.seed + index)
        if share < 1:
            thin(array, tuple(span.min for span in box), share)
        halide_buffer = live.images[buffer.name].get()
        if buffer.type.code == "bfloat":
            _copy_bits(array, halide_buffer)
        halide_buffer.set_host_dirty(True)


def _input_boxes(
    live: LivePipeline, inputs: Inputs, outputs: list[Any], target: Any
) -> dict[str, tuple[Span, ...]]:
    """Return the box of each input: the hull of the described box and the required region.

    Inputs with a size but without memory are bounds queries: Halide sets their bounds to the region
    that it would read. (`infer_input_bounds` starts from empty inputs. It fails, for example, for a
    pipeline that divides by the size of an input.)
    """
    import halide as hl

    boxes = {buffer.name: buffer.dims for buffer in inputs.buffers}
    if all(all(buffer.pinned) for buffer in inputs.buffers):
        return boxes
    queries = {}
    for buffer in inputs.buffers:
        extents = [span.extent for span in buffer.dims]
        query = hl.Buffer.make_bounds_query(halide_type(buffer.type), extents)
        if buffer.dims:
            query.set_min([span.min for span in buffer.dims])
        live.images[buffer.name].set(query)
        queries[buffer.name] = query
    live.pipeline.realize(outputs, target)
    for buffer in inputs.buffers:
        query = queries[buffer.name]
        boxes[buffer.name] = tuple(
            span if pinned else _hull(span, query.dim(d))
            for d, (span, pinned) in enumerate(zip(buffer.dims, buffer.pinned, strict=True))
        )
        live.images[buffer.name].reset()
    return boxes


def _hull(span: Span, dim: Any) -> Span:
    if dim.extent() < 1:  # the input is not read
        return span
    low = min(span.min, dim.min())
    high = max(span.max, dim.min() + dim.extent() - 1)
    return Span(low, high - low + 1)


def allocate(
    kind: Type, dims: tuple[Span, ...], fixed: tuple[int | None, ...], name: str
) -> tuple[Any, npt.NDArray[Any]]:
    """Return a ``halide.Buffer`` and an array of its elements; axis d is dimension d."""
    import halide as hl

    strides, size = layout(name, tuple(span.extent for span in dims), fixed)
    dtype = numpy_type(kind)
    raw = np.empty(size * dtype.itemsize + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    memory = raw[start : start + size * dtype.itemsize].view(dtype)
    array = np.lib.stride_tricks.as_strided(
        memory, [span.extent for span in dims], [stride * dtype.itemsize for stride in strides]
    )
    if kind.code == "bfloat":
        # NumPy has no bfloat16: Halide allocates the buffer, and the bits are copied.
        order = sorted(range(len(dims)), key=lambda d: strides[d])
        buffer = hl.Buffer(hl.BFloat(16), [span.extent for span in dims], order)
    else:
        # Halide accepts unsigned 64-bit elements only with the type code of C's long long.
        shown = array.view(np.ulonglong) if dtype == np.uint64 else array
        buffer = hl.Buffer(shown, name, False)
        _correct_strides(buffer, strides, tuple(span.extent for span in dims))
    if dims:
        buffer.set_min([span.min for span in dims])
    return buffer, array


def _correct_strides(buffer: Any, strides: tuple[int, ...], extents: tuple[int, ...]) -> None:
    """Set the strides of dimensions with one element; NumPy reports different ones."""
    single = [d for d, extent in enumerate(extents) if extent == 1]
    if not single:
        return
    raw = buffer._get_raw_halide_buffer_t()
    shape = ctypes.c_uint64.from_address(raw + _SHAPE_OFFSET).value
    for d in single:
        address = shape + d * _DIMENSION_BYTES + _STRIDE_OFFSET
        ctypes.c_int32.from_address(address).value = strides[d]


def layout(
    name: str, extents: tuple[int, ...], fixed: tuple[int | None, ...]
) -> tuple[tuple[int, ...], int]:
    """Return the strides by dimension, and the number of elements from the first to the last.

    Strides in `fixed` are kept; the other dimensions are dense, in order. Raises `InputError` if
    fixed strides make elements overlap.
    """
    strides: dict[int, int] = {}
    span = 1
    waiting = sorted((s, d) for d, s in enumerate(fixed) if s is not None)
    for d in range(len(extents)):
        while waiting and (waiting[0][0] <= span or any(which == d for _, which in waiting)):
            stride, which = waiting.pop(0)
            if stride < span and extents[which] > 1:
                raise InputError(
                    f"the strides {fixed} of {name} make its elements overlap at the "
                    f"extents {extents}"
                )
            strides[which] = stride
            span = max(span, stride * extents[which])
        if d not in strides:
            strides[d] = span
            span *= extents[d]
    ordered = tuple(strides[d] for d in range(len(extents)))
    last = sum(stride * (extent - 1) for stride, extent in zip(ordered, extents, strict=True))
    return ordered, max(last, 0) + 1


def _copy_bits(array: npt.NDArray[Any], buffer: Any) -> None:
    """Copy the bits of a bfloat16 array to the elements of a ``halide.Buffer``."""
    address = buffer._get_raw_halide_buffer_t() + _HOST_OFFSET
    host = ctypes.c_uint64.from_address(address).value
    order = sorted(range(array.ndim), key=lambda d: -array.strides[d])
    dense = np.ascontiguousarray(array.transpose(order))
    ctypes.memmove(host, dense.ctypes.data, dense.nbytes)


def fill_output(buffer: Any, shape: OutputShape, kind: Type, seed: int) -> None:
    """Fill an output that the pipeline changes in place, in the same way as inputs."""
    unpinned = (False,) * len(shape.dims)
    low, high = default_range(kind)
    like = BufferInput(shape.name, kind, shape.dims, shape.strides, unpinned, low, high)
    if kind.code == "bfloat":
        array = np.empty(tuple(span.extent for span in shape.dims), np.uint16)
        fill(array, like, shape.dims, seed)
        _copy_bits(array, buffer)
    else:
        fill(output_array(buffer, kind), like, shape.dims, seed)
    buffer.set_host_dirty(True)


def output_array(buffer: Any, kind: Type) -> npt.NDArray[Any]:
    """Return the elements of an output; axis d is dimension d, bfloat16 is given as ``uint16``."""
    if kind.code != "bfloat":
        array = np.asarray(buffer)
        return array.transpose(range(array.ndim - 1, -1, -1))
    dims = [buffer.dim(d) for d in range(buffer.dimensions())]
    host = ctypes.c_uint64.from_address(buffer._get_raw_halide_buffer_t() + _HOST_OFFSET).value
    size = 1 + sum(dim.stride() * (dim.extent() - 1) for dim in dims)
    memory = np.ctypeslib.as_array((ctypes.c_uint16 * size).from_address(host))
    return np.lib.stride_tricks.as_strided(
        memory, [dim.extent() for dim in dims], [2 * dim.stride() for dim in dims]
    ).copy()
