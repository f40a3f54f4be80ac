"""``tilewright predict``: models from CSV files, choices by them, errors with their cure."""

import contextlib
import csv
import importlib.util
import json
import signal

import numpy as np
import pytest

import tilewright.prediction
from tilewright.cli import main
from tilewright.prediction import CollectionProgress, Runs, load
from tilewright.prediction.decisions.selector import Modelled, Selector

# Facts on every page: how it was made.
MADE = ("command", "date", "version", "seed", "computer", "load")
TWO = ("slow_model.json", "quick_model.json")


def write_runs(path, count=60, seed=0, rate=1e-9, words=False, unit="ms"):
    """Runs whose time is 1 µs and `rate` seconds an operation, with 1% of noise."""
    rng = np.random.default_rng(seed)
    m, n = rng.integers(4, 600, (2, count))
    seconds = (1e-6 + rate * m * n) * np.exp(0.01 * rng.normal(size=count))
    layout = np.where(rng.random(count) < 0.5, "row", "column")
    seconds *= np.where(layout == "row", 1.0, 2.0) if words else 1.0
    scale = {"ms": 1e3, "s": 1.0}[unit]
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["m [rows]", "n", *(["layout"] if words else []), f"time [{unit}]"])
        for row in zip(m, n, layout, seconds * scale, strict=True):
            writer.writerow([row[0], row[1], *([row[2]] if words else []), f"{row[3]:.6g}"])
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two models of different rates, and the runs of the first."""
    made = tmp_path_factory.mktemp("predict")
    for name, rate in (("slow", 4e-9), ("quick", 1e-9)):
        runs = write_runs(made / f"{name}.csv", rate=rate)
        assert main(["predict", "fit", runs, "-q", "-o", str(made / f"{name}_model.json")]) == 0
    return made


def run(capsys, *words):
    code = main(["predict", *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_fit_says_what_it_read_and_chose(tmp_path, capsys):
    runs = write_runs(tmp_path / "runs.csv")
    with open(runs, "a") as file:
        file.write("7,,0.5\n8,9,\n")
    out = tmp_path / "model.json"
    code, text, error = run(capsys, "fit", runs, "--complexity", "m*n", "-o", out)
    assert code == 0
    assert "60 runs" in text
    assert "2 rows left out (line 62: no n; line 63: no time)" in text
    assert "m" in text
    assert "rows" in text
    assert "cross-validated error" in text
    assert "fitting ours to 60 runs" in error
    assert "\x1b" not in text + error
    model = load(out)
    assert model.units == {"m": "rows"}
    assert model.complexity == "m*n"
    expected = 1e-6 + 1e-9 * 300 * 200
    assert model.predict({"m": 300, "n": 200})[0] == pytest.approx(expected, rel=0.05)


def test_fit_names_auto_where_it_is_clearly_better(tmp_path, capsys):
    rng = np.random.default_rng(0)
    block, unroll = rng.integers(1, 65, (2, 150))
    waves = np.exp(1.5 * np.sin(block / 4) + np.cos(unroll / 5))  # more than 5 numbers can express
    path = tmp_path / "runs.csv"
    rows = np.column_stack([block, unroll, 1e-6 * waves])
    np.savetxt(path, rows, delimiter=",", header="block,unroll,time", comments="")
    code, text, _ = run(capsys, "fit", path, "--max-parameters", 5)
    assert code == 0
    assert "give --model auto" in text
    found = json.loads(run(capsys, "fit", path, "--max-parameters", 5, "--json")[1])
    assert found["auto_error"] < 0.9 * found["cross_validated_error"]
    code, text, _ = run(capsys, "fit", path, "--model", "auto")
    assert code == 0
    assert "auto: " in text
    assert "--model auto" not in text


def test_fit_as_json_and_the_page(tmp_path, capsys):
    runs = write_runs(tmp_path / "runs.csv")
    page, tables = tmp_path / "fit.html", tmp_path / "prediction_tables.json"
    rows = [{"kernel": "matmul <b>", "mape": {"nnc": 12.5, "ours": 1.25}}]
    tables.write_text(json.dumps({"name": "prediction_tables", "rows": rows, "summary": {"x": 1}}))
    code, text, _ = run(
        capsys,
        *("fit", runs, "--model", "lrc", "--complexity", "m*n", "--json", "-q"),
        *("--report", page, "--tables", tables),
    )
    assert code == 0
    result = json.loads(text)
    assert result["model"] == "lrc"
    assert result["rows"] == 60
    assert result["cross_validation"]["rows"] == 60
    assert result["cross_validation"]["mape"] < 0.1
    html = page.read_text(encoding="utf-8")
    assert all(f">{fact}<" in html for fact in MADE)
    assert "Predicted against measured" in html
    assert "matmul &lt;b&gt;" in html
    assert "mape nnc" in html


def test_words_of_a_column_are_known_to_the_model(tmp_path, capsys):
    runs = write_runs(tmp_path / "runs.csv", words=True, count=90)
    model = tmp_path / "model.json"
    assert run(capsys, "fit", runs, "-q", "-o", model)[0] == 0
    one, two = (
        load(model).predict([{"m": 200, "n": 200, "layout": word}])[0] for word in ("row", "column")
    )
    assert two / one == pytest.approx(2, rel=0.1)
    words = [f"--query=m=200,n=200,layout={word}" for word in ("row", "column")]
    code, text, _ = run(capsys, "select", model, *words)
    assert code == 0
    assert "m=200, n=200, layout=column" in text
    other = tmp_path / "other.csv"  # the words appear in another order
    other.write_text(
        f"layout,m,n,time\ncolumn,200,200,{two}\nrow,200,200,{one}\n", encoding="utf-8"
    )
    code, text, _ = run(capsys, "evaluate", model, other, "--json")
    assert code == 0
    assert json.loads(text)["mape"] < 1e-6
    other.write_text("layout,m,n,time\ntiled,200,200,1\n", encoding="utf-8")
    code, _, error = run(capsys, "evaluate", model, other)
    assert code == 2
    assert "'tiled'" in error


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("m,n,time\n1,2,3\n", ["--target", "tiem"], "did you mean 'time'?"),
        ("m,n,time\n1,2,3\n", ["--features", "m,k"], "column 'k' for a feature is missing"),
        ("m,n,time\n1,2\n", [], "line 2: 2 cells under 3 headings"),
        ("m,n,time\n1,2,0\n1,3,1\n", [], "line 2: time is '0'"),
        ("m,n,time\n1,2,-4\n1,3,1\n", [], "line 2: time is '-4'"),
        ("m,n,time\n1,2,fast\n", [], "line 2: time is 'fast'"),
        ("m,n,time [kg]\n1,2,3\n", [], "not a unit of time"),
        ("m,n,time\n1,2,3\n", [], "there is 1 instance (n_samples=1); measure at least 2"),
        ("m,n,time\n1,,3\n,2,3\n", [], "no row has all of its values"),
        ("m,n,time\n1,2,3\n2,3,4\n", ["--complexity", "m*k"], "the name 'k' is unknown"),
        ("mm,n,time\n1,2,3\n2,3,4\n", ["--complexity", "m*n"], "did you mean 'mm'?"),
        ("m,n,time\n1,2,3\n2,3,4\n", ["--complexity", "m*"], "is not an expression"),
        ("m,n,time\n0,2,3\n2,3,4\n", ["--complexity", "n/m"], "is inf in row 0"),
        ("m,n,time\n1,2,3\n2,3,4\n", ["--model", "nnc"], "give --complexity"),
        ("m,n,time\n1,2,3\n2,3,4\n", ["--model", "c", "--work", "m"], "no use for --work"),
        ("m,n,time\n1,2,3\n", ["-o", "nowhere/model.json"], "there is no folder nowhere"),
        ("m;n;time\n1,5;2;3\n2,5;2;4\n", [], "commas in its numbers (1,5)"),
        ("id,time\n" + "".join(f"r{i},1\n" for i in range(30)), [], "30 different words"),
        ("", [], "a line of headings"),
    ],
)
def test_unusable_runs_and_options_of_fit_are_named(
    tmp_path, monkeypatch, capsys, text, options, said
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs.csv").write_text(text, encoding="utf-8")
    code, out, error = run(capsys, "fit", "runs.csv", "-q", *options)
    assert code == 2
    assert said in error
    assert not out
    assert "Traceback" not in error


def test_the_description_of_the_runs_is_not_overwritten(tmp_path, capsys):
    runs = write_runs(tmp_path / "runs.csv")
    (tmp_path / "runs.json").write_text('{"complexity": "m*n"}')
    code, _, error = run(capsys, "fit", runs, "-q", "-o", tmp_path / "runs.json")
    assert code == 2
    assert "runs_model.json" in error
    assert json.loads((tmp_path / "runs.json").read_text()) == {"complexity": "m*n"}


def test_evaluate_compares_and_keeps_every_run(folder, tmp_path, capsys):
    fresh = write_runs(tmp_path / "fresh.csv", seed=5, unit="s", count=100)
    written, page = tmp_path / "predicted.csv", tmp_path / "page.html"
    model = folder / "quick_model.json"
    code, text, _ = run(capsys, "evaluate", model, fresh, "-o", written, "--report", page)
    assert code == 0
    assert "Spearman's rank correlation" in text
    assert "inside intervals of 90%" in text
    with open(written, newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 100
    inside = [float(r["low_s"]) <= float(r["time_s"]) <= float(r["high_s"]) for r in rows]
    code, text, _ = run(capsys, "evaluate", model, fresh, "--json")
    figures = json.loads(text)
    assert figures["coverage"] == pytest.approx(np.mean(inside))
    assert figures["mape_without_shortest_30_percent"] < 0.05
    assert figures["spearman"] > 0.99
    html = page.read_text(encoding="utf-8")
    assert "Error against run time" in html
    assert all(f">{fact}<" in html for fact in MADE)


@pytest.mark.parametrize("option", ["-o", "--report"])
def test_an_evaluation_is_printed_even_if_it_cannot_be_written(folder, capsys, option):
    words = ("evaluate", folder / "quick_model.json", folder / "quick.csv", option, "/dev/full")
    code, text, error = run(capsys, *words)
    assert (code, "No space" in error) == (2, True)
    assert "Spearman's rank correlation" in text


def test_choices_are_printed_even_if_they_cannot_be_written(folder, tmp_path, capsys):
    queries, full = tmp_path / "queries.csv", ("-o", "/dev/full")
    queries.write_text("m,n\n500,500\n60,60\n", encoding="utf-8")
    models = [folder / "slow_model.json", folder / "quick_model.json"]
    for words, said in (
        ((*models, "--query", "m=300,n=300"), "use quick"),
        ((*models, "--queries", queries), "chosen"),
        ((models[0], "--queries", queries), "the fastest first"),
    ):
        code, text, error = run(capsys, "select", *words, *full)
        assert (code, "No space" in error) == (2, True)
        assert said in text


def test_a_fit_is_printed_even_if_it_cannot_be_written(folder, capsys):
    words = ("fit", folder / "quick.csv", "--model", "c", "--complexity", "m*n")
    code, text, error = run(capsys, *words, "-o", "/dev/full")
    assert (code, "No space" in error) == (2, True)
    assert "60 runs" in text
    assert "wrote" not in text


@pytest.mark.parametrize("command", ["fit", "evaluate"])
def test_inputs_of_the_page_are_read_before_the_work(folder, capsys, command):
    files = [folder / "quick.csv"] if command == "fit" else ["none.json", "none.csv"]
    code, text, error = run(
        capsys, command, *files, "--report", "/dev/null", "--tables", "gone.json"
    )
    assert (code, text) == (2, "")
    assert "cannot read gone.json" in error


@pytest.mark.parametrize(
    "words",
    [
        ("collect", "matmul", "-o", "a.csv"),
        ("train", "matmul"),
        ("fit", "a.csv"),
        ("select", "a.json", "--family", "halide_blur"),
    ],
)
def test_a_seed_is_a_whole_number_from_0(capsys, words):
    code, _, error = run(capsys, *words, "--seed", -1)
    assert (code, "'-1' is not a seed" in error) == (2, True)


def test_runs_outside_the_training_range_are_counted(folder, tmp_path, capsys):
    far = tmp_path / "far.csv"
    far.write_text("m,n,time\n100,100,1e-5\n100,90000,1e-2\n", encoding="utf-8")
    code, text, _ = run(capsys, "evaluate", folder / "quick_model.json", far, "--json")
    assert code == 0
    assert json.loads(text)["outside_training_range"] == 1


def test_columns_in_other_units_are_refused(folder, tmp_path, capsys):
    other = tmp_path / "other.csv"  # the model was fitted to m [rows]
    other.write_text("m [bytes],n,time\n100,100,1e-5\n200,100,1e-5\n", encoding="utf-8")
    for words in (("evaluate",), ("select", "--queries")):
        model = folder / "quick_model.json"
        code, _, error = run(capsys, words[0], model, *words[1:], other)
        assert code == 2
        assert "'m' is in bytes, but the model was fitted to rows" in error


def test_a_file_that_is_not_a_model_is_named(folder, tmp_path, capsys):
    code, _, error = run(capsys, "evaluate", folder / "quick.csv", folder / "quick.csv")
    assert code == 2
    assert "quick.csv: it is not JSON" in error
    code, _, error = run(capsys, "export", tmp_path / "none.json", "-o", tmp_path / "f.py")
    assert code == 2
    assert "none.json: No such file" in error


def test_export_writes_python_and_c(folder, tmp_path, capsys):
    model = folder / "quick_model.json"
    for name in ("f.py", "f.h"):
        assert run(capsys, "export", model, "-o", tmp_path / name, "--name", "cost")[0] == 0
    spec = importlib.util.spec_from_file_location("exported", tmp_path / "f.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    expected = load(model).predict({"m": 100, "n": 50})[0]
    assert module.cost(100, 50) == pytest.approx(expected, rel=1e-9)
    assert module.cost_outside(100, 50000)
    assert "static inline double cost(double m, double n)" in (tmp_path / "f.h").read_text()
    for words, name in ((("-",), "f.py"), (("-", "--language", "c"), "f.h")):
        code, text, _ = run(capsys, "export", model, "--name", "cost", "-o", *words)
        assert (code, text) == (0, (tmp_path / name).read_text())
    other = tmp_path / "f.inc"
    assert run(capsys, "export", model, "--name", "cost", "-o", other, "--language", "c")[0] == 0
    assert other.read_text() == (tmp_path / "f.h").read_text()
    code, _, error = run(capsys, "export", model, "-o", tmp_path / "f.rs")
    assert code == 2
    assert "a .py or .h file" in error
    code, _, error = run(capsys, "export", model, "-o", tmp_path / "f.py", "--name", "1x")
    assert code == 2
    assert "not an identifier" in error


def test_select_ranks_variants_for_a_query(folder, capsys):
    models = [f"slow={folder / 'slow_model.json'}", f"quick={folder / 'quick_model.json'}"]
    code, text, _ = run(capsys, "select", *models, "--query", "m=300,n=300")
    assert code == 0
    assert text.index("quick") < text.index("slow")
    assert text.rstrip().endswith("use quick")
    code, text, _ = run(capsys, "select", *models, "--query", "m=90000,n=300", "--json")
    (found,) = json.loads(text)
    assert found["outside_training_range"]
    assert found["best"] == "slow"  # the first is the default
    assert [v["variant"] for v in found["variants"]] == ["quick", "slow"]
    assert all(v["low"] <= v["seconds"] <= v["high"] for v in found["variants"])
    code, _, error = run(capsys, "select", *models, "--query", "m=3")
    assert code == 2
    assert "feature 'n' is missing" in error


def test_select_tells_the_regret_where_times_are_measured(folder, tmp_path, capsys):
    models = [f"slow={folder / 'slow_model.json'}", f"quick={folder / 'quick_model.json'}"]
    queries = tmp_path / "queries.csv"
    queries.write_text(
        "m,n,slow [us],time_quick [us]\n100,100,40,10\n200,100,10,20\n50,100,20,\n",
        encoding="utf-8",
    )
    chosen = tmp_path / "chosen.csv"
    code, text, _ = run(capsys, "select", *models, "--queries", queries, "--json", "-o", chosen)
    assert code == 0
    found = json.loads(text)
    assert found["chosen"] == {"slow": 0, "quick": 3}
    assert found["regret"]["mean"] == pytest.approx(0.5)
    assert found["regret"]["worst"] == pytest.approx(1.0)
    assert found["not_measured"] == 1
    assert chosen.read_text().splitlines()[1].startswith("100,100,quick,")
    code, text, _ = run(capsys, "select", *models, "--queries", queries)
    assert "regret against the best variant: 50% in the mean, 100% at worst" in text
    queries.write_text("m,n\n100,\n", encoding="utf-8")
    code, _, error = run(capsys, "select", *models, "--queries", queries)
    assert code == 2
    assert "line 2: no n" in error


def test_one_model_ranks_candidates(folder, tmp_path, capsys):
    candidates = tmp_path / "candidates.csv"
    candidates.write_text("m,n\n500,500\n60,60\n100,100\n", encoding="utf-8")
    model, ranking = folder / "quick_model.json", tmp_path / "ranking.csv"
    code, text, _ = run(
        capsys, "select", model, "--queries", candidates, "--top", 2, "--json", "-o", ranking
    )
    assert code == 0
    assert [r["candidate"] for r in json.loads(text)] == [1, 2]
    with open(ranking, newline="") as file:
        assert [row["m"] for row in csv.DictReader(file)] == ["60", "100", "500"]
    code, _, error = run(capsys, "select", model, "--queries", candidates, "--verify", 1)
    assert code == 2
    assert "--verify measures" in error


def test_a_selector_file_with_settings(folder, tmp_path, capsys):
    rng = np.random.default_rng(0)
    n, threads = rng.integers(4, 600, 60).astype(float), rng.integers(1, 5, 60).astype(float)
    made = type(load(folder / "quick_model.json"))(features=("n", "threads"))
    made.fit(np.stack([n, threads], axis=1), 1e-6 * n / threads)
    Selector({"parallel": Modelled(made, {"threads": (1.0, 4.0)})}, kernel="thing").save(
        tmp_path / "selector.json"
    )
    code, text, _ = run(capsys, "select", tmp_path / "selector.json", "--query", "n=100", "--json")
    assert code == 0
    assert json.loads(text)[0]["settings"] == {"threads": 4.0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give models of the variants, or --kernel"),
        (["--kernel", "no_such_kernel", "--query", "m=1"], "there is no kernel"),
        (["--kernel", "gone.py:kernel", "--query", "m=1"], "there is no file gone.py"),
        (["quick_model.json"], "give --query"),
        (["quick_model.json", "quick_model.json", "--query", "m=1,n=2"], "two models are called"),
        (["quick_model.json", "--family", "halide_blur"], "give the --size"),
        (["quick_model.json", "--query", "m=4,n=4", "--verify", "1"], "--verify needs a kernel"),
        (["quick_model.json", "--query", "m=4,n=4", "--default", "x"], "is not a variant"),
        ([*TWO, "--queries", "quick.csv", "--verify", "1"], "--verify measures the variants"),
        ([*TWO, "--queries", "quick.csv", "--query", "m=4,n=4"], "--query or --queries, not both"),
        ([*TWO, "--query", "m=4,n=4", "--family", "halide_blur"], "--family or --query, not both"),
        ([*TWO, "--query", "m=4,n=4", "--size", "64"], "--size is the size of a --family"),
        ([*TWO, "--query", "m=4,n=4", "--setting", "threads=1,2"], "no model has a feature of"),
        (["both.json", "--query", "m=4,n=4", "--setting", "m=4"], "--setting is for models of"),
    ],
)
def test_unusable_arguments_of_select_are_named(folder, monkeypatch, capsys, words, said):
    monkeypatch.chdir(folder)
    Selector({name: load(f"{name}_model.json") for name in ("slow", "quick")}).save("both.json")
    code, _, error = run(capsys, "select", *words)
    assert code == 2
    assert said in error


def features(path):
    with open(path, newline="") as file:
        return [row["n"] for row in csv.DictReader(file)]


def test_collect_measures_a_function_and_a_command_and_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "predicted_program.py"
    program.write_text("def total(n):\n    return sum(range(n))\n", encoding="utf-8")
    common = ["--range", "n=10:20000", "--complexity", "n", "--records", "r.sqlite", "--count", 4]
    code, text, error = run(
        capsys, "collect", "predicted_program.py:total", *common, "--once", "-o", "total.csv"
    )
    assert code == 0, error
    assert "4 runs" in text
    assert "measuring predicted_program:total 24/24" in error  # six rounds at most
    assert json.loads((tmp_path / "total.json").read_text())["complexity"] == "n"
    first = features(tmp_path / "total.csv")
    assert (
        run(capsys, "collect", "predicted_program.py:total", *common, "--once", "-o", "b.csv")[0]
        == 0
    )
    assert features(tmp_path / "b.csv") == first  # the same instances
    code, text, _ = run(capsys, "fit", "total.csv", "--json", "-q")
    assert code == 0
    assert json.loads(text)["complexity"] == "n"
    small = ["--range", "n=1,2", "--complexity", "n", "--records", "r.sqlite", "--count", 1]
    words = ["--once", "-o", "true.csv", "--json", "--", "true", "{n}"]
    code, text, _ = run(capsys, "collect", *small, *words)
    assert code == 0
    assert json.loads(text)["complete"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing", "-o", "a.csv"], "there is no kernel 'nothing'"),
        (["matmul", "--range", "m=1:2", "-o", "a.csv"], "draws its own instances"),
        (["matmul", "-o", "a.txt"], "name a .csv file"),
        (["gone.py:f", "--range", "n=1:2", "-o", "a.csv"], "there is no file gone.py"),
        (["./x", "{n}", "--range", "n=1:2", "-o", "a.csv"], "give the number of operations"),
        (["./x", "--range", "n=1:2", "--complexity", "k", "-o", "a.csv"], "'k' is unknown"),
        (["./x", "--range", "n=2:1", "--complexity", "n", "-o", "a.csv"], "before 2"),
        (["matmul", "--variant", "none", "-o", "a.csv"], "has no variant 'none'"),
        (["halide_blur", "--sizes", "big", "-o", "a.csv"], "--sizes are whole numbers"),
        (["matmul", "-o", "-", "--json"], "one document"),
    ],
)
def test_unusable_arguments_of_collect_are_named(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    code, _, error = run(capsys, "collect", "--records", "r.sqlite", "-q", *words)
    assert code == 2
    assert said in error


COLLECTED = Runs({"n": "1"}, np.array([[2.0], [3.0]]), np.array([0.25, 0.5]))


@pytest.mark.parametrize("interrupts", [False, True])
def test_an_interrupted_collection_is_written(tmp_path, monkeypatch, capsys, interrupts):
    """Ctrl-C comes as `collect` measures, which returns what it has."""

    def collect(*args, on_progress, keep_interrupted, **how):
        assert keep_interrupted
        with contextlib.suppress(KeyboardInterrupt):
            on_progress(CollectionProgress("sleep", "command", 2, 2 + interrupts, 0, 0))
            if interrupts:
                signal.raise_signal(signal.SIGINT)
        return COLLECTED

    monkeypatch.setattr(tilewright.prediction, "collect", collect, raising=False)
    words = ("--range", "n=1:3", "--complexity", "n", "--records", tmp_path / "r.sqlite", "-q")
    command = ("--", "sleep", "{n}")
    code, text, _ = run(capsys, "collect", *words, "-o", tmp_path / "runs.csv", *command)
    assert code == (130 if interrupts else 0)
    assert ("run the same command again" in text) is interrupts
    assert (tmp_path / "runs.csv").read_text() == "n,time_s\n2,0.25\n3,0.5\n"
    code, text, _ = run(capsys, "collect", *words, "-o", "-", *command)
    assert text == "n,time_s\n2,0.25\n3,0.5\n"


def test_models_that_could_not_be_kept_are_not_measured(tmp_path, monkeypatch, capsys):
    records = ("--records", tmp_path / "r.sqlite")
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    code, _, error = run(capsys, "train", "pooling", "--variants", "numpy", *records)
    assert (code, "there is no folder" in error) == (2, True)
    assert "measuring" not in error


def test_trained_models_are_printed_instead_of_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ("--variants", "numpy", "--count", 4, "--records", tmp_path / "r.sqlite", "-q")
    code, text, _ = run(capsys, "train", "pooling", *words, "-o", "-")
    assert code == 0
    assert list(Selector.from_dict(json.loads(text)).models) == ["numpy"]
    assert not (tmp_path / "cache").exists()


def test_train_and_select_and_verify_a_registered_kernel(tmp_path, capsys):
    selector = tmp_path / "selector.json"
    code, text, _ = run(
        capsys,
        *("train", "pooling", "--variants", "numpy", "--count", 6, "-q"),
        *("--records", tmp_path / "r.sqlite", "-o", selector),
    )
    assert code == 0
    assert "cross-validated error" in text
    code, text, _ = run(
        capsys,
        *("select", selector, "--query", "m=60,n=60,s=2,d=1", "--verify", 1, "--json", "-q"),
    )
    assert code == 0
    (variant,) = json.loads(text)[0]["variants"]
    assert variant["status"] == "ok"
    assert 0 < variant["measured"] < 1


def test_a_kernel_of_ones_own_is_trained_and_its_variants_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "own_sums.py").write_text(
        "from tilewright.prediction.data.user_kernels import from_callable\n"
        "def loop(n):\n    total = 0\n    for i in range(n):\n        total += i\n"
        "    return total\n"
        "def formula(n):\n    return n * (n - 1) // 2\n"
        "sums = from_callable(loop, {'n': (1000, 20000)}, 'n', name='own_sums',\n"
        "                     reference=formula, variants={'formula': formula})\n"
        "number = 3\n"
    )
    code, _, error = run(capsys, "select", "--kernel", "own_sums.py:sums", "--query", "n=9000")
    assert code == 2
    assert "tilewright predict train own_sums.py:sums" in error
    words = ("train", "own_sums.py:sums", "--count", 5, "-q", "--records", "r.sqlite", "--json")
    code, text, _ = run(capsys, *words)
    assert code == 0
    assert json.loads(text)["kernel"] == "own_sums"
    select = ("select", "--kernel", "own_sums.py:sums", "--query", "n=9000", "--verify", 2)
    code, text, _ = run(capsys, *select, "--json", "-q")
    assert code == 0
    variants = json.loads(text)[0]["variants"]
    assert {v["variant"]: v["status"] for v in variants} == {"formula": "ok", "loop": "ok"}
    assert variants[0]["variant"] == "formula"
    code, _, error = run(capsys, "train", "own_sums.py:number")
    assert code == 2
    assert "is not a Kernel" in error


def test_the_group_alone_shows_its_commands(capsys):
    code, text, _ = run(capsys)
    assert code == 0
    assert all(name in text for name in ("fit", "evaluate", "select", "export", "collect", "train"))


def test_repeated_columns_and_names_on_the_command_line(tmp_path, capsys):
    path = tmp_path / "runs.csv"
    path.write_text("".join(f"{n},{n * 1e-6},{n * 1.1e-6}\n" for n in range(10, 400, 13)))
    model = tmp_path / "model.json"
    options = ["--names", "n,t1,t2", "--target", "t1,t2"]
    code, text, _ = run(capsys, "fit", str(path), *options, "-o", str(model))
    assert code == 0
    assert "noise floor: 10%" in text
    assert run(capsys, "evaluate", str(model), str(path), *options)[0] == 0
