"""Machine code of the kernels, disassembled.

Variants can be compared only if `scalar` has no vector instructions, `auto` and `simd` have them,
and no function uses another instruction set than its own.
"""

import re

from disassembled import X86, functions, is_packed, is_vex

from memkern import _memkern
from memkern.static import disassembly
from memkern.static.disassembly import Instruction

# Highway's namespaces of the architecture's baseline, which depend on the compiler.
BASELINE = ("N_SSE2", "N_SCALAR", "N_EMU128", "N_NEON")
OPERATIONS = ("gather", "scatter", "gs", "multigather", "multiscatter")
# A function that the variants of dw.hop with ordinary and with non-temporal stores share.
SHARED = re.compile(r"<void (memkern::simd::N_[A-Z0-9_]+::)\(anonymous namespace\)::update<")
BODY = re.compile(r"(?:body|nontemporal)<(\w+), (\w+), .*Op\)(\d)>")


def kernels(technique: str, *spaces: str) -> dict[str, list[Instruction]]:
    """Functions of a technique in some target namespaces, by default in all."""
    return functions(rf"memkern::{technique}::({'|'.join(spaces) or 'N_[A-Z0-9_]+'})::")


def bodies(technique: str, *spaces: str) -> dict[tuple[str, str, str], list[Instruction]]:
    """Gather/scatter bodies by (operation, value type, index type)."""
    return {
        (OPERATIONS[int(match[3])], match[1], match[2]): code
        for name, code in kernels(technique, *spaces).items()
        if (match := BODY.search(name)) and "nontemporal<" not in name
    }


def test_all_techniques_are_built():
    for technique in ("scalar", "vectorised"):
        assert kernels(technique, *BASELINE), f"{technique} has no baseline"
        assert len(bodies(technique, *BASELINE)) == 20
    built = {entry[2] for entry in _memkern.entries()}
    for isa, space in (("avx2", "N_AVX2"), ("avx512", "N_AVX3"), ("sse4", "N_SSE4")):
        for technique in ("scalar", "vectorised", "simd"):
            assert len(bodies(technique, space)) == (20 if isa in built else 0), (technique, isa)


def test_kernels_call_nothing():
    for technique in ("scalar", "vectorised", "simd"):
        for name, code in kernels(technique).items():
            calls = [
                i
                for i in code
                if i.mnemonic in ("call", "callq", "bl", "blr")
                # The shared function has the same instruction set and is tested as well.
                and not ((shared := SHARED.search(i.operands)) and shared[1] in name)
            ]
            assert not calls, f"{name} calls {calls[0].operands}"


if X86:

    def test_scalar_has_no_vector_instructions():
        for name, code in kernels("scalar").items():
            packed = [i for i in code if is_packed(i)]
            assert not packed, f"{name}: {packed[0]}"

    def test_auto_is_vectorised():
        # Compilers choose the loops to vectorise. All compilers vectorise these operations on
        # doubles: with AVX-512 all five, with AVX2, which has no scatter, the gathers.
        for operations, space in (
            (OPERATIONS, "N_AVX3"),
            (("gather", "multigather"), "N_AVX2"),
        ):
            found = bodies("vectorised", space)
            for (operation, value, index), code in found.items():
                if value == "double" and operation in operations:
                    assert any(is_packed(i) for i in code), (space, operation, value, index)

    def test_simd_uses_hardware_gathers_and_scatters():
        for space in ("N_AVX2", "N_AVX3"):
            for (operation, value, index), code in bodies("simd", space).items():
                names = {i.mnemonic for i in code}
                suffix = "d" if value == "double" else "s"
                where = (space, operation, value, index)
                if operation in ("gather", "gs", "multigather"):
                    assert names & {f"vgatherqp{suffix}", f"vgatherdp{suffix}"}, where
                if space == "N_AVX3" and operation in ("scatter", "gs", "multiscatter"):
                    assert names & {f"vscatterqp{suffix}", f"vscatterdp{suffix}"}, where
                if operation.startswith("multi"):
                    assert names & {"vpgatherqq", "vpgatherdd", "vpgatherdq", "vpgatherqd"}, where

    def test_an_iteration_of_the_pipelined_stencil_reads_registers_of_earlier_ones():
        found = kernels("simd", "N_AVX2")
        name = next(name for name in found if "stencil<double, false, 1, true>" in name)
        # The remainder of a row is in loops with dependencies.
        loops = (
            [i for i in loop if "%ymm" in i.operands]
            for loop in disassembly.innermost_loops(found[name])
        )
        (loop,) = (vectors for vectors in loops if vectors and vectors[0].stores)
        accesses = [i.stores for i in loop if i.accessed_B]
        assert (accesses.count(False), accesses.count(True)) == (5, 1)
        written: set[str] = set()
        for instruction in loop:
            *sources, target = re.findall(r"%ymm\d+", instruction.operands) or [""]
            sources += [target] * instruction.stores
            assert written.isdisjoint(sources), instruction
            written |= {target} - {""} if not instruction.stores else set()
        assert len(written) == 10

    def test_non_temporal_stores_are_fenced():
        streams = [n for n in kernels("scalar") if "nontemporal<" in n]
        assert streams
        for name in streams:
            code = functions()[name]
            assert any(i.mnemonic.startswith("movnti") for i in code), name
            assert any(i.mnemonic == "sfence" for i in code), name

    def test_other_functions_than_kernels_use_the_baseline():
        # A function compiled in a target's region but not inlined could be called on a processor
        # without these instructions.
        passes = re.compile(r"memkern::(scalar|vectorised|simd)::N_(AVX2|AVX3)::")
        for name, code in functions().items():
            if not passes.search(name):
                leaked = [i for i in code if is_vex(i)]
                assert not leaked, f"{name}: {leaked[0]}"

    def test_avx2_needs_no_avx512():
        for technique in ("scalar", "vectorised", "simd"):
            for name, code in kernels(technique, "N_AVX2").items():
                wide = [
                    i
                    for i in code
                    if re.search(r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])|%k[0-7]", i.operands)
                ]
                assert not wide, f"{name}: {wide[0]}"
