import ctypes

import pytest

from tilewright.errors import TilewrightError
from tilewright.machines import detect_cuda, detect_gpu, gpu

H200 = {
    1: 1024, 8: 49152, 10: 32, 12: 65536, 13: 1_980_000, 16: 132, 36: 3_201_000, 37: 6144,
    38: 60 << 20, 39: 2048, 75: 9, 76: 0, 81: 233472, 82: 65536, 97: 232448, 106: 32, 111: 1024,
}  # fmt: skip


class FakeDriver:
    """Answers as libcuda does for a list of devices."""

    def __init__(self, devices, status=0):
        self.devices, self.status = devices, status

    def cuInit(self, flags):
        return self.status

    def cuDeviceGetCount(self, count):
        count._obj.value = len(self.devices)
        return 0

    def cuDeviceGet(self, device, ordinal):
        device._obj.value = ordinal
        return 0

    def cuDeviceGetName(self, text, size, device):
        text.value = self.devices[device.value][0].encode()
        return 0

    def cuDeviceGetAttribute(self, value, number, device):
        attributes = self.devices[device.value][1]
        if number not in attributes:
            return 1
        value._obj.value = attributes[number]
        return 0


def _with_driver(monkeypatch, driver):
    monkeypatch.setattr("tilewright.machines.detect_gpu._cuda_driver", lambda: driver)


def test_a_device_is_described_by_its_attributes(monkeypatch):
    _with_driver(monkeypatch, FakeDriver([("NVIDIA H200", H200)]))
    (machine,) = detect_cuda()
    table = gpu("h200")
    for field in ("sms", "max_warps_per_sm", "shared_per_block_optin", "compute_capability"):
        assert getattr(machine, field) == getattr(table, field)
    assert machine.l2_bytes == 60 << 20
    assert machine.memory_bandwidth == pytest.approx(4.9e12, rel=0.01)
    assert machine.halide_target == "host-cuda-cuda_capability_86"


def test_an_old_driver_leaves_gaps_that_the_table_fills(monkeypatch):
    attributes = {k: v for k, v in H200.items() if k < 90 and k not in (36, 37, 13)}
    _with_driver(monkeypatch, FakeDriver([("GPU", attributes)]))
    (machine,) = detect_cuda()
    assert machine.max_blocks_per_sm == 32
    assert machine.reserved_shared_per_block == 1024
    assert machine.memory_bandwidth is None
    assert machine.clock_hz is None


def test_a_capability_of_the_future_takes_what_it_tells(monkeypatch):
    _with_driver(monkeypatch, FakeDriver([("GPU", {**H200, 75: 99, 39: 4096})]))
    (machine,) = detect_cuda()
    assert machine.compute_capability == (99, 0)
    assert machine.max_warps_per_sm == 128


def test_a_capability_too_old_is_refused(monkeypatch):
    _with_driver(monkeypatch, FakeDriver([("Fermi", {**H200, 75: 2, 76: 1})]))
    with pytest.raises(TilewrightError, match=r"Fermi has compute capability 2\.1"):
        detect_cuda()


def test_no_driver_and_no_device(monkeypatch):
    _with_driver(monkeypatch, None)
    assert detect_cuda() == []
    _with_driver(monkeypatch, FakeDriver([], status=100))
    assert detect_cuda() == []


def test_a_missing_library_means_no_driver(monkeypatch):
    def refuse(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    assert detect_gpu._cuda_driver() is None
