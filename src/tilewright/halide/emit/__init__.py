"""Convert a schedule to Halide's directives, apply them to a pipeline or print them as code."""
