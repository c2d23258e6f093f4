"""Machine code of compiled functions and of their loops, by objdump."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections import defaultdict
from typing import NamedTuple

from memkern.errors import InputError

_WIDTHS = {"%zmm": 64, "%ymm": 32, "%xmm": 16}
# Bytes of AArch64's registers by their first letter. Those of SVE have no fixed length and count as
# its shortest.
_REGISTERS = {"z": 16, "v": 16, "q": 16, "d": 8, "s": 4}
_ELEMENTS = {"d": 8, "s": 4, "h": 2, "b": 1}
# A register of AArch64, not an address such as d0 <f+0x4>, whose name may contain anything.
_REGISTER = re.compile(r"(?<![\w%$])([zvqds])\d{1,2}(?!\w| <)")
# Address, mnemonic without prefixes, and operands of a line, up to the end of the line.
_LINE = re.compile(
    r"^\s+([0-9a-f]+):\t(?:(?:bnd|lock|notrack|rep\w*) )*(\S+)[^\S\n]*(.*)", re.MULTILINE
)
_COMMENT = re.compile(r"\s*(?:(?:^|\s)# |//)")
_JUMP = re.compile(r"j\w+|bc?(\.\w+)?|cbn?z|tbn?z")

# Operation of an instruction between vector registers, by the first matching expression.
_OPERATIONS = {
    "": r"v?mov|fmov|mov|movi|dup|v?p?xor|v?zero|eor|v?broadcast|prfm|ptrue|whilel",
    "fma": r"vf(n?m)(add|sub)|fn?m(la|ls|ad|sb)|fn?m(add|sub)",
    "mul": r"v?mul[ps][sd]|fmul",
    "divide": r"v?div[ps][sd]|fdiv",
    "permute": r"v?(p?shuf|perm|unpck|extract|insert)|tbl|zip|uzp|trn|rev|ext",
}


class Instruction(NamedTuple):
    """An instruction without prefixes: of x86 in AT&T's syntax, or of AArch64."""

    address: int
    mnemonic: str
    operands: str

    @property
    def is_aarch64(self) -> bool:
        """Whether it uses a vector register of AArch64."""
        return bool(self._aarch64_registers)

    @property
    def _aarch64_registers(self) -> list[str]:
        return _REGISTER.findall(re.sub(r" <.*", " <", self.operands))

    @property
    def is_vector(self) -> bool:
        """Whether it uses a vector register."""
        return re.search(r"%[xyz]mm", self.operands) is not None or self.is_aarch64

    @property
    def accessed_B(self) -> int:
        """Bytes that it loads into a vector register, uses from memory, or stores; 0 for others.

        Vectors of SVE count as 16 bytes.
        """
        if self.is_aarch64:
            return self._accessed_by_aarch64_B
        if not self.is_vector or "(" not in self.operands:
            return 0
        scalars = ((4, r"(ss|movd)$"), (8, r"(sd|movq)$"))
        sizes = (size for size, ending in scalars if re.search(ending, self.mnemonic))
        return next(sizes, 0) or self._width_B

    @property
    def _accessed_by_aarch64_B(self) -> int:
        accessed = re.match(r"(.*?)\[([xz]\d|sp)", self.operands)
        if accessed is None or not re.match(r"ld|st", self.mnemonic):
            return 0
        values = accessed[1]
        registers = _REGISTER.findall(values)
        # One element of a vector, or one for all its elements.
        lane = re.search(r"\.([bhsd])\}\[\d", values)
        if lane or re.match(r"ld\dr([bhwd]?)$", self.mnemonic):
            kind = lane or re.search(r"\.\d*([bhsd])", values)
            return _ELEMENTS[kind[1]] if kind else 0
        if several := re.match(r"\{v(\d+)\.\w+-v(\d+)\.", values):
            return _REGISTERS["v"] * ((int(several[2]) - int(several[1])) % 32 + 1)
        whole = 8 if re.search(r"v\d+\.(8b|4h|2s|1d)", values) else 16
        return sum(min(_REGISTERS[one], whole) for one in registers)

    @property
    def _width_B(self) -> int:
        return next(size for name, size in _WIDTHS.items() if name in self.operands)

    @property
    def stores(self) -> bool:
        """Whether it stores a vector register to memory."""
        if self.is_aarch64:
            return self.accessed_B > 0 and self.mnemonic.startswith("st")
        return self.accessed_B > 0 and self.operands.rstrip().endswith(")")

    @property
    def on_stack(self) -> bool:
        """Whether it accesses a vector on the stack, below the frame pointer where there is one."""
        address = r"%rsp|\bsp\b|-0x[0-9a-f]+\(%rbp\)"
        return self.accessed_B > 0 and re.search(address, self.operands) is not None

    @property
    def gathers(self) -> bool:
        """Whether it loads from the addresses in a vector."""
        return "gather" in self.mnemonic or re.search(r"\[x\d+, z", self.operands) is not None

    @property
    def operation(self) -> str:
        """Operation on vectors: ``fma``, ``mul``, ``divide``, ``permute`` or ``add``.

        Empty for moves, for accesses to memory without arithmetic, and without vectors. All other
        instructions on vectors, such as comparisons, are called ``add``.
        """
        if not self.is_vector or self.gathers or re.match(r"(ld|st)\w*$", self.mnemonic):
            return ""
        return next(
            (name for name, words in _OPERATIONS.items() if re.match(words, self.mnemonic)), "add"
        )

    @property
    def vector_bits(self) -> int | None:
        """Bits of its vectors, 64 for a single value; None without vectors or without a length."""
        if self.is_aarch64:
            kinds = set(self._aarch64_registers)
            if "z" in kinds:
                return None
            return 128 if kinds & {"v", "q"} else 64
        if not self.is_vector:
            return None
        return 64 if re.search(r"(s[sd]|movd|movq)$", self.mnemonic) else 8 * self._width_B

    @property
    def target(self) -> int | None:
        """Address to which it jumps; None for other instructions."""
        return self._address if _JUMP.fullmatch(self.mnemonic) else None

    @property
    def called(self) -> int | None:
        """Address of the function that it calls; None for other instructions."""
        return self._address if self.mnemonic in ("call", "callq", "bl") else None

    @property
    def _address(self) -> int | None:
        found = re.search(r"(?:^|, )(?:0x)?([0-9a-f]+) <", self.operands)
        return int(found[1], 16) if found else None


