"""Conformance checks for machine descriptions."""

from __future__ import annotations

from tilewright.errors import TilewrightError
from tilewright.machines import (
    CpuMachine,
    GpuMachine,
    Machine,
    machine_from_json,
    machine_to_json,
)


def check_machine(machine: Machine) -> None:
    """Check a machine description: it can be stored, and its sizes fit together.

    Args:
        machine: the machine of a CPU or a GPU.

    Raises:
        AssertionError: the description fails a check; the message names it.
    """
    try:
        again = machine_from_json(machine_to_json(machine))
    except (TilewrightError, TypeError, ValueError) as error:
        raise AssertionError(f"{machine.name!r} cannot be stored and read again: {error}") from None
    assert again == machine, f"{machine.name!r} is read again as another machine: {again}"
    assert hash(again) == hash(machine), "equal machines must have equal hashes"
    if isinstance(machine, GpuMachine):
        _check_gpu(machine)
    else:
        _check_cpu(machine)


def _check_cpu(machine: CpuMachine) -> None:
    bits = machine.vector_bits
    assert bits == 0 or _is_power_of_two(bits), f"vector_bits is {bits}, not a power of two"
    levels = [cache.level for cache in machine.caches]
    assert levels == sorted(set(levels)), f"caches are not ordered by level: {levels}"
    for cache in machine.caches:
        assert _is_power_of_two(cache.line_bytes), (
            f"a line of the level-{cache.level} cache has {cache.line_bytes} bytes, not a power "
            "of two"
        )
    for inner, outer in zip(machine.caches, machine.caches[1:], strict=False):
        assert inner.shared_by <= outer.shared_by, (
            f"the level-{inner.level} cache is shared by more threads ({inner.shared_by}) than "
            f"the level-{outer.level} cache ({outer.shared_by})"
        )


def _check_gpu(machine: GpuMachine) -> None:
    assert _is_power_of_two(machine.warp_size), f"warp_size is {machine.warp_size}"
    ordered = [
        ("max_threads_per_block", "max_threads_per_sm"),
        ("registers_per_block", "registers_per_sm"),
        ("max_registers_per_thread", "registers_per_block"),
        ("shared_per_block", "shared_per_sm"),
        ("shared_per_block_optin", "shared_per_sm"),
    ]
    for less, more in ordered:
        small, large = getattr(machine, less), getattr(machine, more)
        assert small <= large, f"{less} ({small}) is more than {more} ({large})"
    threads = machine.max_warps_per_sm * machine.warp_size
    assert threads >= machine.max_threads_per_sm, (
        f"{machine.max_warps_per_sm} warps of {machine.warp_size} are fewer than "
        f"max_threads_per_sm ({machine.max_threads_per_sm})"
    )
    capability = machine.compute_capability
    assert machine.api != "cuda" or capability is not None, (
        "a CUDA device needs its compute_capability"
    )


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
