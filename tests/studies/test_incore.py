"""Cycles in the core: loops found in machine code, and llvm-mca if it is installed."""

import dataclasses
import json
import math
import platform

import numpy as np
import pytest
from checking import executable, output_of, refused, refused_words

import memkern as mk
from memkern import _memkern
from memkern.engine.recording.taken import Measurement
from memkern.models.machine_file import EcmParameters, Quantity
from memkern.models.machine_file import Instruction as Instruction_
from memkern.models.machine_reading import load_machine
from memkern.models.published_machines import published
from memkern.static import analysis
from memkern.static.disassembly import Instruction, function_at, innermost_loops, main_loop
from memkern.studies import ecm

X86 = platform.machine() in ("x86_64", "AMD64")
# Nested loops and a forward jump.
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


def test_the_innermost_loop_is_found():
    (loop,) = innermost_loops(CODE)
    assert [i.address for i in loop] == [6, 12, 16, 20]
    assert main_loop(CODE) == loop
    assert main_loop(CODE[-1:]) == []
    assert analysis.assembly(loop) == (
        "begin:\n\tvaddpd (%rsi,%rax,8),%ymm0,%ymm0\n\tje begin\n\tadd $0x4,%rax\n\tjne begin\n"
    )


def test_the_main_loop_may_contain_loops_without_vectors():
    prefetch = [
        Instruction(13, "prefetcht0", "(%rcx)"),
        Instruction(14, "add", "$0x40,%rcx"),
        Instruction(15, "jne", "d <f+0xd>"),
    ]
    code = sorted([*CODE, *prefetch])
    assert [i.address for i in main_loop(code)] == [6, 12, 13, 14, 15, 16, 20]


def test_the_main_loop_stores_what_its_kernel_does():
    stored = [
        Instruction(50, "vmovupd", "%ymm0,(%rdi)"),
        Instruction(54, "vmovupd", "%ymm0,0x20(%rdi)"),
        Instruction(58, "jne", "50 <f+0x50>"),
    ]
    stored = [one._replace(address=0x50 + number) for number, one in enumerate(stored)]
    code = [*CODE, *stored]
    assert main_loop(code) == main_loop(code, stores=True) == stored
    assert main_loop(code, stores=False) == main_loop(CODE)
    assert main_loop(CODE, stores=True) == main_loop(CODE)


def test_a_jump_keeps_the_registers_that_it_tests():
    loop = [Instruction(0, "fadd", "d0, d0, d1"), Instruction(4, "cbnz", "x0, 0 <f>")]
    assert analysis.assembly(loop) == "begin:\n\tfadd d0, d0, d1\n\tcbnz x0, begin\n"


def test_every_body_is_where_the_extension_says():
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
def test_an_iteration_has_as_many_vectors_as_it_is_unrolled(kernel, dtype, unroll):
    case = mk.loops(kernel, elements=64, dtype=dtype, variant="simd", unroll=unroll, threads=1)
    isa = _memkern.supported_isas()[0]
    body = analysis.main_loop_of(case, {"variant": "simd", "isa": isa})
    assert body.units == unroll


@pytest.mark.skipif(not X86, reason="counts the instructions of x86")
@pytest.mark.parametrize(("layout", "share"), [("RRII", 1), ("RIRI", 3 / 4)])
def test_the_loop_of_the_domain_wall_is_in_the_function_that_its_body_calls(layout, share):
    options = {"layout": layout, "cut": "s", "ls": 8, "variant": "simd", "threads": 1}
    case = mk.case("dw.hop", lattice=(2, 2, 2, 2), **options)
    body = analysis.main_loop_of(case, case.prepare().native.obtained())
    bits = sum(i.vector_bits or 0 for i in body.loop if i.operation in ("fma", "mul"))
    # A site has eight products of two spinor components with a matrix of 3 x 3 complex numbers. In
    # RIRI there are a third more multiplications, with only one part of each number.
    assert bits / 64 * share == body.units * 8 * 2 * 9 * 4


