"""Search over whole loop nests for GPUs, guided by the released network of Anderson 2021."""
