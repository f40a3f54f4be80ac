"""Reports on Halide schedules: plain data, short descriptions, and HTML for notebooks."""