def program(tmp_path, monkeypatch, text, code=0):
    """Replace llvm-mca by a program that prints a text."""
    prints = f"cat > {tmp_path}/input\ncat <<'END'\n{text}\nEND\nexit {code}"
    path = executable(tmp_path / "llvm-mca", prints)
    monkeypatch.setattr(analysis, "llvm_mca", lambda: path)


BODY = analysis.Body("f", tuple(CODE[2:6]), 2.0)


def test_the_cycles_are_those_of_a_vector(tmp_path, monkeypatch):
    program(tmp_path, monkeypatch, "Iterations:        1000\nTotal Cycles:      3000")
    assert analysis.mca(BODY).cycles == 3 / 2
    assert (tmp_path / "input").read_text() == analysis.assembly(BODY.loop)
    program(tmp_path, monkeypatch, "Total Cycles: 3000", code=1)
    assert math.isnan(analysis.mca(BODY).cycles)
    program(tmp_path, monkeypatch, "an error")
    assert math.isnan(analysis.mca(BODY).cycles)
    monkeypatch.setattr(analysis, "llvm_mca", lambda: None)
    assert math.isnan(analysis.mca(BODY).cycles)


# A report of llvm-mca 14, shortened.
PORTS = """Iterations:        1000
Total Cycles:      3000

Resources:
[0]   - Zn3AGU0
[1]   - Zn3FPP0
[12.0] - Zn3FPP45
[12.1] - Zn3FPP45

Resource pressure per iteration:
[0]    [1]    [12.0] [12.1]
 -     1.00   2.80   2.60

Resource pressure by instruction:
[0]    [1]    [12.0] [12.1] Instructions:
 -     9.00   0.34   0.66   vmovupd (%rdi), %ymm0"""


def test_the_busiest_port_is_named(tmp_path, monkeypatch):
    program(tmp_path, monkeypatch, PORTS)
    found = analysis.mca(BODY)
    ports = {"Zn3AGU0": 0.0, "Zn3FPP0": 0.5, "Zn3FPP45.0": 1.4, "Zn3FPP45.1": 1.3}
    assert found == (1.5, ports) and found.busiest == "Zn3FPP45.0"
    program(tmp_path, monkeypatch, PORTS.replace("2.80", " -  ").replace("2.60", " -  "))
    assert analysis.mca(BODY).busiest == "Zn3FPP0"
    program(tmp_path, monkeypatch, "Total Cycles: 3000")
    assert analysis.mca(BODY) == (1.5, {}) and analysis.mca(BODY).busiest == ""


@pytest.mark.parametrize(
    ("mnemonic", "operands", "on_stack"),
    [
        ("vmovapd", "%zmm1,0x40(%rsp)", True),
        ("vaddpd", "-0x80(%rbp),%ymm1,%ymm0", True),
        ("vaddpd", "0x80(%rbp,%rax,8),%ymm1,%ymm0", False),
        ("mov", "0x8(%rsp),%rax", False),  # no vector
        ("ldr", "q0, [sp, #16]", True),
        ("ldr", "q0, [x0, #16]", False),
    ],
)
def test_accesses_to_the_stack(mnemonic, operands, on_stack):
    assert Instruction(0, mnemonic, operands).on_stack == on_stack


def test_what_a_loop_accesses_beyond_its_definition_is_a_surplus(monkeypatch):
    triad = [
        Instruction(0, "vmovupd", "(%rdi),%ymm0"),
        Instruction(4, "vmovapd", "%ymm0,0x20(%rsp)"),
        Instruction(8, "vmovupd", "(%rsi),%ymm1"),
        Instruction(12, "vfmadd213pd", "0x20(%rsp),%ymm2,%ymm1"),
        Instruction(16, "vmovupd", "%ymm1,(%rdx)"),
        Instruction(20, "jne", "0 <f>"),
    ]
    monkeypatch.setattr(analysis, "function_at", lambda *_: ("f", triad))
    case = mk.loops("triad", elements=64, variant="simd", threads=1)
    obtained = {"variant": "simd", "isa": "avx2", "vector_B": 32}
    body = analysis.main_loop_of(case, obtained)
    assert (body.units, body.surplus) == (1.0, (32.0, 32.0))
    del triad[1]
    triad[2] = Instruction(12, "vfmadd213pd", "%ymm0,%ymm2,%ymm1")
    body = analysis.main_loop_of(case, obtained)
    assert (body.units, body.surplus) == (1.0, (0.0, 0.0))


