"""Checks whether Halide accepts a schedule, and at which sizes of the output."""
