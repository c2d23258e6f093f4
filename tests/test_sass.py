"""Machine code of the GPU kernels: loads are issued together, and local memory is unused."""

import re
from collections import Counter
from pathlib import Path

import pytest
import sass
from checking import once_a_kind
from sharing import once

from memkern.machine import remote

pytestmark = pytest.mark.skipif(
    not remote.is_built("cuda"), reason="this build has no CUDA part, as there is no CUDA Toolkit"
)

Code = dict[str, list[sass.Instruction]]
# Operations by the number of arrays that they read, and by the number of all their arrays.
MAPS = {
    "Copy": (1, 2),
    "Scale": (1, 2),
    "Add": (2, 3),
    "Triad": (2, 3),
    "Axpby": (2, 2),
    "Update": (1, 1),
    "Daxpy": (2, 2),
    "Nstream": (3, 3),
    "Schoenauer": (3, 4),
}
SUMS = {
    "Norm": (1, 1),
    "Dot": (2, 2),
    "Sum": (1, 1),
    "Load": (1, 1),
    "Load4": (4, 4),
    "CgUpdate": (4, 4),
    "CgUpdateRelease": (2, 2),
}


# RaiderSTREAM's indexed operations: the number of arrays that they read, and for each array the
# number of its index array, -1 without one. Index arrays are read as well.
INDEXED = {"Copy": (1, "0, 1"), "Triad": (2, "-1, 0, 1"), "Add": (2, "0, 1, 2")}
MOVES = ("Gather", "Scatter", "GatherScatter")
# Kernels for any deltas and lengths, which find instances and elements by division.
MOVES_ANY = {f"any {op}": f"MoveAny<double, long, (SpatterOp){k}>" for k, op in enumerate(MOVES)}
# By the instruction of a fused multiply-add.
PEAKS = {
    "FFMA": "Reduce<Single<float>, Peak, 0, 8>",
    "DFMA": "Reduce<Single<double>, Peak, 0, 8>",
}
MATVEC = "Matvec<double, 8>"
STENCIL = "StencilGrid<double, 4>"
GATHERS = {"bs6": "Gather<double, int>", "bs6 balanced": "BalancedGather<double, int>"}
MESHES = {"bs7": "Scatter<double, int>", "bs8": "GatherScatter<double, int>"}
CHAINS = (1, 2, 4, 8, 16)


def updates(carrier: str) -> str:
    """Return the kernel that updates random words with this carrier."""
    return f"Direct<amo::Rand, (Assignment)0, {carrier} >"


# Values of the enumerators that are numbers in the kernels' names.
ADD, CAS, PLAIN = 0, 7, 9
RELAXED, ACQ_REL, SEQ_CST = range(3)
DEVICE, SYSTEM = range(2)


def words(primitive: int, order: int, scope: int, used: bool) -> str:
    """Return a carrier of 64-bit words; `used` tells whether their old values are used."""
    atomics = f"Atomics<(Primitive){primitive}, (Order){order}, (Scope){scope}>"
    return f"Words<{atomics}, unsigned long, unsigned long, {str(used).lower()}>"


# Updates, fences and matches of the loop over a worker's words. If the old value isn't used, the
# multiprocessor doesn't wait for it; but with a memory order the PTX requests the value.
UPDATES = {
    updates(words(ADD, RELAXED, DEVICE, False)): {"RED": 1},
    updates(words(ADD, RELAXED, DEVICE, True)): {"ATOMG": 1},
    updates(words(ADD, ACQ_REL, DEVICE, False)): {"ATOMG": 1, "MEMBAR.ALL.GPU": 1},
    updates(words(ADD, ACQ_REL, DEVICE, True)): {"ATOMG": 1, "MEMBAR.ALL.GPU": 1},
    updates(words(ADD, SEQ_CST, DEVICE, True)): {"ATOMG": 1, "MEMBAR.SC.GPU": 1},
    updates(words(ADD, RELAXED, SYSTEM, False)): {"RED": 1},
    updates(words(ADD, RELAXED, SYSTEM, True)): {"ATOMG": 1},
    updates(words(CAS, RELAXED, DEVICE, True)): {"CAS": 1},
    updates(words(CAS, ACQ_REL, DEVICE, True)): {"CAS": 1, "MEMBAR.ALL.GPU": 1},
    updates(words(PLAIN, RELAXED, DEVICE, True)): {},
    updates("WarpWords<unsigned long, true>"): {"ATOMG": 1, "MATCH": 1},
}


