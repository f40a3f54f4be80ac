"""The analytic scheduler carried over to CPUs: vector lanes, caches and cores."""
