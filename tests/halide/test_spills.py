"""Mode ``top`` for CUDA leaves out schedules whose kernels spill registers, if others exist."""

import halide as hl
import pytest

from tilewright.halide import autoschedule
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.options import Planning
from tilewright.halide.schedulers.registry import naive
from tilewright.halide.schedulers.task import make_task
from tilewright.halide.search import spills
from tilewright.halide.search.spills import can_check_spills, spill_bytes, without_spills

# An assembler after which every kernel spills 12 bytes.
SPILLING = """\
#!/bin/sh
for last; do :; done
for name in $(grep -o "entry [A-Za-z_0-9]*" "$last" | cut -d" " -f2); do
  echo "Compiling entry function '$name' for 'sm_80'" >&2
  echo "    8 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads" >&2
done
"""
FAILING = "#!/bin/sh\nexit 1\n"


def stencils():
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    first, second, out = hl.Func("first"), hl.Func("second"), hl.Func("out")
    first[x, y] = image[x, y] + image[x + 1, y] * 2.0 + image[x + 2, y]
    second[x, y] = first[x, y] + first[x, y + 1] * 3.0 + first[x, y + 2]
    out[x, y] = second[x, y] + second[x + 1, y + 1] * second[x, y]
    out.set_estimates([(0, 640), (0, 480)])
    return hl.Pipeline(out)


@pytest.fixture
def task():
    return make_task(stencils(), machine="a100", name="stencils")


@pytest.fixture
def assembler(tmp_path, monkeypatch):
    def install(text):
        ptxas = tmp_path / "ptxas"
        ptxas.write_text(text)
        ptxas.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    return install


def plans(task, count):
    """Distinct plans of the same schedule: what is spilled does not depend on the schedule here."""
    return [PlannedSchedule(naive(task), (), float(i)) for i in range(count)]


def chosen(task, sizes, k):
    planned = plans(task, len(sizes))
    spilled = dict(zip((each.cost for each in planned), sizes, strict=True))
    return without_spills(task, planned, k, lambda each: spilled[each.cost])


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((0, 0, 0, 0), [0, 1]),
        ((8, 0, 0, 0), [1, 2]),
        ((0, 8, 4, 0), [0, 3]),
        ((8, 8, 4, 0), [3, 0]),
        ((8, 8), [0, 1]),
        ((None, 4, None), [0, 2]),
        ((0,), [0]),
        ((), []),
    ],
)
def test_spilling_schedules_come_last(task, sizes, expected):
    assert [each.cost for each in chosen(task, sizes, 2)] == expected


def test_a_note_says_what_was_left_out(task):
    first, second = chosen(task, (8, 0, 4, 0), 2)
    assert first.notes[-1] == (
        "2 schedules were left out because their kernels spill registers (up to 8 bytes per "
        "thread)."
    )
    assert not second.notes
    assert not any(each.notes for each in chosen(task, (8, 8), 2))


def test_none_is_compiled_once_there_are_enough(task):
    asked = []
    without_spills(task, plans(task, 6), 2, lambda each: asked.append(each.cost))
    assert asked == [0.0, 1.0]


def test_none_is_compiled_after_the_time_is_over(task, monkeypatch):
    monkeypatch.setattr(spills, "CHECK_SECONDS", -1.0)
    found = without_spills(task, plans(task, 3), 2, lambda each: pytest.fail("compiled"))
    assert [each.cost for each in found] == [0.0, 1.0]


def test_spills_are_what_the_assembler_reports_of_all_kernels(task, assembler):
    assembler(SPILLING)
    assert can_check_spills(task)
    # The three Funcs have a kernel each.
    assert spill_bytes(task, plans(task, 1)[0]) == 3 * 12
    assembler(FAILING)
    assert spill_bytes(task, plans(task, 1)[0]) == 0


def test_spills_of_a_schedule_that_does_not_compile_are_unknown(task, monkeypatch):
    def refused(pipeline, target):
        raise hl.HalideError("refused")

    monkeypatch.setattr(spills, "kernel_resources", refused)
    assert spill_bytes(task, plans(task, 1)[0]) is None


def test_only_cuda_is_assembled(task, assembler):
    assembler(SPILLING)
    assert not can_check_spills(make_task(stencils(), target="host"))
    assert not can_check_spills(make_task(stencils(), target="opencl", machine="pocl"))


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.few(1)
def test_mode_top_asks_for_more_schedules_than_it_wants(task, assembler, monkeypatch, check):
    assembler(SPILLING)
    asked = []

    def spilled(task, planned):
        asked.append(planned)
        return 4 if len(asked) == 1 else 0

    monkeypatch.setattr(spills, "spill_bytes", spilled)
    plain = autoschedule._planned(task, "top", Planning(k=3, check=False), [], 0)
    found = autoschedule._planned(task, "top", Planning(k=3, check=check), [], 0)
    assert len(found) == 3
    first = plain[0].schedule
    assert (first in [each.schedule for each in found]) is not check
    assert len(asked) == (4 if check else 0)
