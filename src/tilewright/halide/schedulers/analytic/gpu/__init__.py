"""The analytic GPU scheduler of Sioutas et al. 2020: CUDA and OpenCL."""