# Files of families whose kernels are not in gpu-inl.hpp.
FILES = {
    "streaming": ["bs/gpu-inl.hpp", "loops/gpu-inl.hpp", "raider/gpu-inl.hpp"],
    "bs": ["bs/gpu_mesh-inl.hpp"],
    "latency": ["latency/gpu.cu"],
}


def source(family: str, kernels: dict[str, str]) -> str:
    """Return a program that consists of these kernels of a family."""
    uses = [f"  (void*)&grid<{kernel}>," for kernel in kernels.values()]
    files = FILES.get(family, [f"{family}/gpu-inl.hpp"])
    lines = [
        *(f'#include "families/{file}"' for file in files),
        "namespace memkern::gpu {",
        "void* kernels[] = {",
        *uses,
        "};",
        "}",
    ]
    return "\n".join(lines)


@pytest.fixture(scope="module", params=once_a_kind(["sm_90", "sm_80"]))
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Code:
    """The instructions of the kernels by default and with four vectors a thread, by name."""
    name = f"sass-{request.param}"
    code: Code = once(
        tmp_path_factory, name, lambda: compiled(request.param, tmp_path_factory.mktemp("sass"))
    )
    return code


def compiled(arch: str, folder: Path) -> Code:
    """Compile the kernels for an architecture, and return their instructions by name."""
    kernels: dict[str, dict[str, str]] = {
        "streaming": {MATVEC: MATVEC, STENCIL: STENCIL} | PEAKS,
        "spatter": dict(MOVES_ANY),
        "latency": {
            f"chase of {n}{l2}": f"Chase<{n}, (Through){number}>"
            for n in CHAINS
            for number, l2 in enumerate(("", " through L2"))
        },
        "bs": GATHERS | MESHES,
        "amo": {kernel: kernel for kernel in UPDATES},
    }
    for op, (_, arrays) in MAPS.items():
        kernels["streaming"][op] = f"Map<Packed<double>, {op}, {arrays}, 2>"
        kernels["streaming"][f"{op}4"] = f"Map<Packed<float>, {op}, {arrays}, 4>"
    for op, (_, arrays) in SUMS.items():
        kernels["streaming"][op] = f"Reduce<Packed<double>, {op}, {arrays}, {max(4 // arrays, 1)}>"
    for op, (read, by) in INDEXED.items():
        places = f"{by}, -1" if read == 1 else by
        accessor = f"Indexed<double, By<long, {places}> >"
        kernels["streaming"][f"{op} by index"] = f"Map<{accessor}, {op}, {read + 1}, 4>"
    for number, op in enumerate(MOVES):
        for variant, shared in (("", "false"), (" shared", "true")):
            move = f"Move<double, long, (SpatterOp){number}, 4, {shared}>"
            kernels["spatter"][f"{op}{variant}"] = move
    for word in ("unsigned int", "unsigned long"):
        kernels["latency"][f"banks of {word}"] = f"Banks<{word}>"
    by_name = {}
    for family, wanted in kernels.items():
        code = sass.compiled(source(family, wanted), folder, arch)
        short = {
            re.sub(r"memkern::(gpu::)?(\(anonymous namespace\)::)?", "", name): instructions
            for name, instructions in code.items()
        }
        for name, kernel in wanted.items():
            (by_name[name],) = (c for known, c in short.items() if f"grid<{kernel} >" in known)
    return by_name


