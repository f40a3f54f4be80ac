"""The analytic scheduler for CPUs: vector lanes, caches and cores."""
