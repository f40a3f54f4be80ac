"""The figures of the prediction benchmarks, which are kept by the code that made them."""

import prediction_common


def test_figures_are_kept_by_files_that_exist(tmp_path):
    figures = prediction_common.Figures(tmp_path, fresh=False)
    assert len({code.hexdigest() for code in figures._code.values()}) == 3
