"""Cycles in the core: loops found in machine code, and llvm-mca where it is installed."""

from __future__ import annotations

import json
import math
import stat

import pytest
from checking import refused, refused_words, run

import memkern as mk
from memkern import _memkern
from memkern.machine.disassembly import Instruction, function_at, innermost_loops, main_loop
from memkern.measuring import incore

# A loop in another one, and a jump forward.
CODE = [
    Instruction(0, "xor", "%eax,%eax"),
    Instruction(2, "vmovupd", "(%rdi),%ymm0"),
    Instruction(6, "vaddpd", "(%rsi,%rax,8),%ymm0,%ymm0"),
    Instruction(12, "je", "24 <f+0x24>"),
    Instruction(16, "add", "$0x4,%rax"),
    Instruction(20, "jne", "6 <f+0x6>"),
    Instruction(36, "vmovupd", "%ymm0,(%rdi)"),
    Instruction(40, "jmp", "2 <f+0x2>"),
    Instruction(44, "ret", ""),
]


def test_the_innermost_loop_is_found() -> None:
    (loop,) = innermost_loops(CODE)
    assert [i.address for i in loop] == [6, 12, 16, 20]
    assert main_loop(CODE) == loop
    assert main_loop(CODE[-1:]) == []
    assert incore.assembly(loop) == (
        "begin:\n\tvaddpd (%rsi,%rax,8),%ymm0,%ymm0\n\tje begin\n\tadd $0x4,%rax\n\tjne begin\n"
    )


def test_a_jump_keeps_the_registers_that_it_tests() -> None:
    loop = [Instruction(0, "fadd", "d0, d0, d1"), Instruction(4, "cbnz", "x0, 0 <f>")]
    assert incore.assembly(loop) == "begin:\n\tfadd d0, d0, d1\n\tcbnz x0, begin\n"


@pytest.mark.parametrize(
    ("mnemonic", "operands", "accessed_B"),
    [
        ("vfmadd213pd", "(%rax),%zmm1,%zmm2", 64),
        ("vmovupd", "%ymm1,(%rax)", 32),
        ("movups", "(%rax),%xmm1", 16),
        ("vmovsd", "(%rax),%xmm1", 8),
        ("vaddss", "(%rax),%xmm1,%xmm1", 4),
        ("vmovq", "(%rax),%xmm1", 8),
        ("vmovapd", "%zmm1,%zmm2", 0),
        ("lea", "(%rax,%rax,8),%rcx", 0),
        ("mov", "(%rax),%rcx", 0),
    ],
)
def test_bytes_of_accesses(mnemonic, operands, accessed_B) -> None:
    assert Instruction(0, mnemonic, operands).accessed_B == accessed_B


def test_every_body_is_where_the_extension_says() -> None:
    offsets = _memkern.body_offsets()
    assert len(offsets) == len(_memkern.entries())
    assert all(offsets)
    names = [
        function_at(_memkern.__file__, offset)[0]
        for entry, offset in zip(_memkern.entries(), offsets, strict=True)
        if entry[:2] == ("loops.triad", "simd")
    ]
    assert names
    assert all("Triad" in name and "memkern::simd::" in name for name in names)
    with refused("no function of .* begins at 0x1"):
        function_at(_memkern.__file__, 1)


@pytest.mark.parametrize("unroll", [1, 2, 4, 8])
@pytest.mark.parametrize(("kernel", "dtype"), [("triad", "float64"), ("copy", "float32")])
def test_an_iteration_has_as_many_vectors_as_it_is_unrolled(kernel, dtype, unroll) -> None:
    case = mk.loops(kernel, elements=64, dtype=dtype, variant="simd", unroll=unroll, threads=1)
    isa = _memkern.supported_isas()[0]
    body = incore.body_of(case, {"variant": "simd", "isa": isa})
    assert body.vectors == unroll


