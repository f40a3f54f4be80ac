"""The CPU this process runs on, as Linux reports it; common values on other systems."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from tilewright.machines.cpu import Cache, CpuMachine

_KIB = 1024
_ASSUMED_CACHES = (
    Cache(1, 32 * _KIB, 64, 1),
    Cache(2, 512 * _KIB, 64, 1),
    Cache(3, 8192 * _KIB, 64, 4),
)
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}

# names of extensions in /proc/cpuinfo, and ours
_X86_FLAGS = {
    "sse4_1": "sse4.1",
    "avx": "avx",
    "f16c": "f16c",
    "fma": "fma",
    "avx2": "avx2",
    "avx512f": "avx512",
}
_ARM_FLAGS = {"asimd": "neon", "neon": "neon", "asimddp": "dotprod", "sve": "sve", "sve2": "sve2"}
_VECTOR_BITS = {"avx512": 512, "avx2": 256, "avx": 256, "sse4.1": 128, "neon": 128, "sve": 128}


def detect_cpu(root: Path = Path("/")) -> CpuMachine:
    """Describe the CPU this process may use.

    `root` is the folder of ``proc`` and ``sys``. A value that they lack is replaced by a common one
    and named in the result's `assumed`.
    """
    info = _read(root / "proc/cpuinfo") or ""
    architecture = _architecture()
    flags = _flags(info)
    known = _ARM_FLAGS if architecture.startswith("arm") else _X86_FLAGS
    isa = tuple(dict.fromkeys(name for flag, name in known.items() if flag in flags))
    assumed = []
    caches = _caches(root / "sys/devices/system/cpu")
    if not caches:
        assumed.append("caches")
        caches = _ASSUMED_CACHES
    if not isa:
        assumed.append("isa")
        # Every 64-bit machine has vectors of 128 bits.
        isa = ("neon",) if architecture.startswith("arm") else ("sse2",)
    return CpuMachine(
        name=_name(info, architecture),
        architecture=architecture,
        cores=_cores(root),
        isa=isa,
        vector_bits=max(_VECTOR_BITS.get(name, 128) for name in isa),
        caches=caches,
        memory_bytes=_memory_bytes(root),
        clock_hz=_clock(root, info),
        assumed=tuple(assumed),
        vendor=_field(info, "vendor_id", "CPU implementer") or "",
        family=_number(_field(info, "cpu family", "CPU architecture")),
        model=_number(_field(info, "model", "CPU part")),
    )


def _read(path: Path) -> str | None:
    """Return a small file's text, or None if the system lacks or hides it."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _architecture() -> str:
    machine = platform.machine().lower()
    names = {"x86_64": "x86-64", "amd64": "x86-64", "aarch64": "arm-64", "arm64": "arm-64"}
    return names.get(machine, machine or "unknown")


def _field(info: str, *names: str) -> str | None:
    for name in names:
        found = re.search(rf"^{re.escape(name)}\s*:\s*(.+)$", info, re.MULTILINE)
        if found:
            return found.group(1).strip()
    return None


def _number(text: str | None) -> int | None:
    """Return a decimal or hexadecimal number, None for anything else."""
    try:
        return None if text is None else int(text, 0)
    except ValueError:
        return None


def _flags(info: str) -> set[str]:
    return set((_field(info, "flags", "Features") or "").split())


def _name(info: str, architecture: str) -> str:
    name = _field(info, "model name", "Hardware", "cpu model") or platform.processor()
    return name or f"unknown {architecture} CPU"


def _clock(root: Path, info: str) -> float | None:
    """Return the highest clock that the system reports, or else the present one."""
    khz = _read(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    if khz and khz.isdigit():
        return int(khz) * 1e3
    mhz = _field(info, "cpu MHz")
    try:
        return float(mhz) * 1e6 if mhz else None
    except ValueError:
        return None


def _memory_bytes(root: Path) -> int | None:
    found = re.search(r"^MemTotal:\s*(\d+) kB", _read(root / "proc/meminfo") or "", re.MULTILINE)
    return int(found.group(1)) * _KIB if found else None


def _caches(cpus: Path) -> tuple[Cache, ...]:
    """Return the data and unified caches of the first CPU that the system describes, by level."""
    found: dict[int, Cache] = {}
    for index in sorted(cpus.glob("cpu[0-9]*/cache/index*")):
        level, kind, size = (_read(index / leaf) for leaf in ("level", "type", "size"))
        if not level or not level.isdigit() or kind not in ("Data", "Unified"):
            continue
        match = re.fullmatch(r"(\d+)([KMG]?)", size or "")
        if not match or int(match.group(1)) == 0 or int(level) in found:
            continue
        line = _read(index / "coherency_line_size") or ""
        found[int(level)] = Cache(
            level=int(level),
            bytes=int(match.group(1)) * _UNITS[match.group(2)],
            line_bytes=int(line) if line.isdigit() and int(line) else 64,
            shared_by=max(1, len(parse_cpu_list(_read(index / "shared_cpu_list") or ""))),
        )
    return tuple(found[level] for level in sorted(found))


def parse_cpu_list(text: str) -> list[int]:
    """Parse CPU numbers in the kernel's list format.

    >>> parse_cpu_list("0-2,8")
    [0, 1, 2, 8]
    """
    cpus: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match:
            first = int(match.group(1))
            cpus.extend(range(first, int(match.group(2) or first) + 1))
    return cpus


def _cores(root: Path) -> int:
    """Return the hardware threads by affinity, limited by the container's quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = cgroup_cpus(root)
    return cores if quota is None else max(1, min(cores, int(quota)))


def cgroup_cpus(root: Path = Path("/")) -> float | None:
    """Return the number of CPUs that the control groups allow, None if they set no limit.

    Reads version 2 (``cpu.max``) and version 1 (``cpu.cfs_quota_us``); the tightest limit from the
    process's group up to the root applies.
    """
    mount = root / "sys/fs/cgroup"
    quotas: list[float] = []
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        _, controllers, group = parts
        if controllers == "":
            bases = [mount, mount / "unified"]
        elif "cpu" in controllers.split(","):
            bases = [mount / "cpu", mount / controllers]
        else:
            continue
        own = Path(group.lstrip("/"))
        for base in bases:
            for relative in (own, *own.parents):
                quotas += _quota(base / relative)
    return min(quotas, default=None)


def _quota(group: Path) -> list[float]:
    text = _read(group / "cpu.max")
    if text is None:
        text = f"{_read(group / 'cpu.cfs_quota_us')} {_read(group / 'cpu.cfs_period_us')}"
    match = re.fullmatch(r"(\d+)\s+(\d+)", text)
    if not match or int(match.group(1)) == 0 or int(match.group(2)) == 0:
        return []
    return [int(match.group(1)) / int(match.group(2))]