@pytest.mark.parametrize("op", [*MAPS, *SUMS])
def test_loads_are_issued_before_the_first_value_is_used(found, op):
    read, arrays = (MAPS | SUMS)[op]
    values = 2 if op in MAPS else max(4 // arrays, 1)
    assert sass.loads_in_flight(found[op]) >= read * values
    if op in MAPS:
        # With more than two arrays, two vectors of each array are loaded at a time.
        assert sass.loads_in_flight(found[f"{op}4"]) >= read * (2 if arrays > 2 else 4)


def test_indexed_kernels_load_four_elements_at_once(found):
    for op, (read, _) in INDEXED.items():
        assert sass.loads_in_flight(found[f"{op} by index"]) >= 4 * read, op
    for op in MOVES:
        assert sass.loads_in_flight(found[op]) >= 4, op
        shared = found[f"{op} shared"]
        assert sass.loads_in_flight(shared) >= 4, op
        # Indices are read from shared memory, and only there are they written to it.
        assert {"STS", "LDS"} <= {one.name for one in shared}, op


def test_rows_and_columns_of_a_block_are_loaded_at_once(found):
    # For each of eight columns, an element of the matrix and an element of the vector.
    assert sass.loads_in_flight(found[MATVEC]) >= 2 * 8
    # Six rows of one column, and four rows of each neighbouring column.
    assert sass.loads_in_flight(found[STENCIL]) >= 6 + 2 * 4


def test_entries_of_a_mesh_are_loaded_at_once(found):
    for kernel in GATHERS:
        code = found[kernel]
        staged = code[: [one.name for one in code].index("STS")]
        loads = [k for k, one in enumerate(staged) if one.name == "LDG"]
        # First the columns of two entries, then the values at these columns.
        assert sass.loads_in_flight(staged[loads[-4] : loads[-2]]) == 2, kernel
        assert sass.loads_in_flight(staged[loads[-2] :]) == 2, kernel
    # bs7 loads a node and its value; bs8 the nodes of a row as long as the unrolled loop.
    assert sum(one.name == "LDG" for one in found["bs7"]) == 2
    assert sass.loads_in_flight(found["bs8"]) >= 8


def test_as_many_loads_are_in_flight_as_there_are_chains(found):
    for chains in CHAINS:
        assert sass.loads_in_flight(found[f"chase of {chains}"]) == chains


def test_chases_go_through_all_caches_or_through_l2(found):
    for chains in CHAINS:
        for l2, wanted in (("", "ca"), (" through L2", "cg")):
            loads = [one for one in found[f"chase of {chains}{l2}"] if one.name == "LDG"]
            # The starts of the chains are read by ordinary loads.
            steps = Counter(one.caches for one in loads if one.caches)
            assert set(steps) == {wanted} and steps[wanted] >= chains


def test_a_word_is_updated_once_in_the_wanted_order(found):
    kinds = ("RED", "ATOMG", "CAS", "MEMBAR", "MATCH")  # followed by order and scope
    for kernel, wanted in UPDATES.items():
        counted = Counter(one.name for one in found[kernel] if one.name.startswith(kinds))
        # The lanes of a warp may be matched more than once.
        counted["MATCH"] = min(counted["MATCH"], 1)
        assert +counted == wanted, kernel


@pytest.mark.parametrize("op", SUMS)
def test_a_reduction_shuffles_and_counts_its_blocks_once(found, op):
    names = [one.name for one in found[op]]
    # Two words of a double in five steps, for warps and block, in every block and in the last one.
    assert names.count("SHFL") >= 2 * 5 * 4
    # The block's result is written before the count, and other blocks' results are read after it.
    kinds = ("RED", "ATOMG", "CAS", "MEMBAR", "CCTL")
    assert [name for name in names if name.startswith(kinds)] == ["MEMBAR.ALL.GPU", "ATOMG", "CCTL"]


def test_no_integer_is_divided_for_any_deltas(found, tmp_path):
    parts = {"MUFU", "I2F"}
    for name in MOVES_ANY:
        assert not [one for one in found[name] if one.name in {*parts, "CALL"}], name
    for kind in ("int", "long"):
        text = f"__global__ void divide({kind}* x, {kind} y) {{ *x /= y; }}"
        (division,) = sass.compiled(text, tmp_path).values()
        assert parts <= {one.name for one in division}


@pytest.mark.parametrize("fma", PEAKS)
def test_an_iteration_of_peakflops_is_one_multiplication_and_addition(found, fma):
    # The loop's longest part without a branch: eight sums, unrolled four times.
    parts = " ".join(one.name for one in found[fma] if one.name).split("BRA")
    counted = max((Counter(part.split()) for part in parts), key=lambda part: part[fma])
    assert counted == {fma: 4 * 8}


def test_loads_from_shared_memory_follow_each_other(found):
    for word in ("unsigned int", "unsigned long"):
        code = found[f"banks of {word}"]
        # Each load waits for the previous one, and the compiler removed none.
        assert sum(one.name == "LDS" for one in code) >= 1
        assert sum(one.name == "STS" for one in code) >= 1
        assert sass.loads_in_flight(code, "LDS") == 1


def test_no_variable_is_in_local_memory(found):
    for name, code in found.items():
        assert not [one for one in code if one.name in ("LDL", "STL")], name
