"""Check whether Halide accepts a schedule, and at which output sizes it is correct."""
