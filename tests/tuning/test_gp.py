import numpy as np
import pytest
from scipy.special import gammaln
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from tilewright.tuning.bayes.gp import Hyperparameters, MarginalLikelihood, Posterior, Priors, fit

NO_PRIORS = Priors(lengthscale=None, signal=None, noise=(0.0, 1e6))


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    points = rng.random((25, 3))
    outputs = np.sin(5 * points[:, 0]) + points[:, 1] ** 2 + 0.1 * rng.standard_normal(25)
    return points, outputs


def theirs(theta):
    return ConstantKernel(np.exp(theta[-2])) * Matern(np.exp(theta[:-2]), nu=2.5) + WhiteKernel(
        np.exp(theta[-1])
    )


THETA = np.array([-0.7, 0.2, 1.1, 0.3, -4.0])


def test_likelihood_and_gradient_agree_with_scikit_learn(data):
    points, outputs = data
    ours = MarginalLikelihood(points, outputs, np.arange(3), NO_PRIORS)
    value, gradient = ours(THETA)
    model = GaussianProcessRegressor(theirs(THETA), optimizer=None).fit(points, outputs)
    order = model.kernel_.hyperparameters
    expected, slope = model.log_marginal_likelihood(model.kernel_.theta, eval_gradient=True)
    constant = 0.5 * len(points) * np.log(2 * np.pi)
    assert value == pytest.approx(-expected - constant, rel=1e-6)
    assert len(order) == 3
    # their order: constant, length scales, noise
    assert gradient == pytest.approx(-np.concatenate([slope[1:4], slope[:1], slope[4:]]), rel=1e-4)


def test_predictions_agree_with_scikit_learn_and_leave_the_noise_out(data):
    points, outputs = data
    posterior = Posterior(points, outputs, np.arange(3), Hyperparameters(THETA))
    model = GaussianProcessRegressor(theirs(THETA), optimizer=None).fit(points, outputs)
    fresh = np.random.default_rng(0).random((40, 3))
    mean, variance = posterior.predict(fresh)
    expected, deviation = model.predict(fresh, return_std=True)
    assert mean == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert variance == pytest.approx(deviation**2 - np.exp(THETA[-1]), rel=1e-4, abs=1e-6)


def test_gradient_with_priors_and_grouped_features_is_the_difference_quotient(data):
    points, outputs = data
    blocks = np.array([0, 0, 1])
    likelihood = MarginalLikelihood(points, outputs, blocks, Priors())
    theta = np.array([0.3, -0.5, 0.1, -3.0])
    _, gradient = likelihood(theta)
    for i, direction in enumerate(np.eye(4)):
        up, down = (likelihood(theta + sign * 1e-5 * direction)[0] for sign in (1, -1))
        assert gradient[i] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-5)


def test_gamma_prior_is_the_log_density_of_the_length_scale(data):
    points, outputs = data
    shape, rate = 2.5, 1.7
    with_prior = Priors(lengthscale=(shape, rate), signal=None, noise=(0.0, 1e6))
    theta = np.array([0.3, -0.5, 0.9, 0.1, -3.0])
    difference = [
        MarginalLikelihood(points, outputs, np.arange(3), with_prior)(t)[0]
        - MarginalLikelihood(points, outputs, np.arange(3), NO_PRIORS)(t)[0]
        for t in (theta, theta + 0.2)
    ]

    def density(t):
        lengths = np.exp(t[:3])
        log = shape * np.log(rate) - gammaln(shape) + (shape - 1) * np.log(lengths) - rate * lengths
        # of the logarithm of the length scale, hence its Jacobian
        return -(log + np.log(lengths)).sum()

    assert difference[1] - difference[0] == pytest.approx(density(theta + 0.2) - density(theta))


def test_extending_is_refitting(data):
    points, outputs = data
    hyper = Hyperparameters(THETA)
    whole = Posterior(points, outputs, np.arange(3), hyper)
    grown = Posterior(points[:18], outputs[:18], np.arange(3), hyper)
    grown = grown.extend(points[18:22], outputs[18:22]).extend(points[22:], outputs[22:])
    fresh = np.random.default_rng(0).random((10, 3))
    for ours, expected in zip(grown.predict(fresh), whole.predict(fresh), strict=True):
        assert ours == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_fitting_finds_which_input_matters():
    rng = np.random.default_rng(0)
    points = rng.random((60, 4))
    outputs = np.sin(6 * points[:, 2])
    likelihood = MarginalLikelihood(points, outputs, np.arange(4), Priors())
    hyper = fit(likelihood, rng)
    assert hyper.lengthscales.argmin() == 2
    assert hyper.noise < 0.01
    posterior = Posterior(points, outputs, np.arange(4), hyper)
    fresh = rng.random((100, 4))
    assert np.abs(posterior.predict(fresh)[0] - np.sin(6 * fresh[:, 2])).max() < 0.1


def test_repeated_points_do_not_break_the_factorisation():
    points = np.repeat(np.random.default_rng(0).random((5, 2)), 6, axis=0)
    outputs = np.tile([0.0, 0.1], 15)
    likelihood = MarginalLikelihood(points, outputs, np.arange(2), Priors())
    hyper = fit(likelihood, np.random.default_rng(0))
    mean, variance = Posterior(points, outputs, np.arange(2), hyper).predict(points)
    assert np.isfinite(mean).all()
    assert (variance > 0).all()
