"""Schedulers: naive, analytic, and Halide's autoschedulers as peers."""
