import os
import platform

import pytest

from tilewright.machines import Cache, CpuMachine, detect_cpu
from tilewright.machines.bandwidth import measure_bandwidth, with_bandwidth
from tilewright.machines.detect_cpu import cgroup_cpus, parse_cpu_list

X86 = """processor\t: 0
model name\t: Some CPU
cpu MHz\t\t: 2500.5
flags\t\t: fpu sse4_1 avx f16c fma avx2 avx512f
"""


def _write(root, files):
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n")


def _cache(level, kind, size, cpus, index, line="64"):
    base = f"sys/devices/system/cpu/cpu0/cache/index{index}"
    return {
        f"{base}/level": str(level),
        f"{base}/type": kind,
        f"{base}/size": size,
        f"{base}/shared_cpu_list": cpus,
        f"{base}/coherency_line_size": line,
    }


@pytest.fixture
def x86(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


@pytest.mark.usefixtures("x86")
def test_reads_what_linux_tells(tmp_path):
    _write(
        tmp_path,
        {
            "proc/cpuinfo": X86,
            "proc/meminfo": "MemTotal:  1000 kB\nMemFree:  1 kB",
            **_cache(1, "Data", "48K", "0-1", 0),
            **_cache(1, "Instruction", "32K", "0-1", 1),
            **_cache(2, "Unified", "2M", "0-1", 2),
            **_cache(3, "Unified", "36864K", "0-15,32-47", 3, line="128"),
        },
    )
    machine = detect_cpu(tmp_path)
    assert machine.name == "Some CPU"
    assert machine.architecture == "x86-64"
    assert machine.cores == 8
    assert machine.isa == ("sse4.1", "avx", "f16c", "fma", "avx2", "avx512")
    assert machine.vector_bits == 512
    assert machine.lanes(32) == 16
    assert machine.lanes(1024) == 1
    assert machine.clock_hz == pytest.approx(2.5005e9)
    assert machine.memory_bytes == 1024000
    assert machine.caches == (
        Cache(1, 48 * 1024, 64, 2),
        Cache(2, 2 << 20, 64, 2),
        Cache(3, 36 << 20, 128, 32),
    )
    assert machine.cache_bytes(2) == 2 << 20
    assert machine.cache_bytes(4) == 0
    assert machine.cache_bytes_per_core(2) == 1 << 20
    # 32 threads share it, but this process can use eight of them
    assert machine.cache_bytes_per_core(3) == (36 << 20) // 8
    assert machine.last_level_bytes == 36 << 20
    assert machine.assumed == ()


@pytest.mark.usefixtures("x86")
def test_a_bare_system_gets_common_values_and_says_so(tmp_path):
    machine = detect_cpu(tmp_path)
    assert machine.cores == 8
    assert machine.vector_bits == 128
    assert [cache.level for cache in machine.caches] == [1, 2, 3]
    assert machine.clock_hz is None
    assert machine.memory_bytes is None
    assert set(machine.assumed) == {"caches", "isa"}


@pytest.mark.usefixtures("x86")
@pytest.mark.parametrize("size", ["0K", "", "many", "-3K"])
def test_nonsense_cache_sizes_are_passed_over(tmp_path, size):
    _write(
        tmp_path,
        {
            "proc/cpuinfo": X86,
            **_cache(1, "Data", size, "0", 0),
            **_cache(2, "Unified", "1M", "0", 1),
        },
    )
    assert detect_cpu(tmp_path).caches == (Cache(2, 1 << 20, 64, 1),)


def test_arm(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(platform, "processor", lambda: "")
    _write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd asimddp"})
    machine = detect_cpu(tmp_path)
    assert machine.architecture == "arm-64"
    assert machine.isa == ("neon", "dotprod")
    assert machine.vector_bits == 128
    assert machine.name == "unknown arm-64 CPU"


@pytest.mark.usefixtures("x86")
@pytest.mark.parametrize(
    ("files", "cpus", "cores"),
    [
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "250000 100000"}, 2.5, 2),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "50000 100000"}, 0.5, 1),
        ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": "max 100000"}, None, 8),
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/b/cpu.max": "400000 100000",
                "sys/fs/cgroup/a/cpu.max": "300000 100000",
            },
            3.0,
            3,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/job",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "50000",
            },
            4.0,
            4,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/job",
                "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "50000",
            },
            None,
            8,
        ),
        ({"proc/self/cgroup": "garbage"}, None, 8),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "1600000 100000"}, 16.0, 8),
    ],
)
def test_control_group_limits(tmp_path, files, cpus, cores):
    _write(tmp_path, files)
    assert cgroup_cpus(tmp_path) == cpus
    assert detect_cpu(tmp_path).cores == cores


def test_parse_cpu_list():
    assert parse_cpu_list("0-3,5,8-9") == [0, 1, 2, 3, 5, 8, 9]
    assert parse_cpu_list("") == []
    assert parse_cpu_list("x,3") == [3]


def test_this_machine():
    machine = detect_cpu()
    assert 1 <= machine.cores <= (os.cpu_count() or 1)
    assert machine.vector_bits >= 128
    assert machine.caches
    assert machine.line_bytes >= 16


def test_bandwidth_is_measured():
    machine = CpuMachine("small", "x86-64", 1, (), 128, (Cache(1, 1024, 64, 1),))
    assert measure_bandwidth(machine, seconds=0.01) > 1e6
    assert machine.memory_bandwidth is None
    measured = with_bandwidth(machine, seconds=0.01).memory_bandwidth
    assert measured is not None
    assert measured > 1e6
