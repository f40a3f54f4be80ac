"""Analyses of algorithms and schedules.

`bounds` infers regions and `inlining` substitutes definitions. `scheduled_nest` computes every loop
and allocation of a schedule, and `gpu_launches` the kernels. `summaries` has the counts and
footprints that the cost models use.
"""
