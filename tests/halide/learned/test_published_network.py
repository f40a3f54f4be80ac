"""The published networks: costs worked by hand, files of weights, and the plugin's own cost."""

import math
import struct

import numpy as np
import pytest
from plugin_runs import printed_cost

from tilewright.errors import TilewrightError
from tilewright.halide.schedulers.halide_autoschedulers import plugin_path
from tilewright.halide.schedulers.learned.published import cpu_features, gpu_features, network
from tilewright.halide.schedulers.learned.published.weights import (
    Weights,
    WeightsError,
    embedded_weights,
    load_weights,
    parse_weights,
)

DEFINITION = np.zeros((1, 40, 7))


def constant(coefficients, features=39):
    """Weights with which every coefficient is constant: those given, the others 0."""
    bias = np.zeros(32)
    for place, value in coefficients.items():
        bias[place] = value
    return Weights(
        np.zeros((8, 40, 7)),
        np.zeros(8),
        np.zeros((24, features)),
        np.zeros(24),
        np.zeros((32, 32)),
        bias,
    )


def stage(**values):
    """One row of one stage with these features; no other work."""
    found = np.zeros((1, 1, 39))
    for name, value in {"inner_parallelism": 1, "outer_parallelism": 1, **values}.items():
        found[0, 0, cpu_features.NAMES.index(name)] = value
    return found


def cost(coefficients, cores=4, **features):
    """The cost of one stage in the units of the terms."""
    weights = constant(coefficients)
    return network.predicted_cpu(weights, DEFINITION, stage(**features), cores)[0] * 1e9


@pytest.mark.parametrize(
    ("coefficients", "features", "expected"),
    [
        # 8 lanes, 10 vectors, 3 scalars; inlined Funcs have coefficients of their own.
        ({0: 2, 1: 5}, {"vector_size": 8, "num_vectors": 10, "num_scalars": 3}, 175),
        ({2: 2, 3: 5}, {"vector_size": 8, "num_vectors": 10, "num_scalars": 3}, 0),
        (
            {2: 2, 3: 5},
            {"vector_size": 8, "num_vectors": 10, "num_scalars": 3, "inlined_calls": 1},
            175,
        ),
        # 6 tasks on 4 cores take 2 rounds instead of 1.5.
        ({1: 3}, {"num_scalars": 1, "inner_parallelism": 6}, 4),
        # Less than one task for each core is not counted as idle cores, but rounded up.
        ({1: 3}, {"num_scalars": 1}, 3),
        ({5: 2}, {"num_realizations": 3, "unique_lines_read_per_realization": 7}, 42),
        ({6: 2}, {"num_realizations": 3, "unique_bytes_read_per_realization": 7}, 42),
        ({9: 2}, {"num_vectors": 3, "vector_loads_per_vector": 7}, 42),
        ({13: 2}, {"num_vectors": 3, "unique_lines_read_per_vector": 7}, 42),
        ({15: 2}, {"unique_lines_read_per_task": 7, "inner_parallelism": 3}, 42),
        # Stores count twice: 2 lines of 16 bytes and 32 bytes, of the output's last stage.
        ({17: 5}, {"num_realizations": 1, "bytes_at_task": 32, "innermost_bytes_at_task": 16}, 20),
        ({20: 5}, {"num_realizations": 1, "bytes_at_realization": 32}, 320),
        # Of a parallel stage: 4 tasks with 2 lines each.
        (
            {16: 5},
            {
                "num_realizations": 1,
                "bytes_at_task": 32,
                "innermost_bytes_at_task": 16,
                "inner_parallelism": 4,
            },
            80,
        ),
        # Page faults: 100 bytes, 4096 / 2048 tasks at once on a page, 4 tasks.
        (
            {23: 1},
            {
                "bytes_at_production": 100,
                "innermost_bytes_at_task": 2048,
                "inner_parallelism": 4,
            },
            2 * 100 * 2 * 4,
        ),
        ({24: 2}, {"num_realizations": 7}, 14),
        ({25: 2, 26: 3}, {"num_productions": 5, "inner_parallelism": 3}, 5 * (2 + 2 * 3)),
        ({25: 2, 26: 3}, {"num_productions": 5}, 0),
        ({27: 2}, {"working_set": 7}, 14),
    ],
)
def test_terms_worked_by_hand(coefficients, features, expected):
    assert cost(coefficients, **features) == pytest.approx(expected)


def gpu_cost(coefficients, as_released=True, **features):
    """The cost of one stage on a GPU with 4 SMs in the units of the terms."""
    values = {"inner_parallelism": 1, "outer_parallelism": 1, **features}
    found = np.zeros((1, 1, 73))
    for name in gpu_features.NAMES:
        place = gpu_features.NAMES.index(name)
        found[0, 0, place] = values.get(name, gpu_features.DEFAULTS.get(name, 0.0))
    weights = constant(coefficients, 73)
    cost = network.predicted_gpu(weights, DEFINITION, found, 4, as_released)
    return cost[0] * 1e9


LAUNCH = {"num_blocks": 2, "num_threads_per_block": 3, "points_computed_per_thread": 5}
LOADS = {"num_blocks": 2, "num_global_mem_loads_per_block": 6, "global_mem_load_efficiency": 0.5}
SHARED = {"num_blocks": 2, "num_shared_mem_loads_per_block": 6, "shared_mem_load_efficiency": 0.5}


