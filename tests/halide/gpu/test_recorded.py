"""Recorded launches are paired with the kernels of a schedule."""

from tilewright.halide.schedulers.analytic.gpu.recorded import matched


class Part:
    """What pairing needs of a kernel."""

    def __init__(self, func, stage, blocks, block):
        self.func, self.stage, self.blocks, self.block = func, stage, blocks, block


def launch(name, blocks, cycles):
    return {
        "kernel": f"_kernel_{name}_s1_y_block_id_y",
        "blocks": [blocks, 1, 1],
        "threads": [32, 1, 1],
        "cycles": cycles,
    }


PARTS = [
    Part("f$3", 1, 4.0, (32, 1, 1)),
    Part("f$5", 1, 9.0, (32, 1, 1)),
    Part("g", 0, 1.0, (1, 1, 1)),
]


def test_kernels_are_paired_by_name_stage_and_launch():
    found = matched(PARTS, [launch("f__1", 9, 5), launch("f__2", 4, 7), launch("h", 1, 9)])
    assert [each and each["cycles"] for each in found] == [7, 5, None]  # no kernel is called g


def test_kernels_without_a_launch_have_none():
    found = matched(PARTS, [launch("f__1", 9, 5)])
    assert sum(each is not None for each in found) <= 1
    assert matched(PARTS, []) == [None, None, None]
