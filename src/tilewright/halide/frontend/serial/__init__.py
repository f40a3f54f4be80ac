"""Read and write Halide's serialisation, a FlatBuffer, which may come from an untrusted source."""
