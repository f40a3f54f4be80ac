"""Which schedules Halide accepts, and at which sizes of the output."""
