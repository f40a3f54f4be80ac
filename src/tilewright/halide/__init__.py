"""halide."""
