"""Loops in machine code of AArch64, from a stored listing, and instructions of both processors."""

from pathlib import Path

import pytest
from disassembled import instructions_of, is_packed

from memkern.static.disassembly import Instruction, innermost_loops, main_loop

FUNCTIONS = instructions_of((Path(__file__).parent / "aarch64_loops.txt").read_text())


@pytest.mark.parametrize(
    ("name", "begin", "end", "accessed_B"),
    [
        ("triad", 0x30, 0x58, 6 * 16),
        ("scalar_sum", 0x70, 0x7C, 8),
        ("sve_daxpy", 0x18, 0x34, 3 * 16),
        ("sve_gather", 0x50, 0x68, 3 * 16),
    ],
)
def test_the_loop_of_a_function_is_found(name, begin, end, accessed_B):
    (loop,) = innermost_loops(FUNCTIONS[name])
    assert (loop[0].address, loop[-1].address) == (begin, end)
    assert main_loop(FUNCTIONS[name]) == loop
    assert sum(instruction.accessed_B for instruction in loop) == accessed_B


@pytest.mark.parametrize(
    ("mnemonic", "operands", "accessed_B"),
    [
        ("ldr", "q0, [x0], #16", 16),
        ("ldp", "q0, q1, [x0]", 32),
        ("stp", "d8, d9, [sp, #-16]!", 16),
        ("ldr", "s1, [x0, x1, lsl #2]", 4),
        ("ld1", "{v0.2d-v3.2d}, [x0]", 64),
        ("ld1", "{v0.2d, v1.2d}, [x0]", 32),
        ("ld2", "{v30.4s-v31.4s}, [x0]", 32),
        ("ld1", "{v0.2s}, [x0]", 8),
        ("ld1", "{v0.d}[1], [x0]", 8),
        ("ld1r", "{v0.2d}, [x0]", 8),
        ("ld1rd", "{z0.d}, p0/z, [x0]", 8),
        ("ldr", "z0, [x0, #1, mul vl]", 16),
        ("st1d", "{z1.d}, p0, [x0, x3, lsl #3]", 16),
        ("ld1d", "{z0.d}, p0/z, [z1.d]", 16),
        ("ldr", "x0, [x1]", 0),
        ("prfm", "pldl1keep, [x0, #64]", 0),
        ("fmov", "d0, d1", 0),
        ("b.ne", "d0 <f(v0)+0xd0>", 0),
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
def test_bytes_of_accesses(mnemonic, operands, accessed_B):
    assert Instruction(0, mnemonic, operands).accessed_B == accessed_B


@pytest.mark.parametrize(
    ("mnemonic", "operands", "target"),
    [
        ("b.ne", "30 <triad+0x30>", 0x30),
        ("b", "30 <triad+0x30>", 0x30),
        ("cbnz", "x0, 30 <triad+0x30>", 0x30),
        ("cbz", "w10, d0 <triad+0xd0>", 0xD0),
        ("tbnz", "w0, #3, 30 <triad+0x30>", 0x30),
        ("bl", "30 <triad+0x30>", None),
        ("adr", "x0, 30 <triad+0x30>", None),
        ("jne", "30 <triad+0x30>", 0x30),
        ("call", "30 <triad+0x30>", None),
        ("bt", "%eax,30 <triad+0x30>", None),
    ],
)
def test_targets_of_jumps(mnemonic, operands, target):
    assert Instruction(0, mnemonic, operands).target == target


@pytest.mark.parametrize(
    ("mnemonic", "operands", "operation", "bits"),
    [
        ("fmla", "v2.2d, v0.2d, v4.2d", "fma", 128),
        ("fmad", "z1.d, p0/m, z0.d, z2.d", "fma", None),
        ("fmadd", "d0, d1, d2, d0", "fma", 64),
        ("fadd", "d0, d0, d1", "add", 64),
        ("fmax", "v0.2d, v0.2d, v1.2d", "add", 128),
        ("fmul", "v0.2d, v0.2d, v1.2d", "mul", 128),
        ("fdiv", "d0, d0, d1", "divide", 64),
        ("trn1", "v0.2d, v0.2d, v1.2d", "permute", 128),
        ("ldr", "q4, [x2, x3]", "", 128),
        ("dup", "v0.2d, v0.d[0]", "", 128),
        ("add", "x3, x3, #0x20", "", None),
    ],
)
def test_arithmetic(mnemonic, operands, operation, bits):
    instruction = Instruction(0, mnemonic, operands)
    assert (instruction.operation, instruction.vector_bits) == (operation, bits)
    assert not instruction.stores


def test_packed_instructions_are_told_from_single_values():
    packed = {name: any(is_packed(i) for i in main_loop(code)) for name, code in FUNCTIONS.items()}
    assert packed == {"triad": True, "scalar_sum": False, "sve_daxpy": True, "sve_gather": True}
    stores = {name: sum(i.stores for i in main_loop(code)) for name, code in FUNCTIONS.items()}
    assert stores == {"triad": 2, "scalar_sum": 0, "sve_daxpy": 1, "sve_gather": 1}
    assert [i.operands for i in FUNCTIONS["sve_gather"] if i.gathers] == [
        "{z0.d}, p0/z, [x1, z0.d, lsl #3]"
    ]
