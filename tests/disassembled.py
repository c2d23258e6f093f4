"""Functions of the extension, disassembled."""

import platform

from memkern import _memkern
from memkern.machine import disassembly
from memkern.machine.disassembly import Instruction

X86 = platform.machine() in ("x86_64", "AMD64")


def functions(wanted: str = "") -> dict[str, list[Instruction]]:
    """Instructions of functions of the extension with these names, by the full name."""
    return disassembly.functions(_memkern.__file__, wanted)
