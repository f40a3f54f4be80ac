"""Models of run times: NN+C (Srivastava et al. 2020), its baselines, better ones, their choice."""
