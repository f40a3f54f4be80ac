"""Other tuners' interfaces and files: Optuna, Kernel Tuner, HyperMapper, T4."""
