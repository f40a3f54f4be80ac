"""Schedulers: naive, analytic, learned, and Halide's autoschedulers for comparison."""
