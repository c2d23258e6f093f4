"""The parts of the GPU kernels' machine code (SASS) that tests read.

Instructions have 128 bits since compute capability 7.0. Jia et al. 2018 (arXiv:1804.06826, section
2.1) found the bits of the opcode and of the control information: a load sets one of six barriers,
and the first instruction that uses its result waits for that barrier.
"""

import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

TREE = Path(__file__).parents[1]

_OPCODES = {0x981: "LDG", 0x381: "LDG", 0x986: "STG", 0x983: "LDL", 0x987: "STL"}
_OPCODES |= {0x984: "LDS", 0x388: "STS"}
# Found by compiling programs with only one of these instructions.
_OPCODES |= {0x98E: "RED", 0x9A8: "ATOMG", 0x3A9: "CAS", 0x992: "MEMBAR", 0x3A1: "MATCH"}
# Invalidation of L1, branches, and the parts of integer divisions.
_OPCODES |= {0x98F: "CCTL", 0x947: "BRA", 0x944: "CALL", 0x308: "MUFU"}
# The upper digit is the kind of operands: registers, constants or immediates.
_FLOATING = {0x20: "FMUL", 0x21: "FADD", 0x23: "FFMA", 0x28: "DMUL", 0x29: "DADD", 0x2B: "DFMA"}
_OPCODES |= {digit << 8 | low: _FLOATING[low] for digit in range(2, 0xE, 2) for low in _FLOATING}
_OPCODES |= {digit << 8 | 0x89: "SHFL" for digit in (3, 5, 9, 0xF)}
_OPCODES |= {digit << 8 | low: "I2F" for digit in (3, 0xB, 0xD) for low in (0x06, 0x12)}
_SCOPES = ("CTA", "SM", "GPU", "SYS")
# Also found by compiling.
_CACHES = {0xB: "ca", 0xF: "cg"}
_NO_BARRIER = 7


class Instruction(NamedTuple):
    """An instruction: its name if it is one of `_OPCODES`, and its barriers.

    Names of fences have order and scope: ``MEMBAR.ALL.GPU`` for acquire and release on the device.
    `sets` is the barrier that it sets when its result is available, `waits` the bit mask of the
    barriers that it waits for. `caches` is the cache operator of a load as in PTX: ``ca`` (all
    levels) or ``cg`` (L2 and beyond); '' without one.
    """

    name: str
    sets: int
    waits: int
    caches: str = ""


def nvcc() -> str:
    """Return the path of nvcc, from the folders that CMake also searches."""
    folders = [os.environ.get(name) for name in ("CUDA_PATH", "CUDA_HOME")] + ["/usr/local/cuda"]
    path = os.pathsep.join([os.environ["PATH"], *(f"{folder}/bin" for folder in folders if folder)])
    found = shutil.which("nvcc", path=path)
    assert found is not None, "nvcc comes with the CUDA Toolkit"
    return found


def compiled(source: str, folder: Path, arch: str = "sm_90") -> dict[str, list[Instruction]]:
    """Compile a source that includes headers of ``cpp``, and return its kernels' instructions.

    Keys are demangled names.
    """
    (folder / "kernels.cu").write_text(source)
    cubin = folder / "kernels.cubin"
    command = [nvcc(), "-std=c++17", "-O3", f"-arch={arch}", "-cubin", "-I", str(TREE / "cpp")]
    subprocess.run([*command, str(folder / "kernels.cu"), "-o", str(cubin)], check=True)
    return _kernels(cubin.read_bytes())


def loads_in_flight(code: list[Instruction], name: str = "LDG") -> int:
    """Return the largest number of loads that are issued before a result is used.

    `name` is the instruction: ``LDG`` for global memory, ``LDS`` for shared memory.
    """
    pending = [0] * 6
    most = 0
    for one in code:
        for barrier in range(6):
            if one.waits >> barrier & 1:
                pending[barrier] = 0
        if one.name == name and one.sets != _NO_BARRIER:
            pending[one.sets] += 1
            most = max(most, sum(pending))
    return most


def _kernels(elf: bytes) -> dict[str, list[Instruction]]:
    """Return the kernels of a cubin, an ELF file with a section for each kernel."""
    (start,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", elf, start + k * size) for k in range(count)]
    strings = sections[names][4]
    found = {}
    for name_at, _, _, _, at, length in sections:
        name = elf[strings + name_at : elf.index(b"\0", strings + name_at)].decode()
        if name.startswith(".text."):
            found[name.removeprefix(".text.")] = _instructions(elf[at : at + length])
    shown = subprocess.run(["c++filt"], input="\n".join(found), capture_output=True, text=True)
    return dict(zip(shown.stdout.split("\n"), found.values(), strict=False))


def _instructions(code: bytes) -> list[Instruction]:
    found = []
    for low, high in struct.iter_unpack("<QQ", code):
        name = _OPCODES.get(low & 0xFFF, "")
        if name == "MEMBAR":
            name += f".{'ALL' if high >> 15 & 1 else 'SC'}.{_SCOPES[high >> 12 & 3]}"
        caches = _CACHES.get(high >> 12 & 0xF, "") if name == "LDG" else ""
        found.append(Instruction(name, high >> 46 & 7, high >> 52 & 0x3F, caches))
    return found
