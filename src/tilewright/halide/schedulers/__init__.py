"""Where schedules come from: naive, analytic, and Halide's autoschedulers as peers."""
