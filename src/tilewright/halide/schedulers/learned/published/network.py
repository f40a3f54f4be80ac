"""The networks of Adams et al. 2019 and Anderson et al. 2021: predicted run times.

A small network turns the features of a stage into 32 coefficients; the time of the stage is a sum
of terms, each a coefficient times a quantity that the features give (Anderson et al. 2021, appendix
B). The pipeline's time is the sum over stages.

| symbol | meaning | shape |
|---|---|---|
| `x` | log(1 + schedule features) | (N, stages, F) |
| `y` | algorithm features | (stages, 40, 7) |
| `c` | coefficients, not negative | (N, stages, 32) |

Where the paper and the released code differ, this is the code (`as_released`), with which the
published weights were trained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.errors import TilewrightError
from tilewright.halide.schedulers.learned.published import cpu_features, gpu_features
from tilewright.halide.schedulers.learned.published.weights import (
    ALGORITHM_CHANNELS,
    Weights,
)

Array: TypeAlias = npt.NDArray[np.floating[Any]]

MILLISECONDS = 1e-9  # of a unit of the terms
# Stages are evaluated in blocks of about this many features, which stay in the caches.
BLOCK = 1 << 18
PAGE_BYTES = 4096.0


class _Named:
    """Features by name, each of shape (N, stages)."""

    def __init__(self, names: Sequence[str], values: Array) -> None:
        self._values = {name: values[..., i] for i, name in enumerate(names)}

    def __getattr__(self, name: str) -> Array:
        return self._values[name]


def coefficients(weights: Weights, algorithm: Array, schedule: Array) -> Array:
    """Return the coefficients of every stage.

    Args:
        weights: The weights, for F schedule features.
        algorithm: Shape (stages, 40, 7), as of `algorithm_features`.
        schedule: Shape (N, stages, F).

    Returns:
        Shape (N, stages, 32).

    Raises:
        TilewrightError: The weights are for another number of features.
    """
    if schedule.shape[-1] != weights.features:
        raise TilewrightError(
            f"the weights are for {weights.features} schedule features, but there are "
            f"{schedule.shape[-1]}: the files of Adams2019 have 39, those of Anderson2021 73"
        )
    squashed = 1.0 / (1.0 + np.exp(-weights.algorithm))
    flat = algorithm.reshape(len(algorithm), -1)
    embedded = flat @ squashed.reshape(ALGORITHM_CHANNELS, -1).T + weights.algorithm_bias
    fixed = embedded @ weights.trunk[:, :ALGORITHM_CHANNELS].T + weights.trunk_bias
    # From here on one quantity of all rows is contiguous in memory: (stages, channels, N).
    x = _logarithms(schedule.transpose(1, 2, 0))
    hidden = np.matmul(weights.schedule.astype(x.dtype), x)
    hidden += weights.schedule_bias.astype(x.dtype)[:, None]
    np.maximum(hidden, 0.0, out=hidden)
    found = np.matmul(weights.trunk[:, ALGORITHM_CHANNELS:].astype(x.dtype), hidden)
    found += fixed.astype(x.dtype)[:, :, None]
    np.maximum(found, 0.0, out=found)
    result: Array = found.transpose(2, 0, 1)
    return result


def _logarithms(values: Array) -> Array:
    """Return log(1 + values); features that are equal in all rows are computed once."""
    varies = (values != values[..., :1]).any(axis=-1)
    result = np.empty_like(values)
    result[...] = np.log1p(values[..., :1])
    result[varies] = np.log1p(values[varies])
    return result


def predicted_cpu(
    weights: Weights, algorithm: Array, schedule: Array, cores: int, as_released: bool = True
) -> Array:
    """Return the run times that the network of Adams et al. 2019 predicts.

    Args:
        weights: Weights for 39 schedule features.
        algorithm: Shape (stages, 40, 7).
        schedule: Shape (N, stages, 39), the output's last stage first.
        cores: The tasks that run at once.
        as_released: Whether the cost of stores counts twice, as in the released code, whose weights
            were trained that way.

    Returns:
        Milliseconds, shape (N,).
    """

    def terms(c: Array, values: Array, first: bool) -> Array:
        return _cpu_terms(_Named(cpu_features.NAMES, values), c, cores, first, as_released)

    return _summed(terms, weights, algorithm, schedule)


def _summed(
    terms: Callable[[Array, Array, bool], Array],
    weights: Weights,
    algorithm: Array,
    schedule: Array,
) -> Array:
    """Return the sum of terms of all stages in milliseconds; `terms` has those of some stages."""
    rows, stages, features = schedule.shape
    step = max(1, BLOCK // (rows * features))
    total: Array = np.zeros(rows)
    for begin in range(0, stages, step):
        block = slice(begin, begin + step)
        values = schedule[:, block]
        c = coefficients(weights, algorithm[block], values)
        total += terms(c, values, begin == 0).sum(axis=-1)
    return total * MILLISECONDS


def _cpu_terms(f: _Named, c: Array, cores: int, first: bool, as_released: bool) -> Array:
    """Return the cost of each stage; `first`: whether the output's last stage is among them."""
    inlined = f.inlined_calls != 0
    lanes = f.vector_size * f.num_vectors
    compute = np.where(
        inlined,
        lanes * c[..., 2] + f.num_scalars * c[..., 3],
        lanes * c[..., 0] + f.num_scalars * c[..., 1],
    )
    tasks = np.maximum(1.0, f.inner_parallelism * f.outer_parallelism)
    compute *= _idle(tasks, cores)
    stores = _cpu_stores(f, c, first) * (2.0 if as_released else 1.0)
    total = compute + stores + _cpu_loads(f, c, tasks) + _overheads(f, c)
    result: Array = total + f.working_set * c[..., 27]
    return result