def test_llvm_mca_predicts_a_loop():
    if analysis.llvm_mca() is None:
        assert math.isnan(analysis.mca(BODY).cycles)
        pytest.skip("llvm-mca is not installed")
    # Dependent additions take 4 cycles each on Skylake.
    assert analysis.mca(BODY, "skylake").cycles * BODY.units == pytest.approx(4, abs=0.5)
    assert math.isnan(analysis.mca(BODY, "no-such-processor").cycles)


TABLE = dataclasses.replace(
    published("A64FX"),
    vector_bits=256,
    instructions=tuple(
        Instruction_(name, bits, Quantity(cycles))
        for bits in (64, 128, 256, 512)
        for name, cycles in (
            *(("load", 0.5), ("store", 1.0), ("add", 0.5), ("mul", 0.25), ("fma", 0.75)),
            *(("permute", 1.0), ("gather, stride 1", 5.0)),
        )
    ),
    ecm=None,
)


def test_the_terms_of_a_loop_are_those_of_its_instructions():
    loop = (
        Instruction(0, "vmovupd", "(%rdi),%ymm0"),
        Instruction(4, "vfmadd213pd", "(%rsi),%ymm1,%ymm0"),
        Instruction(8, "vaddpd", "%ymm0,%ymm2,%ymm0"),
        Instruction(12, "vmovupd", "%ymm0,(%rdx)"),
        Instruction(16, "vgatherdpd", "%ymm4,(%rdi,%xmm5,8),%ymm6"),
        Instruction(20, "vmovapd", "%ymm0,%ymm1"),
        Instruction(24, "add", "$0x20,%rdi"),
        Instruction(28, "jne", "0 <f>"),
    )
    found = analysis.terms(analysis.Body("f", loop, 2.0), TABLE)
    assert found == {
        "arithmetic_cycles": (0.75 + 0.5) / 2,
        "load_cycles": (0.5 + 0.5 + 5.0) / 2,
        "store_cycles": 1.0 / 2,
        "transfer_cycles": 6.0 / 2,
    }
    apart = EcmParameters((), "L1 load + L1 store", "")
    alone = analysis.terms(analysis.Body("f", loop, 2.0), dataclasses.replace(TABLE, ecm=apart))
    assert alone["transfer_cycles"] == (6.0 + 1.0) / 2
    for body, machine in ((None, TABLE), (BODY, None)):
        assert all(math.isnan(value) for value in analysis.terms(body, machine).values())
    lacking = dataclasses.replace(TABLE, instructions=())
    assert math.isnan(analysis.terms(BODY, lacking)["arithmetic_cycles"])


def measured(seconds):
    """Return a measurement at 1 GHz."""
    record = {
        "kernel": "loops.triad", "name": "L1", "time_min_s": seconds, "clock_GHz": 1.0,
        "placement_sd": 0.0, "disturbed": False,
    }  # fmt: skip
    return Measurement(record, np.empty(0), {})


def test_a_time_is_that_by_which_two_sizes_differ():
    whole, part = (mk.loops("triad", elements=count) for count in (800, 200))
    time, row_cycles = ecm._times(whole, measured(1e-6), part, measured(4e-7))
    assert (time.cycles, time.disturbed) == (pytest.approx(1.0), False)
    assert math.isnan(row_cycles)
    # The second size was not measured, since the time was over.
    time, _ = ecm._times(whole, measured(1e-6), part, None)
    assert (time.cycles, time.disturbed) == (pytest.approx(1.25), True)
    assert not ecm._times(whole, measured(1e-6), None, None)[0].disturbed


def test_rows_and_nonzeros_of_a_matrix_are_told_apart():
    long, short = (mk.case("spmv.crs", matrix=f"tsm:{rows}:{1024 // rows}") for rows in (8, 64))
    times = [measured((1024 * 1.5 + rows * 20) / 1e9) for rows in (8, 64)]
    time, row_cycles = ecm._times(long, times[0], short, times[1])
    assert (time.cycles, row_cycles) == (pytest.approx(1.5), pytest.approx(20))


