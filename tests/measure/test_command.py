import os
import shlex
import subprocess
from dataclasses import replace

import pytest

from tilewright.measure import RunLimits, Timing, command, measure_all, measure_one, run_to_end

LIMITS = RunLimits(build_seconds=300, run_seconds=100, memory_bytes=200 << 20, output_bytes=1000)
HASTY = replace(LIMITS, run_seconds=1.0)  # for what never ends


def run(line, limits=LIMITS, **more):
    return measure_one(command(shlex.split(line), **more), limits)


def test_a_command_gives_its_output_exit_code_and_times(tmp_path):
    result = run(
        "sh -c 'pwd; echo $WORD; echo oops >&2; sleep 0.1'", cwd=tmp_path, env={"WORD": "a b"}
    )
    assert result.ok
    assert result.details == {"stdout": f"{tmp_path}\na b\n", "stderr": "oops\n", "exit_code": 0}
    assert result.median >= 0.1
    assert result.runs == 1
    assert result.cpu_median < result.median


def test_nothing_passes_through_a_shell():
    assert run("echo '$HOME;' '*'").details["stdout"] == "$HOME; *\n"


def test_cpu_time_counts_children_of_the_command():
    code = "import time\nwhile time.process_time() < 0.2: pass"
    result = measure_one(command(["sh", "-c", f"python3 -c '{code}'; true"]), LIMITS)
    assert result.ok, result
    assert result.cpu_median >= 0.2


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("sh -c 'exit 3'", "run_failed", "exit code 3"),
        ("sh -c 'kill -SEGV $$'", "crashed", "SIGSEGV"),
        ("sleep 1000", "timeout", "1 s"),
        ("no-such-program", "build_failed", "no-such-program"),
        ("python3 -c 'x = bytearray(1 << 30)'", "out_of_memory", "resident"),
    ],
)
def test_commands_fail_with_their_cause(line, status, message):
    if status == "out_of_memory":
        line = "python3 -c 'x = b\"x\" * (1 << 30); import time; time.sleep(900)'"
    result = run(line, HASTY if status == "timeout" else LIMITS)
    assert result.status == status
    assert message in result.message


def test_output_of_a_killed_command_is_kept_within_bounds():
    result = run("sh -c 'echo begin; exec yes'", replace(LIMITS, run_seconds=3.0))
    assert result.status == "timeout"
    assert result.details["stdout"].startswith("begin\ny\ny\n")
    assert "bytes dropped" in result.details["stdout"]
    assert len(result.details["stdout"]) < 1100


def test_a_command_is_run_to_its_end_with_its_output_within_bounds():
    done = run_to_end(
        ["sh", "-c", "echo begin; head -c 9999999 /dev/zero; echo bad >&2; exit 3"], 900
    )
    assert (done.exit_code, done.stderr) == (3, "bad\n")
    assert done.stdout.startswith("begin\n")
    assert len(done.stdout) < 20_000


def test_a_command_that_takes_too_long_is_ended(tmp_path):
    alive = tmp_path / "alive"
    with pytest.raises(subprocess.TimeoutExpired):
        run_to_end(["sh", "-c", f"echo $$ > {alive}; exec sleep 1000"], 0.5)
    # Killed and waited for, if it had come so far.
    if alive.exists() and alive.read_text().strip():
        with pytest.raises(ProcessLookupError):
            os.kill(int(alive.read_text()), 0)


def test_a_missing_directory_is_a_build_failure(tmp_path):
    result = run("true", cwd=tmp_path / "missing")
    assert result.status == "build_failed"
    assert "missing" in result.message


def test_commands_that_need_not_be_alone_run_side_by_side(tmp_path):
    # Each ends once the other has begun.
    meet = "touch $0; until test -e $1; do sleep 0.01; done"
    pairs = (("a", "b"), ("b", "a"))
    commands = [command(["sh", "-c", meet, *pair], cwd=tmp_path, exclusive=False) for pair in pairs]
    assert all(found.ok for _, found in measure_all(commands, limits=LIMITS, jobs=2))


def test_a_repeated_command_is_sampled():
    timing = Timing(seconds=500, min_samples=3, max_samples=3, sample_seconds=0)
    result = measure_one(command(["true"], repeated=True), LIMITS, timing)
    assert result.ok
    assert len(result.times) == 3
    failing = measure_one(command(["false"], repeated=True), LIMITS, timing)
    assert failing.status == "run_failed"
    assert failing.details == {"exit_code": 1}


def test_a_single_string_is_refused():
    with pytest.raises(ValueError, match="list of words"):
        command("echo hi")