def _idle(tasks: Array, cores: int) -> Array:
    """Return by how much cores without a task lengthen the run."""
    each = tasks / cores
    result: Array = np.ceil(each) / np.maximum(1.0, each)
    return result


def _overheads(f: _Named, c: Array) -> Array:
    """Return the cost of allocations, of launching parallel loops and of tasks."""
    launches = np.where(f.inner_parallelism > 1, c[..., 25], 0.0)
    tasks = (f.inner_parallelism - 1.0) * c[..., 26]
    result: Array = c[..., 24] * f.num_realizations + f.num_productions * (launches + tasks)
    return result


def _cpu_loads(f: _Named, c: Array, tasks: Array) -> Array:
    per_point = f.unique_bytes_read_per_vector, f.unique_lines_read_per_vector
    result: Array = (
        f.num_realizations * f.unique_lines_read_per_realization * c[..., 5]
        + f.num_realizations * f.unique_bytes_read_per_realization * c[..., 6]
        + f.num_vectors * f.scalar_loads_per_vector * c[..., 7]
        + f.num_scalars * f.scalar_loads_per_scalar * c[..., 8]
        + f.num_vectors * f.vector_loads_per_vector * c[..., 9]
        + per_point[0] * (f.num_scalars * c[..., 10] + f.num_vectors * c[..., 11])
        + per_point[1] * (f.num_scalars * c[..., 12] + f.num_vectors * c[..., 13])
        + tasks * f.unique_bytes_read_per_task * c[..., 14]
        + tasks * f.unique_lines_read_per_task * c[..., 15]
    )
    return result


def _cpu_stores(f: _Named, c: Array, first: bool) -> Array:
    row = np.maximum(1.0, f.innermost_bytes_at_task)
    lines = f.inner_parallelism * (f.bytes_at_task / row)
    parallel = f.inner_parallelism > 1
    last = np.zeros(parallel.shape, dtype=bool)
    last[..., 0] = first  # the output's last stage, which nothing reads
    per_line = np.where(parallel, c[..., 16], np.where(last, c[..., 17], c[..., 18]))
    per_byte = np.where(parallel, c[..., 19], np.where(last, c[..., 20], c[..., 21]))
    stores = f.num_realizations * (lines * per_line + f.bytes_at_realization * per_byte)
    shared_lines = np.where(parallel, c[..., 22] * (f.num_vectors + f.num_scalars) / row, 0.0)
    at_once = np.minimum(f.inner_parallelism, PAGE_BYTES / row)
    faults = f.bytes_at_production * at_once * f.inner_parallelism * f.outer_parallelism
    result: Array = stores + shared_lines + faults * c[..., 23]
    return result


def predicted_gpu(
    weights: Weights, algorithm: Array, schedule: Array, sms: int, as_released: bool = True
) -> Array:
    """Return the run times that the network of Anderson et al. 2021 predicts.

    Args:
        weights: Weights for 73 schedule features.
        algorithm: Shape (stages, 40, 7).
        schedule: Shape (N, stages, 73).
        sms: Streaming multiprocessors of the GPU.
        as_released: Whether loads per thread are multiplied by the threads of the launch, and
            shared transactions are not divided by their efficiency, as in the released code. The
            paper multiplies the former by the number of realisations, divides the latter, and has
            no coefficients for transactions.

    Returns:
        Milliseconds, shape (N,).
    """

    def terms(c: Array, values: Array, first: bool) -> Array:
        return _gpu_terms(_Named(gpu_features.NAMES, values), c, sms, as_released)

    return _summed(terms, weights, algorithm, schedule)