def program(tmp_path, monkeypatch, text, code=0):
    """Put a program named llvm-mca first in the search path."""
    path = tmp_path / "llvm-mca"
    path.write_text(f"#!/bin/sh\ncat > {tmp_path}/input\ncat <<'END'\n{text}\nEND\nexit {code}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(incore, "llvm_mca", lambda: str(path))


BODY = incore.Body("f", tuple(CODE[2:6]), 2.0)


def test_the_cycles_are_those_of_a_vector(tmp_path, monkeypatch) -> None:
    program(tmp_path, monkeypatch, "Iterations:        1000\nTotal Cycles:      3000")
    assert incore.mca_cycles(BODY) == 3 / 2
    assert (tmp_path / "input").read_text() == incore.assembly(BODY.loop)
    program(tmp_path, monkeypatch, "Total Cycles: 3000", code=1)
    assert math.isnan(incore.mca_cycles(BODY))
    program(tmp_path, monkeypatch, "an error")
    assert math.isnan(incore.mca_cycles(BODY))
    monkeypatch.setattr(incore, "llvm_mca", lambda: None)
    assert math.isnan(incore.mca_cycles(BODY))


def test_llvm_mca_predicts_a_loop() -> None:
    """Run the program where it is installed; it is optional."""
    if incore.llvm_mca() is None:
        assert math.isnan(incore.mca_cycles(BODY))
        return
    # A chain of additions takes at least a cycle each.
    assert incore.mca_cycles(BODY, "skylake") * BODY.vectors == pytest.approx(4, abs=0.5)
    assert math.isnan(incore.mca_cycles(BODY, "no-such-processor"))


def test_the_verb_prints_both(capsys, monkeypatch) -> None:
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    code, out, err = run(capsys, "incore", "-k", "triad,copy", "--seconds", "5")
    assert code == 0, err
    assert [line.split()[0] for line in out.splitlines()[-2:]] == ["loops.copy", "loops.triad"]
    code, out, _ = run(capsys, "incore", "-k", "triad", "--json", "-q", "--seconds", "5")
    (row,) = json.loads(out)
    assert row["measured_cycles"] > 0
    assert row["vectors"] == 4
    words = refused_words(capsys, "incore", "-k", "foo", "-q")
    assert "kernel 'loops.foo' is not one of" in words


REPORT = """Open Source Architecture Code Analyzer (OSACA) - 0.0

Combined Analysis Report
------------------------
     |  0   |  1   |  2   ||  CP  | LCD  |
   1 | 0.50 | 0.50 |      ||      |      | begin:
   2 | 1.00 |      | 2.00 ||  4.0 |  1.0 | vaddpd %zmm0, %zmm1, %zmm1

      1.50   0.50   2.00      4.0    LOOP


Loop-Carried Dependencies Analysis Report
-----------------------------------------
   2 |  1.0 | vaddpd %zmm0, %zmm1, %zmm1 | [2]
"""


@pytest.fixture
def fake_osaca(tmp_path, monkeypatch):
    """Return a function that puts a program in place of OSACA, which prints a text."""

    def put(text: str, code: int = 0) -> None:
        path = tmp_path / "osaca"
        path.write_text(
            f"#!/bin/sh\ntest -s \"$3\" || exit 3\ncat <<'END'\n{text}\nEND\nexit {code}\n"
        )
        path.chmod(0o755)
        monkeypatch.setattr(incore, "osaca", lambda: str(path))

    return put


def test_the_cycles_of_osaca(fake_osaca) -> None:
    fake_osaca(REPORT.replace("LOOP", "1.0 "))
    # The busiest port takes 2 cycles, the dependency 1; an iteration has two vectors.
    assert incore.osaca_cycles(BODY, "ZEN4") == 2 / BODY.vectors
    fake_osaca(REPORT.replace("LOOP", "8.0 "))
    assert incore.osaca_cycles(BODY, "ZEN4") == 8 / BODY.vectors
    assert math.isnan(incore.osaca_cycles(BODY, ""))
    fake_osaca(REPORT.replace("LOOP", "1.0 "), code=1)
    assert math.isnan(incore.osaca_cycles(BODY, "ZEN4"))
    fake_osaca("the performance data of 2 instructions is missing")
    assert math.isnan(incore.osaca_cycles(BODY, "ZEN4"))


def test_osaca_predicts_a_loop() -> None:
    if incore.osaca() is None:
        assert math.isnan(incore.osaca_cycles(BODY, "SKX"))
        pytest.skip("OSACA is not installed")
    assert incore.osaca_cycles(BODY, "SKX") * BODY.vectors == pytest.approx(4, abs=0.5)
    assert math.isnan(incore.osaca_cycles(BODY, "no-such-processor"))
