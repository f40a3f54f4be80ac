"""Beam search over whole loop nests with a learned cost model, for CPUs."""
