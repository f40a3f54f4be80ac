"""Bayesian optimisation: encoding, surrogates, acquisition, proposals."""
