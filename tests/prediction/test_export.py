import ast
import shutil
import subprocess

import numpy as np
import pytest
from test_prediction_models import KINDS, make, products

from tilewright.prediction import (
    LRC,
    Adapted,
    Augmented,
    Auto,
    GaussianProcess,
    PredictionError,
    compile_single,
    export_c,
    export_python,
)

MAIN = r"""
#include <stdio.h>
#include "model.h"
int main(void) {
    double m, n, k, t;
    while (scanf("%lf %lf %lf %lf", &m, &n, &k, &t) == 4)
        printf("%.17g %d\n", predict_seconds(m, n, k, t), predict_seconds_outside(m, n, k, t));
    return 0;
}
"""


@pytest.fixture(scope="module")
def models():
    X, y = products(120)
    return {kind: make(kind).fit(X, y) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_python_and_c_compute_what_the_model_does(kind, models, tmp_path):
    model, (X, _) = models[kind], products(50, seed=2)
    X[0], X[1] = [5000, 3, 3, 1], [0, 7, 7, 2]  # outside the training range
    expected = model.predict(X)
    single = compile_single(model)
    assert np.allclose([single(*row) for row in X.tolist()], expected, rtol=1e-9)
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed"
    (tmp_path / "model.h").write_text(export_c(model))
    (tmp_path / "main.c").write_text(MAIN)
    command = [compiler, "-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "main.c", "-lm"]
    subprocess.run([*command, "-o", "main"], cwd=tmp_path, check=True)
    text = "\n".join(" ".join(map(repr, row)) for row in X.tolist())
    ran = subprocess.run([tmp_path / "main"], input=text, capture_output=True, text=True)
    lines = [line.split() for line in ran.stdout.splitlines()]
    assert np.allclose([float(line[0]) for line in lines], expected, rtol=1e-9)
    assert [line[1] == "1" for line in lines] == model.outside(X).tolist()


INTERVALS = r"""
#include <stdio.h>
#include "model.h"
int main(void) {
    double m, n, k, t, low, high;
    while (scanf("%lf %lf %lf %lf", &m, &n, &k, &t) == 4) {
        const int unsure = predict_seconds_interval(m, n, k, t, &low, &high);
        printf("%.17g %.17g %d\n", low, high, unsure);
    }
    return 0;
}
"""


@pytest.mark.parametrize("kind", [Augmented, Auto, GaussianProcess, LRC])
@pytest.mark.few(2)
def test_c_computes_the_intervals_of_the_model(kind, tmp_path):
    model = kind(features=("m", "n", "k", "threads"), complexity="m*n*k", folds=3)
    model.fit(*products(60))
    X, _ = products(60, seed=3)
    X[0], X[1], X[2] = [5000, 3, 3, 1], [0, 7, 7, 2], [90000, 90000, 90000, 4]
    for coverage in (0.9, 0.5):
        (tmp_path / "model.h").write_text(export_c(model, coverage=coverage))
        (tmp_path / "main.c").write_text(INTERVALS)
        command = ["cc", "-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "main.c", "-lm"]
        subprocess.run([*command, "-o", "main"], cwd=tmp_path, check=True)
        text = "\n".join(" ".join(map(repr, row)) for row in X.tolist())
        ran = subprocess.run([tmp_path / "main"], input=text, capture_output=True, text=True)
        found = np.array([line.split() for line in ran.stdout.splitlines()], dtype=float)
        assert np.allclose(found[:, :2].T, model.predict_interval(X, coverage), rtol=1e-7)
        assert found[:, 2].astype(bool).tolist() == model.unsure(X).tolist()
    if kind is Augmented:
        assert 0 < found[:, 2].sum() < len(X)  # both are met


def test_models_without_intervals_export_none_and_the_coverage_is_checked():
    X, y = products(30)
    assert "_interval" not in export_c(Augmented(folds=0).fit(X, y))
    known = Augmented(folds=3).fit(X, y)
    assert "_interval" in export_c(known)
    assert "_interval" not in export_c(known, coverage=None)
    with pytest.raises(PredictionError, match="coverage is 1"):
        export_c(known, coverage=1.0)


def test_a_model_of_another_machine_is_not_exported_and_the_cure_is_named():
    X, y = products(40)
    source = Augmented(folds=3).fit(X, y)
    adapted = Adapted(sources=[source]).fit(X[:20], 2 * y[:20])
    for export in (export_c, export_python):
        with pytest.raises(PredictionError, match=r"only Augmented, .* on the machine itself"):
            export(adapted)


def test_all_models_fit_into_one_program(models, tmp_path):
    X, _ = products(1, seed=3)
    text = "#include <stdio.h>\nint main(void) {\n"
    for i, model in enumerate(models.values()):
        (tmp_path / f"m{i}.h").write_text(export_c(model, f"seconds{i}"))
        text = f'#include "m{i}.h"\n{text}'
        text += f'printf("%.17g\\n", seconds{i}({", ".join(map(repr, X[0].tolist()))}));\n'
    (tmp_path / "main.cpp").write_text(text + "return 0; }\n")
    command = ["c++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "main.cpp", "-o", "main", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    ran = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    expected = [model.predict(X)[0] for model in models.values()]
    assert np.allclose([float(line) for line in ran.stdout.split()], expected, rtol=1e-9)


def test_the_module_needs_math_only(models):
    for model in models.values():
        tree = ast.parse(export_python(model))
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert imported <= {"math", "struct"}
        assert not any(isinstance(node, ast.Import) for node in ast.walk(tree))


def test_any_feature_name_becomes_an_identifier():
    random = np.random.default_rng(0)
    X = random.uniform(1, 100, (60, 5))
    names = ("2nd size", "int", "log", "lambda", 'x"*/\n')
    model = Augmented(features=names, folds=0).fit(X, X[:, 0] * 1e-3)
    assert compile_single(model)(*X[0]) == pytest.approx(model.predict(X[:1])[0])
    header = export_c(model)
    assert header.count("*/") == header.count("/*")
    assert "double x_int" in header


def test_models_that_cannot_be_exported_are_named(models):
    with pytest.raises(PredictionError, match="not fitted"):
        export_c(Augmented())
    with pytest.raises(PredictionError, match="not an identifier"):
        export_c(models[Augmented], "a b")