def functions(path: str, wanted: str = "") -> dict[str, list[Instruction]]:
    """Return the instructions of each function of a file, by its full name.

    Functions of the same name in several translation units follow each other.

    Parameters
    ----------
    path : str
    wanted : str
        Regular expression that is in the names of the functions, by default of all.

    Raises
    ------
    InputError
        There is no objdump.
    """
    found: dict[str, list[Instruction]] = defaultdict(list)
    for name, _, text in _listings(path):
        if re.search(wanted, name):
            found[name] += _instructions(text)
    return found


def function_at(path: str, address: int) -> tuple[str, list[Instruction]]:
    """Return the name and the instructions of the function that begins at an address of a file.

    For a function that only calls another one, the instructions of the called function.

    Raises
    ------
    InputError
        There is no objdump, or no such function.
    """
    for name, begin, text in _listings(path):
        if begin == address:
            code = _instructions(text)
            called = {i.called for i in code} - {None}
            if len(called) == 1 and not any(i.target for i in code):
                return function_at(path, called.pop() or 0)
            return name, code
    raise InputError(f"no function of {path} begins at {address:#x}")


@functools.cache
def _listings(path: str) -> list[tuple[str, int, str]]:
    objdump = shutil.which("objdump")
    if objdump is None:
        raise InputError("machine code is read by objdump, which comes with binutils: install it")
    text = subprocess.run(
        [objdump, "-d", "-C", "--no-show-raw-insn", "-w", path],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return _split(text)


def _split(text: str) -> list[tuple[str, int, str]]:
    """Return the name, address and listing of each function in a listing by objdump.

    A file has a million instructions: only the requested functions are parsed.
    """
    headers = list(re.finditer(r"^([0-9a-f]+) <(.*)>:$", text, re.MULTILINE))
    ends = [*(header.start() for header in headers[1:]), len(text)]
    return [
        (header[2], int(header[1], 16), text[header.end() : end])
        for header, end in zip(headers, ends, strict=True)
    ]


@functools.cache
def _instructions(text: str) -> list[Instruction]:
    """Return the instructions of a function's listing."""
    found = []
    for address, mnemonic, operands in _LINE.findall(text):
        # Most lines have no comment, so lines are first tested for one.
        if "# " in operands or "//" in operands:
            operands = _COMMENT.split(operands, 1)[0]
        found.append(Instruction(int(address, 16), mnemonic, operands))
    return found


def innermost_loops(code: list[Instruction]) -> list[list[Instruction]]:
    """Return the loops of a function that contain no other one, each with its backward jump.

    A loop without vectors, such as one over the lines to prefetch, may be in another.

    Parameters
    ----------
    code : list of Instruction
        In the order of their addresses.
    """
    positions = {instruction.address: position for position, instruction in enumerate(code)}
    ends = [
        (positions[target], position)
        for position, instruction in enumerate(code)
        if (target := instruction.target) in positions and positions[target] <= position
    ]
    with_vectors = [(b, e) for b, e in ends if any(i.accessed_B for i in code[b : e + 1])]
    return [
        code[begin : end + 1]
        for begin, end in ends
        if not any(
            begin <= other[0] and other[1] <= end and other != (begin, end)
            for other in with_vectors
        )
    ]


def main_loop(code: list[Instruction], stores: bool | None = None) -> list[Instruction]:
    """Return the innermost loop with the most bytes of vector accesses; empty without a loop.

    Parameters
    ----------
    code : list of Instruction
        In the order of their addresses.
    stores : bool, optional
        Whether the loop stores vectors, if known: other loops are returned only if no loop matches.
    """
    loops = innermost_loops(code)
    alike = [loop for loop in loops if stores in (None, any(i.stores for i in loop))]
    return max(alike or loops, key=lambda loop: sum(i.accessed_B for i in loop), default=[])
