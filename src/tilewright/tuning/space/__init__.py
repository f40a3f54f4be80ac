"""Search spaces: parameters, constraints, the feasible set, their JSON."""
