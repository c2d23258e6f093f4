"""Machine code of compiled functions and of their loops, by objdump."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections import defaultdict
from typing import NamedTuple

from memkern.errors import InputError

__all__ = ["Instruction", "function_at", "functions", "innermost_loops", "main_loop"]


_WIDTHS = {"%zmm": 64, "%ymm": 32, "%xmm": 16}


class Instruction(NamedTuple):
    """An instruction in AT&T's syntax, without prefixes."""

    address: int
    mnemonic: str
    operands: str

    @property
    def moves_16_bytes(self) -> bool:
        """Whether 16 bytes or more are loaded or stored, not copied between registers."""
        move = re.fullmatch(
            r"v?(mov[au]p[sd]|movdq[au](8|16|32|64)?|lddqu|movnt(dqa?|p[sd]))", self.mnemonic
        )
        return move is not None and "(" in self.operands and self.is_vector

    @property
    def is_vector(self) -> bool:
        """Whether it uses a vector register."""
        return re.search(r"%[xyz]mm", self.operands) is not None

    @property
    def is_packed(self) -> bool:
        """Whether the instruction works on several elements."""
        if re.search(r"%[yz]mm", self.operands) or self.moves_16_bytes:
            return True
        if not self.is_vector:
            return False
        name = self.mnemonic.removeprefix("v")
        # Copies between registers, and xor, which clears a register.
        if re.fullmatch(r"mov([au]p[sd]|dq[au]\d*|[dq]|s[sd])|p?xor(p[sd]|[dq])?", name):
            return False
        return re.match(r"p|unpck|shuf|insert|extract|blend|broadcast|perm", name) is not None or (
            re.search(r"p[sd]$", name) is not None
        )

    @property
    def is_vex(self) -> bool:
        """Whether it has the encoding of AVX and later."""
        return self.mnemonic.startswith("v") and self.mnemonic not in ("verr", "verw")

    @property
    def accessed_B(self) -> int:
        """Bytes that it loads into a vector register, uses from memory, or stores; 0 for others."""
        if not self.is_vector or "(" not in self.operands:
            return 0
        for size, ending in ((4, r"(ss|movd)$"), (8, r"(sd|movq)$")):
            if re.search(ending, self.mnemonic):
                return size
        return next(size for name, size in _WIDTHS.items() if name in self.operands)

    @property
    def target(self) -> int | None:
        """Address to which it jumps; None for other instructions."""
        found = re.match(r"([0-9a-f]+) <", self.operands)
        return int(found[1], 16) if self.mnemonic.startswith("j") and found else None


def functions(path: str) -> dict[str, list[Instruction]]:
    """Return the instructions of every function of a file, by its full name.

    Functions of the same name in several translation units follow each other.

    Raises
    ------
    InputError
        There is no objdump.
    """
    found: dict[str, list[Instruction]] = defaultdict(list)
    for name, code in _every_function(path):
        found[name] += code
    return found


def function_at(path: str, address: int) -> tuple[str, list[Instruction]]:
    """Return the name and the instructions of the function that begins at an address of a file.

    Raises
    ------
    InputError
        There is no objdump, or no such function.
    """
    for name, code in _every_function(path):
        if code and code[0].address == address:
            return name, code
    raise InputError(f"no function of {path} begins at {address:#x}")


@functools.cache
def _every_function(path: str) -> list[tuple[str, list[Instruction]]]:
    objdump = shutil.which("objdump")
    if objdump is None:
        raise InputError("machine code is read by objdump, which comes with binutils: install it")
    text = subprocess.run(
        [objdump, "-d", "-C", "--no-show-raw-insn", "-w", path],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found: list[tuple[str, list[Instruction]]] = []
    for line in text.splitlines():
        if header := re.fullmatch(r"[0-9a-f]+ <(.*)>:", line):
            found.append((header[1], []))
        elif found and (
            code := re.match(
                r"\s+([0-9a-f]+):\t(?:(?:bnd|lock|notrack|rep\w*) )*(\S+)\s*(.*)", line
            )
        ):
            found[-1][1].append(Instruction(int(code[1], 16), code[2], code[3].split("#")[0]))
    return found


def innermost_loops(code: list[Instruction]) -> list[list[Instruction]]:
    """Return the loops of a function that contain no other one, each with its backward jump.

    Parameters
    ----------
    code : list of Instruction
        In the order of their addresses.
    """
    places = {instruction.address: place for place, instruction in enumerate(code)}
    ends = [
        (places[target], place)
        for place, instruction in enumerate(code)
        if (target := instruction.target) in places and places[target] <= place
    ]
    return [
        code[begin : end + 1]
        for begin, end in ends
        if not any(
            begin <= other[0] and other[1] <= end and other != (begin, end) for other in ends
        )
    ]


def main_loop(code: list[Instruction]) -> list[Instruction]:
    """Return the innermost loop whose vectors access most bytes of memory; empty without a loop."""
    loops = innermost_loops(code)
    return max(loops, key=lambda loop: sum(i.accessed_B for i in loop), default=[])
