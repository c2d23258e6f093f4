"""Functions of the extension, disassembled."""

import platform
import re

from memkern import _memkern
from memkern.static import disassembly
from memkern.static.disassembly import Instruction

X86 = platform.machine() in ("x86_64", "AMD64")


def functions(wanted: str = "") -> dict[str, list[Instruction]]:
    """Instructions of functions of the extension with these names, by the full name."""
    return disassembly.functions(_memkern.__file__, wanted)


def instructions_of(text: str) -> dict[str, list[Instruction]]:
    """Instructions of each function in a listing by objdump, by its name."""
    return {name: disassembly._instructions(code) for name, _, code in disassembly._split(text)}


def moves_16_bytes(instruction: Instruction) -> bool:
    """Whether 16 bytes or more are loaded or stored, not copied between registers."""
    if instruction.is_aarch64:
        return instruction.accessed_B >= 16
    move = re.fullmatch(
        r"v?(mov[au]p[sd]|movdq[au](8|16|32|64)?|lddqu|movnt(dqa?|p[sd]))", instruction.mnemonic
    )
    return move is not None and "(" in instruction.operands and instruction.is_vector


def is_packed(instruction: Instruction) -> bool:
    """Whether the instruction works on several elements."""
    if re.search(r"%[yz]mm", instruction.operands) or moves_16_bytes(instruction):
        return True
    if instruction.is_aarch64:
        return re.search(r"(?<!\w)(z\d+|v\d+\.\d+[bhsd])", instruction.operands) is not None
    if not instruction.is_vector:
        return False
    name = instruction.mnemonic.removeprefix("v")
    # Copies between registers, and xor, which clears a register.
    if re.fullmatch(r"mov([au]p[sd]|dq[au]\d*|[dq]|s[sd])|p?xor(p[sd]|[dq])?", name):
        return False
    return re.match(r"p|unpck|shuf|insert|extract|blend|broadcast|perm", name) is not None or (
        re.search(r"p[sd]$", name) is not None
    )


def is_vex(instruction: Instruction) -> bool:
    """Whether it has the encoding of AVX and later."""
    return instruction.mnemonic.startswith("v") and instruction.mnemonic not in ("verr", "verw")