@pytest.mark.parametrize(
    ("coefficients", "features", "expected"),
    [
        ({19: 7}, {**LAUNCH, "idle_lane_wastage": 0.5}, 2 * 3 * 5 * 7 / 0.5),
        ({4: 7}, {**LAUNCH, "idle_lane_wastage": 0.5, "inlined_calls": 1}, 2 * 3 * 5 * 7),
        ({19: 7}, {**LAUNCH, "inner_parallelism": 6}, 2 * 3 * 5 * 7 * 2 / 1.5),
        ({18: 7}, {**LAUNCH, "unique_global_lines_read_per_thread": 4}, 2 * 3 * 4 * 7),
        ({16: 7}, {"num_realizations": 2, "unique_shared_lines_read_per_realization": 3}, 42),
        ({12: 7}, {"num_scalars": 2, "unique_lines_read_per_point": 3}, 42),
        ({14: 7}, {"unique_bytes_read_per_task": 3, "inner_parallelism": 2}, 42),
        ({28: 7}, LOADS, 2 * 6 * 7 / 0.5),
        ({28: 7}, {**LOADS, "inlined_calls": 1}, 2 * 6 * 7),
        ({27: 7}, SHARED, 2 * 6 * 7),
        ({9: 7}, {"working_set": 6}, 42),
        ({23: 7}, {"expr_branching": 6}, 0),  # computed and not used
    ],
)
def test_terms_of_a_gpu_worked_by_hand(coefficients, features, expected):
    assert gpu_cost(coefficients, **features) == pytest.approx(expected)


def test_terms_of_a_gpu_as_the_text_has_them():
    assert gpu_cost({}, False, **SHARED) == pytest.approx(2 * 6 / 0.5)
    assert gpu_cost({}, False, **LOADS) == pytest.approx(2 * 6 / 0.5)
    per_thread = {**LAUNCH, "num_realizations": 9, "unique_global_lines_read_per_thread": 4}
    assert gpu_cost({18: 7}, False, **per_thread) == pytest.approx(9 * 4 * 7)


def test_stores_count_once_where_the_release_is_not_followed():
    weights = constant({20: 5})
    found = stage(num_realizations=1, bytes_at_realization=32)
    once = network.predicted_cpu(weights, DEFINITION, found, 4, as_released=False)
    assert once[0] == pytest.approx(160e-9)


def test_coefficients_worked_by_hand():
    weights = constant({})
    weights.schedule[0, 0] = 2.0  # of log(1 + num_realizations)
    weights.trunk[3, 8] = 5.0
    weights.algorithm[0, 4, 5] = 0.0  # a sigmoid of one half
    weights.trunk[4, 0] = 3.0
    weights.trunk[5, 0] = -3.0  # rectified
    definition = np.zeros((1, 40, 7))
    definition[0, 4, 5] = 6
    schedule = stage(num_realizations=math.e - 1)
    found = network.coefficients(weights, definition, schedule)
    assert found.shape == (1, 1, 32)
    assert found[0, 0, 3] == pytest.approx(10)
    assert found[0, 0, 4] == pytest.approx(9)
    assert found[0, 0, 5] == 0


def test_weights_for_other_features_are_refused():
    with pytest.raises(TilewrightError, match="73 schedule features, but there are 39"):
        network.coefficients(constant({}, 73), DEFINITION, stage())


def test_a_stage_that_is_not_the_last_has_coefficients_of_its_own():
    two = np.concatenate([stage(), stage(num_realizations=1, bytes_at_realization=32)], axis=1)
    definitions = np.zeros((2, 40, 7))
    for place, expected in ((20, 0), (21, 320e-9)):
        found = network.predicted_cpu(constant({place: 5}), definitions, two, 4)
        assert found[0] == pytest.approx(expected)


def written(weights):
    """The bytes of a file of weights."""
    data = struct.pack("<4I", 0x68776631, 3, 3, 6)
    for array in (
        weights.algorithm,
        weights.algorithm_bias,
        weights.schedule,
        weights.schedule_bias,
        weights.trunk,
        weights.trunk_bias,
    ):
        data += struct.pack(f"<I{array.ndim}I", array.ndim, *array.shape)
        data += array.astype("<f4").tobytes(order="F")
    return data


def test_a_file_of_weights_is_read(tmp_path):
    random = np.random.default_rng(0)
    weights = constant({})
    for array in (weights.algorithm, weights.schedule, weights.trunk):
        array[...] = random.normal(size=array.shape)
    path = tmp_path / "some.weights"
    path.write_bytes(written(weights))
    found = load_weights(path)
    np.testing.assert_allclose(found.algorithm, weights.algorithm, rtol=1e-6)
    np.testing.assert_allclose(found.schedule, weights.schedule, rtol=1e-6)
    np.testing.assert_allclose(found.trunk, weights.trunk, rtol=1e-6)
    assert (found.features, found.size) == (39, 4264)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[:-1], "ends within its weights"),
        (lambda data: data + b"1", "1 bytes after its weights"),
        (lambda data: b"1234" + data[4:], "not a file of weights"),
        (lambda data: data[:4] + struct.pack("<I", 2) + data[8:], r"versions \[2, 3\]"),
        (lambda data: b"", "ends within its weights"),
        (lambda data: data[:16] + struct.pack("<I", 9) + data[20:], "has 9 dimensions"),
        (lambda data: data[:20] + struct.pack("<I", 7) + data[24:], "ends|shapes|dimensions"),
    ],
)
def test_other_files_are_refused(change, said):
    with pytest.raises(WeightsError, match=said):
        parse_weights(change(written(constant({}))))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(WeightsError, match="missing"):
        load_weights(tmp_path / "missing")


def test_the_cost_is_that_of_the_plugin():
    plugin = plugin_path("Adams2019")
    target = "x86-64-linux-avx-avx2-f16c-fma-sse41"
    parameters = '{"parallelism": "8"}'
    cost, definitions, schedule = printed_cost("Adams2019", target, parameters, 39)
    weights = embedded_weights(plugin)
    found = network.predicted_cpu(weights, definitions, schedule, 8)
    assert found[0] == pytest.approx(cost, rel=1e-4)
