"""The analytic schedulers: groups of Funcs, each tiled at least cost (Sioutas et al. 2020)."""