def in_core(capsys, *words):
    """Return the rows of the verb and its standard error."""
    out, err = output_of(capsys, "machine", "incore", *words, "--json", "--seconds", "20")
    return json.loads(out), err


def test_the_verb_prints_a_table(capsys, monkeypatch, tmp_path, fake_osaca):
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    fake_osaca(REPORT.replace("LOOP", "8.0 "))
    program(tmp_path, monkeypatch, PORTS.replace("3000", "4000"))
    out, _ = output_of(
        capsys, "machine", "incore", "-k", "triad,stream.copy", "--arch", "ZEN4", "--seconds", "5"
    )
    header, *lines = (line.split() for line in out.splitlines()[-3:])
    assert [line[0] for line in lines] == ["loops.triad", "stream.copy"]
    row = dict(zip([name for name in header if name != "unroll"], lines[0], strict=False))
    assert (row["llvm-mca"], row["OSACA"]) == ("1.000", "2.000")
    assert float(row["meas/mca"]) == pytest.approx(float(row["measured"]), abs=0.01)
    assert lines[0][-3:] == ["port", "Zn3FPP45.0", "0.700"]
    assert float(row["meas/OSA"]) == pytest.approx(float(row["measured"]) / 2, abs=0.01)
    words = refused_words(capsys, "machine", "incore", "-k", "foo", "-q")
    assert "kernel 'loops.foo' is unknown: did you mean loops." in words
    words = refused_words(capsys, "machine", "incore", "-k", "triad", "--variant", "nt", "-q")
    assert "variant 'nt' is not one of" in words
    words = refused_words(capsys, "machine", "incore", "--machine", "A64FX", "-q")
    assert "not the published machine A64FX" in words


@pytest.mark.usefixtures("small_cases")
def test_every_variant_and_unrolling_is_measured(capsys):
    options = ("-k", "triad", "--variant", "scalar,simd", "--unroll", "0,1,8")
    rows, err = in_core(capsys, *options, "--isa", _memkern.supported_isas()[0])
    found = {(row["variant"], row["unroll"]): row for row in rows}
    assert {("simd", 0), ("simd", 1), ("simd", 8), ("scalar", 0)} <= found.keys()
    assert (found["simd", 1]["units"], found["simd", 8]["units"]) == (1, 8)
    assert found["scalar", 0]["units"] < 1
    assert all(row["in_core_unit"] == "vector" and row["in_core_cycles"] > 0 for row in rows)
    # Scalar code is not unrolled.
    assert len(found) == 4
    assert "not measured" not in err
    assert "is not built with unroll 5" in refused_words(
        capsys, "machine", "incore", "-k", "stream.triad", "--unroll", "5", "-q"
    )


