"""The analytic scheduler for CPUs: tiles for caches, blocks for registers, tasks for cores."""
