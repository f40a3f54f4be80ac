import numpy as np
import pytest

from tilewright.cli import main
from tilewright.prediction.data.runs import Runs, read_csv, write_csv
from tilewright.prediction.data.unfinished import Unfinished
from tilewright.prediction.errors import PredictionError


def written(tmp_path, text):
    path = tmp_path / "runs.csv"
    path.write_text(text)
    return path


def test_units_of_times_become_seconds_and_units_of_features_are_kept(tmp_path):
    runs = read_csv(written(tmp_path, "size [bytes],time (ms)\n8,2\n16,4\n"), "time")
    assert dict(runs.features) == {"size": "bytes"}
    assert runs.times.tolist() == pytest.approx([0.002, 0.004])
    assert read_csv(written(tmp_path, "n,time_us\n1,5\n"), "time_us").times[0] == pytest.approx(
        5e-6
    )


def test_rows_with_missing_values_are_left_out_and_named(tmp_path):
    runs = read_csv(written(tmp_path, "n,time\n1,0.1\n,0.2\n3,NA\n4,0.4\n"), "time")
    assert runs.table[:, 0].tolist() == [1, 4]
    assert runs.dropped == ("line 3: no n", "line 4: no time")


def test_words_are_numbered_in_order_of_appearance_or_as_given(tmp_path):
    path = written(tmp_path, "flag,time\nO3,1\nO0,2\nO3,3\n")
    runs = read_csv(path, "time")
    assert runs.table[:, 0].tolist() == [0, 1, 0]
    assert runs.facts["levels"] == {"flag": ["O3", "O0"]}
    told = read_csv(path, "time", levels={"flag": ["O0", "O3"]})
    assert told.table[:, 0].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("text", "target", "said"),
    [
        ("n,time\n1,-2\n", "time", "run times are positive"),
        (
            "n,time\n1,2\n",
            "seconds",
            "column 'seconds' for the run time (choose it with --target) is missing",
        ),
        ("n,time [weeks]\n1,2\n", "time", "not a unit of time"),
        ("n,time\n1,2,3\n", "time", "3 cells under 2 headings"),
        ("n,time\n1,2\nx,3\n", "time", "both numbers (1) and words (x)"),
        ("n,n,time\n1,1,2\n", "time", "'n' occurs twice"),
        ("1,2\n3,4\n", "time", "must name the columns"),
        ("time\n1\n", "time", "the run time is the only column"),
    ],
)
def test_errors_say_what_is_wrong(tmp_path, text, target, said):
    with pytest.raises(PredictionError) as caught:
        read_csv(written(tmp_path, text), target)
    assert said in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(PredictionError, match="absent"):
        read_csv(tmp_path / "absent.csv")


def test_written_runs_are_read_back(tmp_path):
    runs = Runs(
        {"m": "rows", "d": "1"},
        np.array([[3.0, 0.25], [5.0, 1 / 3]]),
        np.array([1e-6, 2.0]),
        np.array([1.1e-6, np.nan]),
        {"kernel": "matvec"},
    )
    again = read_csv(write_csv(runs, tmp_path / "set" / "a.csv"))
    assert again.features == runs.features
    assert np.allclose(again.table, runs.table, rtol=1e-11)
    assert np.allclose(again.times, runs.times)
    assert again.retimes is not None
    assert np.isnan(again.retimes[1])
    assert again.floor == pytest.approx(0.1)
    assert again.facts["kernel"] == "matvec"


@pytest.mark.parametrize("text", ['{"format": "tilewright model"}', "[1, 2]", "{", ""])
def test_a_json_file_of_another_kind_is_not_replaced(tmp_path, capsys, text):
    runs = Runs({"n": "1"}, np.array([[1.0]]), np.array([0.5]))
    place = tmp_path / "runs.json"
    place.write_text(text)
    with pytest.raises(PredictionError, match=r"runs\.json is in the way"):
        write_csv(runs, tmp_path / "runs.csv")
    assert place.read_text() == text
    assert not (tmp_path / "runs.csv").exists()
    # `collect` says so before it measures anything.
    output = ["-o", str(tmp_path / "runs.csv"), "--records", str(tmp_path / "records.sqlite")]
    assert main(["predict", "collect", "matmul", *output]) == 2
    assert "is in the way" in capsys.readouterr().err
    assert not (tmp_path / "records.sqlite").exists()
    place.unlink()
    for _ in range(2):  # a description of runs is replaced
        write_csv(runs, tmp_path / "runs.csv")


