"""What notebooks show of models."""

import numpy as np

from tilewright.prediction import Augmented


def test_a_model_shows_features_ranges_and_settings():
    model = Augmented(features=("m", "<n>"), units={"m": "rows"}, seed=7)
    assert "Augmented, not fitted" in model._repr_html_()
    assert "seed = 7" in model._repr_html_()
    rng = np.random.default_rng(0)
    sizes = rng.uniform(1, 100, (40, 2))
    sizes[0], sizes[1] = (1, 1), (100, 100)
    html = model.fit(sizes, 1e-6 * sizes.prod(axis=1))._repr_html_()
    assert '>m</td><td data-heading="unit">rows</td>' in html
    assert "&lt;n&gt;" in html
    assert "fitted to times from 1e-06 s to 0.01 s" in html
