"""The features and cost models of Adams et al. 2019 and Anderson et al. 2021, for comparison."""