def sheet_of(tmp_path, columns, head=True):
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns)] * head + [",".join(map(str, row)) for row in rows]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


N = [100 * 3**i for i in range(10)]
TIMES = [0.001 * n**0.9 for n in N]
AGAIN = [1000 * t * f for t, f in zip(TIMES, [1.02, 0.99, 1.05, 0.97, 1.01] * 2, strict=True)]


def test_copies_of_the_run_time_are_refused_as_features(tmp_path):
    path = sheet_of(tmp_path, {"n": N, "time_s": TIMES, "t_min": AGAIN})
    with pytest.raises(PredictionError, match=r"'t_min' follows the run time within 2%.*--target"):
        read_csv(path)
    assert read_csv(path, features=["n"]).names == ("n",)
    assert read_csv(path, features=["n", "t_min"]).names == ("n", "t_min")


def test_sizes_that_times_are_proportional_to_are_features(tmp_path):
    rough = [t * 2.0 ** (i % 3) for i, t in enumerate(TIMES)]
    path = sheet_of(tmp_path, {"n": N, "rate": rough, "time_s": [1e-6 * n for n in N]})
    assert read_csv(path).names == ("n", "rate")


def test_several_columns_are_repeated_measurements(tmp_path):
    columns = {"n": [1, 2], "a (ms)": [2.0, 8.0], "b": [0.003, 0.009], "c": [0.004, 0.004]}
    runs = read_csv(sheet_of(tmp_path, columns), ["a", "b", "c"])
    assert runs.names == ("n",)
    assert runs.times == pytest.approx([0.003, 0.006])  # between a and c
    assert runs.retimes == pytest.approx([0.003, 0.009])  # b


def test_files_without_headings_are_given_names(tmp_path):
    path = sheet_of(tmp_path, {"n": [1, 2], "t": [0.5, 0.25]}, head=False)
    runs = read_csv(path, names=["n", "time"], target=None)
    assert (runs.names, list(runs.times)) == (("n",), [0.5, 0.25])
    with pytest.raises(PredictionError, match="give --names"):
        read_csv(path)
    with pytest.raises(PredictionError, match="2 cells under 3 headings"):
        read_csv(path, names=["n", "m", "time"])


def test_the_delimiter_is_that_of_the_headings(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("# gcc; -O3; run on host\n\nn,time_s\n1,2\n3,4\n")
    assert read_csv(path).names == ("n",)
    path.write_text("\nn;time_s\n1;2,5\n".replace("2,5", "2.5"))
    assert read_csv(path).names == ("n",)


def test_a_quoted_cell_may_have_several_lines(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text('n,kind,time_s\n1,"a\nb",2\n3,"ab",4\n')
    assert read_csv(path).facts["levels"] == {"kind": ["a\nb", "ab"]}


def test_the_minimum_of_times_is_not_in_minutes(tmp_path):
    path = sheet_of(tmp_path, {"n": N, "time_min": TIMES})
    assert read_csv(path, "time_min").times == pytest.approx(TIMES)
    path = sheet_of(tmp_path, {"n": N, "time [min]": TIMES})
    assert read_csv(path, "time").times == pytest.approx([60 * t for t in TIMES])


def test_texts_that_recognise_no_run_are_refused_with_the_cure(tmp_path):
    ended = ["ok", "crash"] * 5
    path = sheet_of(tmp_path, {"n": N, "time_s": TIMES, "status": ended})
    with pytest.raises(PredictionError, match=r"'status' says.*crash, ok.*--failed TEXT"):
        read_csv(path, unfinished=Unfinished(status="status"))
    with pytest.raises(
        PredictionError, match=r"'crash' is in the column 'status'.*--status status"
    ):
        read_csv(path, unfinished=Unfinished(failed=["crash"]))
    runs = read_csv(path, unfinished=Unfinished(failed=["crash"], status="status"))
    assert len(runs.times) == 5
    assert len(read_csv(path, unfinished=Unfinished(failed=["lost"])).times) == 10


def test_throughputs_of_the_run_time_are_refused_as_features(tmp_path):
    rates = [1e9 / t for t in TIMES]
    path = sheet_of(tmp_path, {"n": N, "time_s": TIMES, "flops_per_s": rates})
    with pytest.raises(PredictionError, match=r"'flops_per_s' follows the inverse of the run time"):
        read_csv(path)
    assert read_csv(path, features=["n", "flops_per_s"]).names == ("n", "flops_per_s")
