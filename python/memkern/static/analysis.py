"""The main loops of compiled bodies, and static analysis of them.

The main loop of a body is found in the machine code of the extension. It is given to llvm-mca and
OSACA, which are separate programs and optional, its instructions are counted by their throughput in
a machine file, and its loads and stores are compared with those of the kernel's definition.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from memkern.errors import InputError
from memkern.extension import _memkern
from memkern.models.machine_file import MachineFile
from memkern.models.overlap import Overlap
from memkern.spec.case import Case
from memkern.spec.kernel import Transfer
from memkern.static.disassembly import Instruction, function_at, main_loop

_ITERATIONS = 1000
_VERSIONS = range(30, 13, -1)
_OSACA_S = 20.0  # most seconds of OSACA for a loop
# Assumed bits of an SVE vector in machine code, whose length is unknown.
_SVE_BITS = 128
_NONE = Transfer(0.0, 0.0)


@dataclass(frozen=True)
class Body:
    """The main loop of a compiled body.

    Attributes
    ----------
    name : str
        Of the function.
    loop : tuple of Instruction
    units : float
        Units of work (see `measured_in_core`) that an iteration processes, by its accesses to
        memory.
    surplus : Transfer
        Bytes of a unit that the loop loads and stores beyond the kernel's definition: spilled
        registers, and values that are loaded again. Of kernels with indices, which may be loaded
        into any register, only accesses to the stack count.
    """

    name: str
    loop: tuple[Instruction, ...]
    units: float
    surplus: Transfer = _NONE


def main_loop_of(case: Case, obtained: Mapping[str, Any]) -> Body:
    """Return the main loop of the body that a case runs.

    Parameters
    ----------
    case : Case
    obtained : mapping
        Variant and instruction set that run (``variant`` and ``isa``), and the bytes of its vectors
        (``vector_B``), by default the bytes of the loop's longest accesses.

    Raises
    ------
    InputError
        There is no objdump, or no loop that accesses vectors.
    """
    wanted = (
        case.spec.name,
        obtained["variant"],
        obtained["isa"],
        case.dtype,
        case.index_dtype,
        case.knobs.unroll,
        case.template_variant,
    )
    offsets = dict(zip(_memkern.entries(), _memkern.body_offsets(), strict=True))
    name, code = function_at(_memkern.__file__, offsets.get(wanted, 0))
    moved = case.transfers(("L1", "memory"), [{"level": 1, "size_B": 2**40, "shared_by": 1}])["L1"]
    loop = main_loop(code, moved.store_B > 0 if case.spec.counts.elementwise else None)
    accessed_B = [instruction.accessed_B for instruction in loop if not instruction.on_stack]
    if not any(accessed_B):
        raise InputError(
            f"the machine code of {case.spec.name}, {obtained['variant']}/{obtained['isa']}, has "
            "no loop that accesses vectors"
        )
    width = case.spec.counts.width(case) * case.columns.get("pattern_length", 1)
    lanes = 1.0
    if case.spec.counts.elementwise:
        # The accesses of a vector of every stream equal the loads and stores of an element.
        lanes = (obtained.get("vector_B") or max(accessed_B)) / case.value_B
        units = sum(accessed_B) / lanes / (sum(moved) / width)
    else:
        units = _of_loop(loop, case)
    defined = Transfer(*(lanes * each_B / width for each_B in moved))
    return Body(name, tuple(loop), units, _surplus(loop, units, defined, case.traffic.index > 0))


def _surplus(
    loop: Sequence[Instruction], units: float, defined: Transfer, indexed: bool
) -> Transfer:
    """Return the bytes of a unit that a loop loads and stores beyond its definition."""
    if indexed:
        loop, defined = [i for i in loop if i.on_stack], _NONE
    load_B = sum(i.accessed_B for i in loop if not i.stores) / units - defined.load_B
    store_B = sum(i.accessed_B for i in loop if i.stores) / units - defined.store_B
    return Transfer(max(round(load_B, 6), 0.0), max(round(store_B, 6), 0.0))


def _of_loop(loop: Sequence[Instruction], case: Case) -> float:
    """Return the elements of a loop: each is multiplied once, or stored once if there is no sum."""
    if case.spec.counts.loop_width is not None:
        return case.spec.counts.loop_width(case)
    if case.spec.counts.flops:
        bits = [i.vector_bits or _SVE_BITS for i in loop if i.operation in ("fma", "mul")]
        return max(sum(bits) / 8 / case.value_B, 1.0)
    return max(sum(i.accessed_B for i in loop if i.stores) / case.value_B, 1.0)


def llvm_mca() -> str | None:
    """Return the path of llvm-mca, the newest one, or None if it is not installed."""
    names = ["llvm-mca", *(f"llvm-mca-{version}" for version in _VERSIONS)]
    return max([path for name in names if (path := shutil.which(name))], key=_version, default=None)


def _version(program: str) -> tuple[int, ...]:
    text = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    found = re.search(r"version (\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else (0,)


def assembly(loop: Sequence[Instruction]) -> str:
    """Return a loop as text for an assembler, with jumps to a label at its beginning."""
    lines = ["begin:"]
    for instruction in loop:
        operands = instruction.operands.strip()
        if instruction.target is not None:
            operands = re.sub(r"(0x)?[0-9a-f]+ <.*", "begin", operands)
        lines.append(f"\t{instruction.mnemonic} {operands}".rstrip())
    return "\n".join(lines) + "\n"


class Prediction(NamedTuple):
    """The cycles of a unit of work as a program predicts them, and those of each port of the core.

    The busiest port limits the loop if its cycles are nearly all; otherwise dependencies do, or the
    number of instructions in a cycle.
    """

    cycles: float = math.nan
    ports: Mapping[str, float] = {}

    @property
    def busiest(self) -> str:
        """The port with most cycles, empty if none is known."""
        return max(self.ports, key=lambda port: self.ports[port], default="")

    def per(self, units: float) -> Prediction:
        """Return the prediction of one of some units."""
        ports = {port: cycles / units for port, cycles in self.ports.items()}
        return Prediction(self.cycles / units, ports)


UNKNOWN = Prediction()


def mca(body: Body, cpu: str = "native") -> Prediction:
    """Return the cycles of a unit of work as llvm-mca predicts them, and the busiest port.

    Parameters
    ----------
    body : Body
    cpu : str
        Name of the processor in llvm-mca.

    Returns
    -------
    Prediction
        `UNKNOWN` if the program is not installed, or does not know an instruction.
    """
    program = llvm_mca()
    if program is None:
        return UNKNOWN
    done = subprocess.run(
        [program, f"-mcpu={cpu}", f"-iterations={_ITERATIONS}"],
        input=assembly(body.loop),
        capture_output=True,
        text=True,
    )
    found = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    if done.returncode or found is None:
        return UNKNOWN
    return Prediction(int(found[1]) / _ITERATIONS, _ports(done.stdout)).per(body.units)


def _ports(text: str) -> dict[str, float]:
    """Return the cycles of an iteration of each port in a report of llvm-mca.

    The list of resources names each number, of which a group of ports has several (``[12.0]``); the
    cycles are below these numbers.
    """
    names = dict(re.findall(r"^\[([\d.]+)\]\s+- (\S+)$", text, re.MULTILINE))
    numbers, _, rest = text.partition("Resource pressure per iteration:\n")[2].partition("\n")
    cycles = [float(word.replace("-", "0")) for word in rest.partition("\n")[0].split()]
    each = zip(re.findall(r"\[([\d.]+)\]", numbers), cycles, strict=False)
    # Of a group, each port has a number behind the point.
    return {names.get(n, n) + "".join(n.partition(".")[1:]): cycles for n, cycles in each}


def osaca() -> str | None:
    """Return the path of OSACA, or None if it is not installed."""
    return shutil.which("osaca")


# Pipelines of the A64FX by OSACA's numbers (Alappat et al. 2021, figure 1).
_A64FX = ("FLA", "PR", "FLB", "EXA", "EXB", "EAGA", "EAGB", "BR")


def by_osaca(body: Body, arch: str) -> Prediction:
    """Return the cycles of a unit of work as OSACA predicts them, and those of each port.

    The cycles are the maximum of the throughput (the busiest port of the iteration) and of the
    dependencies from one iteration to the next.

    Parameters
    ----------
    body : Body
    arch : str
        Name of the microarchitecture in OSACA, such as ``ZEN4`` or ``ICX``; empty for none.

    Returns
    -------
    Prediction
        `UNKNOWN` if the program is not installed or no microarchitecture is given, if it does not
        know an instruction, or if it takes too long, as for the thousand instructions of the domain
        wall.
    """
    program = osaca()
    if program is None or not arch:
        return UNKNOWN
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "loop.s"
        source.write_text(assembly(body.loop))
        command = [program, "--arch", arch, str(source)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, cwd=folder, timeout=_OSACA_S
            )
        except subprocess.TimeoutExpired:
            return UNKNOWN
    found = UNKNOWN if done.returncode else _of_osaca(done.stdout)
    if arch.upper() == "A64FX":
        names = {str(number): name for number, name in enumerate(_A64FX)}
        found = found._replace(ports={names.get(n, n): c for n, c in found.ports.items()})
    return found.per(body.units)


def _of_osaca(text: str) -> Prediction:
    """Return the prediction of an iteration in a report of OSACA, if it has a final analysis.

    The last line of the combined analysis has the cycles of each port that is used, below its name,
    of the critical path, and of the longest dependency from one iteration to the next.
    """
    combined = text.partition("Combined Analysis Report")[2].partition("Loop-Carried")[0]
    head = re.search(r"^.*\|\|  CP .*$", combined, re.MULTILINE)
    last = combined.rstrip().rpartition("\n")[2]
    numbers = [(m.end(), float(m[0])) for m in re.finditer(r"\d+\.\d+", last)]
    if head is None or len(numbers) < 3 or re.search(r"[^\d. ]", last):
        return UNKNOWN
    *ports, _, (_, carried) = numbers
    names = [(m.end(), m[0]) for m in re.finditer(r"\w+", head[0].partition("||")[0])]
    # A name ends at most as far to the right as its number, the next one further.
    cycles = dict.fromkeys((name for _, name in names), 0.0) | {
        min(names, key=lambda name: abs(name[0] + 1 - end))[1]: number for end, number in ports
    }
    return Prediction(max(carried, *cycles.values()), cycles)


def columns_of(
    body: Body | None, processor: tuple[str, str], machine: MachineFile | None
) -> dict[str, Any]:
    """Return the columns of a body by static analysis (see `memkern.studies.ecm`).

    Parameters
    ----------
    body : Body or None
        None if its main loop was not found: all columns are NaN.
    processor : tuple of str
        Its names in llvm-mca and in OSACA.
    machine : MachineFile or None
    """
    predicted = UNKNOWN if body is None else mca(body, processor[0])
    other = UNKNOWN if body is None else by_osaca(body, processor[1])
    surplus = Transfer(math.nan, math.nan) if body is None else body.surplus
    return {
        "llvm_mca_cycles": predicted.cycles,
        "llvm_mca_port": predicted.busiest,
        "llvm_mca_port_cycles": predicted.ports.get(predicted.busiest, math.nan),
        "llvm_mca_ports": json.dumps(predicted.ports) if predicted.ports else "",
        "osaca_cycles": other.cycles,
        "osaca_ports": json.dumps(other.ports) if other.ports else "",
        **terms(body, machine),
        "surplus_load_B": surplus.load_B,
        "surplus_store_B": surplus.store_B,
    }


def terms(body: Body | None, machine: MachineFile | None) -> dict[str, float]:
    """Return the separate cycles of a unit's arithmetic, loads and stores.

    They are sums of reciprocal throughputs in the table of instructions of a machine file, so
    instructions of one kind are assumed to share their ports.

    Parameters
    ----------
    body : Body or None
    machine : MachineFile or None

    Returns
    -------
    dict of str to float
        ``arithmetic_cycles``, which overlap with data transfers (T_OL), ``load_cycles``,
        ``store_cycles``, and ``transfer_cycles``, which do not (T_nOL): cycles of loads and stores
        by the file's hypothesis on L1; without a hypothesis they overlap. NaN without a body or a
        file, or if the file lacks an instruction.
    """
    names = ("arithmetic_cycles", "load_cycles", "store_cycles", "transfer_cycles")
    if body is None or machine is None:
        return dict.fromkeys(names, math.nan)
    found = dict.fromkeys(names, 0.0)

    def add(term: str, name: str, bits: int, count: float = 1.0) -> None:
        try:
            each = machine.instruction(name, bits).reciprocal_cycles.value
        except InputError:
            each = math.nan
        found[term] += count * each / body.units

    for instruction in body.loop:
        bits = instruction.vector_bits or machine.vector_bits
        if instruction.operation:
            add("arithmetic_cycles", instruction.operation, bits)
        if instruction.accessed_B and instruction.gathers:
            add("load_cycles", "gather, stride 1", bits)
        elif instruction.accessed_B:
            # One instruction may load or store several vectors.
            count = max(8 * instruction.accessed_B / bits, 1.0)
            way = "store" if instruction.stores else "load"
            add(f"{way}_cycles", way, bits, count)
    text = machine.ecm.overlap if machine.ecm else "max(L1 load, L1 store)"
    both = (found["load_cycles"], found["store_cycles"])
    return {**found, "transfer_cycles": Overlap.parse(text).cycles({"L1": both})}
