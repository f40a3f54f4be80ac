"""Limits for candidates that are known to end, however busy the machine is."""

from tilewright.measure import RunLimits

PATIENT = RunLimits(build_seconds=300, run_seconds=300, memory_bytes=2 << 30)