def test_times_are_stored_in_records_and_in_the_machine_file(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    # Its prediction of a hop takes seconds.
    monkeypatch.setattr(analysis, "llvm_mca", lambda: None)
    machine, path = TABLE.save(tmp_path / "machine.json"), tmp_path / "records.parquet"
    kernels = "triad,spatter.gather,spmv.crs,spmv.sell,dw.hop"
    rows, _ = in_core(capsys, "-k", kernels, "--machine", str(machine), "-o", str(path))
    assert [row["kernel"].partition(".")[0] for row in rows][:4] == [
        "loops", "spatter", "spmv", "spmv"
    ]  # fmt: skip
    units = {row["layout"]: row["units"] for row in rows if row["kernel"] == "dw.hop"}
    hops = [row for row in rows if row["kernel"] == "dw.hop"]
    assert all(row["surplus_load_B"] >= 0 and row["surplus_store_B"] >= 0 for row in hops)
    assert units["RRII"] == 2 * units["RIRI"] and units["RIRI"] >= 1 and len(units) == 2
    assert all(row["in_core_cycles"] > 0 for row in rows)
    assert rows[0]["arithmetic_cycles"] == 0.75
    assert rows[2]["in_core_row_cycles"] >= 0
    assert rows[2]["in_core_unit"] == "element"
    stored = {
        (record["kernel"], record.get("layout") or ""): record
        for record in mk.load(path)
        if record["in_core_cycles"] == record["in_core_cycles"]
        and not str(record["name"]).endswith("part")
    }
    for row in rows:
        record = stored[row["kernel"], row["layout"]]
        assert record["in_core_cycles"] == row["in_core_cycles"]
        assert record["in_core_unit"] == row["in_core_unit"]
    times = load_machine(machine)
    (hop,) = (row for row in rows if row["layout"] == "RIRI")
    found = times.in_core_of(stored["dw.hop", "RIRI"])
    assert (found.cycles, found.level) == (hop["in_core_cycles"], hop["level"])
    crs = times.in_core_of(stored["spmv.crs", ""])
    assert crs.row_cycles == rows[2]["in_core_row_cycles"]
    # For a loop, an element is a value of each array.
    loop = times.in_core_of(stored["loops.triad", ""])
    assert loop.cycles < rows[0]["in_core_cycles"]


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
    """Return a function that replaces OSACA by a program that prints a text."""

    def put(text: str, code: int = 0, first: str = ":") -> None:
        prints = f"{first}\ntest -s \"$3\" || exit 3\ncat <<'END'\n{text}\nEND\nexit {code}"
        path = executable(tmp_path / "osaca", prints)
        monkeypatch.setattr(analysis, "osaca", lambda: path)

    return put


def test_the_cycles_of_osaca(fake_osaca, monkeypatch):
    fake_osaca(REPORT.replace("LOOP", "1.0 "))
    # The busiest port takes 2 cycles, the dependency 1; an iteration has two vectors.
    assert analysis.by_osaca(BODY, "ZEN4") == (2 / 2, {"0": 1.5 / 2, "1": 0.5 / 2, "2": 2 / 2})
    fake_osaca(REPORT.replace("LOOP", "8.0 "))
    assert analysis.by_osaca(BODY, "ZEN4").cycles == 8 / BODY.units
    assert math.isnan(analysis.by_osaca(BODY, "").cycles)
    fake_osaca(REPORT.replace("LOOP", "1.0 "), code=1)
    assert math.isnan(analysis.by_osaca(BODY, "ZEN4").cycles)
    fake_osaca("the performance data of 2 instructions is missing")
    assert math.isnan(analysis.by_osaca(BODY, "ZEN4").cycles)
    monkeypatch.setattr(analysis, "_OSACA_S", 0.05)
    fake_osaca(REPORT.replace("LOOP", "1.0 "), first="sleep 1")
    assert math.isnan(analysis.by_osaca(BODY, "ZEN4").cycles)


# The head and the sum of a report of OSACA 0.7.1, whose first port is in use and second is not.
A64FX = """Combined Analysis Report
------------------------
     |  0   - 0DV  |  1   |  2   |  3   |  4   |  5   -  5D  |  6   -  6D  |  7   ||  CP  | LCD  |
--------------------------------------------------------------------------------------------------
   1 |             |      |      |      |      |             |             |      ||      |      |

       1.00                 2.00   1.00   1.00   0.50   0.50   0.50   0.50   1.00     9.0    9.0
"""


def test_ports_of_the_a64fx_have_the_names_of_the_paper(fake_osaca):
    fake_osaca(A64FX)
    found = analysis.by_osaca(BODY, "a64fx")
    assert found.cycles == 9 / BODY.units and found.busiest == "FLB"
    names = ["FLA", "0DV", "PR", "FLB", "EXA", "EXB", "EAGA", "5D", "EAGB", "6D", "BR"]
    assert [*found.ports] == names
    assert (found.ports["EAGA"], found.ports["PR"]) == (0.5 / BODY.units, 0.0)


def test_osaca_predicts_a_loop():
    if analysis.osaca() is None:
        assert math.isnan(analysis.by_osaca(BODY, "SKX").cycles)
        pytest.skip("OSACA is not installed")
    assert analysis.by_osaca(BODY, "SKX").cycles * BODY.units == pytest.approx(4, abs=0.5)
    assert math.isnan(analysis.by_osaca(BODY, "no-such-processor").cycles)
