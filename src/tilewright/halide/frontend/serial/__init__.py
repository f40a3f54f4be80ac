"""Reading Halide's serialisation, a FlatBuffer, without trusting a byte of it."""