def stage_times_gpu(weights: Weights, algorithm: Array, schedule: Array, sms: int) -> Array:
    """Return the parts of `predicted_gpu` by stage, as released.

    Args:
        weights: Weights for 73 schedule features.
        algorithm: Shape (stages, 40, 7).
        schedule: Shape (N, stages, 73).
        sms: Streaming multiprocessors of the GPU.

    Returns:
        Milliseconds, shape (N, stages).
    """
    found = coefficients(weights, algorithm, schedule)
    named = _Named(gpu_features.NAMES, schedule)
    result: Array = _gpu_terms(named, found, sms, as_released=True) * MILLISECONDS
    return result


def _gpu_terms(f: _Named, c: Array, sms: int, as_released: bool) -> Array:
    """Return the cost of each stage."""
    inlined = f.inlined_calls != 0
    blocks = np.maximum(1.0, f.num_blocks)
    tasks = np.maximum(1.0, f.inner_parallelism * f.outer_parallelism)
    points = blocks * f.num_threads_per_block * f.points_computed_per_thread
    compute = np.where(
        inlined,
        f.num_scalars * c[..., 3] + points * c[..., 4],
        f.num_scalars * c[..., 1] + points * c[..., 19],
    )
    compute *= _idle(tasks, sms) / np.where(inlined, 1.0, 1.0 - f.idle_lane_wastage)
    loads = _gpu_loads(f, c, blocks, as_released)
    loads += tasks * f.unique_bytes_read_per_task * c[..., 14]
    loads += tasks * f.unique_lines_read_per_task * c[..., 15]
    row = np.maximum(1.0, f.global_innermost_bytes_at_task)
    false_sharing = np.where(f.inner_parallelism > 1, c[..., 22] * f.num_scalars / row, 0.0)
    total = compute + loads + _transactions(f, c, blocks, inlined, as_released)
    result: Array = total + false_sharing + _overheads(f, c) + f.working_set * c[..., 9]
    return result


def _gpu_loads(f: _Named, c: Array, blocks: Array, as_released: bool) -> Array:
    threads = blocks * f.num_threads_per_block if as_released else f.num_realizations
    result: Array = f.num_realizations * (
        f.unique_global_lines_read_per_realization * c[..., 5]
        + f.unique_shared_lines_read_per_realization * c[..., 16]
        + f.unique_register_lines_read_per_realization * c[..., 8]
        + f.unique_global_bytes_read_per_realization * c[..., 6]
        + f.unique_shared_bytes_read_per_realization * c[..., 20]
        + f.unique_register_bytes_read_per_realization * c[..., 7]
    )
    result += threads * (
        f.unique_global_lines_read_per_thread * c[..., 18]
        + f.unique_shared_lines_read_per_thread * c[..., 17]
        + f.unique_register_lines_read_per_thread * c[..., 2]
        + f.unique_global_bytes_read_per_thread * c[..., 13]
        + f.unique_shared_bytes_read_per_thread * c[..., 11]
        + f.unique_register_bytes_read_per_thread * c[..., 0]
    )
    result += f.num_scalars * f.unique_bytes_read_per_point * c[..., 10]
    result += f.num_scalars * f.unique_lines_read_per_point * c[..., 12]
    return result


def _transactions(f: _Named, c: Array, blocks: Array, inlined: Array, as_released: bool) -> Array:
    """Return the cost of memory transactions."""

    def each(count: Array, efficiency: Array, place: int, divided: bool) -> Array:
        lost = np.where(inlined, 1.0, efficiency) if divided else 1.0
        weight = c[..., place] if as_released or place not in (27, 28) else 1.0
        found: Array = blocks * count * weight / lost
        return found

    loads = each(f.num_global_mem_loads_per_block, f.global_mem_load_efficiency, 28, True)
    loads += each(
        f.num_shared_mem_loads_per_block, f.shared_mem_load_efficiency, 27, not as_released
    )
    stores = each(f.num_shared_mem_stores_per_block, f.shared_mem_store_efficiency, 29, False)
    stores += each(f.num_global_mem_stores_per_block, f.global_mem_store_efficiency, 21, True)
    return loads + stores
