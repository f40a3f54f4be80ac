"""Functions to be measured as kernels: well-behaved for some n, not at all for others."""

import ctypes
import os
import time


def make(n, rng):
    return {"n": n}


def right(n):
    return float(n)


def breaks(n):
    """Crashes, hangs, takes all memory, raises, leaves, or is wrong, by what n is."""
    kind = n % 8
    if kind == 0:
        ctypes.string_at(0)
    if kind == 1:
        time.sleep(900)
    if kind == 2:
        blocks = []
        while True:
            blocks.append(b"x" * (64 << 20))
    if kind == 3:
        raise ValueError("three")
    if kind == 4:
        os._exit(0)
    return float(n) + (kind == 5)


def quick(n):
    return float(n)
