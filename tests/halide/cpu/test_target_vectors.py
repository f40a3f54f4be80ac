"""What a target string allows of a machine's vectors decides what the cost model assumes."""

import halide as hl
import pytest

from tilewright.halide.ir.targets import vector_bits
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.task import make_task
from tilewright.machines import CpuMachine

ISA = ("sse4.1", "avx", "f16c", "fma", "avx2", "avx512")
MACHINE = CpuMachine("test", "x86-64", 4, ISA, 512, ())
AVX2 = "x86-64-linux-avx-avx2-f16c-fma-sse41"


def pipeline():
    x, out = hl.Var("x"), hl.Func("out")
    image = hl.ImageParam(hl.Float(32), 1, "image")
    out[x] = image[x] * 2.0
    out.set_estimates([(0, 1000)])
    return out


@pytest.mark.parametrize(
    ("target", "bits"),
    [
        ("x86-64-linux-avx-avx2-avx512-avx512_skylake", 512),
        ("x86-64-linux-avx512_zen5", 512),
        (AVX2, 256),
        ("x86-64-linux-avx-sse41", 256),
        ("x86-64-linux-sse41", 128),
        ("x86-64-linux", 128),
        ("host", None),
        ("host-no_asserts", None),
        ("arm-64-linux", None),
        ("x86-64-linux-cuda", None),
    ],
)
def test_vector_bits(target, bits):
    assert vector_bits(target) == bits


@pytest.mark.parametrize(
    ("target", "lanes", "registers", "isa"),
    [
        ("host", 16, 32, ISA),
        (AVX2, 8, 16, ISA[:-1]),
        ("x86-64-linux-sse41", 4, 16, ISA[:1]),
    ],
)
def test_the_model_has_the_registers_of_the_target(target, lanes, registers, isa):
    machine = make_task(pipeline(), target=target, machine=MACHINE).machine
    model = model_of(machine)
    assert (machine.lanes(32), model.registers, machine.isa) == (lanes, registers, isa)


def test_a_target_gives_a_machine_nothing():
    small = CpuMachine("test", "x86-64", 4, ("sse4.1",), 128, ())
    assert make_task(pipeline(), target=AVX2, machine=small).machine == small
