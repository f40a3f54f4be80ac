"""A schedule as Halide's directives: applied to a pipeline, or printed as Python or C++."""
